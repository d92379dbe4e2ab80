// The waiting sequences in queue order, for a composition that starts one after the other. Most have not been looked at
// for long: while one starts, the memory of the next few is asked for.
//
// Mostly the queue's head does not fit, nor any behind it, so nothing is asked for before the step has grown.
#pragma once

#include <array>

#include "sched/plan.h"
#include "sched/policy.h"

namespace tactus::sched {

class Newcomers {
 public:
  Newcomers(const StepView& view, Order* order, const PlanBuilder& plan)
      : order_(*order), plan_(plan), items_(plan.num_items()), few_(view.waiting.size() <= kAhead) {
    order_.Start(view);
  }
  // kNoSlot: that was the last.
  SlotId Next() {
    if (few_ || plan_.num_items() == items_) return order_.Next();
    if (pulled_ == 0) Pull();
    const SlotId next = soon_[given_ % kAhead];
    if (next == kNoSlot) return kNoSlot;
    ++given_;
    Pull();
    return next;
  }

 private:
  static constexpr uint32_t kAhead = PlanBuilder::kLooks;

  // Who is next but i has been looked at kAhead - i times.
  void Pull() {
    for (; pulled_ < given_ + kAhead; ++pulled_) {
      const SlotId last = pulled_ > given_ ? soon_[(pulled_ - 1) % kAhead] : kAnySlot;
      soon_[pulled_ % kAhead] = last != kNoSlot ? order_.Next() : kNoSlot;
    }
    for (uint32_t i = 0; i < kAhead; ++i) {
      const SlotId slot = soon_[(given_ + i) % kAhead];
      if (slot == kNoSlot) return;
      plan_.WillStart(slot, static_cast<int32_t>(kAhead - 1 - i));
    }
  }

  static constexpr SlotId kAnySlot = 0;
  Order& order_;
  const PlanBuilder& plan_;
  const int32_t items_;              // of the step when the walk began
  const bool few_;                   // too few wait for it to be worth the while
  uint32_t given_ = 0, pulled_ = 0;  // since it has grown
  std::array<SlotId, kAhead> soon_{};
};

}  // namespace tactus::sched
