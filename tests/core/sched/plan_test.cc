// The plan builder's counts and the reservations of admissions, on hand-made views. Blocks hold four tokens.
#include <gtest/gtest.h>

#include "core/sched/known_lengths.h"
#include "core/sched/predicted_length.h"
#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::HarnessConfig;
using testing::KnownLengths;
using testing::PresetConfig;
using testing::StepBed;

// A decode (its seventh token, within its blocks), a prompt that ends, and one with logits for every row.
TEST(Plan, CountsTheInputsOfStepTimeModels) {
  StepBed bed(PresetConfig("sarathi-serve", 64));
  bed.Decoding(4, 3);
  bed.Prefilling(10, 4);
  bed.Waiting(5, {.prompt_logprobs = true});
  EXPECT_EQ(bed.Plan(), "0:6+1* 1:4+6* 2:0+5*");
  const StepPlan& plan = bed.planned();
  EXPECT_EQ(plan.num_tokens, 1 + 6 + 5);
  EXPECT_EQ(plan.num_decodes, 1);
  EXPECT_EQ(plan.decode_context_tokens, 7) << "the decode's own token included";
  EXPECT_EQ(plan.prompt_items, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(plan.logit_rows, 1 + 1 + 5);
  EXPECT_EQ(plan.items[0].logit_rows, 1);
  EXPECT_EQ(plan.items[1].logit_rows, 1);
  EXPECT_EQ(plan.items[2].logit_rows, 5);
}

// The same for a decode that needs a new block, which AddDecode leaves to AddRunning.
TEST(Plan, CountsADecodeThatNeedsANewBlock) {
  StepBed bed(PresetConfig("sarathi-serve", 64));
  bed.Decoding(4, 5);
  EXPECT_EQ(bed.Plan(), "0:8+1*");
  EXPECT_EQ(bed.planned().num_tokens, 1);
  EXPECT_EQ(bed.planned().num_decodes, 1);
  EXPECT_EQ(bed.planned().decode_context_tokens, 9);
  EXPECT_TRUE(bed.planned().prompt_items.empty());
  EXPECT_EQ(bed.planned().logit_rows, 1);
}

// A chunk that does not end its prompt samples nothing and has no logit row; with prompt logprobs it has one per token.
TEST(Plan, AChunkInTheMiddleHasNoRows) {
  StepBed bed(PresetConfig("sarathi-serve", 9));
  bed.Waiting(6, {.prompt_logprobs = true});
  bed.Waiting(6);
  EXPECT_EQ(bed.Plan(), "0:0+6* 1:0+3");
  EXPECT_EQ(bed.planned().items[1].logit_rows, 0);
  EXPECT_EQ(bed.planned().logit_rows, 6);
  StepBed cut(PresetConfig("sarathi-serve", 4));
  cut.Waiting(6, {.prompt_logprobs = true});
  EXPECT_EQ(cut.Plan(), "0:0+4");
  EXPECT_EQ(cut.planned().logit_rows, 4);
  EXPECT_EQ(cut.Plan(), "0:4+2*");
  EXPECT_EQ(cut.planned().logit_rows, 2);
  EXPECT_EQ(cut.Plan(), "0:6+1*");
  EXPECT_EQ(cut.planned().logit_rows, 1);
}

// A decode with drafts: one item, a logit row for each token that it may yield, no prompt tokens.
TEST(Plan, ADecodeTakesItsDraftsAlong) {
  StepBed bed(PresetConfig("sarathi-serve", 64));
  bed.Draft(bed.Decoding(4, 2), 5);
  bed.Decoding(4, 2);
  EXPECT_EQ(bed.Plan(), "0:5+6d5* 1:5+1*");
  const StepPlan& plan = bed.planned();
  EXPECT_EQ(plan.num_tokens, 7);
  EXPECT_EQ(plan.draft_tokens, 5);
  EXPECT_EQ(plan.num_decodes, 2);
  EXPECT_EQ(plan.prefill_tokens(), 0);
  EXPECT_EQ(plan.decode_context_tokens, 11 + 6);
  EXPECT_EQ(plan.items[0].logit_rows, 6);
  EXPECT_EQ(plan.logit_rows, 7);
  EXPECT_EQ(bed.kv().Table(0).size(), 3u) << "blocks for the drafts that may be accepted";
}

// Drafts take only tokens that no other sequence needs in the step: a token stays for each running sequence.
TEST(Plan, DraftsLeaveOthersTheirTokens) {
  StepBed bed(PresetConfig("sarathi-serve", 5));
  for (int i = 0; i < 3; ++i) bed.Draft(bed.Decoding(4, 2), 5);
  EXPECT_EQ(bed.Plan(), "0:5+3d2* 1:5+1* 2:5+1*");
}

// Drafts also leave a block per running sequence, for its next token. Two sequences of two blocks each; with two more
// blocks, one for each, drafts stay within the sequence's blocks.
TEST(Plan, DraftsLeaveOthersTheirBlocks) {
  for (const int64_t blocks : {6, 7}) {
    HarnessConfig config = PresetConfig("sarathi-serve", 64);
    config.num_blocks = blocks;
    StepBed bed(config);
    bed.Draft(bed.Decoding(4, 2), 5);
    bed.Decoding(4, 2);
    EXPECT_EQ(bed.Plan(), blocks == 6 ? "0:5+3d2* 1:5+1*" : "0:5+6d5* 1:5+1*") << blocks << " blocks";
  }
}

// The same with blocks of one token: two blocks beyond one for each sequence are two guesses.
TEST(Plan, DraftsOfSeveralBlocksLeaveOthersTheirBlocks) {
  HarnessConfig config = PresetConfig("sarathi-serve", 64);
  config.block_size = 1;
  config.num_blocks = 6 + 6 + 2 + 2;
  StepBed bed(config);
  bed.Draft(bed.Decoding(4, 2), 5);
  bed.Decoding(4, 2);
  EXPECT_EQ(bed.Plan(), "0:5+3d2* 1:5+1*");
}

// No drafts beyond the last token that the request may get.
TEST(Plan, DraftsEndWithTheRequest) {
  StepBed bed(PresetConfig("sarathi-serve", 64));
  bed.Draft(bed.Decoding(4, 2, {.max_output_tokens = 5}), 5);
  bed.Draft(bed.Decoding(4, 2, {.max_output_tokens = 3}), 5);
  EXPECT_EQ(bed.Plan(), "0:5+3d2* 1:5+1*");
}

// Recomputation after a preemption counts as a prompt, and has no logprob rows for generated tokens.
TEST(Plan, RecomputationCountsAsAPrompt) {
  StepBed bed(PresetConfig("sarathi-serve", 64));
  bed.Preempted(4, 3);
  EXPECT_EQ(bed.Plan(), "0:0+7*");
  EXPECT_EQ(bed.planned().num_decodes, 0);
  EXPECT_EQ(bed.planned().decode_context_tokens, 0);
  EXPECT_EQ(bed.planned().prompt_items, (std::vector<int32_t>{0}));
}

// With two steps in the pipeline a step gets half of the places, rounded up: three of five.
TEST(Plan, APipelineStepGetsItsPartOfThePlaces) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.max_num_seqs = 5;
  c.scheduler.limits.pipeline_steps = 2;
  StepBed bed(c);
  for (int i = 0; i < 4; ++i) bed.Decoding(2, 1);
  bed.Waiting(2);
  EXPECT_EQ(bed.Plan(), "0:2+1* 1:2+1* 2:2+1*");
  StepBed prompts(c);
  for (int i = 0; i < 5; ++i) prompts.Waiting(2);
  EXPECT_EQ(prompts.Plan(), "0:0+2* 1:0+2* 2:0+2*");
}

// A running sequence occupies a place even without a share of this step: of two newcomers one starts.
TEST(Plan, ASequenceThatSitsOutKeepsItsPlace) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.max_num_seqs = 2;
  StepBed bed(c);
  const SlotId flying = bed.Decoding(4, 1);
  bed.Waiting(3);
  bed.Waiting(3);
  bed.Fly(flying);
  EXPECT_EQ(bed.Plan(), "1:0+3*");
}

// With a separate prompt budget (16 tokens, the context limit), started prompts keep to it too.
TEST(Plan, StartedPromptsKeepToThePromptBudget) {
  HarnessConfig c = PresetConfig("sarathi-serve");
  c.scheduler.budget = "prefill-cap";
  c.max_model_len = 16;
  StepBed bed(c);
  bed.Prefilling(12, 1);
  bed.Prefilling(12, 2);
  EXPECT_EQ(bed.Plan(), "0:1+11* 1:2+5");
}

// A whole prompt may exceed the budget up to and including the context limit, as the step's only prompt.
TEST(Plan, AWholePromptMayBeAsLongAsTheContext) {
  HarnessConfig c = PresetConfig("accelgen-no-chunk", 8);
  c.max_model_len = 16;
  StepBed bed(c);
  bed.Waiting(16, {.max_output_tokens = 1});
  EXPECT_EQ(bed.Plan(), "0:0+16*");
}

// A sibling shares its first choice's blocks; if that choice has just been preempted, in the same plan and for this
// sibling, the sibling computes the prompt itself.
TEST(Plan, ASiblingDoesNotForkFromAPreemptedChoice) {
  for (const int32_t places : {2, 1}) {
    HarnessConfig c = PresetConfig("orca");
    c.scheduler.order = "priority";
    c.scheduler.preemption = "proactive-swap";
    c.max_num_seqs = places;
    StepBed bed(c);
    const SlotId first = bed.Decoding(6, 4, {.priority = 1});
    const SlotId sibling = bed.Waiting(6, {.held = true});
    bed.table().Unhold(sibling, first, 0);
    EXPECT_EQ(bed.Plan(), places == 2 ? "0:9+1* 1:5+1* c1" : "!0 1:0+6*") << places;
  }
}

// A sequence whose last allowed token is in flight has nothing left to compute.
TEST(Plan, ASequenceInFlightIsNotPlannedAgain) {
  StepBed bed(PresetConfig("sarathi-serve", 64));
  const SlotId flying = bed.Decoding(4, 1);
  bed.Decoding(4, 1);
  bed.Fly(flying);
  EXPECT_EQ(bed.Plan(), "1:4+1*");
}

// --- --watermark: a share of all blocks, rounded up, that must stay free ---

// Ten blocks, of which 21 % are three; one is held by the decode. A prompt may leave three free and not fewer, unless
// none runs.
TEST(Watermark, IsKeptByEveryAdmission) {
  for (const char* admission : {"chunk-fits", "prompt-fits", "max-length", "predicted-length", "multi-resource"}) {
    for (const int32_t prompt : {24, 28}) {  // six blocks, seven
      KnownLengths predictor({1});
      HarnessConfig c = PresetConfig(std::string(admission) == "predicted-length" ? "s3" : "sarathi-serve", 64);
      c.scheduler.admission = admission;
      if (std::string(admission) == "max-length") c.scheduler.preemption = "none";
      c.scheduler.limits.watermark = 0.21;
      c.predictor = &predictor;
      c.num_blocks = 10;
      c.max_model_len = 40;
      StepBed bed(c);
      const SlotId decode = bed.Decoding(2, 1, {.max_output_tokens = 1 + 1});
      if (auto* reservation = bed.Note<ReservationNote>(decode)) reservation->reserved_tokens = 4;
      bed.Waiting(prompt - 1, {.max_output_tokens = 1});
      const std::string start = " 1:0+" + std::to_string(prompt - 1) + "*";
      EXPECT_EQ(bed.Plan(), prompt == 24 ? "0:2+1*" + start : "0:2+1*") << admission << " " << prompt;
      StepBed alone(c);
      alone.Waiting(39, {.max_output_tokens = 1});
      EXPECT_EQ(alone.Plan(), "0:0+39*") << admission << ": none runs that could need the blocks";
    }
  }
}

// A sibling shares the full blocks of its prompt, so it takes only one of the three free blocks here, and two must stay
// free.
TEST(Watermark, CountsOnlyTheSiblingsUnsharedBlocks) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.scheduler.limits.watermark = 0.3;
  c.num_blocks = 6;
  c.max_model_len = 24;
  StepBed bed(c);
  const SlotId first = bed.Decoding(6, 4);
  const SlotId sibling = bed.Waiting(6, {.held = true});
  bed.table().Unhold(sibling, first, 0);
  EXPECT_EQ(bed.Plan(), "0:9+1* 1:5+1* c1");
}

// --- AccelGen's multi-resource admission ---

// A start leaves a block for each running sequence: two decodes, and seven free blocks. The prompt of 21 needs six of
// them.
TEST(MultiResource, LeavesABlockPerRunningSequence) {
  for (const int32_t prompt : {20, 21}) {
    HarnessConfig c = PresetConfig("sarathi-serve", 64);
    c.scheduler.admission = "multi-resource";
    c.num_blocks = 9;
    c.max_model_len = 36;
    StepBed bed(c);
    bed.Decoding(2, 1);
    bed.Decoding(2, 1);
    bed.Waiting(prompt);
    EXPECT_EQ(bed.Plan(), prompt == 20 ? "0:2+1* 1:2+1* 2:0+20*" : "0:2+1* 1:2+1*") << prompt;
  }
}

// A chunk takes its blocks, and leaves those that the rest of its prompt will need: 8 of 21 tokens are two, the rest
// four.
TEST(MultiResource, LeavesTheBlocksOfThePromptsRest) {
  for (const int64_t blocks : {7, 8}) {
    HarnessConfig c = PresetConfig("sarathi-serve", 9);
    c.scheduler.admission = "multi-resource";
    c.num_blocks = blocks;
    c.max_model_len = 28;
    StepBed bed(c);
    bed.Decoding(2, 1);  // one block, and one more is left for it
    bed.Waiting(21, {.max_output_tokens = 1});
    EXPECT_EQ(bed.Plan(), blocks == 8 ? "0:2+1* 1:0+8" : "0:2+1*") << blocks;
  }
}

// A preempted sequence reserves at once all that it must compute again, although its first chunk is short.
TEST(MultiResource, ReservesAllForAPreemptedSequence) {
  HarnessConfig c = PresetConfig("sarathi-serve", 8);
  c.scheduler.admission = "multi-resource";
  c.num_blocks = 8;
  c.max_model_len = 32;
  StepBed bed(c);
  const SlotId back = bed.Preempted(19, 1);  // twenty tokens: five blocks
  EXPECT_EQ(bed.Plan(), "0:0+8");
  EXPECT_EQ(bed.kv().blocks_held(back) + bed.kv().blocks_reserved(back), 5);
}

// An urgent prompt that is not late starts without regard to the blocks that others will need. One that is 1 ns late,
// or has 1 ns to spare, does not.
TEST(MultiResource, AnUrgentStartDisregardsOthers) {
  for (const DurationNs slack : {-1, 0, 1, 2}) {
    HarnessConfig c = PresetConfig("sarathi-serve", 64);
    c.scheduler.admission = "multi-resource";
    c.num_blocks = 3;
    c.max_model_len = 12;
    StepBed bed(c);
    StepRecord step;  // T_max = 1 ns, L_c = 8
    step.step = 0;
    step.end_ns = 1;
    step.prefill_tokens = 8;
    step.prefill_items = 1;
    bed.Ended(step);
    bed.Decoding(2, 1, {.max_output_tokens = 1 + 1});
    bed.Waiting(8, {.max_output_tokens = 1, .slo = {10, 0, 0}});
    EXPECT_EQ(bed.Plan(9 - slack), slack == 0 || slack == 1 ? "0:2+1* 1:0+8*" : "0:2+1*") << slack << " ns";
  }
}

// --- S3 ---

// Twelve tokens at most: classes of two (a tenth, rounded up). A prediction of three is reserved as four, behind a
// prompt of five; after it outgrew that, a prediction of six is reserved as six.
TEST(PredictedLength, ReservesTheUpperEndOfTheClass) {
  KnownLengths predictor({3});
  HarnessConfig c = PresetConfig("s3", 64);
  c.block_size = 1;
  c.predictor = &predictor;
  StepBed bed(c);
  const SlotId slot = bed.Waiting(5, {.max_output_tokens = 12});
  EXPECT_EQ(bed.Plan(), "0:0+5*");
  EXPECT_EQ(bed.Note<ReservationNote>(slot)->reserved_tokens, 5 + 4);
  EXPECT_EQ(bed.kv().blocks_held(slot) + bed.kv().blocks_reserved(slot), 5 + 4);
  for (int position = 5; position < 9; ++position) EXPECT_EQ(bed.Plan(), "0:" + std::to_string(position) + "+1*");
  EXPECT_EQ(bed.Plan(), "!0") << "ten tokens are known and nine reserved";
  EXPECT_EQ(bed.scheduler().outgrown(), 1);
  EXPECT_EQ(bed.Plan(), "0:0+10*");
  EXPECT_EQ(bed.Note<ReservationNote>(slot)->reserved_tokens, 5 + 6);
}

// The note counts reservations that were too small: the next prediction is longer, also by a predictor that has learned
// since. Here twice seven tokens.
TEST(PredictedLength, AnOutgrownReservationIsCounted) {
  KnownLengths predictor({3, 7});
  HarnessConfig c = PresetConfig("s3", 64);
  c.block_size = 1;
  c.predictor = &predictor;
  StepBed bed(c);
  const SlotId slot = bed.Waiting(5, {.max_output_tokens = 20});
  for (const char* plan : {"0:0+5*", "0:5+1*", "0:6+1*", "0:7+1*", "0:8+1*", "!0"}) ASSERT_EQ(bed.Plan(), plan);
  EXPECT_EQ(bed.Note<ReservationNote>(slot)->retries, 1);
  PredictionFeatures features;
  features.max_output_tokens = 20;
  predictor.Bind(slot, features);
  EXPECT_EQ(bed.Plan(), "0:0+10*");
  EXPECT_EQ(bed.Note<ReservationNote>(slot)->reserved_tokens, 5 + 14);
}

// At most what the request may use and what the context holds.
TEST(PredictedLength, ReservesNoMoreThanCanBeUsed) {
  KnownLengths predictor({100});
  HarnessConfig c = PresetConfig("s3", 64);
  c.predictor = &predictor;
  c.max_model_len = 20;
  StepBed bed(c);
  const SlotId limited = bed.Waiting(5, {.max_output_tokens = 11});
  const SlotId cut = bed.Waiting(15, {.max_output_tokens = 11});
  EXPECT_EQ(bed.Plan(), "1:0+15* 0:0+5*");  // the longest first
  EXPECT_EQ(bed.Note<ReservationNote>(limited)->reserved_tokens, 16);
  EXPECT_EQ(bed.Note<ReservationNote>(cut)->reserved_tokens, 20);
}

// "2 blocks, 3 places": the sequences that the last plan refused a share, and the reasons.
std::string RefusedBy(const PlanBuilder& plan) {
  std::string text;
  for (const auto& refused : plan.refused()) {
    const char* why = refused.why == Refusal::kTokens   ? "tokens"
                      : refused.why == Refusal::kPlaces ? "places"
                                                        : "blocks";
    text += (text.empty() ? "" : ", ") + std::to_string(refused.slot) + " " + why;
  }
  return text;
}

TEST(Plan, ListsRefusedSequencesWithReasons) {
  StepBed tokens(PresetConfig("sarathi-serve", 8));
  tokens.Waiting(8);
  tokens.Waiting(4);
  tokens.Waiting(4);
  EXPECT_EQ(tokens.Plan(), "0:0+8*");
  EXPECT_EQ(RefusedBy(tokens.builder()), "1 tokens") << "those behind it are not tried";
  EXPECT_TRUE(tokens.builder().looked_at_waiting());

  HarnessConfig few = PresetConfig("sarathi-serve", 64);
  few.max_num_seqs = 1;
  StepBed places(few);
  places.Waiting(4);
  places.Waiting(4);
  EXPECT_EQ(places.Plan(), "0:0+4*");
  EXPECT_EQ(RefusedBy(places.builder()), "1 places");
  EXPECT_EQ(places.Plan(), "0:4+1*");
  EXPECT_EQ(RefusedBy(places.builder()), "") << "there is no place, so none is tried";
  EXPECT_FALSE(places.builder().looked_at_waiting());

  HarnessConfig small = PresetConfig("sarathi-serve", 64);
  small.num_blocks = 3;
  StepBed blocks(small);
  blocks.Waiting(8);
  blocks.Waiting(8);
  EXPECT_EQ(blocks.Plan(), "0:0+8*");
  EXPECT_EQ(RefusedBy(blocks.builder()), "1 blocks");
}

}  // namespace
}  // namespace tactus::core
