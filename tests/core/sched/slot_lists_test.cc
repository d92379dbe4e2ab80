// The lists of orders with several queues.
#include "core/sched/index/slot_lists.h"

#include <gtest/gtest.h>

namespace tactus::core {
namespace {

std::vector<SlotId> Walk(const SlotLists& lists, int32_t list) {
  std::vector<SlotId> slots;
  for (SlotId s = lists.Head(list); s != kNoSlot; s = lists.Next(s)) slots.push_back(s);
  return slots;
}
using Slots = std::vector<SlotId>;

// Equal keys stay in order of insertion, also at the head.
TEST(SlotLists, EqualKeysStayInOrderOfInsertion) {
  SlotLists lists(8, 1);
  lists.InsertByKey(0, 3, 5);
  lists.InsertByKey(0, 1, 5);
  EXPECT_EQ(Walk(lists, 0), (Slots{3, 1}));
  lists.InsertByKey(0, 6, 7);
  lists.InsertByKey(0, 0, 5);
  lists.InsertByKey(0, 2, 4);
  lists.InsertByKey(0, 5, 4);
  EXPECT_EQ(Walk(lists, 0), (Slots{2, 5, 3, 1, 0, 6}));
}

TEST(SlotLists, RemovalKeepsTheRestInOrder) {
  SlotLists lists(8, 2);
  for (const SlotId s : {0, 1, 2, 3}) lists.InsertByKey(1, s, 10 * s);
  lists.InsertByKey(0, 7, 1);
  lists.Remove(0);
  lists.Remove(2);
  EXPECT_EQ(Walk(lists, 1), (Slots{1, 3}));
  lists.Remove(3);
  lists.InsertByKey(1, 4, 10);
  lists.InsertByKey(1, 5, 9);
  EXPECT_EQ(Walk(lists, 1), (Slots{5, 1, 4}));
  EXPECT_EQ(Walk(lists, 0), (Slots{7}));
  EXPECT_EQ(lists.ListOf(4), 1);
  EXPECT_EQ(lists.KeyOf(5), 9);
  EXPECT_EQ(lists.ListOf(2), -1) << "no longer in a list";
  lists.Clear();
  EXPECT_EQ(lists.Head(1), kNoSlot);
  EXPECT_EQ(lists.ListOf(4), -1);
}

}  // namespace
}  // namespace tactus::core
