// The budget that keeps --tbt-slo step by step: hand-made steps, against sizes computed by hand from the model.
#include <gtest/gtest.h>

#include "core/sched/step_bed.h"

namespace tactus::testing {
namespace {

using core::SchedulerLimits;

// 1 ms + 0.1 ms per token + 10 us per context token of decodes and chunks.
class KnownSteps final : public StepTimeModel {
 public:
  DurationNs StepTimeNs(const StepShape& s) const override {
    ++asked;
    int64_t read = s.decode_context_tokens;
    for (const ChunkShape& c : s.chunks) read += c.context_tokens;
    return kMillisecond + 100 * kMicrosecond * s.tokens() + 10 * kMicrosecond * read + row_ns * s.logit_rows;
  }
  int32_t tile_tokens() const override { return tile; }
  int32_t tile = 1;
  DurationNs row_ns = 0;
  mutable int64_t asked = 0;
};

struct SizeOfStep : ::testing::Test {
  SizeOfStep() {
    config = PresetConfig("sarathi-serve");
    config.num_blocks = 2000;
    config.block_size = 16;
    config.max_model_len = 8192;
    limits().step_time = &model;
    limits().tbt_slo_ns = 50 * kMillisecond;
  }
  SchedulerLimits& limits() { return config.scheduler.limits; }

  KnownSteps model;
  HarnessConfig config;
};

// 1 + 1.01 ms of context leave 479.9 tokens of 0.1 ms in 50: 472, a multiple of 8, one of them the decode's.
TEST_F(SizeOfStep, KeepsTheObjectiveWithTheContextsOfTheStep) {
  StepBed bed(config);
  bed.Decoding(100, 1);
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+471");
  // The prompt's own context counts from then on: (50 - 1 - 1.02 - 4.71) / 0.1 = 432.7.
  EXPECT_EQ(bed.Plan(), "0:101+1* 1:471+431");
}

TEST_F(SizeOfStep, ShrinksAsContextsGrow) {
  std::vector<int32_t> chunks;
  for (const int32_t context : {1, 500, 1000, 2000, 4000}) {
    StepBed bed(config);
    bed.Decoding(context, 1);
    bed.Waiting(2000);
    bed.Plan();
    ASSERT_EQ(bed.planned().items.size(), 2u);
    chunks.push_back(bed.planned().items[1].count);
  }
  // 489.8, 439.9, 389.9, 289.9 and 89.9 tokens in all.
  EXPECT_EQ(chunks, (std::vector<int32_t>{487, 431, 383, 287, 87}));
}

// Each chunk lies behind its own context: 40 tokens behind 1,000 take 10 ms of reading, the next prompt starts at 0:
// (50 - 1 - 0.11 - 10) / 0.1 = 388.9.
TEST_F(SizeOfStep, SeveralPromptsLieBehindTheirOwnContexts) {
  StepBed bed(config);
  bed.Decoding(10, 1);
  bed.Prefilling(1040, 1000);
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(), "0:10+1* 1:1000+40* 2:0+343");
}

TEST_F(SizeOfStep, RowsOfLogitsTakeTheirTime) {
  model.row_ns = kMillisecond;
  StepBed bed(config);
  bed.Decoding(10, 1);
  bed.Prefilling(40, 20);  // ends in this step: a row
  bed.Waiting(2000);       // does not
  // (50 - 1 - 0.11 - 0.2 - 2) / 0.1 = 466.9
  EXPECT_EQ(bed.Plan(), "0:10+1* 1:20+20* 2:0+443");
}

// All of it together is within the objective: nothing is cut, not even to a tile.
TEST_F(SizeOfStep, PromptsThatFitAreNotCut) {
  StepBed bed(config);
  bed.Decoding(10, 1);
  bed.Waiting(101);
  bed.Waiting(202);
  EXPECT_EQ(bed.Plan(), "0:10+1* 1:0+101* 2:0+202*");
}

TEST_F(SizeOfStep, IsAMultipleOfTheTile) {
  model.tile = 128;
  StepBed bed(config);
  bed.Decoding(100, 1);
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+383");
}

// Decodes alone miss the objective: 1 + 0.1 + 60.01 ms. The prompt continues by 32 tokens, to a multiple of 8 with the
// decode, which bounds how long it can take.
TEST_F(SizeOfStep, APromptContinuesHoweverLongTheDecodesTake) {
  StepBed bed(config);
  bed.Decoding(6000, 1);
  bed.Waiting(200);
  EXPECT_EQ(bed.Plan(), "0:6000+1* 1:0+39");
  int32_t steps = 1;
  while (bed.table().columns().state[1] != core::SeqState::kDecode) {
    bed.Plan();
    ASSERT_LE(++steps, (200 + 31) / 32) << "more than 32 tokens a step were to be computed";
  }
}

TEST_F(SizeOfStep, AStepWithoutPromptsNeedsNoPrediction) {
  StepBed bed(config);
  bed.Decoding(6000, 1);
  bed.Decoding(10, 1);
  model.asked = 0;
  EXPECT_EQ(bed.Plan(), "0:6000+1* 1:10+1*");
  EXPECT_EQ(model.asked, 0);
}

// A decode in another step reads nothing in this one.
TEST_F(SizeOfStep, DecodesInFlightDoNotCount) {
  config.executor.max_in_flight = 2;
  StepBed bed(config);
  bed.Decoding(100, 1);
  bed.Fly(bed.Decoding(3000, 1));
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(), "0:100+1* 2:0+471");
}

// Two stages: 0.9 of the objective, (45 - 2.01) / 0.1 = 429.9; and half of the sequences are in another step: two of
// the four decodes are in this one.
TEST_F(SizeOfStep, PipelinesKeepHeadroomAndTakeTheirPartOfTheDecodes) {
  limits().pipeline_steps = 2;
  {
    StepBed bed(config);
    bed.Decoding(100, 1);
    bed.Waiting(2000);
    EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+423");
  }
  limits().tbt_slo_ns = kSecond;
  {
    StepBed bed(config);
    bed.Decoding(100, 1);
    bed.Waiting(2000);
    EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+1023") << "2,048 tokens in flight: longer steps leave stages idle";
  }
  limits().tbt_slo_ns = 50 * kMillisecond;
  *limits().policy.Find<double>("tbt-headroom") = 0.5;
  {
    StepBed bed(config);
    bed.Decoding(100, 1);
    bed.Waiting(2000);
    EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+223");  // (25 - 2.01) / 0.1 = 229.9
  }
  *limits().policy.Find<double>("tbt-headroom") = 1;
  config.max_num_seqs = 6;
  StepBed bed(config);
  for (int i = 0; i < 4; ++i) bed.Decoding(500, 1);
  bed.Waiting(2000);
  bed.Plan();
  // Three items in a step: (50 - 1 - 3 x 5.01) / 0.1 = 339.7, beside decodes that leave the prompt no item.
  EXPECT_EQ(bed.builder().budget_tokens(), 336);
}

TEST_F(SizeOfStep, WithoutAnObjectiveItIsThePresetsSize) {
  limits().tbt_slo_ns = 0;
  StepBed bed(config);
  bed.Decoding(6000, 1);
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(), "0:6000+1* 1:0+511");
  EXPECT_NE(bed.scheduler().Describe().find("512 tokens per step: no --tbt-slo"), std::string::npos);
}

TEST_F(SizeOfStep, WithoutStepTimesItIsThePresetsSize) {
  limits().step_time = nullptr;
  StepBed bed(config);
  bed.Decoding(100, 1);
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+511");
  EXPECT_EQ(bed.scheduler().max_step_tokens(), 2048) << "as with step times, which may come later";
}

// Memory is planned for the largest step: the same with an objective that every step keeps.
TEST_F(SizeOfStep, TheTokenBudgetIsTheMost) {
  limits().tbt_slo_ns = 1000 * kSecond;
  {
    StepBed bed(config);
    bed.Decoding(100, 1);
    bed.Waiting(8000);
    EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+2047");
    EXPECT_EQ(bed.scheduler().max_step_tokens(), 2048);
  }
  limits().token_budget = 300;
  StepBed bed(config);
  bed.Decoding(100, 1);
  bed.Waiting(8000);
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+299");
}

// The default objective: reading speed, 187.5 ms, but no more than the preset's 512 tokens, which take 53.3 ms here.
TEST_F(SizeOfStep, TheDefaultObjectiveIsReadingSpeed) {
  limits().tbt_slo_ns = kAutoDuration;
  {
    StepBed bed(config);
    bed.Decoding(100, 1);
    bed.Waiting(2000);
    EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+511");
  }
  // Behind 7,000 tokens of two prompts' decodes: (187.5 - 1 - 140.02) / 0.1 = 464.8.
  StepBed bed(config);
  for (int i = 0; i < 2; ++i) bed.Decoding(4500, 1);
  bed.Waiting(2000);
  // 1 + 0.2 + 90.02 ms for the decodes alone: twice that is 182.4, so 187.5: (187.5 - 1 - 90.02) / 0.1 = 964.8.
  EXPECT_EQ(bed.Plan(), "0:4500+1* 1:4500+1* 2:0+510");
}

// If decodes alone take more than half of it, the objective is twice their time: 1 + 0.4 + 4 x 40.01 = 161.44 ms; 161.4
// more, at most 512 tokens. Half the time is for prompts.
TEST_F(SizeOfStep, TheDefaultObjectiveFollowsSlowDecodes) {
  limits().tbt_slo_ns = kAutoDuration;
  limits().default_token_budget = 512;
  StepBed bed(config);
  for (int i = 0; i < 4; ++i) bed.Decoding(4000, 1);
  bed.Waiting(100);
  bed.Prefilling(8000, 7000);  // alone 70 ms of reading: (322.88 - 161.44 - 70) / 0.1 = 914
  EXPECT_EQ(bed.Plan(), "0:4000+1* 1:4000+1* 2:4000+1* 3:4000+1* 5:7000+508");
  limits().tbt_slo_ns = 187'500'000;  // a user's objective is not extended: below the least step
  StepBed strict(config);
  for (int i = 0; i < 4; ++i) strict.Decoding(4000, 1);
  strict.Waiting(100);
  strict.Prefilling(8000, 7000);
  EXPECT_EQ(strict.Plan(), "0:4000+1* 1:4000+1* 2:4000+1* 3:4000+1* 5:7000+36");
}

// A user's token budget overrides the default objective.
TEST_F(SizeOfStep, AGivenSizeGoesBeforeTheDefaultObjective) {
  limits().tbt_slo_ns = kAutoDuration;
  limits().token_budget = 1500;
  StepBed bed(config);
  bed.Decoding(6000, 1);
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(), "0:6000+1* 1:0+1499");
  EXPECT_NE(bed.scheduler().Describe().find("1500 tokens per step: --token-budget"), std::string::npos);
}

// At most 64 prompts of the queue are read; if there are more, the step is not taken to hold them all.
TEST_F(SizeOfStep, ManySmallPromptsFillTheStep) {
  limits().tbt_slo_ns = kSecond;
  config.max_num_seqs = 64;
  StepBed bed(config);
  for (int i = 0; i < 60; ++i) bed.Waiting(8);
  bed.Plan();
  EXPECT_EQ(bed.planned().num_tokens, 480);
}

// Another preset with this budget: its steps have the sizes that the budget computes.
TEST_F(SizeOfStep, OtherPresetsUseItByName) {
  config.scheduler.preset = "vllm";
  {
    StepBed bed(config);
    bed.Decoding(100, 1);
    bed.Waiting(2000);
    EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+511");
    EXPECT_NE(bed.scheduler().Describe().find("--budget tbt-slo would"), std::string::npos);
  }
  config.scheduler.budget = "tbt-slo";
  StepBed bed(config);
  bed.Decoding(100, 1);
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+471");
}

// Steps as small as the objective demands have no room for a whole prompt: it could wait forever.
TEST_F(SizeOfStep, WholePromptsAreRefused) {
  config.scheduler.preset = "orca";
  config.scheduler.budget = "tbt-slo";
  Harness h(config);
  EXPECT_EQ(h.scheduler_error().param(), "budget");
  EXPECT_NE(h.scheduler_error().message().find("allows 32 prompt tokens per step"), std::string::npos)
      << h.scheduler_error().message();
}

// 96 of the prompt's tokens are in the prefix cache: its chunk lies behind them, 0.96 ms.
TEST_F(SizeOfStep, ACachedPrefixIsAContext) {
  config.prefix_caching = true;
  config.block_size = 16;
  config.num_blocks = 200;
  config.max_model_len = 1024;
  limits().tbt_slo_ns = 10 * kMillisecond;  // (10 - 1) / 0.1 = 90 tokens
  const auto chunk_of = [&](int32_t shared) {
    Harness h(config);
    h.MustSubmit(MakeRequest(Tokens(1, 100), 1));
    EXPECT_EQ(h.Run(), "");
    std::vector<TokenId> prompt = Tokens(1, shared);
    const std::vector<TokenId> rest = Tokens(2, 500 - shared);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    const size_t before = h.plans().size();
    h.MustSubmit(MakeRequest(prompt, 1));
    EXPECT_EQ(h.Run(), "");
    return h.plans().at(before);
  };
  EXPECT_NE(chunk_of(0).find(":0+88"), std::string::npos) << chunk_of(0);
  EXPECT_NE(chunk_of(96).find(":96+80"), std::string::npos) << chunk_of(96);  // (10 - 1 - 0.96) / 0.1 = 80.4
}

TEST_F(SizeOfStep, ANegativeObjectiveIsRefused) {
  core::SchedulerConfig c;
  c.limits.max_model_len = 1024;
  c.limits.slot_capacity = 8;
  c.limits.blocks_total = 100;
  c.limits.tbt_slo_ns = -2;
  const auto made = core::Scheduler::Create(c);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().param(), "tbt-slo");
}

}  // namespace
}  // namespace tactus::testing
