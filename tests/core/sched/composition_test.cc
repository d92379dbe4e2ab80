// Exact plans, step by step, of each composition in cases small enough to compute by hand. A line is one step; see
// LoggingExecutor.
#include <gtest/gtest.h>

#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::Plans;
using testing::PresetConfig;
using testing::Tokens;

void Add(Harness* h, int32_t prompt, int64_t max_tokens, int32_t priority = 0, int32_t n = 1) {
  AddRequest(h, prompt, max_tokens, [&](Request* r) {
    r->priority = priority;
    r->n = n;
  });
}

// Sarathi-Serve, Alg. 3: all decodes; then partly done prompts; then new ones, cut to what is left of 8 tokens.
TEST(Composition, StallFreeRunsDecodesThenStartedThenNewPrompts) {
  Harness h(PresetConfig("sarathi-serve", 8));
  Add(&h, 5, 3);
  Add(&h, 10, 2);
  Add(&h, 3, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+5* 1:0+3", "0:5+1* 1:3+7*", "0:6+1* 1:10+1* 2:0+3*", "2:3+1*"}));
}

// A prompt of several chunks never stops a decode, and the budget is never exceeded.
TEST(Composition, StallFreeNeverStopsADecodeForALongPrompt) {
  Harness h(PresetConfig("sarathi-serve", 4));
  Add(&h, 2, 6);
  Add(&h, 9, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+2* 1:0+2", "0:2+1* 1:2+3", "0:3+1* 1:5+3", "0:4+1* 1:8+1*", "0:5+1*", "0:6+1*"}));
}

// vLLM V1: one list in order of admission, decodes and chunks alike, then the queue.
TEST(Composition, RunningFirstGoesByAdmissionBeforeTheQueue) {
  Harness h(PresetConfig("vllm", 8));
  Add(&h, 10, 2);
  Add(&h, 2, 3);
  Add(&h, 20, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+8", "0:8+2* 1:0+2* 2:0+4", "0:10+1* 1:2+1* 2:4+6", "1:3+1* 2:10+7", "2:17+3*"}));
}

// vLLM of Alg. 2: a prompt that can start stops every decode.
TEST(Composition, PrefillFirstStallsDecodes) {
  Harness h(PresetConfig("vllm-v0"));
  Add(&h, 5, 3);
  Add(&h, 10, 2);
  ASSERT_EQ(h.Settle(), "");
  Add(&h, 4, 2);  // arrives while the first step runs
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+5* 1:0+10*", "2:0+4*", "0:5+1* 1:10+1* 2:4+1*", "0:6+1*"}));
}

// Its prefill steps hold at most L_max prompt tokens, whole prompts only.
TEST(Composition, PrefillFirstKeepsToTheContextLimit) {
  HarnessConfig c = PresetConfig("vllm-v0");
  c.max_model_len = 16;
  Harness h(c);
  Add(&h, 9, 1);
  Add(&h, 8, 1);
  Add(&h, 7, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+9*", "1:0+8* 2:0+7*"}));
}

// Orca: the whole prompt joins the ongoing decodes.
TEST(Composition, WholePromptHybridAddsWholePromptsToDecodes) {
  Harness h(PresetConfig("orca"));
  Add(&h, 5, 3);
  Add(&h, 10, 2);
  ASSERT_EQ(h.Settle(), "");
  Add(&h, 4, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+5* 1:0+10*", "0:5+1* 1:10+1* 2:0+4*", "0:6+1* 2:4+1*"}));
}

// FasterTransformer of Alg. 1: none joins before the whole batch has finished.
TEST(Composition, RequestLevelRunsOneBatchAfterTheOther) {
  Harness h(PresetConfig("request-level"));
  Add(&h, 5, 3);
  Add(&h, 10, 2);
  ASSERT_EQ(h.Settle(), "");
  Add(&h, 4, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+5* 1:0+10*", "0:5+1* 1:10+1*", "0:6+1*", "2:0+4*", "2:4+1*"}));
}

// FastGen: prompts are split or fused so that the step has exactly 8 tokens while there are any.
TEST(Composition, ExactFillFillsStepsToTheBudget) {
  Harness h(PresetConfig("fastgen", 8));
  Add(&h, 5, 4);
  Add(&h, 10, 2);
  Add(&h, 3, 1);
  Add(&h, 9, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+5* 1:0+3", "0:5+1* 1:3+7*", "0:6+1* 1:10+1* 2:0+3* 3:0+3", "0:7+1* 3:3+6*"}));
}

// No precedence for partly done prompts: the order decides, unlike in stall-free steps.
TEST(Composition, ExactFillFollowsTheQueueOrder) {
  for (const char* preset : {"fastgen", "sarathi-serve"}) {
    HarnessConfig c = PresetConfig(preset, 8);
    c.scheduler.order = "priority";
    Harness h(c);
    Add(&h, 20, 1, 0);
    ASSERT_EQ(h.Settle(), "");
    Add(&h, 6, 1, -1);
    ASSERT_EQ(h.Run(), "");
    const Plans expected = std::string(preset) == "fastgen" ? Plans{"0:0+8", "1:0+6* 0:8+2", "0:10+8", "0:18+2*"}
                                                            : Plans{"0:0+8", "0:8+8", "0:16+4* 1:0+4", "1:4+2*"};
    EXPECT_EQ(h.plans(), expected) << preset;
  }
}

// Five blocks of four: the second sequence outgrows the memory at position 8, loses its KV and starts again, with its
// output so far, when the first has ended.
TEST(Composition, TheYoungestIsRecomputedInAShortage) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.num_blocks = 5;
  c.max_model_len = 16;
  Harness h(c);
  Add(&h, 7, 8);
  Add(&h, 7, 8);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+7* 1:0+7*", "0:7+1* 1:7+1*", "!1 0:8+1*", "0:9+1*", "0:10+1*", "0:11+1*", "0:12+1*",
                              "0:13+1*", "1:0+9*", "1:9+1*", "1:10+1*", "1:11+1*", "1:12+1*", "1:13+1*"}));
  EXPECT_EQ(h.loop().Stats().preemptions, 1);
  EXPECT_EQ(h.loop().Stats().recomputed_tokens, 8);
}

// With a pipeline the victim may still be in flight: it sits one step out and is preempted once it is idle, and no
// other in its place.
TEST(Composition, AVictimInFlightIsPreemptedOnceItIsIdle) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.num_blocks = 5;
  c.max_model_len = 16;
  c.executor.max_in_flight = 2;
  c.executor.can_chain = true;
  Harness h(c);
  Add(&h, 7, 8);
  Add(&h, 7, 8);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.loop().Stats().preemptions, 1);
  EXPECT_EQ(h.outputs()[h.handles()[0]].done_event.preemptions, 0);
  EXPECT_EQ(h.outputs()[h.handles()[1]].done_event.preemptions, 1);
}

// Under priority order the least important is the victim, however old.
TEST(Composition, TheLeastImportantIsRecomputed) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.scheduler.order = "priority";
  c.num_blocks = 5;
  c.max_model_len = 16;
  Harness h(c);
  Add(&h, 7, 8, 5);
  Add(&h, 7, 8, 0);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs()[h.handles()[0]].done_event.preemptions, 1);
  EXPECT_EQ(h.outputs()[h.handles()[1]].done_event.preemptions, 0);
}

// n = 3: the prompt is computed once, the siblings share its full blocks, copy the partial one and compute the last
// token.
TEST(Composition, ChoicesForkFromTheFirst) {
  Harness h(PresetConfig("sarathi-serve", 64));
  Add(&h, 6, 2, 0, 3);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+6*", "0:6+1* 1:5+1* 2:5+1* c2", "1:6+1* 2:6+1*"}));
}

// The first choice ends before the others could fork: they compute the prompt themselves.
TEST(Composition, ChoicesComputeThePromptIfTheFirstHasEnded) {
  Harness h(PresetConfig("sarathi-serve", 64));
  Add(&h, 6, 1, 0, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+6*", "1:0+6*"}));
}

TEST(Composition, CachedPrefixesAreNotComputedAgain) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.prefix_caching = true;
  Harness h(c);
  h.MustSubmit(MakeRequest(Tokens(1, 12), 1));
  ASSERT_EQ(h.Run(), "");
  h.MustSubmit(MakeRequest(Tokens(1, 12), 1));  // floor((12 - 1) / 4) blocks match
  const RequestHandle second = h.handles().back();
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+12*", "0:8+4*"}));
  EXPECT_EQ(h.outputs()[second].done_event.cached_tokens, 8);
}

// A block whose last token is the last of the chunk is shared from that step on, although its producer has ended with
// it.
TEST(Composition, ABlockFilledByTheLastChunkIsShared) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.prefix_caching = true;
  Harness h(c);
  h.MustSubmit(MakeRequest(Tokens(1, 4), 1));
  ASSERT_EQ(h.Run(), "");
  h.MustSubmit(MakeRequest(Tokens(1, 9), 1));
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "0:4+5*"}));
}

// If tokens are still on the device when a block is planned full, its key comes later: it is shared as soon as the key
// is known, not when the next block is full.
TEST(Composition, ABlockFilledInFlightIsSharedOnceItsKeyIsKnown) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.prefix_caching = true;
  c.executor.max_in_flight = 2;
  c.executor.can_chain = true;
  Harness h(c);
  h.MustSubmit(MakeRequest(Tokens(1, 3), 4));  // six positions: one full block, the second one never
  const RequestHandle first = h.handles().back();
  ASSERT_EQ(h.Run(), "");
  std::vector<TokenId> prompt = Tokens(1, 3);
  prompt.push_back(h.outputs()[first].choices[0].tokens[0]);
  for (const TokenId token : Tokens(2, 5)) prompt.push_back(token);
  h.MustSubmit(MakeRequest(prompt, 1));
  const RequestHandle second = h.handles().back();
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs()[second].done_event.cached_tokens, 4);
}

// Two equal prompts in one step: the second reads blocks that the first writes in that very step.
TEST(Composition, PrefixesAreSharedWithinAStep) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.prefix_caching = true;
  Harness h(c);
  h.MustSubmit(MakeRequest(Tokens(1, 12), 1));
  h.MustSubmit(MakeRequest(Tokens(1, 12), 1));
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+12* 1:8+4*"}));
}

// Admission: max-length holds the third back until its longest output fits, prompt-fits does not.
TEST(Admission, MaxLengthReservesTheOutput) {
  for (const char* preset : {"no-preempt", "sarathi-serve"}) {
    HarnessConfig c = PresetConfig(preset, 64);
    c.num_blocks = 8;
    c.max_model_len = 16;
    Harness h(c);
    for (int i = 0; i < 3; ++i) Add(&h, 4, 9);  // 4 blocks each at the end
    ASSERT_EQ(h.Settle(), "");
    EXPECT_EQ(h.plans()[0], std::string(preset) == "no-preempt" ? "0:0+4* 1:0+4*" : "0:0+4* 1:0+4* 2:0+4*");
    ASSERT_EQ(h.Run(), "");
    EXPECT_EQ(h.loop().Stats().preemptions > 0, std::string(preset) != "no-preempt");
  }
}

TEST(Admission, ReserveFullReservesTheContext) {
  HarnessConfig c = PresetConfig("no-preempt", 64);
  c.num_blocks = 8;
  c.max_model_len = 16;
  c.scheduler.limits.reserve_full = true;
  Harness h(c);
  for (int i = 0; i < 3; ++i) Add(&h, 2, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+2* 1:0+2*", "2:0+2*"}));
}

// prompt-fits reserves the whole prompt even if it is chunked; chunk-fits takes only what the chunk writes.
TEST(Admission, PromptFitsReservesThePromptAndChunkFitsTheChunk) {
  for (const char* admission : {"prompt-fits", "chunk-fits"}) {
    HarnessConfig c = PresetConfig("sarathi-serve", 8);
    c.scheduler.admission = admission;
    c.num_blocks = 5;
    c.max_model_len = 20;
    Harness h(c);
    Add(&h, 6, 1);   // 2 blocks
    Add(&h, 16, 1);  // 4 blocks: do not fit beside the first
    ASSERT_EQ(h.Settle(), "");
    EXPECT_EQ(h.plans()[0], std::string(admission) == "prompt-fits" ? "0:0+6*" : "0:0+6* 1:0+2");
    ASSERT_EQ(h.Run(), "");
  }
}

TEST(Admission, TheWatermarkIsKeptForDecodesUnlessNothingRuns) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.num_blocks = 10;
  c.max_model_len = 40;
  c.scheduler.limits.watermark = 0.5;  // five blocks
  Harness h(c);
  Add(&h, 8, 1);
  Add(&h, 16, 1);  // 4 blocks: would leave 4
  Add(&h, 32, 1);  // 8 blocks: leaves 2, but nothing else runs then
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+8*", "1:0+16*", "2:0+32*"}));
}

TEST(Admission, AtMostMaxNumSeqsAtOnce) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.max_num_seqs = 2;
  Harness h(c);
  for (int i = 0; i < 3; ++i) Add(&h, 3, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+3* 1:0+3*", "0:3+1* 1:3+1*", "2:0+3*", "2:3+1*"}));
}

}  // namespace
}  // namespace tactus::core
