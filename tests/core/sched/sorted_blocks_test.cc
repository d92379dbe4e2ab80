// The sorted index of the queues, against a sorted vector.
#include "core/sched/index/sorted_blocks.h"

#include <gtest/gtest.h>

#include <compare>
#include <random>
#include <vector>

namespace tactus::core {
namespace {

struct Entry {
  int64_t key = 0;
  int32_t id = 0;
  auto operator<=>(const Entry&) const = default;
};

std::vector<Entry> Walk(const SortedBlocks<Entry>& blocks) {
  std::vector<Entry> entries;
  SortedBlocks<Entry>::Cursor cursor;
  while (const Entry* entry = blocks.Next(&cursor)) entries.push_back(*entry);
  return entries;
}

std::vector<Entry> WalkBack(const SortedBlocks<Entry>& blocks) {
  std::vector<Entry> entries;
  SortedBlocks<Entry>::Cursor cursor = blocks.End();
  while (const Entry* entry = blocks.Previous(&cursor)) entries.push_back(*entry);
  return entries;
}

class Pair {
 public:
  explicit Pair(int32_t capacity) : blocks_(capacity) {}
  void Insert(Entry entry) {
    blocks_.Insert(entry);
    sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), entry), entry);
  }
  void RemoveAt(size_t place) {
    blocks_.Remove(sorted_[place]);
    sorted_.erase(sorted_.begin() + static_cast<ptrdiff_t>(place));
  }
  void Clear() {
    blocks_.Clear();
    sorted_.clear();
  }
  size_t size() const { return sorted_.size(); }
  void Compare(const std::string& when) const {
    ASSERT_EQ(Walk(blocks_), sorted_) << when;
    ASSERT_EQ(WalkBack(blocks_), std::vector<Entry>(sorted_.rbegin(), sorted_.rend())) << "backwards, " << when;
  }

 private:
  SortedBlocks<Entry> blocks_;
  std::vector<Entry> sorted_;
};

// As queues use it: random keys, few distinct keys, ever growing, ever falling; removed anywhere, at the head, at the
// tail.
TEST(SortedBlocks, MatchesASortedVector) {
  constexpr int32_t kCapacity = 3000;
  for (int keys = 0; keys < 4; ++keys) {
    for (int taken = 0; taken < 3; ++taken) {
      std::mt19937 random(static_cast<unsigned>(10 * keys + taken));
      Pair pair(kCapacity);
      int32_t id = 0;
      for (int round = 0; round < 12; ++round) {
        // Fills up to some size and drains down to another, so that blocks split and join at all fills.
        const size_t high = round % 4 == 3 ? kCapacity : random() % kCapacity, low = random() % (high + 1);
        while (pair.size() < high) {
          ++id;
          const int64_t key = keys == 0 ? random() % 100000 : keys == 1 ? random() % 5 : keys == 2 ? id : -id;
          ASSERT_NO_FATAL_FAILURE(pair.Insert({key, id}));
          if (random() % 4 == 0) pair.RemoveAt(random() % pair.size());
        }
        pair.Compare("filled");
        while (pair.size() > low) {
          pair.RemoveAt(taken == 0 ? random() % pair.size() : taken == 1 ? 0 : pair.size() - 1);
          if (random() % 512 == 0) pair.Compare("draining");
        }
        pair.Compare("drained");
        if (round == 6) pair.Clear();
      }
      while (pair.size() > 0) pair.RemoveAt(0);
      pair.Compare("empty");
      pair.Insert({7, 7});
      pair.Compare("one again");
      if (HasFatalFailure()) return;
    }
  }
}

// The least fill of neighbours: the maximum number of blocks can still hold the capacity.
TEST(SortedBlocks, HoldsItsCapacityHoweverSparseItsBlocksBecame) {
  constexpr int32_t kCapacity = 2048;
  Pair pair(kCapacity);
  for (int32_t i = 0; i < kCapacity; ++i) pair.Insert({100 * i, i});
  for (int round = 0; round < 30; ++round) {
    // Two of three are removed, then as many are inserted at one place.
    std::vector<Entry> gone;
    for (size_t i = pair.size(); i-- > 0;) {
      if (i % 3 != 0) pair.RemoveAt(i);
    }
    int32_t id = kCapacity * (round + 1);
    while (pair.size() < kCapacity) pair.Insert({(round * 7919) % 100000, ++id});
    pair.Compare("full");
    if (HasFatalFailure()) return;
  }
}

TEST(SortedBlocksDeath, RemoveOfAMissingEntryAborts) {
  SortedBlocks<Entry> blocks(8);
  blocks.Insert({1, 1});
  EXPECT_DEATH(blocks.Remove({1, 2}), "");
}

}  // namespace
}  // namespace tactus::core
