// Viewers of a router's GET /events and its page.
#include "fleet/router/fleet_viewers.h"

#include "fleet_fixture.h"

namespace tactus::fleet {
namespace {

// An exchange that stores what is written to it.
class StoredExchange final : public http::Exchange {
 public:
  const http::HttpRequest& request() const override { return request_; }
  http::Body TakeBody() override { return http::Body(std::make_shared<http::BodyTotal>(0)); }
  void Respond(http::HttpResponse) override {}
  void StartStream(http::HttpResponse) override {}
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
  bool ended = false;

 private:
  http::HttpRequest request_;
};

TEST(FleetViewersTest, ASlowViewerLosesWholeFramesAndIsGivenTheirNumber) {
  FleetViewers viewers("{}");
  const auto slow = std::make_shared<StoredExchange>(), quick = std::make_shared<StoredExchange>();
  ASSERT_TRUE(viewers.Join(slow, {}));
  ASSERT_TRUE(viewers.Join(quick, {}));
  slow->unsent_bytes = FleetViewers::kMostUnsentBytes + 1;
  viewers.Publish("\"n\":1");
  viewers.Publish("\"n\":2");
  slow->unsent_bytes = FleetViewers::kMostUnsentBytes;
  viewers.Publish("\"n\":3");
  EXPECT_EQ(slow->text, "event: hello\ndata: {}\n\nevent: frame\ndata: {\"frame\":3,\"lost_frames\":2,\"n\":3}\n\n");
  EXPECT_NE(quick->text.find("{\"frame\":1,\"lost_frames\":0,\"n\":1}"), std::string::npos) << quick->text;
}

TEST(FleetViewersTest, AViewerThatLeavesMakesRoomForAnother) {
  FleetViewers viewers("{}");
  std::vector<std::shared_ptr<StoredExchange>> all;
  for (size_t i = 0; i < FleetViewers::kMostViewers; ++i) {
    ASSERT_TRUE(viewers.Join(all.emplace_back(std::make_shared<StoredExchange>()), {}));
  }
  const auto further = std::make_shared<StoredExchange>();
  EXPECT_FALSE(viewers.Join(further, {}));
  EXPECT_EQ(further->text, "") << "the exchange must be free for an error";
  all.front()->on_closed();
  EXPECT_TRUE(viewers.Join(further, {}));
}

TEST(FleetViewersTest, StopEndsEveryStreamAndRefusesFurtherViewers) {
  FleetViewers viewers("{}");
  const auto viewer = std::make_shared<StoredExchange>();
  ASSERT_TRUE(viewers.Join(viewer, {}));
  viewers.Stop();
  EXPECT_TRUE(viewer->ended);
  EXPECT_NE(viewer->text.find("event: end\n"), std::string::npos) << viewer->text;
  EXPECT_FALSE(viewers.Join(std::make_shared<StoredExchange>(), {}));
}

TEST(FleetViewersTest, ARoutersFramesHaveItsReplicasAndEndWithIt) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const auto viewer = fleet.Send({"GET", "/events", {}, ""});
  const auto holds = [&](const std::string& text) { return viewer->text().find(text) != std::string::npos; };
  Until("the first event of the router; so far: " + viewer->text(),
        [&] { return holds("event: hello\ndata: {\"fleet\":true,"); });
  Until("a frame with the replica; so far: " + viewer->text(),
        [&] { return holds("\"url\":\"" + replica.url() + "\"") && holds("\"ready\":1"); });
  fleet.server().StopAdmission();
  EXPECT_TRUE(fleet.Answer(viewer)->ended.ok()) << "the stream of events must end, or the router never stops";
  EXPECT_TRUE(holds("event: end\n"));
}

TEST(FleetViewersTest, EventsNeedTheRightsOfTheListOfReplicas) {
  FakeReplica replica;
  RouterOptions options;
  options.api_key = {"k"};
  options.admin_key = "a";
  RoutedFleet fleet({&replica}, options);
  EXPECT_EQ(fleet.Fetch("GET", "/events").status, 401);
  EXPECT_EQ(fleet.Fetch("GET", "/events", "", {{"Authorization", "Bearer k"}}).status, 401) << "a client's key";
  EXPECT_EQ(fleet.Fetch("HEAD", "/events", "", {{"Authorization", "Bearer a"}}).status, 200);
  EXPECT_EQ(fleet.Fetch("GET", "/").status, 200) << "the page asks for the key itself";
}

TEST(FleetViewersTest, EventsAreForThisMachineWithoutAnAdminKey) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  EXPECT_EQ(fleet.Fetch("HEAD", "/events").status, 200);
  EXPECT_EQ(fleet.Fetch("HEAD", "/events", "", {{"X-Forwarded-For", "192.0.2.1"}}).status, 403);
}

TEST(FleetViewersTest, TheRouterServesTheFilesOfThePage) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  const auto page = fleet.Fetch("GET", "/"), script = fleet.Fetch("GET", "/page/fleet.js");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("/page/main.js"), std::string::npos);
  EXPECT_EQ(script.content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(fleet.Fetch("GET", "/page/other.js").status, 404);
}

}  // namespace
}  // namespace tactus::fleet
