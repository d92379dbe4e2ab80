// The waiting sequences in queue order, for whoever starts one after the other, or makes room for them. Most have not
// been looked at for long: while one starts, the memory of the next few is asked for.
//
// Mostly the queue's head does not fit, nor any behind it, so nothing is asked for before one did: the step has grown.
#pragma once

#include <array>

#include "core/sched/plan.h"
#include "core/sched/policy.h"

namespace tactus::core {

class Newcomers {
 public:
  // `begun`: a second one is asked for only where the first fits, though the step may not have grown by it.
  Newcomers(const StepView& view, Order* order, const PlanBuilder& plan, bool begun = false)
      : order_(*order), plan_(plan), items_(begun ? -1 : plan.num_items()), few_(view.waiting.size() <= kAhead) {
    order_.Start(view);
  }
  // kNoSlot: that was the last.
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
  const int32_t items_;              // of the step when the walk began; -1: they do not matter
  const bool few_;                   // too few wait for it to be worth the while
  bool first_ = true;                // it has not been given
  uint32_t given_ = 0, pulled_ = 0;  // after the first
  std::array<SlotId, kAhead> soon_{};
};

}  // namespace tactus::core
