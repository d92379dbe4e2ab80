// What a sequence will hold on average over its life, as its job's plan expects it: the prompt and half of the answer.
// Where sequences of all ages run together they then fill the KV memory and do not outgrow it; where they happen to,
// the preemption takes some back. A start leaves a block for each that runs, which will want one soon: else what a
// long answer lets go the next short one takes at once, and loses it again. As prompt-fits for those that no plan has
// placed, or that have grown beyond it.
#include <algorithm>

#include "sched/choices.h"

namespace tactus::sched {
namespace {

class PlannedMean final : public Admission {
 public:
  explicit PlannedMean(const SchedulerLimits& limits) : keep_free_blocks_(KeepFreeBlocks(limits)) {}
  KvDemand Demand(const StepView& view, SlotId slot, int32_t) const override {
    const int32_t longest = view.seq.prompt_tokens[slot] + view.seq.max_output_tokens[slot];
    const int32_t known = view.seq.known_committed[slot];
    const int64_t free = std::max(keep_free_blocks_, static_cast<int64_t>(view.running.size()));
    return {std::max(known, std::min(longest, view.seq.planned[slot].kv_tokens)), free};
  }

 private:
  const int64_t keep_free_blocks_;
};

}  // namespace

std::unique_ptr<Admission> MakePlannedMean(const SchedulerLimits& limits) {
  return std::make_unique<PlannedMean>(limits);
}

}  // namespace tactus::sched
