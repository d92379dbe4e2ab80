// Viewers of a stream of events: who gets which frames, and how many there may be.
#include "http/event_viewers.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

namespace tactus::http {
namespace {

// An exchange that stores what is written to it.
class StoredExchange final : public Exchange {
 public:
  explicit StoredExchange(const std::string& method = "GET") { request_.method = method; }
  const HttpRequest& request() const override { return request_; }
  Body TakeBody() override { return Body(std::make_shared<BodyTotal>(0)); }
  void Respond(HttpResponse response) override { status = response.status; }
  void StartStream(HttpResponse) override {}
  void Write(std::string_view bytes) override { text += bytes; }
  void End() override { ended = true; }
  void Abort() override { End(); }
  int64_t unsent() const override { return unsent_bytes; }
  void WhenSent(std::function<void()>) override {}
  void OnClosed(std::function<void()> callback) override { on_closed = std::move(callback); }
  bool closed() const override { return false; }

  std::string text;
  std::function<void()> on_closed;
  int64_t unsent_bytes = 0;
  int status = 0;  // of an answer that is no stream
  bool ended = false;

 private:
  HttpRequest request_;
};

class EventViewersTest : public testing::Test {
 protected:
  std::shared_ptr<StoredExchange> Join(const std::string& client, const std::string& owner = {}) {
    auto exchange = std::make_shared<StoredExchange>();
    status_ = viewers_.Answer(exchange, {}, client, owner);
    return exchange;
  }
  void Publish(const std::string& members) {
    viewers_.BeginFrame();
    viewers_.EndFrame([&members](const auto&) -> std::string_view { return members; });
  }
  EventViewers viewers_;
  Status status_;  // of the last Join
};

TEST_F(EventViewersTest, ASlowViewerLosesWholeFramesAndIsGivenTheirNumber) {
  viewers_.Start("{}");
  const auto slow = Join("a"), quick = Join("b");
  slow->unsent_bytes = EventViewers::kMostUnsentBytes + 1;
  Publish("\"n\":1");
  Publish("\"n\":2");
  slow->unsent_bytes = EventViewers::kMostUnsentBytes;
  Publish("\"n\":3");
  EXPECT_EQ(slow->text, "event: hello\ndata: {}\n\nevent: frame\ndata: {\"frame\":3,\"lost_frames\":2,\"n\":3}\n\n");
  EXPECT_NE(quick->text.find("{\"frame\":1,\"lost_frames\":0,\"n\":1}"), std::string::npos) << quick->text;
}

TEST_F(EventViewersTest, NewViewersAndThoseThatLostFramesGetEverything) {
  viewers_.Start("{}");
  const auto one = Join("a", "x"), other = Join("b", "y");
  using Kinds = std::set<EventViewers::Kind>;
  EXPECT_EQ(viewers_.BeginFrame(), (Kinds{{"x", true}, {"y", true}}));
  EXPECT_TRUE(viewers_.has_whole());
  viewers_.EndFrame([](const auto&) -> std::string_view { return "\"n\":1"; });
  EXPECT_FALSE(viewers_.has_whole());
  one->unsent_bytes = EventViewers::kMostUnsentBytes + 1;
  EXPECT_EQ(viewers_.BeginFrame(), (Kinds{{"y", false}}));
  one->unsent_bytes = 0;
  EXPECT_EQ(viewers_.BeginFrame(), (Kinds{{"x", true}, {"y", false}}));
  viewers_.SayEverything();
  EXPECT_EQ(viewers_.BeginFrame(), (Kinds{{"x", true}, {"y", true}}));
}

TEST_F(EventViewersTest, OneClientTakesHalfOfThePlacesAtMost) {
  viewers_.Start("{}");
  std::vector<std::shared_ptr<StoredExchange>> all;
  for (int64_t i = 0; i < EventViewers::kMostOfOne; ++i) {
    all.push_back(Join("greedy"));
    ASSERT_TRUE(status_.ok()) << status_.message();
  }
  const auto refused = Join("greedy");
  EXPECT_EQ(status_.code(), StatusCode::kTooManyRequests);
  EXPECT_NE(status_.message().find("this client has 8 views"), std::string::npos) << status_.message();
  EXPECT_EQ(refused->text, "") << "the exchange must be free for an error";
  Join("modest");
  EXPECT_TRUE(status_.ok()) << status_.message();
  all.front()->on_closed();
  Join("greedy");
  EXPECT_TRUE(status_.ok()) << "a viewer that left keeps its place: " << status_.message();
}

TEST_F(EventViewersTest, AllPlacesAreTakenOnceAndAViewerThatLeavesMakesRoom) {
  viewers_.Start("{}");
  std::vector<std::shared_ptr<StoredExchange>> all;
  for (size_t i = 0; i < EventViewers::kMost; ++i) all.push_back(Join(fmt::format("client {}", i)));
  ASSERT_TRUE(status_.ok());
  Join("late");
  EXPECT_EQ(status_.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status_.message().find("has 16 viewers"), std::string::npos) << status_.message();
  all.front()->on_closed();
  Join("late");
  EXPECT_TRUE(status_.ok()) << status_.message();
}

TEST_F(EventViewersTest, BeforeStartAndAfterStopTheReasonIsTrue) {
  Join("a");
  EXPECT_EQ(status_.message(), "the server is not ready");
  viewers_.Start("{}");
  const auto viewer = Join("a");
  viewers_.Stop("the test ends");
  EXPECT_TRUE(viewer->ended);
  EXPECT_NE(viewer->text.find("event: end\ndata: {\"reason\":\"the test ends\"}\n\n"), std::string::npos)
      << viewer->text;
  Join("a");
  EXPECT_EQ(status_.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status_.message(), "the server is stopping") << "it must not claim that every place is taken";
  EXPECT_FALSE(viewers_.WaitForViewer());
  EXPECT_FALSE(viewers_.Wait(kSecond));
}

TEST_F(EventViewersTest, AHeadIsAnsweredWithoutAPlace) {
  viewers_.Start("{}");
  const auto head = std::make_shared<StoredExchange>("HEAD");
  EXPECT_TRUE(viewers_.Answer(head, {}, "a", {}).ok());
  EXPECT_EQ(head->status, 200);
  EXPECT_TRUE(viewers_.empty());
}

}  // namespace
}  // namespace tactus::http
