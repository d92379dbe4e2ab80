// Doubly linked lists over slots, each slot in at most one of them: the index of orders that keep several queues.
// Nothing allocates after construction; every operation is O(1) except the walk of InsertByKey, which starts at the
// right end for the usual cases (new sequences go last, returning ones first).
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace tactus::core {

class SlotLists {
 public:
  SlotLists(int32_t slot_capacity, int32_t lists)
      : nodes_(static_cast<size_t>(slot_capacity)), ends_(static_cast<size_t>(lists)) {}

  SlotId Head(int32_t list) const { return ends_[static_cast<size_t>(list)].head; }
  SlotId Next(SlotId slot) const { return nodes_[static_cast<size_t>(slot)].next; }
  int32_t ListOf(SlotId slot) const { return nodes_[static_cast<size_t>(slot)].list; }  // -1: in none
  int64_t KeyOf(SlotId slot) const { return nodes_[static_cast<size_t>(slot)].key; }

  void Clear() {
    for (Node& n : nodes_) n = Node();
    for (Ends& e : ends_) e = Ends();
  }

  // Inserts in ascending order of key; equal keys in order of insertion.
  void InsertByKey(int32_t list, SlotId slot, int64_t key) {
    Ends& ends = ends_[static_cast<size_t>(list)];
    SlotId before = ends.tail;
    if (ends.head != kNoSlot && KeyOf(ends.head) > key) {
      before = kNoSlot;
    } else {
      while (before != kNoSlot && KeyOf(before) > key) before = nodes_[static_cast<size_t>(before)].previous;
    }
    Node& node = nodes_[static_cast<size_t>(slot)];
    TACTUS_CHECK(node.list < 0);
    node = {before, before == kNoSlot ? ends.head : Next(before), list, key};
    (before == kNoSlot ? ends.head : nodes_[static_cast<size_t>(before)].next) = slot;
    (node.next == kNoSlot ? ends.tail : nodes_[static_cast<size_t>(node.next)].previous) = slot;
  }

  void Remove(SlotId slot) {
    Node& node = nodes_[static_cast<size_t>(slot)];
    TACTUS_CHECK(node.list >= 0);
    Ends& ends = ends_[static_cast<size_t>(node.list)];
    (node.previous == kNoSlot ? ends.head : nodes_[static_cast<size_t>(node.previous)].next) = node.next;
    (node.next == kNoSlot ? ends.tail : nodes_[static_cast<size_t>(node.next)].previous) = node.previous;
    node = Node();
  }

 private:
  struct Node {
    SlotId previous = kNoSlot, next = kNoSlot;
    int32_t list = -1;
    int64_t key = 0;
  };
  struct Ends {
    SlotId head = kNoSlot, tail = kNoSlot;
  };
  std::vector<Node> nodes_;  // [capacity]
  std::vector<Ends> ends_;   // [lists]
};

}  // namespace tactus::core
