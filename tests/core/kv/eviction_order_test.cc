#include "core/kv/eviction_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <vector>

#include "base/rng.h"

namespace tactus::core {
namespace {

struct PlaceIn {
  std::vector<uint32_t>* places;
  uint32_t& operator()(BlockId b) const { return (*places)[static_cast<size_t>(b)]; }
};

TEST(EvictionOrder, MatchesReferenceList) {
  for (const int64_t blocks : {1, 2, 7, 40, 300}) {
    SCOPED_TRACE(std::to_string(blocks) + " blocks");
    using Order = EvictionOrder<PlaceIn>;
    std::vector<uint32_t> places(static_cast<size_t>(blocks), Order::kNowhere);
    Order order(blocks, PlaceIn{&places});
    std::list<BlockId> expected;
    Rng rng(static_cast<uint64_t>(blocks));
    for (int i = 0; i < 20000; ++i) {
      const auto b = static_cast<BlockId>(rng.UniformInt(0, blocks - 1));
      const auto at = std::find(expected.begin(), expected.end(), b);
      ASSERT_EQ(order.Has(b), at != expected.end());
      if (at == expected.end()) {
        order.Push(b);
        expected.push_back(b);
      } else if (rng.UniformInt(0, 3) == 0) {  // evicted
        order.Remove(order.Oldest());
        expected.pop_front();
      } else {  // used again: leaves a hole
        order.Remove(b);
        expected.erase(at);
      }
      ASSERT_EQ(order.size(), static_cast<int64_t>(expected.size()));
      ASSERT_EQ(order.Oldest(), expected.empty() ? kNoBlock : expected.front());
      if (i % 64 != 0) continue;
      std::vector<BlockId> all;
      order.ForEach([&](BlockId block) { all.push_back(block); });
      ASSERT_TRUE(std::equal(all.begin(), all.end(), expected.begin(), expected.end()));
    }
  }
}

// A walk after each change visits every block before it is the oldest, for any number of holes.
TEST(EvictionOrder, WalkAheadVisitsEveryOldestBlock) {
  using Order = EvictionOrder<PlaceIn>;
  constexpr int64_t kBlocks = 200;
  std::vector<uint32_t> places(kBlocks, Order::kNowhere);
  Order order(kBlocks, PlaceIn{&places});
  std::vector<bool> met(kBlocks, false);
  Order::Ahead ahead;
  Rng rng(5);
  for (int i = 0; i < 20000; ++i) {
    const auto b = static_cast<BlockId>(rng.UniformInt(0, kBlocks - 1));
    if (!order.Has(b)) {
      order.Push(b);
      met[static_cast<size_t>(b)] = false;
    } else if (rng.UniformInt(0, 1) == 0) {
      const BlockId oldest = order.Oldest();
      ASSERT_EQ(order.TakeOldest(), oldest);
      ASSERT_FALSE(order.Has(oldest));
    } else if (rng.UniformInt(0, 3) == 0) {  // many neighbours are used again: a run of holes
      for (BlockId n = b; n < std::min<BlockId>(b + 60, kBlocks); ++n) {
        if (order.Has(n)) order.Remove(n);
      }
    }
    const auto meet = [&](BlockId soon) {
      ASSERT_TRUE(order.Has(soon));
      met[static_cast<size_t>(soon)] = true;
    };
    order.WalkAhead(&ahead, 8, meet);
    if (const BlockId oldest = order.Oldest(); oldest != kNoBlock) {
      // Oldest() may have skipped holes since the walk.
      order.WalkAhead(&ahead, 8, meet);
      ASSERT_TRUE(met[static_cast<size_t>(oldest)]) << "the walk skipped block " << oldest;
    }
  }
}

}  // namespace
}  // namespace tactus::core
