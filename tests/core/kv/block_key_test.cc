#include "core/kv/block_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace tactus::core {
namespace {

constexpr Hash128 kSecret{1, 2};

TEST(BlockKey, RootsDifferInEveryField) {
  std::set<Hash128> roots;
  roots.insert(RootKey(kSecret, "m", "", ""));
  roots.insert(RootKey(kSecret, "m", "a", ""));
  roots.insert(RootKey(kSecret, "m", "", "a"));
  roots.insert(RootKey(kSecret, "ma", "", ""));  // field boundaries count
  roots.insert(RootKey(kSecret, "", "ma", ""));
  roots.insert(RootKey(Hash128{1, 3}, "m", "", ""));
  EXPECT_EQ(roots.size(), 6u);
}

TEST(BlockKey, KeysDependOnAllTokensBefore) {
  const Hash128 root = RootKey(kSecret, "m", "", "");
  std::vector<TokenId> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<Hash128> keys;
  ExtendBlockKeys(kSecret, root, tokens, 16, &keys);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0], BlockKey(kSecret, root, std::span(tokens).subspan(0, 16)));
  EXPECT_EQ(keys[1], BlockKey(kSecret, keys[0], std::span(tokens).subspan(16, 16)));
  // Growing token by token gives the same keys as all at once.
  std::vector<Hash128> grown;
  for (size_t n = 0; n <= tokens.size(); ++n) ExtendBlockKeys(kSecret, root, std::span(tokens).first(n), 16, &grown);
  EXPECT_EQ(grown, keys);
}

TEST(BlockKey, SameTokensAtAnotherPositionHaveAnotherKey) {
  const Hash128 root = RootKey(kSecret, "m", "", "");
  const std::vector<TokenId> same(32, 7);
  std::vector<Hash128> keys;
  ExtendBlockKeys(kSecret, root, same, 16, &keys);
  EXPECT_NE(keys[0], keys[1]);
}

TEST(BlockKey, LongBlocksHashAllTheirTokens) {
  const Hash128 root = RootKey(kSecret, "m", "", "");
  std::vector<TokenId> tokens(300, 1);
  const Hash128 before = BlockKey(kSecret, root, tokens);
  tokens.back() = 2;
  EXPECT_NE(BlockKey(kSecret, root, tokens), before);
}

}  // namespace
}  // namespace tactus::core
