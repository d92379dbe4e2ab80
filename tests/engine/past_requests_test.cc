// The requests of the last ten minutes.
#include "engine/past_requests.h"

#include <gtest/gtest.h>

#include "facade_fixture.h"

namespace tactus::engine {
namespace {

class PastRequestsTest : public testing::Test {
 protected:
  static std::shared_ptr<const Request> Asked(std::vector<TokenId> prompt) {
    Request request;
    request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
    request.slo.ttft_ns = 5;
    request.slo_class = "chat";
    return std::make_shared<const Request>(std::move(request));
  }
  void End(const std::shared_ptr<const Request>& request, TimeNs arrival_ns, TimeNs done_ns) {
    core::RequestDoneEvent done;
    done.request = request;
    done.arrival_ns = arrival_ns;
    done.first_token_ns = arrival_ns + 3;
    done.done_ns = done_ns;
    done.prompt_tokens = static_cast<int32_t>(request->prompt->size());
    done.completion_tokens = 7;
    done.misses[0].missed = true;
    core::StepEvents events;
    events.now_ns = done_ns;
    events.done = {&done, 1};
    past_.OnStep(events);
  }
  class PastRequests past_;
};

TEST_F(PastRequestsTest, ARequestHasItsLengthsTimesAndObjectives) {
  End(Asked({1, 2}), 100, 150);
  const auto found = past_.Since(200);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].arrival_ns, 100);
  EXPECT_EQ(found[0].prompt_tokens, 2);
  EXPECT_EQ(found[0].completion_tokens, 7);
  EXPECT_EQ(found[0].slo.ttft_ns, 5);
  EXPECT_EQ(found[0].slo_class, "chat");
  EXPECT_EQ(found[0].ttft_ns, 3);
  EXPECT_EQ(found[0].e2e_ns, 50);
  EXPECT_TRUE(found[0].late);
}

TEST_F(PastRequestsTest, TheyAreInTheOrderOfTheirArrival) {
  End(Asked({1}), 20, 30);
  End(Asked({1, 2}), 10, 40);
  const auto found = past_.Since(40);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].arrival_ns, 10);
}

TEST_F(PastRequestsTest, AfterTenMinutesARequestIsForgotten) {
  End(Asked({1}), 0, kSecond);
  End(Asked({1, 2}), 0, 500 * kSecond);
  const auto found = past_.Since(602 * kSecond);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].prompt_tokens, 2);
}

TEST_F(PastRequestsTest, TheOldestGoFirstBeyondTheMost) {
  const auto request = Asked({1});
  for (size_t i = 0; i < PastRequests::kMost + 3; ++i) End(request, static_cast<TimeNs>(i), static_cast<TimeNs>(i));
  const auto found = past_.Since(static_cast<TimeNs>(PastRequests::kMost));
  ASSERT_EQ(found.size(), PastRequests::kMost);
  EXPECT_EQ(found[0].arrival_ns, 3);
}

TEST_F(PastRequestsTest, EqualBeginningsHaveEqualIds) {
  std::vector<TokenId> text(kTextBlockTokens * 2 + 9, 4);
  const auto first = Asked(text);
  text[kTextBlockTokens + 3] = 5;
  const auto second = Asked(text);
  for (const auto& request : {first, second}) {
    past_.Arriving(*request);
    End(request, 1, 2);
  }
  const auto found = past_.Since(2);
  ASSERT_EQ(found.size(), 2u);
  ASSERT_EQ(found[0].text_ids.size(), 2u);
  ASSERT_EQ(found[1].text_ids.size(), 2u);
  EXPECT_EQ(found[0].text_ids[0], found[1].text_ids[0]);
  EXPECT_NE(found[0].text_ids[1], found[1].text_ids[1]);
}

TEST_F(PastRequestsTest, ARequestThatWasNotQueuedIsForgotten) {
  const auto request = Asked(std::vector<TokenId>(kTextBlockTokens, 1));
  past_.Arriving(*request);
  past_.Forget(*request);
  End(request, 1, 2);
  EXPECT_TRUE(past_.Since(2).at(0).text_ids.empty());
}

TEST_F(FacadeTest, TheEngineKnowsItsPastRequests) {
  const auto engine = Make();
  Run(*engine, Ask(*engine, "a prompt of some tokens", 6));
  const auto past = engine->PastRequests();
  ASSERT_EQ(past.size(), 1u);
  EXPECT_EQ(past[0].completion_tokens, 6);
  EXPECT_EQ(past[0].finish, FinishReason::kLength);
  EXPECT_GT(past[0].ttft_ns, 0);
}

}  // namespace
}  // namespace tactus::engine
