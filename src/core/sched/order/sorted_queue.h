// An index of the waiting sequences for orders whose key does not change while a sequence waits.
#pragma once

#include <vector>

#include "base/prefetch.h"
#include "core/sched/index/sorted_blocks.h"
#include "core/sched/policy.h"

namespace tactus::core {

// Lower goes first; `arrival` is unique and makes the order total.
struct QueueKey {
  int64_t primary = 0;
  int64_t secondary = 0;
  int64_t arrival = 0;
  bool operator==(const QueueKey&) const = default;
  bool operator<(const QueueKey& other) const {
    if (primary != other.primary) return primary < other.primary;
    return secondary != other.secondary ? secondary < other.secondary : arrival < other.arrival;
  }
};

class KeyedOrder : public Order {
  struct Entry {
    QueueKey key;
    SlotId slot = kNoSlot;
    bool operator==(const Entry&) const = default;
    bool operator<(const Entry& other) const { return key < other.key; }
  };

 public:
  explicit KeyedOrder(int32_t slot_capacity);
  void Apply(const StepView& view) override;
  void Rebuild(const StepView& view) override;
  void Start(const StepView&) override { cursor_ = {}; }
  SlotId Next() override { return SlotOf(entries_.Next(&cursor_)); }
  bool Before(const StepView& view, SlotId a, SlotId b) const override { return KeyOf(view, a) < KeyOf(view, b); }

 protected:
  using Cursor = SortedBlocks<Entry>::Cursor;  // position in the queue, valid until the next change

  // Both ends of the queue, and the slot after or before a cursor; kNoSlot: there is none.
  static Cursor Front() { return {}; }
  Cursor Back() const { return entries_.End(); }
  SlotId Forward(Cursor* at) const { return SlotOf(entries_.Next(at)); }
  SlotId Backward(Cursor* at) const { return SlotOf(entries_.Previous(at)); }
  // The sequence has entered the queue / has started: updates the order's note from its current state. Called for every
  // such change, in order and before the sequence is filed; its state may have changed again since.
  virtual void OnQueued(const StepView&, SlotId) {}
  virtual void OnAdmitted(const StepView&, SlotId) {}
  // Must not change between kQueued and kAdmitted or kUnqueued of the sequence.
  virtual QueueKey KeyOf(const StepView& view, SlotId slot) const = 0;
  // Takes a waiting sequence out of the queue; files it.
  void Remove(SlotId slot);
  void Insert(const QueueKey& key, SlotId slot);
  // Files a waiting sequence under another key.
  template <class Change>
  void Refile(const StepView& view, SlotId slot, Change change) {
    Remove(slot);
    change();
    Insert(KeyOf(view, slot), slot);
  }

 private:
  static SlotId SlotOf(const Entry* entry) { return entry != nullptr ? entry->slot : kNoSlot; }
  // Prefetches what Insert and Remove of the slot will read.
  void PrefetchFile(const StepView& view, SlotId slot) const {
    Prefetch(&key_[static_cast<size_t>(slot)]);
    Prefetch(view.notes.bytes + static_cast<size_t>(slot) * view.notes.stride);
    Prefetch(&view.seq.arrival_order[slot]);
  }

  SortedBlocks<Entry> entries_;
  SortedBlocks<Entry>::Cursor cursor_;
  std::vector<QueueKey> key_;  // [capacity] key of a queued slot's entry
  std::vector<bool> queued_;   // [capacity]
};

}  // namespace tactus::core
