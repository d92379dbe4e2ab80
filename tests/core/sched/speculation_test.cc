// How many drafts a step verifies: as many as pay by its predicted time, under any policies.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::HarnessConfig;
using testing::PresetConfig;
using testing::StepBed;

constexpr DraftChance kLikely = 204;  // 0.8

// A device that reads `memory_ns` of weights in every step and computes a token in `token_ns`, both at once.
struct Device final : StepTimeModel {
  DurationNs memory_ns = 0, token_ns = 0;
  Device(DurationNs memory, DurationNs token) : memory_ns(memory), token_ns(token) {}
  DurationNs StepTimeNs(const StepShape& s) const override { return std::max(memory_ns, token_ns * s.tokens()); }
};

HarnessConfig On(const StepTimeModel* device) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.num_blocks = 1000;
  c.max_num_seqs = 64;
  c.max_model_len = 1000;
  c.scheduler.limits.step_time = device;
  return c;
}

// Eight tokens cost as much as one: a single sequence verifies seven drafts; the next would cost time.
TEST(Speculation, AMemoryBoundStepTakesTheFreeDrafts) {
  const Device device(8000, 1000);
  StepBed bed(On(&device));
  bed.Draft(bed.Decoding(4, 2), 20, kLikely);
  EXPECT_EQ(bed.Plan(), "0:5+8d7*");
}

// Eight sequences fill the time of the weights: their drafts would cost at least their worth.
TEST(Speculation, AComputeBoundStepTakesNoDrafts) {
  const Device device(8000, 1000);
  StepBed bed(On(&device));
  for (int i = 0; i < 8; ++i) bed.Draft(bed.Decoding(4, 2), 3, kLikely);
  bed.Plan();
  EXPECT_EQ(bed.planned().draft_tokens, 0);
}

// Drafts that no step would take need not be made: the plan states the least chance. Four together may pay where one
// alone does not, and a step of few tokens tries some whatever is predicted.
TEST(Speculation, APlanStatesTheLeastChanceOfADraft) {
  struct Tiles final : StepTimeModel {  // of four tokens
    DurationNs StepTimeNs(const StepShape& s) const override { return 1000 + 100 * ((s.tokens() + 3) / 4); }
  };
  const Device device(8000, 1000), busy(0, 1000);
  const Tiles tiles;
  const struct {
    const StepTimeModel* device;
    int decodes;
    double least;
  } cases[] = {
      {&device, 7, 0},      // an eighth token is free
      {&device, 8, 1.5},    // 8 tokens in 8 us; one more takes 1 us, counted as 1.5
      {&device, 12, 1.5},   // likewise in 12 us
      {&tiles, 8, 0.5188},  // 100 ns more than 1,200 ns for four drafts: together they must be worth one token
      {nullptr, 12, 0},    {&busy, 4, 0},
  };
  for (const auto& c : cases) {
    StepBed bed(On(c.device));
    for (int i = 0; i < c.decodes; ++i) bed.Draft(bed.Decoding(4, 2), 0, kLikely);
    bed.Plan();
    EXPECT_NEAR(bed.planned().least_chance, c.least, 1e-3) << c.decodes << " decodes";
  }
  StepBed bed(On(&device));
  for (int i = 0; i < 12; ++i) bed.Draft(bed.Decoding(4, 2), 0, kLikely);
  bed.OnlyCertainDrafts();
  bed.Plan();
  EXPECT_EQ(bed.planned().least_chance, 0) << "it is not computed";
}

// In between, the most likely drafts are taken first, from any sequence.
TEST(Speculation, FreeDraftsGoToTheMostLikely) {
  const Device device(8000, 1000);
  StepBed bed(On(&device));
  bed.Draft(bed.Decoding(4, 2), 8, 77);  // 0.3
  bed.Draft(bed.Decoding(4, 2), 8, 250);
  EXPECT_EQ(bed.Plan(), "0:5+1* 1:5+7d6*");
}

// A prompt beside them makes the step compute-bound: no drafts.
TEST(Speculation, BesideAPromptDraftsAreTakenOnlyIfFree) {
  const Device device(8000, 1000);
  StepBed bed(On(&device));
  bed.Draft(bed.Decoding(4, 2), 5, kLikely);
  bed.Waiting(30);
  EXPECT_EQ(bed.Plan(), "0:5+1* 1:0+30*");
  StepBed small(On(&device));
  small.Draft(small.Decoding(4, 2), 5, kLikely);
  small.Waiting(2);
  EXPECT_EQ(small.Plan(), "0:5+6d5* 1:0+2*");
}

// Certain drafts of a grammar have to be computed, now or later.
TEST(Speculation, CertainDraftsAreAlwaysTaken) {
  const Device device(1, 1000);
  StepBed bed(On(&device));
  bed.Draft(bed.Decoding(4, 2), 5, kSureDraft);
  bed.Draft(bed.Decoding(4, 2), 5, kSureDraft - 1);
  EXPECT_EQ(bed.Plan(), "0:5+6d5* 1:5+1*");
}

// Unlikely drafts pay where they cost nothing, and only there.
TEST(Speculation, AnUnlikelyDraftIsTakenOnlyIfFree) {
  const Device free(1'000'000, 1), dear(1, 1000);
  for (const auto& [device, taken] : {std::pair(&free, true), std::pair(&dear, false)}) {
    StepBed bed(On(device));
    bed.Draft(bed.Decoding(4, 2), 1, 40);
    bed.Plan();
    EXPECT_EQ(bed.planned().draft_tokens, taken ? 1 : 0);
  }
}

// The model predicts that drafts are free, and they are not: soon none is taken, and much later one is tried again. If
// it is right, all but a few steps take them.
TEST(Speculation, AModelThatUnderestimatesDraftsIsCorrected) {
  const Device device(8000, 1);
  for (const DurationNs guess_ns : {20000, 1}) {
    StepBed bed(On(&device));
    bed.Draft(bed.Decoding(4, 2, {.max_output_tokens = 100000}), 4, kLikely);
    int64_t early = 0, late = 0;
    for (int i = 0; i < 100; ++i) {
      bed.Plan();
      const StepPlan& plan = bed.planned();
      (i < 40 ? early : late) += plan.draft_tokens > 0;
      bed.Ended({.step = plan.step, .start_ns = 0, .end_ns = 8000 + guess_ns * plan.draft_tokens});
    }
    EXPECT_GT(early, 25) << "both kinds of steps are needed to compare";
    if (guess_ns > 1) {
      EXPECT_EQ(late, 0);
    } else {
      EXPECT_GT(late, 55);
    }
  }
}

// The model predicts that drafts cost more than they yield, and they are free: soon nearly every step takes them.
TEST(Speculation, AModelThatOverestimatesDraftsIsCorrected) {
  const Device device(1, 1000);
  StepBed bed(On(&device));
  bed.Draft(bed.Decoding(4, 2, {.max_output_tokens = 100000}), 4, kLikely);
  int64_t late = 0;
  for (int i = 0; i < 150; ++i) {
    bed.Plan();
    const StepPlan& plan = bed.planned();
    late += i >= 100 && plan.draft_tokens > 0;
    bed.Ended({.step = plan.step, .start_ns = 0, .end_ns = 1000});
  }
  EXPECT_GT(late, 40);
}

// Without a model: drafts more likely right than not, while the step is small.
TEST(Speculation, WithoutAModelASmallStepTakesLikelyDrafts) {
  StepBed bed(On(nullptr));
  bed.Draft(bed.Decoding(4, 2), 10, kLikely);  // 0.8, 0.64, 0.51, 0.41
  bed.Draft(bed.Decoding(4, 2), 10, 100);
  EXPECT_EQ(bed.Plan(), "0:5+4d3* 1:5+1*");
  StepBed many(On(nullptr));
  for (int i = 0; i < 16; ++i) many.Draft(many.Decoding(4, 2), 10, kLikely);
  many.Plan();
  EXPECT_EQ(many.planned().draft_tokens, 0);
}

// Under every preset and with any drafts: the same sequences have a share as without drafts, with the same tokens of
// their own, and the budget holds.
TEST(Speculation, DraftsTakeNoTokenOrPlaceFromSequences) {
  int64_t taken = 0;
  for (const auto& preset : Presets()) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed));
      Rng rng(seed, 5);
      const Device device(rng.UniformInt(1, 30) * 1000, 1000);
      HarnessConfig c = PresetConfig(preset.name, rng.UniformInt(8, 40));
      c.num_blocks = rng.UniformInt(12, 60);
      c.max_num_seqs = static_cast<int32_t>(rng.UniformInt(2, 8));
      c.scheduler.limits.step_time = rng.Uniform() < 0.8 ? &device : nullptr;
      {
        SchedulerConfig sc = c.scheduler;
        sc.limits.max_model_len = c.max_model_len;
        sc.limits.slot_capacity = 128;
        sc.limits.blocks_total = c.num_blocks;
        sc.limits.block_size = c.block_size;
        if (!Scheduler::Create(sc).ok()) continue;  // needs a predictor, or whole prompts
      }
      StepBed with(c), without(c);
      const int64_t sequences = rng.UniformInt(1, 6);
      for (int64_t i = 0; i < sequences; ++i) {
        const auto prompt = static_cast<int32_t>(rng.UniformInt(1, 8)),
                   drafts = static_cast<int32_t>(rng.UniformInt(0, 9));
        const auto chance = static_cast<DraftChance>(rng.UniformInt(0, kSureDraft));
        if (rng.Uniform() < 0.3) {
          with.Waiting(prompt);
          without.Waiting(prompt);
          continue;
        }
        const SlotId slot = with.Decoding(prompt, 2);
        without.Decoding(prompt, 2);
        if (::testing::Test::HasFatalFailure()) return;
        with.Draft(slot, drafts, chance);
      }
      with.Plan();
      without.Plan();
      const StepPlan &a = with.planned(), &b = without.planned();
      ASSERT_EQ(a.items.size(), b.items.size());
      for (size_t i = 0; i < a.items.size(); ++i) {
        ASSERT_EQ(a.items[i].slot, b.items[i].slot);
        ASSERT_EQ(a.items[i].count - a.items[i].draft_tokens, b.items[i].count);
      }
      ASSERT_EQ(a.preempts, b.preempts);
      ASSERT_EQ(a.starts.size(), b.starts.size());
      ASSERT_EQ(a.num_tokens, b.num_tokens + a.draft_tokens);
      if (a.draft_tokens > 0) {
        ASSERT_LE(a.num_tokens, with.builder().budget_tokens());
      }
      ASSERT_EQ(with.kv().CheckIntegrity(), "");
      taken += a.draft_tokens;
    }
  }
  EXPECT_GT(taken, 500);
}

}  // namespace
}  // namespace tactus::core
