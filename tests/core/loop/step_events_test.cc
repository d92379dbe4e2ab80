// The loop's records of steps, statistics, gaps and logprobs, compared with the known run.
#include <gtest/gtest.h>

#include <numeric>

#include "core/loop/harness.h"

namespace tactus::core {
namespace {

using testing::ExpectedOutput;
using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::Tokens;

constexpr DurationNs kStepNs = kMillisecond, kTokenNs = 10 * kMicrosecond;  // of the fake executor

// A prompt of 10 tokens; the second step has its decode and a prompt of 5.
TEST(StepEvents, RecordHasTheItemsAndTimesOfItsStep) {
  Harness h(HarnessConfig{});
  const TimeNs start = h.clock().NowNs();
  h.MustSubmit(MakeRequest(Tokens(1, 10), 3));
  ASSERT_EQ(h.Settle(), "");
  h.MustSubmit(MakeRequest(Tokens(2, 5), 1));
  ASSERT_EQ(h.Run(), "");
  const std::vector<StepRecord>& r = h.records();
  ASSERT_EQ(r.size(), 3u);
  EXPECT_EQ(r[0].step, 0);
  EXPECT_EQ(r[0].prefill_tokens, 10);
  EXPECT_EQ(r[0].prefill_items, 1);
  EXPECT_EQ(r[0].decode_tokens, 0);
  EXPECT_EQ(r[0].planned_ns, start);
  EXPECT_EQ(r[0].start_ns, start);
  EXPECT_EQ(r[0].end_ns, start + kStepNs + 10 * kTokenNs);
  EXPECT_EQ(r[1].step, 1);
  EXPECT_EQ(r[1].prefill_tokens, 5);
  EXPECT_EQ(r[1].prefill_items, 1);
  EXPECT_EQ(r[1].decode_tokens, 1);
  EXPECT_EQ(r[1].planned_ns, r[0].end_ns);
  EXPECT_EQ(r[1].end_ns - r[1].start_ns, kStepNs + 6 * kTokenNs);
  EXPECT_EQ(r[2].prefill_items, 0);
  EXPECT_EQ(r[2].decode_tokens, 1);
  for (const StepRecord& record : r) {
    EXPECT_TRUE(record.ok);
    EXPECT_EQ(record.preemptions, 0);
    EXPECT_EQ(record.longest_preemption_ns, 0);
  }
  ASSERT_EQ(h.scheduled().size(), 2u);
  EXPECT_EQ(h.scheduled()[0].handle, h.handles()[0]);
  EXPECT_EQ(h.scheduled()[0].arrival_ns, start);
  EXPECT_EQ(h.scheduled()[0].prompt_tokens, 10);
  EXPECT_EQ(h.scheduled()[0].cached_tokens, 0);
  EXPECT_EQ(h.scheduled()[1].prompt_tokens, 5);
}

// Collects the chunks and the numbers of tokens of a loop.
class ChunkSink final : public EventSink {
 public:
  bool wants_chunks() const override { return true; }
  void OnStep(const StepEvents& events) override {
    chunks.insert(chunks.end(), events.chunks.begin(), events.chunks.end());
    for (const TokenEvent& t : events.tokens) numbers.push_back(t.number);
    for (const StepRecord& s : events.steps) budgets.push_back(s.budget_tokens);
  }
  std::vector<ChunkEvent> chunks;
  std::vector<int32_t> numbers;
  std::vector<int32_t> budgets;
};

TEST(StepEvents, ChunksNameTheirRequestStepAndPositions) {
  ChunkSink sink;
  HarnessConfig config;
  config.scheduler.limits.token_budget = 6;
  config.further_sink = &sink;
  Harness h(config);
  const RequestHandle id = h.MustSubmit(MakeRequest(Tokens(1, 10), 3));
  ASSERT_EQ(h.Run(), "");
  ASSERT_EQ(sink.chunks.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(sink.chunks[i].handle, id);
    EXPECT_EQ(sink.chunks[i].step, static_cast<StepId>(i));
    EXPECT_EQ(sink.chunks[i].first_position, i == 0 ? 0 : 6);
    EXPECT_EQ(sink.chunks[i].tokens, i == 0 ? 6 : 4);
  }
  EXPECT_EQ(sink.numbers, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(sink.budgets.at(0), 6);
}

TEST(StepEvents, AFailedStepHasComputedNoChunk) {
  ChunkSink sink;
  HarnessConfig config;
  config.faults = {{0}};
  config.further_sink = &sink;
  Harness h(config);
  h.MustSubmit(MakeRequest(Tokens(1, 10), 3));
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(sink.budgets.size(), 1u) << "the step itself is reported";
  EXPECT_TRUE(sink.chunks.empty());
}

// A sink that notes its name when it receives events.
class NamedSink final : public EventSink {
 public:
  NamedSink(char name, bool reads_tokens, std::string* received)
      : name_(name), reads_tokens_(reads_tokens), received_(*received) {}
  bool wants_tokens() const override { return reads_tokens_; }
  void OnStep(const StepEvents&) override { received_ += name_; }

 private:
  const char name_;
  const bool reads_tokens_;
  std::string& received_;
};

TEST(EventFanOut, EverySinkReceivesEachPassInTheOrderOfAdding) {
  std::string received;
  NamedSink a('a', false, &received), b('b', false, &received);
  EventFanOut events;
  events.Add(&a);
  events.Add(&b);
  events.OnStep(StepEvents());
  events.OnStep(StepEvents());
  EXPECT_EQ(received, "abab");
}

TEST(EventFanOut, TokensAreWantedIfOneSinkReadsThem) {
  std::string received;
  NamedSink without('a', false, &received), with('b', true, &received);
  EventFanOut events;
  events.Add(&without);
  EXPECT_FALSE(events.wants_tokens());
  events.Add(&with);
  EXPECT_TRUE(events.wants_tokens());
}

TEST(StepEvents, RecordOfAFailedStepIsNotOk) {
  HarnessConfig config;
  config.faults = {{1}};
  Harness h(config);
  const RequestHandle id = h.MustSubmit(MakeRequest(Tokens(1, 10), 3));
  ASSERT_EQ(h.Run(), "");
  ASSERT_EQ(h.records().size(), 2u);
  EXPECT_TRUE(h.records()[0].ok);
  EXPECT_FALSE(h.records()[1].ok);
  EXPECT_EQ(h.outputs()[id].done_event.finish, FinishReason::kError);
  EXPECT_EQ(h.outputs()[id].done_event.completion_tokens, 1);
}

TEST(StepEvents, GapsAreSinceTheTokenBeforeAndSinceArrival) {
  Harness h(HarnessConfig{});
  const TimeNs start = h.clock().NowNs();
  const RequestHandle id = h.MustSubmit(MakeRequest(Tokens(1, 10), 3));
  ASSERT_EQ(h.Run(), "");
  const std::vector<DurationNs> want = {kStepNs + 10 * kTokenNs, kStepNs + kTokenNs, kStepNs + kTokenNs};
  EXPECT_EQ(h.outputs()[id].choices[0].gap_ns, want);
  ASSERT_EQ(h.gaps().size(), 3u);  // one pass each
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(h.gaps()[i].gap_ns, want[i]);
    EXPECT_EQ(h.gaps()[i].first, i == 0);
    EXPECT_EQ(h.gaps()[i].count, 1);
  }
  EXPECT_EQ(h.outputs()[id].choices[0].token_ns[0], start + want[0]);
}

TEST(StepEvents, FiguresOfRequestsAddUpToThoseOfTheLoop) {
  HarnessConfig config;
  config.num_blocks = 24;  // far too few for all requests at once
  config.scheduler.limits.token_budget = 16;
  Harness h(config);
  int64_t prompts = 0;
  for (uint64_t i = 0; i < 14; ++i) {
    Request r = MakeRequest(Tokens(i, static_cast<int32_t>(3 + 5 * i % 40)), static_cast<int64_t>(5 + i * 7 % 23));
    r.n = 1 + static_cast<int32_t>(i % 3);
    prompts += static_cast<int64_t>(r.prompt->size());
    h.MustSubmit(std::move(r));
  }
  ASSERT_EQ(h.Run(), "");
  const EngineStats stats = h.loop().Stats();
  ASSERT_GT(stats.preemptions, 3) << "test setup: there must be preemptions";
  int64_t preemptions = 0, recomputed = 0, generated = 0, finished = 0, dropped = 0;
  DurationNs longest = 0;
  for (const auto& [id, out] : h.outputs()) {
    preemptions += out.done_event.preemptions;
    recomputed += out.done_event.recomputed_tokens;
    generated += out.done_event.completion_tokens;
    finished += static_cast<int64_t>(out.choices.size());
  }
  for (const StepRecord& r : h.records()) {
    dropped += r.preemptions;
    longest = std::max(longest, r.longest_preemption_ns);
  }
  EXPECT_EQ(preemptions, stats.preemptions);
  EXPECT_EQ(recomputed, stats.recomputed_tokens);
  EXPECT_GT(recomputed, 0);
  EXPECT_EQ(generated, stats.generation_tokens);
  EXPECT_EQ(finished, stats.finished_length);
  EXPECT_EQ(prompts, stats.prompt_tokens);
  EXPECT_LE(dropped, stats.preemptions) << "a plan without items has no record";
  EXPECT_GT(dropped, 0);
  EXPECT_GT(longest, 0) << "a preempted sequence was without KV for some time";
  EXPECT_EQ(static_cast<int64_t>(h.records().size()), stats.steps);
}

// With max_num_seqs = 1 the first choice runs, its two siblings are held, and another request waits.
TEST(StepEvents, StatisticsHaveTheCurrentState) {
  HarnessConfig config;
  config.max_num_seqs = 1;
  config.scheduler.limits.token_budget = 16;
  Harness h(config);
  Request r = MakeRequest(Tokens(1, 10), 3);
  r.n = 3;
  h.MustSubmit(r);
  h.MustSubmit(MakeRequest(Tokens(2, 5), 2));
  ASSERT_EQ(h.Settle(), "");
  EngineStats stats = h.loop().Stats();
  EXPECT_EQ(stats.running, 1);
  EXPECT_EQ(stats.waiting, 3) << "held siblings wait too";
  EXPECT_EQ(stats.kv_blocks_in_use, h.kv().Stats().blocks_in_use);
  EXPECT_GE(stats.kv_blocks_in_use, 3);
  EXPECT_EQ(stats.kv_blocks_total, 64);
  ASSERT_EQ(h.Run(), "");
  stats = h.loop().Stats();
  const KvCacheStats kv = h.kv().Stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.kv_blocks_in_use, 0);
  EXPECT_GT(kv.blocks_cached, 0);
  EXPECT_EQ(stats.kv_blocks_cached, kv.blocks_cached);
  EXPECT_EQ(stats.prefix_query_tokens, kv.prefix_query_tokens);
  EXPECT_EQ(stats.prefix_hit_tokens, kv.prefix_hit_tokens);
  EXPECT_GT(kv.prefix_query_tokens, 0);
}

// 10, 1 and 1 tokens of budgets of 16: a quarter. Three blocks of four tokens in each step.
TEST(StepEvents, UtilizationIsAMeanOverSteps) {
  HarnessConfig config;
  config.scheduler.limits.token_budget = 16;
  Harness h(config);
  h.MustSubmit(MakeRequest(Tokens(1, 10), 3));
  ASSERT_EQ(h.Run(), "");
  const EngineStats stats = h.loop().Stats();
  ASSERT_EQ(stats.steps, 3);
  EXPECT_DOUBLE_EQ(stats.budget_utilization, 12.0 / 48);
  EXPECT_DOUBLE_EQ(stats.kv_utilization, 3.0 / 64);
}

TEST(StepEvents, EveryNthPlanIsTimed) {
  HarnessConfig config;
  config.stopwatch_every = 4;
  Harness h(config);
  h.MustSubmit(MakeRequest(Tokens(1, 10), 9));
  ASSERT_EQ(h.Run(), "");
  ASSERT_EQ(h.steps(), 9);
  EXPECT_EQ(h.decisions_timed(), 3) << "steps 0, 4 and 8, once each";
}

TEST(StepEvents, CachedTokensAreReportedOncePerRequest) {
  Harness h(HarnessConfig{});
  h.MustSubmit(MakeRequest(Tokens(1, 13), 1));
  ASSERT_EQ(h.Run(), "");
  Request again = MakeRequest(Tokens(1, 13), 2);
  again.n = 2;
  const RequestHandle id = h.MustSubmit(again);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs()[id].done_event.cached_tokens, 12) << "three blocks of four";
  ASSERT_EQ(h.scheduled().size(), 2u) << "once per request, not per choice";
  EXPECT_EQ(h.scheduled()[1].cached_tokens, 12);
}

// Choice 0 ends by length; choice 1, one step later, by a stop id at its last token. The request ends with the worse
// reason.
TEST(StepEvents, RequestEndsWithTheWorstReasonOfItsChoices) {
  for (uint64_t seed = 1; seed < 200; ++seed) {
    HarnessConfig config;
    Request r = MakeRequest(Tokens(seed, 9), 6);
    r.n = 2;
    const std::vector<TokenId> first = ExpectedOutput(config.executor, r, 0, {}),
                               second = ExpectedOutput(config.executor, r, 1, {});
    const TokenId last = second.back();
    if (std::count(first.begin(), first.end(), last) + std::count(second.begin(), second.end(), last) != 1) continue;
    r.stop.stop_token_ids = {last};
    Harness h(config);
    const RequestHandle id = h.MustSubmit(r);
    ASSERT_EQ(h.Run(), "");
    const auto& out = h.outputs()[id];
    ASSERT_EQ(out.choices[0].finish, FinishReason::kLength);
    ASSERT_EQ(out.choices[1].finish, FinishReason::kStop);
    ASSERT_LT(out.choices[0].token_ns.back(), out.choices[1].token_ns.back());
    EXPECT_EQ(out.done_event.finish, FinishReason::kLength);
    EXPECT_EQ(h.loop().Stats().finished_stop, 1);
    EXPECT_EQ(h.loop().Stats().finished_length, 1);
    return;
  }
  FAIL() << "no seed gives such a pair of outputs";
}

// The stop id is the third token: it ends the output with min_tokens 2, but not with 3.
TEST(StepEvents, MinTokensCountsTokensBeforeTheEnd) {
  for (uint64_t seed = 1; seed < 200; ++seed) {
    HarnessConfig config;
    Request r = MakeRequest(Tokens(seed, 9), 8);
    const std::vector<TokenId> all = ExpectedOutput(config.executor, r, 0, {});
    if (std::count(all.begin(), all.end(), all[2]) != 1) continue;
    r.stop.stop_token_ids = {all[2]};
    for (const int32_t min_tokens : {0, 1, 2, 3, 4}) {
      r.stop.min_tokens = min_tokens;
      Harness h(config);
      const RequestHandle id = h.MustSubmit(r);
      ASSERT_EQ(h.Run(), "");
      EXPECT_EQ(h.outputs()[id].choices[0].tokens.size(), min_tokens <= 2 ? 3u : 8u) << min_tokens;
    }
    return;
  }
  FAIL() << "no seed gives such an output";
}

// Steps with several requests, some or all with logprobs.
TEST(StepEvents, LogprobsBelongToTheirTokens) {
  for (const bool both : {false, true}) {
    Harness h(HarnessConfig{});
    std::vector<RequestHandle> ids;
    for (uint64_t i = 0; i < 4; ++i) {
      Request r = MakeRequest(Tokens(i, static_cast<int32_t>(6 + i)), 5);
      r.n = 1 + static_cast<int32_t>(i % 2);
      if (both || i % 2 == 1) r.sampling.logprobs = 0;
      ids.push_back(h.MustSubmit(r));
    }
    ASSERT_EQ(h.Run(), "");
    for (uint64_t i = 0; i < 4; ++i) {
      for (const auto& choice : h.outputs()[ids[i]].choices) {
        ASSERT_EQ(choice.logprobs.size(), both || i % 2 == 1 ? 5u : 0u);
        for (size_t t = 0; t < choice.logprobs.size(); ++t)
          EXPECT_EQ(choice.logprobs[t].token, choice.tokens[t]) << i << " " << t;
      }
    }
  }
}

// Two prompts in chunks that share steps: each row has the logprob of its prompt's next token.
TEST(StepEvents, PromptLogprobsBelongToTheirRows) {
  HarnessConfig config;
  config.scheduler.limits.token_budget = 8;
  Harness h(config);
  std::vector<RequestHandle> ids;
  for (uint64_t i = 0; i < 3; ++i) {
    Request r = MakeRequest(Tokens(i, static_cast<int32_t>(12 + i)), 2);
    r.prompt_logprobs = i != 1;
    r.n = i == 2 ? 2 : 1;
    ids.push_back(h.MustSubmit(r));
  }
  ASSERT_EQ(h.Run(), "");
  for (size_t i = 0; i < 3; ++i) {
    const auto& events = h.outputs()[ids[i]].prompt_logprobs;
    int32_t next = 0;
    for (const auto& [first_row, rows] : events) {
      ASSERT_EQ(first_row, next) << i;
      for (size_t r = 0; r < rows.size(); ++r)
        EXPECT_EQ(rows[r].at(0).token, h.outputs()[ids[i]].request->prompt->at(static_cast<size_t>(first_row) + r + 1));
      next = first_row + static_cast<int32_t>(rows.size());
    }
    EXPECT_EQ(next, i == 1 ? 0 : static_cast<int32_t>(11 + i)) << i << ": every row but the last";
  }
}

}  // namespace
}  // namespace tactus::core
