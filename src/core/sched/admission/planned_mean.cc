// Running sequences hold their mean, as the job's plan expects it: the prompt and half of the answer. A start leaves
// room for the growth of all running sequences to their means. A sequence beyond its mean counts as negative growth:
// where sequences of all ages run together, some grow by what others free as they end. So the KV memory is full but
// rarely outgrown; if it is, preemption frees some.
//
// A start also leaves a block free per running sequence, which will need one soon: else the next short request takes at
// once what a long one frees, and loses it again. Requests without a place in a plan are admitted as by prompt-fits.
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
    // The sequence of the previous call in this plan has started; if not, no later one starts.
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
  // Tokens from its current length, or its length at the start, to its mean.
  static int64_t GrowthOf(const StepView& view, SlotId slot) {
    const PlannedPlace& place = view.seq.planned[slot];
    if (place.position < 0) return 0;
    const int32_t longest = view.seq.prompt_tokens[slot] + view.seq.max_output_tokens[slot];
    return std::min(longest, place.kv_tokens) - view.seq.known_committed[slot];
  }

  const int64_t keep_free_blocks_;
  const int32_t block_size_;
  // State of the current plan.
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
