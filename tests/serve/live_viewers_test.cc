// Viewers of GET /events: who gets which frames, and what a slow one costs.
#include "serve/live_viewers.h"

#include "base/json.h"
#include "fake_exchange.h"
#include "server_fixture.h"

namespace tactus::serve {
namespace {

// The data of the events with this name.
std::vector<Json> EventsOf(const std::string& text, const std::string& name) {
  std::vector<Json> found;
  const std::string begin = "event: " + name + "\ndata: ";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    const size_t from = at + begin.size();
    const size_t end = text.find("\n\n", from);
    if (end == std::string::npos) break;
    found.push_back(Json::parse(text.substr(from, end - from)));
  }
  return found;
}

class LiveViewersTest : public testing::Test {
 protected:
  std::shared_ptr<FakeExchange> Join() {
    auto exchange = std::make_shared<FakeExchange>("");
    EXPECT_TRUE(viewers_.Answer(exchange, {}, "a client", "").ok());
    return exchange;
  }
  // Waits for a frame that fulfils the condition; throws after kAwaitLimit.
  static Json Await(const FakeExchange& exchange, const std::function<bool(const Json&)>& wanted) {
    const auto end = std::chrono::steady_clock::now() + kAwaitLimit;
    while (std::chrono::steady_clock::now() < end) {
      for (const Json& frame : EventsOf(exchange.written(), "frame")) {
        if (wanted(frame)) return frame;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    throw std::runtime_error("no such frame in " + exchange.written());
  }
  static bool HasStep(const Json& frame, int64_t number) {
    for (const Json& step : frame["steps"]) {
      if (step["step"] == number) return true;
    }
    return false;
  }
  template <class Condition>
  static void AwaitThat(const char* what, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kAwaitLimit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error(std::string("not in time: ") + what);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  FakeEngine engine_;
  LiveViewers viewers_{SystemClock()};
};

TEST_F(LiveViewersTest, AViewerGetsAHelloAndThenFrames) {
  viewers_.Start(&engine_, R"({"model":"fake"})");
  const auto viewer = Join();
  EXPECT_EQ(EventsOf(viewer->written(), "hello").at(0)["model"], "fake");
  EXPECT_EQ(Await(*viewer, [](const Json&) { return true; })["whole"], true) << "the first frame has every stream";
  engine_.feed.Push(LiveStep{.step = 5, .end_ns = 1000});
  const Json frame = Await(*viewer, [](const Json& f) { return HasStep(f, 5); });
  EXPECT_EQ(frame["lost_frames"], 0);
  EXPECT_TRUE(EventsOf(viewer->written(), "frame").at(0).contains("classes"));
}

TEST_F(LiveViewersTest, TheEngineIsWatchedWhileThereIsAViewer) {
  viewers_.Start(&engine_, "{}");
  EXPECT_FALSE(engine_.feed.watched);
  const auto first = Join(), second = Join();
  AwaitThat("the feed is watched", [&] { return engine_.feed.watched.load(); });
  first->Leave();
  Await(*second, [](const Json&) { return true; });
  EXPECT_TRUE(engine_.feed.watched);
  second->Leave();
  AwaitThat("the feed is not watched", [&] { return !engine_.feed.watched; });
}

TEST_F(LiveViewersTest, ASlowViewerLosesWholeFramesAndHearsHowMany) {
  viewers_.Start(&engine_, "{}");
  const auto slow = Join(), fast = Join();
  Await(*slow, [](const Json&) { return true; });
  slow->unsent_bytes = http::EventViewers::kMostUnsentBytes + 1;
  engine_.feed.Push(LiveStep{.step = 1, .end_ns = 1000});
  Await(*fast, [](const Json& f) { return HasStep(f, 1); });
  slow->unsent_bytes = 0;
  engine_.feed.Push(LiveStep{.step = 2, .end_ns = 1000});
  const Json next = Await(*slow, [](const Json& f) { return HasStep(f, 2); });
  EXPECT_GE(next["lost_frames"], 1);
  EXPECT_EQ(next["whole"], true) << "streams may have changed in the lost frames";
  for (const Json& frame : EventsOf(slow->written(), "frame")) EXPECT_FALSE(HasStep(frame, 1));
  EXPECT_EQ(Await(*fast, [](const Json& f) { return HasStep(f, 2); })["lost_frames"], 0);
}

TEST_F(LiveViewersTest, StopEndsEveryStreamAndRefusesFurtherOnes) {
  viewers_.Start(&engine_, "{}");
  const auto viewer = Join();
  viewers_.Stop();
  EXPECT_EQ(EventsOf(viewer->Answer().body, "end").size(), 1u);
  EXPECT_FALSE(viewers_.Answer(std::make_shared<FakeExchange>(""), {}, "a client", "").ok());
  viewers_.Stop();
}

class EventsRouteTest : public ServerTest {};

TEST_F(EventsRouteTest, EventsNeedAKeyWhereKeysAreSet) {
  ServeOptions options;
  options.api_key = {"k"};
  StartServer(options);
  EXPECT_EQ(Call("GET", "/events").status, 401);
  EXPECT_EQ(Call("HEAD", "/events", {}, {{"Authorization", "Bearer k"}}).status, 200);
  EXPECT_EQ(Call("GET", "/").status, 200) << "the page asks for the key";
}

TEST_F(EventsRouteTest, PagesOfOtherSitesTakeNoPlaces) {
  ServeOptions options;
  options.allowed_origins = {"https://friend.example"};
  StartServer(options);
  EXPECT_EQ(Call("HEAD", "/events", {}, {{"Origin", "https://other.example"}}).status, 403);
  EXPECT_EQ(Call("HEAD", "/events", {}, {{"Origin", "https://friend.example"}}).status, 200);
  EXPECT_EQ(Call("HEAD", "/events").status, 200);
}

}  // namespace
}  // namespace tactus::serve
