#include "kv/eviction_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <vector>

#include "base/rng.h"

namespace tactus {
namespace {

struct PlaceIn {
  std::vector<uint32_t>* places;
  uint32_t& operator()(BlockId b) const { return (*places)[static_cast<size_t>(b)]; }
};

TEST(EvictionOrder, AgreesWithAList) {
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
      } else {  // used again: a hole
        order.Remove(b);
        expected.erase(at);
      }
      ASSERT_EQ(order.size(), static_cast<int64_t>(expected.size()));
      ASSERT_EQ(order.Oldest(), expected.empty() ? kNoBlock : expected.front());
      const BlockId soon = order.Soon(8);
      ASSERT_TRUE(soon == kNoBlock || order.Has(soon));
      if (i % 64 != 0) continue;
      std::vector<BlockId> all;
      order.ForEach([&](BlockId block) { all.push_back(block); });
      ASSERT_TRUE(std::equal(all.begin(), all.end(), expected.begin(), expected.end()));
    }
  }
}

}  // namespace
}  // namespace tactus
