#include "core/sched/order/promoting.h"

namespace tactus::core {

PromotingOrder::PromotingOrder(int32_t slot_capacity)
    : KeyedOrder(slot_capacity), waits_(slot_capacity), filed_(static_cast<size_t>(slot_capacity)) {
  reranked_.reserve(3 * static_cast<size_t>(slot_capacity));
}

void PromotingOrder::Apply(const StepView& view) {
  KeyedOrder::Apply(view);
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < view.changes.size(); ++i) {
    const SequenceChange& change = view.changes[i];
    if (i + kAhead < view.changes.size()) Prefetch(&filed_[static_cast<size_t>(view.changes[i + kAhead].slot)]);
    Wait& filed = filed_[static_cast<size_t>(change.slot)];
    if (change.kind == ChangeKind::kQueued) waits_.Insert(filed = WaitOf(view, change.slot));
    if (change.kind == ChangeKind::kAdmitted || change.kind == ChangeKind::kUnqueued) waits_.Remove(filed);
  }
}

void PromotingOrder::Rebuild(const StepView& view) {
  KeyedOrder::Rebuild(view);
  waits_.Clear();
  for (const SlotId slot : view.waiting) waits_.Insert(filed_[static_cast<size_t>(slot)] = WaitOf(view, slot));
}

void PromotingOrder::Start(const StepView& view) {
  KeyedOrder::Start(view);
  view_ = &view;
  promoted_ = {};
  all_promoted_seen_ = false;
}

SlotId PromotingOrder::Next() {
  if (!all_promoted_seen_) {
    const Wait* wait = waits_.Next(&promoted_);
    if (wait != nullptr && IsPromoted(*view_, wait->slot)) return wait->slot;
    all_promoted_seen_ = true;
  }
  SlotId slot = KeyedOrder::Next();
  while (slot != kNoSlot && IsPromoted(*view_, slot)) slot = KeyedOrder::Next();
  return slot;
}

}  // namespace tactus::core
