#include "sched/order/promoting.h"

#include <algorithm>

#include "base/check.h"

namespace tactus::sched {

PromotingOrder::PromotingOrder(int32_t slot_capacity) : KeyedOrder(slot_capacity) {
  waits_.reserve(2 * static_cast<size_t>(slot_capacity));
  filed_.resize(static_cast<size_t>(slot_capacity));
}

void PromotingOrder::Apply(const StepView& view) {
  KeyedOrder::Apply(view);
  for (const SequenceChange& change : view.changes) {
    if (change.kind == ChangeKind::kQueued) FileWait(WaitOf(view, change.slot));
    if (change.kind == ChangeKind::kAdmitted || change.kind == ChangeKind::kUnqueued) RemoveWait(change.slot);
  }
}

void PromotingOrder::Rebuild(const StepView& view) {
  KeyedOrder::Rebuild(view);
  waits_.clear();
  begin_ = 0;
  for (const SlotId slot : view.waiting) {
    filed_[static_cast<size_t>(slot)] = WaitOf(view, slot);
    waits_.push_back(filed_[static_cast<size_t>(slot)]);
  }
  std::sort(waits_.begin(), waits_.end());
}

void PromotingOrder::Start(const StepView& view) {
  KeyedOrder::Start(view);
  view_ = &view;
  promoted_ = begin_;
}

SlotId PromotingOrder::Next() {
  if (promoted_ < waits_.size()) {
    const SlotId slot = waits_[promoted_++].slot;
    if (IsPromoted(*view_, slot)) return slot;
    promoted_ = waits_.size();
  }
  SlotId slot = KeyedOrder::Next();
  while (slot != kNoSlot && IsPromoted(*view_, slot)) slot = KeyedOrder::Next();
  return slot;
}

void PromotingOrder::FileWait(const Wait& wait) {
  filed_[static_cast<size_t>(wait.slot)] = wait;
  if (begin_ > 0 && waits_.size() == waits_.capacity()) {
    waits_.erase(waits_.begin(), waits_.begin() + static_cast<ptrdiff_t>(begin_));
    begin_ = 0;
  }
  const auto first = waits_.begin() + static_cast<ptrdiff_t>(begin_);
  const auto at = std::upper_bound(first, waits_.end(), wait);
  if (at == first && begin_ > 0) {
    waits_[--begin_] = wait;
  } else {
    waits_.insert(at, wait);
  }
}

void PromotingOrder::RemoveWait(SlotId slot) {
  const auto first = waits_.begin() + static_cast<ptrdiff_t>(begin_);
  const auto at = std::lower_bound(first, waits_.end(), filed_[static_cast<size_t>(slot)]);
  TACTUS_CHECK(at != waits_.end() && at->slot == slot);
  if (at == first) {
    ++begin_;
  } else {
    waits_.erase(at);
  }
}

}  // namespace tactus::sched
