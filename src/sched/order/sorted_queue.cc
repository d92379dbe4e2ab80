#include "sched/order/sorted_queue.h"

#include <algorithm>

#include "base/check.h"

namespace tactus::sched {

KeyedOrder::KeyedOrder(int32_t slot_capacity) {
  entries_.reserve(2 * static_cast<size_t>(slot_capacity));
  key_.resize(static_cast<size_t>(slot_capacity));
  queued_.resize(static_cast<size_t>(slot_capacity), false);
}

void KeyedOrder::Apply(const StepView& view) {
  for (const SequenceChange& change : view.changes) {
    switch (change.kind) {
      case ChangeKind::kQueued:
        // A slot that has moved on since (or been reused) is filed under its present key; the change that follows
        // takes it out again by that key.
        OnQueued(view, change.slot);
        Insert(KeyOf(view, change.slot), change.slot);
        break;
      case ChangeKind::kAdmitted:
        OnAdmitted(view, change.slot);
        Remove(change.slot);
        break;
      case ChangeKind::kUnqueued:
        Remove(change.slot);
        break;
      case ChangeKind::kFinished:
        break;
    }
  }
}

void KeyedOrder::Rebuild(const StepView& view) {
  for (const SequenceChange& change : view.changes) {
    if (change.kind == ChangeKind::kQueued) OnQueued(view, change.slot);
    if (change.kind == ChangeKind::kAdmitted) OnAdmitted(view, change.slot);
  }
  entries_.clear();
  begin_ = cursor_ = 0;
  std::fill(queued_.begin(), queued_.end(), false);
  for (const SlotId slot : view.waiting) {
    key_[slot] = KeyOf(view, slot);
    queued_[slot] = true;
    entries_.push_back({key_[slot], slot});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
}

void KeyedOrder::Insert(const QueueKey& key, SlotId slot) {
  TACTUS_CHECK(!queued_[slot]);
  key_[slot] = key;
  queued_[slot] = true;
  if (begin_ > 0 && entries_.size() == entries_.capacity()) {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(begin_));
    begin_ = 0;
  }
  const auto first = entries_.begin() + static_cast<ptrdiff_t>(begin_);
  const auto at =
      std::upper_bound(first, entries_.end(), key, [](const QueueKey& k, const Entry& e) { return k < e.key; });
  if (at == first && begin_ > 0) {
    entries_[--begin_] = {key, slot};
  } else {
    entries_.insert(at, {key, slot});
  }
}

void KeyedOrder::Remove(SlotId slot) {
  TACTUS_CHECK(queued_[slot]);
  queued_[slot] = false;
  const auto first = entries_.begin() + static_cast<ptrdiff_t>(begin_);
  const auto at =
      std::lower_bound(first, entries_.end(), key_[slot], [](const Entry& e, const QueueKey& k) { return e.key < k; });
  // Equal keys only arise when a slot was reused within one batch of changes; both entries name the same slot then.
  TACTUS_CHECK(at != entries_.end() && at->slot == slot);
  if (at == first) {
    ++begin_;
    if (begin_ == entries_.size()) {
      entries_.clear();
      begin_ = 0;
    }
  } else {
    entries_.erase(at);
  }
}

}  // namespace tactus::sched
