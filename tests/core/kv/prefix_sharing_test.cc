// Prefix sharing counts the prompt tokens that a sequence finds in the cache at its first start.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/kv/block_key.h"
#include "core/kv/kv_cache.h"

namespace tactus::prefix_sharing_test {
namespace {

constexpr Hash128 kSecret{3, 4};
constexpr int32_t kBlock = 4, kTokens = 9;  // two blocks can be shared

class PrefixSharing : public testing::Test {
 protected:
  void Bind(SlotId s, TokenId family) {
    std::vector<Hash128>& keys = keys_[static_cast<size_t>(s)];
    keys.clear();
    core::ExtendBlockKeys(kSecret, core::RootKey(kSecret, "m", "", ""), std::vector<TokenId>(kTokens, family), kBlock,
                          &keys);
    kv_.Bind(s, &keys);
  }
  // Computes the prompt. Returns the tokens found in the cache.
  int32_t Start(SlotId s) {
    plan_.Clear();
    plan_.step = ++step_;
    const core::KvStart start = kv_.Start(s, kTokens, kTokens, kTokens, kNoSlot, &plan_);
    EXPECT_TRUE(start.ok);
    kv_.MarkPending(s, kTokens, step_);
    kv_.StepEnded(step_, true, &recompute_);
    return start.matched_tokens;
  }

  core::KvCache kv_{{64, kBlock, 8, 8, true}};
  std::array<std::vector<Hash128>, 8> keys_;
  std::vector<SlotId> recompute_;
  StepPlan plan_;
  StepId step_ = -1;
};

TEST_F(PrefixSharing, CountsFirstStarts) {
  Bind(0, 1);
  Bind(1, 1);
  EXPECT_EQ(Start(0), 0);
  EXPECT_EQ(Start(1), 8);
  EXPECT_EQ(kv_.Stats().prefix_query_tokens, 18);
  EXPECT_EQ(kv_.Stats().prefix_hit_tokens, 8);
}

TEST_F(PrefixSharing, RestartAfterPreemptionDoesNotCount) {
  Bind(0, 1);
  EXPECT_EQ(Start(0), 0);
  kv_.Release(0, -1);
  EXPECT_EQ(Start(0), 8) << "its KV is still cached";
  EXPECT_EQ(kv_.Stats().prefix_hit_tokens, 0) << "it found its own KV";
  EXPECT_EQ(kv_.Stats().prefix_query_tokens, 9) << "a recompute is no query";
}

TEST_F(PrefixSharing, NextSequenceInTheSameSlotCounts) {
  Bind(0, 1);
  Start(0);
  kv_.Release(0, -1);
  kv_.Unbind(0);
  Bind(0, 1);
  EXPECT_EQ(Start(0), 8);
  EXPECT_EQ(kv_.Stats().prefix_hit_tokens, 8);
  EXPECT_EQ(kv_.Stats().prefix_query_tokens, 18);
}

}  // namespace
}  // namespace tactus::prefix_sharing_test
