// AccelGen (section 4.4): a request takes KV chunk by chunk; the way out of a shortage is preemption. Ours: one that was
// preempted starts again only where everything that it has to recompute fits, so that recomputation is never lost halfway.
#include "sched/choices.h"

namespace tactus::sched {
namespace {

class MultiResource final : public Admission {
 public:
  explicit MultiResource(const SchedulerLimits& limits) : keep_free_(KeepFreeBlocks(limits)) {}
  void Describe(ChoiceTraits*) const override {}
  KvDemand Demand(const StepView& view, SlotId slot, int32_t first_chunk_end) const override {
    return {view.seq.preemptions[slot] > 0 ? view.seq.known_committed[slot] : first_chunk_end, keep_free_};
  }

 private:
  const int64_t keep_free_;
};

}  // namespace

std::unique_ptr<Admission> MakeMultiResource(const SchedulerLimits& limits) { return std::make_unique<MultiResource>(limits); }

}  // namespace tactus::sched
