#include "core/sched/order/sorted_queue.h"

#include <algorithm>

#include "base/check.h"

namespace tactus::core {

KeyedOrder::KeyedOrder(int32_t slot_capacity) : entries_(slot_capacity) {
  key_.resize(static_cast<size_t>(slot_capacity));
  queued_.resize(static_cast<size_t>(slot_capacity), false);
}

void KeyedOrder::Apply(const StepView& view) {
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < view.changes.size(); ++i) {
    const SequenceChange& change = view.changes[i];
    if (i + kAhead < view.changes.size()) PrefetchFile(view, view.changes[i + kAhead].slot);
    switch (change.kind) {
      case ChangeKind::kQueued:
        // A slot that has changed again since (or been reused) is filed under its current key; the following change
        // removes it by that key.
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
  entries_.Clear();
  cursor_ = {};
  std::fill(queued_.begin(), queued_.end(), false);
  for (const SlotId slot : view.waiting) Insert(KeyOf(view, slot), slot);
}

void KeyedOrder::Insert(const QueueKey& key, SlotId slot) {
  TACTUS_CHECK(!queued_[slot]);
  key_[slot] = key;
  queued_[slot] = true;
  entries_.Insert({key, slot});
}

void KeyedOrder::Remove(SlotId slot) {
  TACTUS_CHECK(queued_[slot]);
  queued_[slot] = false;
  entries_.Remove({key_[slot], slot});
}

}  // namespace tactus::core
