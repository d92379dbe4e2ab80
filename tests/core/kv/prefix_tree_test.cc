// A lean prefix tree, whose table grows with use, against one that has its whole table from the start.
#include "core/kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"

namespace tactus::prefix_tree_test {
namespace {

TEST(PrefixTree, ALeanTreeGivesTheSameNodes) {
  constexpr int32_t kBlocks = 3000;  // the lean table grows several times
  core::PrefixTree lean(kBlocks, true), full(kBlocks);
  Rng rng(1);
  std::vector<Hash128> keys;
  uint64_t made = 0;
  for (int i = 0; i < 12000; ++i) {
    SCOPED_TRACE("operation " + std::to_string(i));
    // Few different low parts, so that probes run into each other.
    if (keys.size() < kBlocks && (keys.empty() || rng.UniformInt(0, 2) > 0)) {
      const Hash128 key{static_cast<uint64_t>(rng.UniformInt(0, 4000)) * 7, ++made};
      const auto a = lean.FindOrInsert(key, core::kNoNode, static_cast<BlockId>(i));
      const auto b = full.FindOrInsert(key, core::kNoNode, static_cast<BlockId>(i));
      ASSERT_TRUE(a.is_new && b.is_new);
      ASSERT_EQ(a.node, b.node) << "the lean tree hands out other nodes";
      keys.push_back(key);
    } else {
      const auto at = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(keys.size()) - 1));
      ASSERT_EQ(lean.Find(keys[at]), full.Find(keys[at])) << "a key is lost";
      lean.Erase(lean.Find(keys[at]));
      full.Erase(full.Find(keys[at]));
      ASSERT_EQ(lean.Find(keys[at]), core::kNoNode);
      keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(at));
    }
    ASSERT_EQ(lean.size(), static_cast<int32_t>(keys.size()));
  }
  for (const Hash128& key : keys) ASSERT_EQ(lean.Find(key), full.Find(key)) << "a key is lost";
}

}  // namespace
}  // namespace tactus::prefix_tree_test
