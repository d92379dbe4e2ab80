// Reserves blocks for the whole prompt, including what a preempted sequence must recompute, even if it is computed in
// chunks: half-done prompts cannot deadlock. Output takes blocks as it grows.
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class PromptFits final : public Admission {
 public:
  explicit PromptFits(const SchedulerLimits& limits) : keep_free_(KeepFreeBlocks(limits)) {}
  KvDemand Demand(const StepView& view, SlotId slot, int32_t) const override {
    return {view.seq.known_committed[slot], keep_free_};
  }

 private:
  const int64_t keep_free_;
};

}  // namespace

std::unique_ptr<Admission> MakePromptFits(const SchedulerLimits& limits) {
  return std::make_unique<PromptFits>(limits);
}

}  // namespace tactus::core
