// AccelGen (section 4.4): a request takes KV chunk by chunk; the way out of a shortage is preemption. Ours, so that
// preemptions stay rare: a start leaves free what the rest of its prompt will want, though it sets none of it aside,
// and a block for each running sequence, which will want one within a block's worth of steps; and one that was
// preempted has all that it must compute again set aside, so that recomputation is never lost halfway. A request that
// is urgent and not late yet starts without regard to what others will want. One that has missed its objective is the
// first to give its KV up, so it starts only where the running ones can go on for a while.
#include <algorithm>

#include "sched/choices.h"
#include "sched/slack.h"

namespace tactus::sched {
namespace {

// So far each running sequence can go on before what has missed its objective and starts now loses its KV again.
constexpr int64_t kAheadTokens = 256;

class MultiResource final : public Admission {
 public:
  explicit MultiResource(const SchedulerLimits& limits)
      : slack_(limits), keep_free_(KeepFreeBlocks(limits)), block_size_(limits.block_size) {}
  void Describe(ChoiceTraits*) const override {}
  KvDemand Demand(const StepView& view, SlotId slot, int32_t first_chunk_end) const override {
    const int32_t all = view.seq.known_committed[slot];
    const int64_t each = slack_.GivesWay(view, slot) ? (kAheadTokens + block_size_ - 1) / block_size_ : 1;
    const int64_t for_running = std::max(keep_free_, each * static_cast<int64_t>(view.running.size()));
    if (view.seq.preemptions[slot] > 0) return {all, for_running};
    const DurationNs slack_ns = slack_.SlackNs(view, slot);
    if (slack_ns >= 0 && slack_ns <= slack_.Window(view).longest_step_ns) return {first_chunk_end, keep_free_};
    return {first_chunk_end, for_running + (all - first_chunk_end + block_size_ - 1) / block_size_};
  }

 private:
  const SlackModel slack_;
  const int64_t keep_free_;
  const int32_t block_size_;
};

}  // namespace

std::unique_ptr<Admission> MakeMultiResource(const SchedulerLimits& limits) {
  return std::make_unique<MultiResource>(limits);
}

}  // namespace tactus::sched
