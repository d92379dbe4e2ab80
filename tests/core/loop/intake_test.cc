// Limits of requests and of the queue, at the last accepted and the first refused value.
#include "core/loop/intake.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "core/loop/harness.h"
#include "time_limit.h"

namespace tactus::core {
namespace {

using testing::MakeRequest;
using testing::Tokens;

IntakeLimits Limits() {
  IntakeLimits limits;
  limits.max_model_len = 40;
  limits.max_queue = 3;
  limits.block_size = 4;
  limits.blocks_total = 8;  // 32 tokens: less than the context
  limits.secret = {1, 2};
  limits.model_stop_ids = {9, 5};
  return limits;
}
std::shared_ptr<const Request> Asked(int32_t prompt, int64_t max_tokens, int32_t n = 1) {
  Request r = MakeRequest(Tokens(1, prompt), max_tokens);
  r.n = n;
  return std::make_shared<Request>(std::move(r));
}
std::string Answer(const std::shared_ptr<const Request>& request, const IntakeLimits& limits = Limits()) {
  const auto prepared = PrepareRequest(request, limits);
  EXPECT_TRUE(prepared.ok() || prepared.status().code() == StatusCode::kInvalidArgument);
  return prepared.status().message();
}

TEST(PrepareRequest, LimitsAreInclusive) {
  EXPECT_EQ(Answer(Asked(1, 1)), "");
  EXPECT_EQ(Answer(Asked(0, 1)), "the prompt is empty; it needs at least 1 token");
  EXPECT_EQ(Answer(Asked(1, 0)), "max_tokens is 0; it must be at least 1");
  EXPECT_EQ(Answer(Asked(1, 1, 3)), "");
  EXPECT_EQ(Answer(Asked(1, 1, 0)), "n is 0; it must be between 1 and 3 (--max-queue)");
  EXPECT_EQ(Answer(Asked(1, 1, 4)), "n is 4; it must be between 1 and 3 (--max-queue)");
  EXPECT_EQ(Answer(Asked(30, 2)), "") << "all blocks";
  EXPECT_EQ(Answer(Asked(30, 3)),
            "prompt of 30 tokens + max_tokens 3 needs 9 KV blocks of 4 tokens and there are 8; lower max_tokens or "
            "raise --kv-cache-memory");
  IntakeLimits roomy = Limits();
  roomy.blocks_total = 10;
  EXPECT_EQ(Answer(Asked(30, 10), roomy), "") << "the whole context";
  EXPECT_EQ(Answer(Asked(30, 11), roomy),
            "prompt of 30 tokens + max_tokens of 11 exceed the context of 40 tokens; give max_tokens up to 10");
}

// Orders compute with these numbers, and a replay must accept them.
TEST(PrepareRequest, PlannedPlaceMustNotBeNegative) {
  Request r = MakeRequest(Tokens(1, 9), 4);
  for (const PlannedPlace& place : {PlannedPlace{}, PlannedPlace{0, 0}, PlannedPlace{1 << 30, 1 << 30}}) {
    r.planned = place;
    EXPECT_EQ(Answer(std::make_shared<Request>(r)), "") << place.position;
  }
  for (const PlannedPlace& place : {PlannedPlace{-2, 1}, PlannedPlace{1, -1}, PlannedPlace{1, 1, PlanEnd::kLeft, -1},
                                    PlannedPlace{1, 1, PlanEnd::kRight, 1, -1}, PlannedPlace{-1, 0, PlanEnd::kLeft}}) {
    r.planned = place;
    const auto prepared = PrepareRequest(std::make_shared<Request>(r), Limits());
    ASSERT_FALSE(prepared.ok()) << place.position << " " << place.kv_tokens;
    EXPECT_EQ(prepared.status().param(), "planned");
  }
}

TEST(PrepareRequest, AdapterMustBeLoaded) {
  Request r = MakeRequest(Tokens(1, 9), 4);
  const auto plain = PrepareRequest(std::make_shared<Request>(r), Limits());
  r.adapter = "blue";
  EXPECT_EQ(Answer(std::make_shared<Request>(r)), "adapter 'blue': this engine has loaded none; leave it out");
  IntakeLimits limits = Limits();
  limits.adapters = {"red"};
  EXPECT_EQ(Answer(std::make_shared<Request>(r), limits), "adapter 'blue' is not loaded; known: red");
  limits.adapters = {"red", "blue"};
  const auto blue = PrepareRequest(std::make_shared<Request>(r), limits);
  ASSERT_TRUE(plain.ok() && blue.ok());
  EXPECT_EQ(plain->adapter, 0);
  EXPECT_EQ(blue->adapter, 2);
  EXPECT_NE(plain->root_key, blue->root_key) << "KV computed with an adapter differs from the model's";
  EXPECT_NE(plain->choices[0].keys, blue->choices[0].keys);
}

TEST(PrepareRequest, SetsStopIdsKeysAndClient) {
  Request r = MakeRequest(Tokens(1, 9), 4);
  r.n = 2;
  r.stop.stop_token_ids = {7, 5, 7};
  const auto with_eos = PrepareRequest(std::make_shared<Request>(r), Limits());
  ASSERT_TRUE(with_eos.ok());
  EXPECT_EQ(with_eos->stop_ids, (std::vector<TokenId>{5, 7, 9})) << "sorted and unique";
  EXPECT_EQ(with_eos->prompt_tokens, 9);
  EXPECT_EQ(with_eos->max_tokens, 4);
  EXPECT_EQ(with_eos->client, 0u) << "unknown";
  ASSERT_EQ(with_eos->choices.size(), 2u);
  for (const SequenceBuffers& choice : with_eos->choices) {
    EXPECT_EQ(choice.keys.size(), 2u) << "full blocks of 9 tokens";
    EXPECT_FALSE(choice.stop.has_value());
  }
  r.stop.ignore_eos = true;
  r.stop.stop = {"x"};
  r.client = "a";
  r.prompt_logprobs = true;
  const auto without = PrepareRequest(std::make_shared<Request>(r), Limits());
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->stop_ids, (std::vector<TokenId>{5, 7}));
  EXPECT_NE(without->client, 0u);
  EXPECT_FALSE(without->has_keys) << "rows of a cached prefix would have no logits";
  EXPECT_TRUE(without->choices[1].keys.empty());
  EXPECT_TRUE(without->choices[1].stop.has_value());
}

TEST(PrepareRequest, WithoutTokensSharesOnlyWithAllKeys) {
  const auto keys = [](size_t count) { return std::vector<Hash128>(count, Hash128{3, 4}); };
  const auto shares = [&](size_t count) {
    const auto prepared = PrepareWithoutTokens(Asked(1, 1), 9, keys(count), Limits());
    EXPECT_TRUE(prepared.ok());
    return prepared.ok() && prepared->has_keys;
  };
  EXPECT_FALSE(shares(0));
  EXPECT_FALSE(shares(1)) << "the chain of keys is cut";
  EXPECT_TRUE(shares(2));
  EXPECT_EQ(PrepareWithoutTokens(Asked(1, 1), 9, keys(3), Limits()).status().message(),
            "3 block keys for a prompt of 9 tokens, which fills 2 blocks of 4");
  IntakeLimits off = Limits();
  off.prefix_caching = false;
  EXPECT_FALSE(PrepareWithoutTokens(Asked(1, 1), 9, keys(2), off)->has_keys);
}

TEST(Intake, WaitForRoomHonoursItsTimeout) {
  Intake intake(3, 5);
  const auto submit = [&](int32_t n) { EXPECT_TRUE(intake.Submit(*PrepareRequest(Asked(1, 1, n), Limits()), 0).ok()); };
  EXPECT_TRUE(intake.WaitForRoom(3, 0).ok());
  EXPECT_TRUE(intake.WaitForRoom(100, 0).ok()) << "more than ever fits is refused by Submit";
  submit(2);
  EXPECT_TRUE(intake.WaitForRoom(1, 0).ok());
  const Status none = intake.WaitForRoom(2, 1);
  EXPECT_EQ(none.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(none.message(), "no room for 2 sequences came within 0 ms: 2 wait of at most 3 (--max-queue)");
  intake.SequencesDequeued(2);
  EXPECT_TRUE(intake.WaitForRoom(3, 0).ok());
  submit(3);
  intake.SequencesDequeued(3);
  EXPECT_EQ(intake.WaitForRoom(1, 1).code(), StatusCode::kDeadlineExceeded) << "all slots are taken";
  intake.SequencesFreed(1);
  EXPECT_TRUE(intake.WaitForRoom(1, 0).ok());
}

TEST(Intake, RoomAndCloseWakeWaitingThreads) {
  const test::TimeLimit limit("a thread in WaitForRoom was not woken by room or by Close");
  Intake intake(1, 100);
  const auto submit = [&] { return intake.Submit(*PrepareRequest(Asked(1, 1), Limits()), 0); };
  ASSERT_TRUE(submit().ok());
  auto woken = std::async(std::launch::async, [&] { return intake.WaitForRoom(1, kNever); });
  intake.SequencesDequeued(1);
  intake.TellRoom();
  EXPECT_TRUE(woken.get().ok());
  // In both orders of the check and the room.
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(submit().ok());
    std::thread engine([&] {
      intake.SequencesDequeued(1);
      intake.TellRoom();
    });
    const Status room = intake.WaitForRoom(1, kNever);
    engine.join();
    ASSERT_TRUE(room.ok()) << room.ToString() << " in round " << i;
    intake.SequencesFreed(1);
  }
  for (int i = 0; i < 500; ++i) {
    Intake full(1, 100);
    ASSERT_TRUE(full.Submit(*PrepareRequest(Asked(1, 1), Limits()), 0).ok());
    std::thread end([&] { full.Close(Status(StatusCode::kUnavailable, "draining")); });
    EXPECT_EQ(full.WaitForRoom(1, kNever).message(), "draining");
    end.join();
  }
}

TEST(Intake, AcceptsUpToQueueAndSlotLimits) {
  Intake intake(3, 5);
  IntakeLimits limits = Limits();
  const auto submit = [&](int32_t n, TimeNs arrival_ns = -1) {
    PreparedRequest prepared = *PrepareRequest(Asked(1, 1, n), limits);
    prepared.arrival_ns = arrival_ns;
    return intake.Submit(std::move(prepared), 77);
  };
  EXPECT_FALSE(intake.HasInput());
  EXPECT_EQ(*submit(2), 1u);
  EXPECT_EQ(submit(2).status().message(), "the queue is full: 2 sequences wait, --max-queue is 3; try again later");
  EXPECT_EQ(*submit(1, 0), 2u) << "the last place; a refused request uses no handle";
  EXPECT_EQ(submit(1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(intake.live_requests(), 2);
  intake.SequencesDequeued(3);
  EXPECT_EQ(submit(3).status().code(), StatusCode::kResourceExhausted) << "three of five slots are taken";
  EXPECT_EQ(*submit(2, 5), 3u);
  intake.SequencesDequeued(2);
  EXPECT_FALSE(submit(1).ok());
  intake.SequencesFreed(1);
  intake.SequencesQueued(3);  // preempted sequences wait too
  EXPECT_FALSE(submit(1).ok());
  intake.SequencesDequeued(1);
  EXPECT_EQ(*submit(1), 4u);
  intake.Cancel(2);

  EXPECT_TRUE(intake.HasInput());
  std::vector<PreparedRequest> requests(1);
  std::vector<RequestHandle> cancels = {8, 9};
  std::vector<TransferCommand> transfers(1);
  intake.Drain(&requests, &cancels, &transfers);
  EXPECT_TRUE(transfers.empty());
  EXPECT_FALSE(intake.HasInput());
  ASSERT_EQ(requests.size(), 4u);
  const std::vector<TimeNs> arrivals = {77, 0, 5, 77};  // set by Submit only where it was not given
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(requests[i].handle, i + 1);
    EXPECT_EQ(requests[i].arrival_ns, arrivals[i]);
  }
  EXPECT_EQ(cancels, (std::vector<RequestHandle>{2}));
  intake.RequestEnded();
  EXPECT_EQ(intake.live_requests(), 3);

  intake.SequencesDequeued(3);
  intake.SequencesFreed(5);
  intake.Close(Status(StatusCode::kUnavailable, "the first reason"));
  intake.Close(Status(StatusCode::kUnavailable, "another"));
  EXPECT_EQ(submit(1).status().message(), "the first reason");
  EXPECT_FALSE(intake.HasInput());
}

}  // namespace
}  // namespace tactus::core
