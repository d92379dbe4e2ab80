#include "sched/order/promoting.h"

#include <algorithm>

namespace tactus::sched {

PromotingOrder::PromotingOrder(int32_t slot_capacity) : KeyedOrder(slot_capacity), waits_(slot_capacity, 1) {
  sorted_.reserve(static_cast<size_t>(slot_capacity));
}

void PromotingOrder::Apply(const StepView& view) {
  KeyedOrder::Apply(view);
  for (const SequenceChange& change : view.changes) {
    if (change.kind == ChangeKind::kQueued) FileWait(view, change.slot);
    if (change.kind == ChangeKind::kAdmitted || change.kind == ChangeKind::kUnqueued) waits_.Remove(change.slot);
  }
}

void PromotingOrder::Rebuild(const StepView& view) {
  KeyedOrder::Rebuild(view);
  waits_.Clear();
  sorted_.assign(view.waiting.begin(), view.waiting.end());
  std::sort(sorted_.begin(), sorted_.end(), [&](SlotId a, SlotId b) {
    const int64_t since_a = SinceOf(view, a), since_b = SinceOf(view, b);
    return since_a != since_b ? since_a < since_b : view.seq.arrival_order[a] < view.seq.arrival_order[b];
  });
  for (const SlotId slot : sorted_) FileWait(view, slot);
}

void PromotingOrder::Start(const StepView& view) {
  KeyedOrder::Start(view);
  view_ = &view;
  promoted_ = waits_.Head(0);
}

SlotId PromotingOrder::Next() {
  if (promoted_ != kNoSlot && IsPromoted(*view_, promoted_)) {
    const SlotId slot = promoted_;
    promoted_ = waits_.Next(slot);
    return slot;
  }
  promoted_ = kNoSlot;
  SlotId slot = KeyedOrder::Next();
  while (slot != kNoSlot && IsPromoted(*view_, slot)) slot = KeyedOrder::Next();
  return slot;
}

}  // namespace tactus::sched
