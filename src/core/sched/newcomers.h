// The waiting sequences in queue order, for code that starts them one by one or makes room for them. Most have not been
// read for long: while one starts, the memory of the next few is prefetched.
//
// Often the queue's head does not fit, and nothing starts. So nothing is prefetched before the first has started, which
// shows in the items of the step.
#pragma once

#include <array>

#include "core/sched/plan.h"
#include "core/sched/policy.h"

namespace tactus::core {

class Newcomers {
 public:
  // `begun`: Next is called again only if the first fits, although the step may not have grown by it.
  Newcomers(const StepView& view, Order* order, const PlanBuilder& plan, bool begun = false)
      : order_(*order), plan_(plan), items_(begun ? -1 : plan.num_items()), few_(view.waiting.size() <= kAhead) {
    order_.Start(view);
  }
  // kNoSlot: there are no more.
  SlotId Next() {
    if (few_ || first_ || plan_.num_items() == items_) {
      first_ = false;
      return order_.Next();
    }
    if (pulled_ == 0) Pull();
    const SlotId next = soon_[given_ % kAhead];
    if (next == kNoSlot) return kNoSlot;
    ++given_;
    Pull();
    return next;
  }

 private:
  static constexpr uint32_t kAhead = PlanBuilder::kLooks;

  // Prefetches the sequence at distance i with look kAhead - 1 - i.
  void Pull() {
    for (; pulled_ < given_ + kAhead; ++pulled_) {
      const SlotId last = pulled_ > given_ ? soon_[(pulled_ - 1) % kAhead] : kAnySlot;
      soon_[pulled_ % kAhead] = last != kNoSlot ? order_.Next() : kNoSlot;
    }
    for (uint32_t i = 0; i < kAhead; ++i) {
      const SlotId slot = soon_[(given_ + i) % kAhead];
      if (slot == kNoSlot) return;
      plan_.PrefetchStart(slot, static_cast<int32_t>(kAhead - 1 - i));
    }
  }

  static constexpr SlotId kAnySlot = 0;
  Order& order_;
  const PlanBuilder& plan_;
  const int32_t items_;              // of the step when the walk began; -1: ignored
  const bool few_;                   // too few wait for prefetching to pay
  bool first_ = true;                // the first has not been returned
  uint32_t given_ = 0, pulled_ = 0;  // counted after the first
  std::array<SlotId, kAhead> soon_{};
};

}  // namespace tactus::core
