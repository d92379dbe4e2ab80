// A router's GET /events and its page.
#include "fleet/router/fleet_events.h"

#include "fleet_fixture.h"

namespace tactus::fleet {
namespace {

TEST(FleetEventsTest, ARoutersFramesHaveItsReplicasAndEndWithIt) {
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

TEST(FleetEventsTest, EventsNeedTheRightsOfTheListOfReplicas) {
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

TEST(FleetEventsTest, PagesOfOtherSitesTakeNoPlaces) {
  FakeReplica replica;
  RouterOptions options;
  options.allowed_origins = {"https://friend.example"};
  RoutedFleet fleet({&replica}, options);
  EXPECT_EQ(fleet.Fetch("HEAD", "/events", "", {{"Origin", "https://other.example"}}).status, 403);
  EXPECT_EQ(fleet.Fetch("HEAD", "/events", "", {{"Origin", "https://friend.example"}}).status, 200);
}

TEST(FleetEventsTest, EventsAreForThisMachineWithoutAnAdminKey) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  EXPECT_EQ(fleet.Fetch("HEAD", "/events").status, 200);
  EXPECT_EQ(fleet.Fetch("HEAD", "/events", "", {{"X-Forwarded-For", "192.0.2.1"}}).status, 403);
}

TEST(FleetEventsTest, TheRouterServesTheFilesOfThePage) {
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
