// A request to a replica and its answer, whatever the replica does.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fleet_fixture.h"

namespace tactus::fleet {
namespace {

using Ptr = std::shared_ptr<http::Exchange>;

TEST(ForwardTest, AStreamIsPassedOnByteForByte) {
  FakeReplica replica;
  replica.set_answer(Stream(100));
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const std::string body = "{\"prompt\": \"x\", \"stream\":true}";
  const auto answer = fleet.Answer(
      fleet.Post(body, {{"X-Request-Id", "mine"}, {"x-other", "1"}, {"Connection", "x-hop"}, {"x-hop", "1"}}));
  ASSERT_TRUE(answer->ended.ok()) << answer->ended.ToString();
  EXPECT_EQ(answer->status, 200);
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += kEvent;
  EXPECT_EQ(answer->body, expected + kDone);
  EXPECT_EQ(*http::FindHeader(answer->headers, "X-Request-Id"), "mine");
  EXPECT_EQ(*http::FindHeader(answer->headers, "x-tactus-replica"), replica.address());
  EXPECT_EQ(*http::FindHeader(answer->headers, "Content-Type"), "text/event-stream");
  EXPECT_EQ(replica.body(), body);
  const http::HttpRequest seen = replica.request();
  EXPECT_EQ(*seen.Find("X-Request-Id"), "mine");
  EXPECT_EQ(*seen.Find("x-other"), "1");
  EXPECT_EQ(seen.Find("x-hop"), nullptr);  // belongs to that connection only
  EXPECT_EQ(*seen.Find("X-Forwarded-For"), "127.0.0.1");
}

TEST(ForwardTest, AnAnswerThatIsNotAStreamIsPassedOn) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const auto answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->body, "{\"ok\":true}");
  EXPECT_NE(http::FindHeader(answer->headers, "Content-Length"), nullptr);
  const std::string large(5 << 20, 'x');  // more than is held
  replica.set_answer([&](Ptr exchange) { exchange->Respond({.body = large}); });
  EXPECT_TRUE(fleet.Answer(fleet.Post())->body == large);
  replica.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "application/json"});
    exchange->Write(large);
    replica.Hold(exchange);
  });
  const auto call = fleet.Post();
  const Ptr held = replica.AwaitHeld();
  Until("the bytes of an answer too long to be held, before its end",
        [&] { return call->text().size() == large.size(); });
  held->End();
  EXPECT_TRUE(fleet.Answer(call)->ended.ok());
}

TEST(ForwardTest, PathsAreForwardedInCanonicalForm) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  EXPECT_EQ(fleet.Fetch("POST", "/chat/completions/?a=1", "{}").status, 200);
  EXPECT_EQ(replica.request().target, "/v1/chat/completions?a=1");
  EXPECT_EQ(fleet.Fetch("GET", "/health/").status, 200);
  const auto of_a_server = fleet.Fetch("GET", "/fleet/state"), foreign = fleet.Fetch("POST", "/api/chat", "{}");
  EXPECT_EQ(of_a_server.status, 404);
  EXPECT_NE(of_a_server.body.find("it is a server's"), std::string::npos) << of_a_server.body;
  EXPECT_EQ(foreign.status, 404);
  EXPECT_NE(foreign.body.find("there is /v1/chat/completions"), std::string::npos) << foreign.body;
}

TEST(ForwardTest, AFullReplicaIsSkipped) {
  FakeReplica full, free;
  full.set_answer(Refuse(503));
  free.set_answer(Stream(1));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  RoutedFleet fleet({&full, &free}, options);
  fleet.AwaitReady(2);
  for (int i = 0; i < 6; ++i) {
    const auto answer = fleet.Answer(fleet.Post());
    EXPECT_EQ(answer->status, 200) << answer->body;
    EXPECT_EQ(answer->body, kEvent + kDone);
  }
  EXPECT_GT(full.requests(), 0);
  EXPECT_EQ(fleet.Metric("tactus_route_retries_total"), full.requests());
}

TEST(ForwardTest, IfAllAreFullTheClientGetsTheirAnswer) {
  FakeReplica one, two;
  one.set_answer(Refuse(503));
  two.set_answer(Refuse(503));
  RoutedFleet fleet({&one, &two});
  fleet.AwaitReady(2);
  const auto answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->status, 503);
  EXPECT_NE(answer->body.find("mine, 503"), std::string::npos) << answer->body;
  EXPECT_EQ(one.requests() + two.requests(), 2);  // one request at each
}

TEST(ForwardTest, OtherErrorsArePassedToTheClient) {
  FakeReplica one, two;
  one.set_answer(Refuse(400));
  two.set_answer(Refuse(400));
  RoutedFleet fleet({&one, &two});
  fleet.AwaitReady(2);
  EXPECT_EQ(fleet.Answer(fleet.Post())->status, 400);
  EXPECT_EQ(one.requests() + two.requests(), 1);
}

TEST(ForwardTest, AReplicaThatDiesBeforeItsAnswerIsReplaced) {
  FakeReplica dies, lives;
  dies.set_answer([&](Ptr exchange) { dies.Hold(std::move(exchange)); });
  lives.set_answer(Stream(2));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  RoutedFleet fleet({&dies, &lives}, options);
  fleet.AwaitReady(2);
  std::vector<std::shared_ptr<Recorder>> calls;
  for (int i = 0; i < 2; ++i) calls.push_back(fleet.Post());
  dies.AwaitHeld();
  dies.Stop();
  for (const auto& call : calls) EXPECT_EQ(fleet.Answer(call)->body, kEvent + kEvent + kDone);
  EXPECT_EQ(lives.requests(), 2);
}

TEST(ForwardTest, AStreamThatBreaksOffEndsWithAnError) {
  FakeReplica dies, other;
  const auto begin = [&](FakeReplica& r) {
    return [&r](Ptr exchange) {
      exchange->StartStream({.content_type = "text/event-stream"});
      exchange->Write(kEvent);
      r.Hold(std::move(exchange));
    };
  };
  dies.set_answer(begin(dies));
  RoutedFleet fleet({&dies});
  fleet.AwaitReady(1);
  const auto call = fleet.Post();
  dies.AwaitHeld();
  Until("the first event", [&] { return call->text() == kEvent; });
  dies.Stop();
  const auto answer = fleet.Answer(call);
  EXPECT_TRUE(answer->ended.ok()) << answer->ended.ToString();  // a complete HTTP answer
  EXPECT_EQ(answer->body.find(kEvent + "data: {\"error\":"), 0u) << answer->body;
  EXPECT_EQ(answer->body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(fleet.Metric("tactus_route_cut_streams_total"), 1);
}

TEST(ForwardTest, ARequestWithOnlyCommentsSoFarIsRetried) {
  FakeReplica dies, lives;
  dies.set_answer(dies.BeginAndHold(": ping\n\n"));
  lives.set_answer(Stream(1));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  RoutedFleet fleet({&dies, &lives}, options);
  fleet.AwaitReady(2);
  std::vector<std::shared_ptr<Recorder>> calls;
  for (int i = 0; i < 2; ++i) calls.push_back(fleet.Post());
  dies.AwaitHeld();
  Until("the ping", [&] { return calls[0]->text() == ": ping\n\n" || calls[1]->text() == ": ping\n\n"; });
  dies.Stop();
  std::string both;
  for (const auto& call : calls) {
    EXPECT_EQ(fleet.Answer(call)->status, 200);
    both += call->text();
  }
  EXPECT_EQ(both.find("error"), std::string::npos) << both;
  EXPECT_EQ(both.size(), 2 * (kEvent + kDone).size() + std::string(": ping\n\n").size()) << both;
}

TEST(ForwardTest, AClientThatDisconnectsEndsItsRequest) {
  FakeReplica replica;
  replica.set_answer(replica.BeginAndHold(kEvent));
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const auto call = fleet.Post();
  Until("the first event", [&] { return call->text() == kEvent; });
  fleet.Cancel();
  Until("the replica to observe the disconnect", [&] { return replica.gone() == 1; });
  Until("no request in flight",
        [&] { return fleet.Fetch("GET", "/fleet/replicas").body.find("\"in_flight\":0") != std::string::npos; });
}

// A slow client holds its replica back and uses no memory of the router.
TEST(ForwardTest, ASlowClientUsesNoMemory) {
  constexpr int64_t kPiece = 64 << 10, kMost = 64 << 20;
  FakeReplica replica;
  std::atomic<int64_t> written{0}, unsent{0};
  replica.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    replica.Hold(exchange);
  });
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  // A socket that sends a request and does not read.
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(fleet.url().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string body = "{\"prompt\":\"x\"}";
  const std::string text = fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\n\r\n{}",
      body.size(), body);
  ASSERT_EQ(send(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  const Ptr exchange = replica.AwaitHeld();
  const std::string piece = "data: " + std::string(kPiece, 'x') + "\n\n";
  // Writes while the data is sent; stops when nothing was sent for a while.
  int stuck = 0;
  while (written < kMost && stuck < 500) {
    if (exchange->unsent() == 0) {
      exchange->Write(piece);
      written += kPiece;
      stuck = 0;
    } else {
      ++stuck;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  close(fd);
  EXPECT_LT(written.load(), kMost) << "the router stored everything that its client did not read";
}

TEST(ForwardTest, AReplicaThatHangsLosesItsRequests) {
  FakeReplica hangs, lives;
  hangs.set_answer([&](Ptr exchange) { hangs.Hold(std::move(exchange)); });
  lives.set_answer(Stream(1));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  options.fleet.poll_timeout.ns = 50 * kMillisecond;
  options.fleet.dead_after.ns = 200 * kMillisecond;
  RoutedFleet fleet({&hangs, &lives}, options);
  fleet.AwaitReady(2);
  std::vector<std::shared_ptr<Recorder>> calls;
  for (int i = 0; i < 2; ++i) calls.push_back(fleet.Post());
  hangs.AwaitHeld();
  hangs.set_state("");  // it no longer responds to polls
  for (const auto& call : calls) EXPECT_EQ(fleet.Answer(call)->body, kEvent + kDone);
  EXPECT_NE(fleet.log().find("no response"), std::string::npos) << fleet.log();
}

TEST(ForwardTest, AHedgeUsesTheFirstAnswer) {
  FakeReplica slow, quick;
  slow.set_answer([&](Ptr exchange) { slow.Hold(std::move(exchange)); });
  quick.set_answer(Stream(1));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  options.hedge_after.ns = 30 * kMillisecond;
  RoutedFleet fleet({&slow, &quick}, options);
  fleet.AwaitReady(2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.Answer(fleet.Post())->body, kEvent + kDone);
  const int held = slow.requests();
  EXPECT_GT(held, 0);
  EXPECT_EQ(fleet.Metric("tactus_route_hedges_total"), held);
  Until("the slow one to observe the cancellation", [&] { return slow.gone() == held; });
}

TEST(ForwardTest, ClientKeysAndReplicaKeysAreSeparate) {
  FakeReplica replica;
  RouterOptions options;
  options.api_key = {"outer"};
  options.fleet.replica_api_key = "inner";
  RoutedFleet fleet({&replica}, options);
  fleet.AwaitReady(1);
  EXPECT_EQ(fleet.Answer(fleet.Post())->status, 401);
  EXPECT_EQ(fleet.Answer(fleet.Post("{}", {{"Authorization", "Bearer wrong"}}))->status, 401);
  EXPECT_EQ(replica.requests(), 0);
  EXPECT_EQ(fleet.Fetch("GET", "/openapi.json").status, 200) << "a replica also serves it without a key";
  EXPECT_EQ(fleet.Answer(fleet.Post("{}", {{"Authorization", "Bearer outer"}}))->status, 200);
  EXPECT_EQ(*replica.request().Find("Authorization"), "Bearer inner");
}

TEST(ForwardTest, AClientsRequestsInFlightAreLimited) {
  FakeReplica replica;
  replica.set_answer([&](Ptr exchange) { replica.Hold(std::move(exchange)); });
  RouterOptions options;
  options.max_streams_per_client = 2;
  RoutedFleet fleet({&replica}, options);
  fleet.AwaitReady(1);
  fleet.Post();
  fleet.Post();
  replica.AwaitHeld(2);
  const auto third = fleet.Answer(fleet.Post());
  EXPECT_EQ(third->status, 429);
  EXPECT_NE(third->body.find("--max-streams-per-client"), std::string::npos) << third->body;
  replica.AwaitHeld(2)->Respond({.body = "{}"});
  Until("capacity for the next", [&] { return fleet.server().in_flight() < 2; });
}

}  // namespace
}  // namespace tactus::fleet
