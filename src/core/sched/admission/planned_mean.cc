// What runs holds on average, as its job's plan expects it, the prompt and half of the answer. A start leaves room for
// what all that runs will grow by until then. Who holds more than its mean counts against that: where sequences of all
// ages run together, what some grow by is what others, which end, give back. So the KV memory is full and not outgrown;
// where it is, the preemption takes some back.
//
// A start also leaves a block for each that runs, which will want one soon: else what a long answer lets go the next
// short one takes at once, and loses it again. As prompt-fits for those that no plan has placed.
#include <algorithm>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class PlannedMean final : public Admission {
 public:
  explicit PlannedMean(const SchedulerLimits& limits)
      : keep_free_blocks_(KeepFreeBlocks(limits)), block_size_(limits.block_size) {}

  KvDemand Demand(const StepView& view, SlotId slot, int32_t) const override {
    if (view.step != step_ || view.now_ns != now_ns_) Begin(view);
    // Who was asked about before in this plan has started, or nobody behind it does.
    if (slot != last_) growth_ += last_growth_;
    last_ = slot;
    last_growth_ = std::max<int64_t>(0, GrowthOf(view, slot));
    const int64_t growth = std::max<int64_t>(0, growth_ + last_growth_);
    const auto running = static_cast<int64_t>(view.running.size());
    return {view.seq.known_committed[slot],
            std::max({keep_free_blocks_, running, (growth + block_size_ - 1) / block_size_})};
  }

 private:
  void Begin(const StepView& view) const {
    step_ = view.step;
    now_ns_ = view.now_ns;
    last_ = kNoSlot;
    growth_ = last_growth_ = 0;
    for (const SlotId slot : view.running) {
      if (view.seq.HoldsKv(slot)) growth_ += GrowthOf(view, slot);
    }
  }
  // Tokens from what it holds, or will begin with, to its mean.
  static int64_t GrowthOf(const StepView& view, SlotId slot) {
    const PlannedPlace& place = view.seq.planned[slot];
    if (place.position < 0) return 0;
    const int32_t longest = view.seq.prompt_tokens[slot] + view.seq.max_output_tokens[slot];
    return std::min(longest, place.kv_tokens) - view.seq.known_committed[slot];
  }

  const int64_t keep_free_blocks_;
  const int32_t block_size_;
  // Of the plan that is being made.
  mutable int64_t step_ = -1;
  mutable TimeNs now_ns_ = 0;
  mutable SlotId last_ = kNoSlot;
  mutable int64_t growth_ = 0, last_growth_ = 0;
};

}  // namespace

std::unique_ptr<Admission> MakePlannedMean(const SchedulerLimits& limits) {
  return std::make_unique<PlannedMean>(limits);
}

}  // namespace tactus::core
