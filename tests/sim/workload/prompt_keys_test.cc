#include "sim/workload/prompt_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"

namespace tactus::sim {
namespace {

std::vector<Hash128> Keys(const WorkloadRequest& r, int32_t block_size = 16) {
  std::vector<Hash128> keys;
  AppendPromptKeys(r, static_cast<int32_t>(r.prompt_tokens), block_size, &keys);
  return keys;
}

size_t Shared(const std::vector<Hash128>& a, const std::vector<Hash128>& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

WorkloadRequest Prompt(int64_t index, int64_t tokens) {
  WorkloadRequest r;
  r.index = index;
  r.prompt_tokens = tokens;
  return r;
}

TEST(PromptKeys, RequestsShareNothingByDefault) {
  const auto a = Keys(Prompt(0, 100)), b = Keys(Prompt(1, 100));
  EXPECT_EQ(a.size(), 6u);
  EXPECT_EQ(Shared(a, b), 0u);
  EXPECT_EQ(Keys(Prompt(0, 100)), a);
}

TEST(PromptKeys, APrefixGroupSharesItsFullBlocksOnly) {
  WorkloadRequest a = Prompt(0, 100), b = Prompt(1, 100);
  a.prefix_id = b.prefix_id = 7;
  a.shared_tokens = b.shared_tokens = 40;  // 2 full blocks and a half
  EXPECT_EQ(Shared(Keys(a), Keys(b)), 2u);
  b.shared_tokens = 100;
  EXPECT_EQ(Shared(Keys(a), Keys(b)), 2u);
  b.prefix_id = 8;
  EXPECT_EQ(Shared(Keys(a), Keys(b)), 0u);
}

TEST(PromptKeys, HashIdsShareWholeIdsForAnyBlockSize) {
  WorkloadRequest a = Prompt(0, 1200), b = Prompt(1, 1500);
  a.block_ids = {5, 6, 9};
  b.block_ids = {5, 6, 10};
  EXPECT_EQ(Shared(Keys(a), Keys(b)), 1024u / 16);
  EXPECT_EQ(Shared(Keys(a, 24), Keys(b, 24)), 1024u / 24);  // a block that overlaps the third id is not shared
  b.block_ids = {5, 6, 9};
  EXPECT_EQ(Shared(Keys(a), Keys(b)), 1200u / 16);
}

// The next turn's prompt contains the previous answer: its blocks must have the keys that they had when they were
// generated.
TEST(PromptKeys, AConversationsNextTurnFindsGeneratedBlocks) {
  WorkloadRequest first = Prompt(0, 64), second = Prompt(1, 160);
  first.conversation = second.conversation = first.prefix_id = second.prefix_id = 3;
  second.turn = 1;
  std::vector<Hash128> kv = Keys(first);
  for (int64_t b = 4; b < 8; ++b) kv.push_back(OwnBlockKey(OwnerOf(first), b));  // 64 generated tokens
  EXPECT_EQ(Shared(kv, Keys(second)), 8u);
  WorkloadRequest other = second;
  other.conversation = other.prefix_id = 4;
  EXPECT_EQ(Shared(kv, Keys(other)), 0u);
}

TEST(PromptKeys, DifferentTextsHaveDifferentKeys) {
  std::vector<Hash128> all;
  for (int64_t id = 0; id < 300; ++id) {
    for (const bool conversation : {false, true}) {
      for (int64_t b = 0; b < 40; ++b) all.push_back(OwnBlockKey({conversation, id}, b));
    }
    WorkloadRequest r = Prompt(1000000, 640);
    r.prefix_id = id;
    r.shared_tokens = 640;
    const auto prefix = Keys(r);
    all.insert(all.end(), prefix.begin(), prefix.end());
    r = Prompt(1000001, 640);
    r.block_ids = {id * 2, id * 2 + 1};
    const auto ids = Keys(r);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

TEST(OwnerTable, AgreesWithAMap) {
  OwnerTable table;
  std::map<RequestHandle, int64_t> expected;
  Rng rng(5);
  RequestHandle next = 1;
  for (int i = 0; i < 50000; ++i) {
    if (expected.empty() || rng.Uniform() < 0.52) {
      table.Add(next, {false, static_cast<int64_t>(next * 3)});
      expected[next] = static_cast<int64_t>(next * 3);
      ++next;
    } else {
      auto it = expected.lower_bound(static_cast<RequestHandle>(rng.UniformInt(1, static_cast<int64_t>(next))));
      if (it == expected.end()) it = expected.begin();
      ASSERT_EQ(table.Find(it->first).id, it->second);
      table.Remove(it->first);
      expected.erase(it);
    }
  }
  table.Remove(next + 5);  // not in the table: no effect
  for (const auto& [handle, id] : expected) ASSERT_EQ(table.Find(handle).id, id);
}

}  // namespace
}  // namespace tactus::sim
