// The share of an engine that batches may use, and the identity of their requests in it.
#include "offline/server/background.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "offline/server/batch_engine.h"
#include "serve/fake_engine.h"

namespace tactus::offline {
namespace {

using Cost = BackgroundRoom::Cost;

TEST(BackgroundRoomTest, BatchesStayWithinTheirShare) {
  BackgroundRoom room({.sequences = 10, .kv_tokens = 1000, .waiting_sequences = 4, .waiting_tokens = 100},
                      SystemClock());
  const Cost line{2, 40, 300};
  EXPECT_TRUE(room.Take(line));
  EXPECT_TRUE(room.Take(line));
  EXPECT_FALSE(room.Take({1, 1, 1})) << "four wait";
  room.Began(line);
  EXPECT_FALSE(room.Take({1, 61, 1})) << "40 tokens of prompts wait";
  EXPECT_FALSE(room.Take({1, 1, 401})) << "600 tokens of KV are taken";
  EXPECT_TRUE(room.Take({1, 60, 400}));
  room.Began({1, 60, 400});
  room.Began(line);
  EXPECT_FALSE(room.Take({6, 1, 0})) << "five sequences run";
  EXPECT_TRUE(room.Take({4, 1, 0}));
  for (const Cost& begun : {line, line, Cost{1, 60, 400}}) room.Ended(begun, true, 5);
  room.Ended({4, 1, 0}, false, 0);
  EXPECT_TRUE(room.Take({100, 100'000, 100'000})) << "alone a request may exceed the share";
  EXPECT_FALSE(room.Take({1, 1, 1}));
  EXPECT_FALSE(room.WaitFor({1, 1, 1}, kMillisecond));
}

TEST(BackgroundRoomTest, BesideOtherRequestsTheShareIsSmaller) {
  int64_t live = 0;
  BackgroundRoom room({.sequences = 8, .kv_tokens = 800}, SystemClock(), [&live] { return live; });
  const Cost line{1, 1, 50};
  const auto take = [&] {
    const bool taken = room.Take(line);
    live += taken;
    if (taken) room.Began(line);
    return taken;
  };
  EXPECT_TRUE(take() && take() && take()) << "only batches use the engine";
  ++live;  // an interactive request
  EXPECT_FALSE(take());
  for (int i = 0; i < 2; ++i) room.Ended(line, true, 1), --live;
  EXPECT_TRUE(take()) << "two of eight";
  EXPECT_FALSE(take());
  EXPECT_FALSE(room.WaitFor(line, kMillisecond));
  --live;
  EXPECT_TRUE(take());
}

// One line waits in the engine, and another one that does not fit beside it is next.
class QueuedRoomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(room.Take(line, &small));
    ASSERT_FALSE(room.Take(long_line, &large));
  }
  ManualClock clock;
  BackgroundRoom room{{.waiting_tokens = 100}, clock};
  const int large = 0, small = 0;  // askers
  const Cost line{1, 40, 40}, long_line{1, 90, 90};
};

TEST_F(QueuedRoomTest, WhileTheFirstInTheQueueDoesNotFitNoOtherIsAdmitted) {
  EXPECT_FALSE(room.Take(line, &small)) << "it would fit, but is behind another one";
  EXPECT_FALSE(room.WaitFor(line, kMillisecond, &small));
  EXPECT_FALSE(room.WaitFor(long_line, kMillisecond, &large));
  room.Began(line);
  EXPECT_TRUE(room.WaitFor(long_line, kMillisecond, &large));
  EXPECT_FALSE(room.Take(line, &small));
  EXPECT_TRUE(room.Take(long_line, &large)) << "the free room is reserved for the first";
  EXPECT_FALSE(room.Take(line, &small)) << "now it is next, but does not fit";
  EXPECT_FALSE(room.Take({1, 1, 1}, &large)) << "after taking room an asker queues at the end";
  room.Began(long_line);
  EXPECT_TRUE(room.Take(line, &small));
  EXPECT_TRUE(room.Take({1, 1, 1}, &large));
}

TEST_F(QueuedRoomTest, AnAskerThatLeftOrFellSilentIsNotWaitedFor) {
  EXPECT_FALSE(room.Take(line, &small));
  room.Leave(&large);
  EXPECT_TRUE(room.Take(line, &small));
  EXPECT_FALSE(room.Take(long_line, &large));
  clock.Advance(kSecond / 2);
  EXPECT_FALSE(room.Take({1, 1, 1}, &small)) << "the first has not been silent for long";
  clock.Advance(kSecond);
  EXPECT_FALSE(room.WaitFor(long_line, kMillisecond, &large)) << "it asks again, behind the other one";
  EXPECT_TRUE(room.Take({1, 1, 1}, &small));
}

TEST(BackgroundRoomTest, ExpectedTokensFollowTheAnswersSoFar) {
  BackgroundRoom room({}, SystemClock());
  const int64_t before = room.ExpectedTokens(1'000'000);
  EXPECT_EQ(room.ExpectedTokens(7), 7);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(room.Take({}));
    room.Began({});
    room.Ended({}, true, 20);
  }
  EXPECT_LT(room.ExpectedTokens(1'000'000), before);
  EXPECT_NEAR(static_cast<double>(room.ExpectedTokens(1'000'000)), 40, 3);
}

struct NoSink final : ResponseSink {
  void OnDelta(const TokenDelta&) override {}
  void OnDone(const Usage&) override {}
};

Request Line(int64_t tokens = 3) {
  Request request;
  request.prompt = std::make_shared<std::vector<TokenId>>(std::vector<TokenId>{1, 2, 3});
  request.stop.max_tokens = tokens;
  request.priority = -5;
  request.slo.ttft_ns = 1;
  request.slo_class = "gold";
  request.client = "another client";
  request.cache_salt = "own";
  return request;
}

TEST(BatchEngineTest, RequestsHaveTheLastPriorityAndTheBatchsClient) {
  FakeEngine engine;
  BackgroundRoom room({}, SystemClock());
  BatchEngine batch(&engine, &room, {"batch of key 1", "key 1", "salt"});
  ASSERT_TRUE(batch.Submit(Line(), std::make_shared<NoSink>()).ok());
  engine.AwaitLive(0);
  const Request seen = engine.submitted().at(0);
  EXPECT_EQ(seen.priority, std::numeric_limits<int32_t>::max());
  EXPECT_FALSE(seen.slo.any());
  EXPECT_EQ(seen.slo_class, "");
  EXPECT_EQ(seen.client, "batch of key 1");
  EXPECT_EQ(seen.owner, "key 1");
  EXPECT_EQ(seen.cache_salt, "saltown");
}

TEST(BatchEngineTest, ARequestWithoutRoomWaitsForTheRoomThatItNeeds) {
  FakeEngine engine;
  engine.Hold();
  BackgroundRoom room({.sequences = 1}, SystemClock());
  BatchEngine batch(&engine, &room, {});
  ASSERT_TRUE(batch.Submit(Line(), std::make_shared<NoSink>()).ok());
  EXPECT_EQ(batch.Submit(Line(), std::make_shared<NoSink>()).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(batch.WaitForRoom(1, kMillisecond).code(), StatusCode::kDeadlineExceeded);
  engine.Release();
  EXPECT_TRUE(batch.WaitForRoom(1, 20 * kSecond).ok()) << "the end of a request frees room";
  EXPECT_TRUE(batch.Submit(Line(), std::make_shared<NoSink>()).ok());
  engine.AwaitLive(0);
}

TEST(BatchEngineTest, ABatchThatHasEndedDelaysNoOther) {
  FakeEngine engine;
  engine.Hold();
  ManualClock clock;
  BackgroundRoom room({.sequences = 2}, clock);
  BatchEngine batch(&engine, &room, {});
  auto other = std::make_unique<BatchEngine>(&engine, &room, BatchClient());
  ASSERT_TRUE(batch.Submit(Line(), std::make_shared<NoSink>()).ok());
  Request two = Line();
  two.n = 2;
  EXPECT_EQ(other->Submit(two, std::make_shared<NoSink>()).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(batch.Submit(Line(), std::make_shared<NoSink>()).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(batch.WaitForRoom(1, kMillisecond).code(), StatusCode::kDeadlineExceeded) << "the other batch is first";
  other->End();
  EXPECT_TRUE(batch.Submit(Line(), std::make_shared<NoSink>()).ok());
  engine.Release();
  engine.AwaitLive(0);
}

TEST(BatchEngineTest, ARequestThatTheEngineRefusesUsesNoRoom) {
  FakeEngine engine;
  engine.SetQueueLimit(0);
  BackgroundRoom room({.sequences = 1}, SystemClock());
  BatchEngine batch(&engine, &room, {});
  EXPECT_FALSE(batch.Submit(Line(), std::make_shared<NoSink>()).ok());
  engine.SetQueueLimit(10);
  EXPECT_TRUE(batch.Submit(Line(), std::make_shared<NoSink>()).ok());
  engine.AwaitLive(0);
}

TEST(BatchEngineTest, EndCancelsTheBatchsRequestsAndRefusesLaterOnes) {
  FakeEngine engine;
  engine.Hold();
  BackgroundRoom room({}, SystemClock());
  BatchEngine ended(&engine, &room, {}), other(&engine, &room, {});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ended.Submit(Line(), std::make_shared<NoSink>()).ok());
  ASSERT_TRUE(other.Submit(Line(), std::make_shared<NoSink>()).ok());
  ended.End();
  engine.AwaitLive(1);
  EXPECT_EQ(engine.cancelled(), 3u);
  EXPECT_EQ(ended.WaitForRoom(1, kSecond).code(), StatusCode::kCancelled);
  ASSERT_TRUE(ended.Submit(Line(), std::make_shared<NoSink>()).ok()) << "it was submitted already";
  engine.AwaitLive(1);
  engine.Release();
  engine.AwaitLive(0);
}

}  // namespace
}  // namespace tactus::offline
