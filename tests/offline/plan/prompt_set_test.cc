// The prompts as stored by the planner: keys that determine shared prefixes, within a limit of bytes.
#include "offline/plan/prompt_set.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/kv/block_key.h"
#include "offline/plan/jobs.h"

namespace tactus {
namespace {

using offline::PlannerMemory;
using offline::PromptSet;
using offline::RequestTraits;
using testing::Job;
using testing::RandomJob;
using testing::SetOf;
using testing::SharedTokens;

TEST(PromptSet, KeysDetermineWhatABlockCacheCanShare) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Job job = RandomJob(seed, 40);
    const PromptSet prompts = SetOf(job, 4);
    for (int32_t a = 0; a < prompts.size(); ++a) {
      for (int32_t b = 0; b < prompts.size(); ++b) {
        if (a == b) continue;
        const int32_t shared = SharedTokens(job[static_cast<size_t>(a)], job[static_cast<size_t>(b)], 4);
        ASSERT_EQ(prompts.SharedKeys(a, b), shared < 0 ? -1 : shared / 4)
            << "seed " << seed << ", prompts " << a << " and " << b;
        ASSERT_NE(prompts.SortsBefore(a, b), prompts.SortsBefore(b, a)) << a << " and " << b;
      }
    }
  }
}

// The last prompt token is always computed: a prompt of exactly one block shares nothing with itself.
TEST(PromptSet, TheLastTokenIsNeverShared) {
  PromptSet prompts(0, 4);
  const std::vector<TokenId> four{1, 2, 3, 4}, five{1, 2, 3, 4, 5};
  for (const auto& p : {four, four, five, five}) ASSERT_TRUE(prompts.Add(p, {}).ok());
  EXPECT_EQ(prompts.SharedKeys(0, 1), 0);
  EXPECT_EQ(prompts.SharedKeys(0, 2), 0);
  EXPECT_EQ(prompts.SharedKeys(2, 3), 1);
}

TEST(PromptSet, BlockKeysOfTheCacheGiveTheSameResult) {
  const Hash128 secret{1, 2};
  for (uint64_t seed = 1; seed < 9; seed += 3) {
    const Job job = RandomJob(seed, 30);
    const PromptSet by_tokens = SetOf(job, 4);
    PromptSet by_keys(0, 4);
    for (const auto& r : job) {
      std::vector<Hash128> keys;
      core::ExtendBlockKeys(secret, core::RootKey(secret, "m", "", ""), r.prompt, 4, &keys);
      ASSERT_TRUE(by_keys.AddKeys(keys, static_cast<int32_t>(r.prompt.size()), r.traits).ok());
    }
    for (int32_t a = 0; a < 30; ++a) {
      for (int32_t b = 0; b < a; ++b) ASSERT_EQ(by_keys.SharedKeys(a, b), by_tokens.SharedKeys(a, b)) << a << " " << b;
    }
  }
}

// Coarsened keys equal those of a set with twice the distance from the beginning, for prompts added before and after.
TEST(PromptSet, CoarserKeysEqualThoseOfLargerBlocks) {
  const Job job = RandomJob(4, 60);
  PromptSet unlimited = SetOf(job, 4);
  const int64_t limit = unlimited.planner_bytes() - 1;
  for (const bool by_keys : {false, true}) {
    PromptSet limited(limit, 4);
    for (const auto& r : job) {
      std::vector<Hash128> keys;
      if (by_keys) core::ExtendBlockKeys({3, 4}, {5, 6}, r.prompt, 4, &keys);
      ASSERT_TRUE((by_keys ? limited.AddKeys(keys, static_cast<int32_t>(r.prompt.size()), r.traits)
                           : limited.Add(r.prompt, r.traits))
                      .ok());
      ASSERT_LE(limited.planner_bytes(), limit);
    }
    EXPECT_FALSE(unlimited.coarsened());
    EXPECT_TRUE(limited.coarsened()) << "a set that does not fit reports coarser keys";
    EXPECT_EQ(limited.key_tokens(), 8);
    EXPECT_EQ(limited.total_prompt_tokens(), unlimited.total_prompt_tokens());
    for (int32_t a = 0; a < 60; ++a) {
      for (int32_t b = 0; b < a; ++b) {
        const int32_t shared = SharedTokens(job[static_cast<size_t>(a)], job[static_cast<size_t>(b)], 8);
        ASSERT_EQ(limited.SharedKeys(a, b), shared < 0 ? -1 : shared / 8) << a << " and " << b << ", keys " << by_keys;
      }
    }
  }
}

TEST(PromptSet, ARequestThatDoesNotFitIsRefusedWithTheNumbers) {
  const int64_t limit = PlannerMemory(10, 0);
  PromptSet prompts(limit, 4);
  const std::vector<TokenId> prompt(1000, 7);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(prompts.Add(prompt, {}).ok()) << i;
  const Status full = prompts.Add(prompt, {});
  ASSERT_FALSE(full.ok()) << "an eleventh prompt does not fit " << limit << " bytes";
  EXPECT_EQ(full.code(), StatusCode::kTooLarge);
  EXPECT_EQ(full.param(), "planner-memory");
  EXPECT_NE(full.message().find(std::to_string(limit)), std::string::npos) << full.message();
  EXPECT_EQ(prompts.size(), 10);
  EXPECT_EQ(prompts.total_prompt_tokens(), 10'000);
  EXPECT_LE(prompts.planner_bytes(), limit);
}

TEST(PromptSet, DroppingKeysFreesTheirMemory) {
  PromptSet prompts(0, 4);
  const std::vector<TokenId> prompt(200'000, 7);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(prompts.Add(prompt, {}).ok());
  const int64_t with_keys = prompts.bytes();
  EXPECT_GE(with_keys, 10 * 49'999 * 8);
  prompts.DropKeys();
  EXPECT_LE(prompts.bytes(), with_keys - 10 * 49'999 * 8);
  EXPECT_EQ(prompts.prompt_tokens(9), 200'000);
}

TEST(PromptSet, InvalidRequestsAreRefusedByField) {
  PromptSet prompts;
  EXPECT_EQ(prompts.Add({}, {}).param(), "prompt");
  const std::vector<TokenId> prompt{1, 2};
  EXPECT_EQ(prompts.Add(prompt, {.max_output_tokens = 0}).param(), "max_tokens");
  EXPECT_EQ(prompts.AddKeys({}, 0, {}).param(), "prompt");
  EXPECT_EQ(prompts.size(), 0);
}

// A million prompts of a thousand tokens: 4 GB of tokens.
TEST(PromptSet, AMillionPromptsFitAGigabyte) {
  EXPECT_LT(PlannerMemory(1'000'000, 1'000'000'000), 800'000'000);
  EXPECT_LT(PlannerMemory(1'000'000, 1'000'000'000, 64), 500'000'000);
}

}  // namespace
}  // namespace tactus
