// The ring of live records, and the records of a real engine.
#include "engine/live_records.h"

#include <gtest/gtest.h>

#include "facade_fixture.h"

namespace tactus::engine {
namespace {

template <class T>
std::vector<T> Of(const std::vector<LiveRecord>& records) {
  std::vector<T> found;
  for (const LiveRecord& record : records) {
    if (const T* one = std::get_if<T>(&record)) found.push_back(*one);
  }
  return found;
}

// Passes of one step each.
class LiveRecordsTest : public testing::Test {
 protected:
  void Step(int64_t number) {
    core::StepRecord step;
    step.step = number;
    step.start_ns = 100 * number;
    step.end_ns = 100 * number + 70;
    step.budget_tokens = 512;
    core::StepEvents events;
    events.steps = {&step, 1};
    feed_.OnStep(events);
  }
  std::vector<LiveRecord> Take(int64_t lost) {
    std::vector<LiveRecord> records;
    EXPECT_EQ(feed_.Take(&records), lost);
    return records;
  }

  int asked_ = 0;     // calls of `stats`
  int outlined_ = 0;  // calls of `prefixes`
  LiveRecords feed_{[this] {
                      ++asked_;
                      return EngineStats{.running = 3, .kv_blocks_in_use = 7, .kv_blocks_cached = 2};
                    },
                    [this](size_t) {
                      PrefixOutline outline;
                      outline.blocks = ++outlined_;
                      return outline;
                    },
                    [] { return std::vector<RequestHandle>{}; }, 4};
};

TEST_F(LiveRecordsTest, WithoutAWatcherNothingIsReadOrKept) {
  Step(0);
  EXPECT_EQ(asked_, 0);
  EXPECT_TRUE(Take(0).empty());
  feed_.Watch(true);
  feed_.Watch(false);
  Step(1);
  EXPECT_EQ(asked_, 0);
  EXPECT_TRUE(Take(0).empty());
}

TEST_F(LiveRecordsTest, AStepHasItsTimesBudgetAndTheStateThatPlannedIt) {
  feed_.Watch(true);
  Step(5);
  const auto steps = Of<LiveStep>(Take(0));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, 5);
  EXPECT_EQ(steps[0].begin_ns, 500);
  EXPECT_EQ(steps[0].end_ns, 570);
  EXPECT_EQ(steps[0].budget_tokens, 512);
  EXPECT_EQ(steps[0].running, 3);
  EXPECT_EQ(steps[0].kv_blocks_in_use, 7);
  EXPECT_EQ(steps[0].kv_blocks_cached, 2);
}

TEST_F(LiveRecordsTest, ThePrefixTreeIsReadOncePerCallAndOnlyAfterAStep) {
  feed_.Watch(true);
  Step(0);
  EXPECT_EQ(outlined_, 0) << "the watcher has not asked";
  EXPECT_FALSE(feed_.TakePrefixes().has_value());
  Step(1);
  Step(2);
  EXPECT_EQ(outlined_, 1);
  const auto outline = feed_.TakePrefixes();
  ASSERT_TRUE(outline.has_value());
  EXPECT_EQ(outline->blocks, 1);
  EXPECT_FALSE(feed_.TakePrefixes().has_value()) << "no step has ended since";
}

TEST_F(LiveRecordsTest, AFullRingLosesTheNewestAndCountsThem) {
  feed_.Watch(true);
  for (int i = 0; i < 6; ++i) Step(i);
  const auto steps = Of<LiveStep>(Take(2));
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps.front().step, 0);
  EXPECT_EQ(steps.back().step, 3);
  Step(6);
  EXPECT_EQ(Of<LiveStep>(Take(0)).at(0).step, 6);
}

TEST_F(LiveRecordsTest, ANewWatchBeginsEmpty) {
  feed_.Watch(true);
  for (int i = 0; i < 6; ++i) Step(i);
  feed_.Watch(false);
  feed_.Watch(true);
  EXPECT_TRUE(Take(0).empty());
}

TEST_F(LiveRecordsTest, TokensOfAChoiceInAPassAreOneRecord) {
  feed_.Watch(true);
  std::vector<core::TokenEvent> tokens(5);
  for (auto& t : tokens) t.handle = 9;
  tokens[0].number = 1, tokens[0].first_token = true, tokens[0].gap_ns = 40;
  tokens[1].number = 2;
  tokens[2].number = 8, tokens[2].choice = 1, tokens[2].gap_ns = 30;
  tokens[3].number = 3, tokens[3].handle = 10, tokens[3].gap_ns = 20;
  tokens[4].number = 0, tokens[4].finish = FinishReason::kCancelled;  // an end without a token
  core::StepEvents events;
  events.tokens = tokens;
  feed_.OnStep(events);
  const auto records = Of<LiveTokens>(Take(0));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].count, 2);
  EXPECT_EQ(records[0].tokens, 2);
  EXPECT_EQ(records[0].gap_ns, 40);
  EXPECT_TRUE(records[0].first);
  EXPECT_EQ(records[1].choice, 1);
  EXPECT_EQ(records[1].tokens, 8);
  EXPECT_FALSE(records[1].first);
  EXPECT_EQ(records[2].request, 10u);
}

TEST_F(FacadeTest, TheLiveRecordsAddUpToTheRequest) {
  const auto engine = Make();
  ASSERT_NE(engine->live(), nullptr);
  engine->live()->Watch(true);
  Run(*engine, Ask(*engine, "a prompt of some tokens", 6));
  std::vector<LiveRecord> records;
  EXPECT_EQ(engine->live()->Take(&records), 0);
  int64_t chunk_tokens = 0, step_prompt_tokens = 0, tokens = 0;
  for (const LiveChunk& c : Of<LiveChunk>(records)) {
    EXPECT_EQ(c.first_position, chunk_tokens);
    chunk_tokens += c.tokens;
  }
  for (const LiveStep& s : Of<LiveStep>(records)) {
    step_prompt_tokens += s.prompt_tokens;
    EXPECT_GT(s.budget_tokens, 0);
    EXPECT_GT(s.end_ns, s.begin_ns);
  }
  for (const LiveTokens& t : Of<LiveTokens>(records)) {
    tokens += t.count;
    EXPECT_EQ(t.tokens, tokens) << "a choice's tokens so far";
    EXPECT_EQ(t.first, tokens == t.count);
  }
  const auto starts = Of<LiveStart>(records);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(chunk_tokens, starts[0].prompt_tokens);
  EXPECT_EQ(step_prompt_tokens, chunk_tokens);
  EXPECT_EQ(tokens, 6);
  const auto ends = Of<LiveEnd>(records);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].request, starts[0].request);
  EXPECT_EQ(ends[0].finish, FinishReason::kLength);
  EXPECT_EQ(ends[0].completion_tokens, 6);
  EXPECT_EQ(ends[0].gaps, 5);
  EXPECT_GT(ends[0].ttft_ns, 0);
  EXPECT_GE(ends[0].e2e_ns, ends[0].ttft_ns);
}

}  // namespace
}  // namespace tactus::engine
