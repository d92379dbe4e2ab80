#include "core/sched/order/bucketed.h"

#include <algorithm>

namespace tactus::core {

BucketedOrder::BucketedOrder(int32_t slot_capacity, int32_t buckets)
    : lists_(slot_capacity, buckets), place_(static_cast<size_t>(buckets), 0) {
  filled_.reserve(static_cast<size_t>(std::min(slot_capacity, buckets)));
}

void BucketedOrder::Apply(const StepView& view) {
  for (const SequenceChange& change : view.changes) {
    if (change.kind == ChangeKind::kQueued) {
      OnQueued(view, change.slot);
      Insert(view, change.slot);
    } else if (change.kind != ChangeKind::kFinished) {
      Remove(change.slot);
    }
  }
}

void BucketedOrder::Rebuild(const StepView& view) {
  for (const SequenceChange& change : view.changes) {
    if (change.kind == ChangeKind::kQueued) OnQueued(view, change.slot);
  }
  lists_.Clear();
  filled_.clear();
  std::vector<SlotId> slots(view.waiting.begin(), view.waiting.end());
  std::sort(slots.begin(), slots.end(), [&](SlotId a, SlotId b) { return KeyOf(view, a) < KeyOf(view, b); });
  for (const SlotId slot : slots) Insert(view, slot);
}

void BucketedOrder::Insert(const StepView& view, SlotId slot) {
  const int32_t bucket = BucketOf(view, slot);
  if (lists_.Head(bucket) == kNoSlot) {
    place_[static_cast<size_t>(bucket)] = static_cast<int32_t>(filled_.size());
    filled_.push_back(bucket);
  }
  lists_.InsertByKey(bucket, slot, KeyOf(view, slot));
}

void BucketedOrder::Remove(SlotId slot) {
  const int32_t bucket = lists_.ListOf(slot);
  lists_.Remove(slot);
  if (lists_.Head(bucket) != kNoSlot) return;
  const int32_t place = place_[static_cast<size_t>(bucket)], last = filled_.back();
  filled_[static_cast<size_t>(place)] = last;
  place_[static_cast<size_t>(last)] = place;
  filled_.pop_back();
}

}  // namespace tactus::core
