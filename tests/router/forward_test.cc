// A request on its way to a replica and its answer back, whatever the replica does.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fleet_fixture.h"

namespace tactus::router {
namespace {

using Ptr = std::shared_ptr<http::Exchange>;

// Answers polls as a Tactus server does and everything else with the same bytes, and then closes the connection.
class RawReplica {
 public:
  explicit RawReplica(std::string bytes) : bytes_(std::move(bytes)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error("no socket for a replica");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~RawReplica() {
    stop_.store(true);
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }

 private:
  void Serve() {
    while (!stop_.load()) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      char buffer[4096];
      const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      const bool poll =
          got > 0 && std::string_view(buffer, static_cast<size_t>(got)).find("/fleet/state") != std::string::npos;
      const std::string state =
          R"({"status":"ready","version":"1","model":"m","running":0,"waiting":0,"waiting_tokens":0,)"
          R"("free_kv_tokens":1,"kv_tokens":1,"step_tokens":512})";
      const std::string text = poll ? fmt::format(
                                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                                          "Content-Length: {}\r\n\r\n{}",
                                          state.size(), state)
                                    : bytes_;
      (void)send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      shutdown(fd, SHUT_WR);
      while (recv(fd, buffer, sizeof buffer, 0) > 0) {
      }
      close(fd);
    }
  }

  const std::string bytes_;
  const int listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(ForwardTest, AStreamGoesThroughByteForByte) {
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
  EXPECT_EQ(seen.Find("x-hop"), nullptr);  // of that connection alone
  EXPECT_EQ(*seen.Find("X-Forwarded-For"), "127.0.0.1");
}

TEST(ForwardTest, AnAnswerThatIsNoStreamGoesThrough) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const auto answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->body, "{\"ok\":true}");
  EXPECT_NE(http::FindHeader(answer->headers, "Content-Length"), nullptr);
  const std::string large(5 << 20, 'x');  // more than is held
  replica.set_answer([&](Ptr exchange) { exchange->Respond({.body = large}); });
  EXPECT_TRUE(fleet.Answer(fleet.Post())->body == large);
}

TEST(ForwardTest, OneThatIsFullIsPassedOver) {
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

TEST(ForwardTest, WhereAllAreFullTheClientHearsItFromThem) {
  FakeReplica one, two;
  one.set_answer(Refuse(503));
  two.set_answer(Refuse(503));
  RoutedFleet fleet({&one, &two});
  fleet.AwaitReady(2);
  const auto answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->status, 503);
  EXPECT_NE(answer->body.find("mine, 503"), std::string::npos) << answer->body;
  EXPECT_EQ(one.requests() + two.requests(), 2);  // each once
}

TEST(ForwardTest, OtherErrorsAreTheClients) {
  FakeReplica one, two;
  one.set_answer(Refuse(400));
  two.set_answer(Refuse(400));
  RoutedFleet fleet({&one, &two});
  fleet.AwaitReady(2);
  EXPECT_EQ(fleet.Answer(fleet.Post())->status, 400);
  EXPECT_EQ(one.requests() + two.requests(), 1);
}

TEST(ForwardTest, OneThatDiesBeforeItAnswersIsReplaced) {
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

TEST(ForwardTest, WhatHasBegunEndsWithAnError) {
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
  EXPECT_TRUE(answer->ended.ok()) << answer->ended.ToString();  // a whole HTTP answer
  EXPECT_EQ(answer->body.find(kEvent + "data: {\"error\":"), 0u) << answer->body;
  EXPECT_EQ(answer->body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(fleet.Metric("tactus_route_cut_streams_total"), 1);
}

TEST(ForwardTest, CommentsTellNothingSoThatTheRequestMayGoElsewhere) {
  FakeReplica dies, lives;
  dies.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Write(": ping\n\n");
    dies.Hold(std::move(exchange));
  });
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

TEST(ForwardTest, AClientThatLeavesEndsItsRequest) {
  FakeReplica replica;
  replica.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Write(kEvent);
    replica.Hold(std::move(exchange));
  });
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const auto call = fleet.Post();
  Until("the first event", [&] { return call->text() == kEvent; });
  fleet.Cancel();
  Until("the replica to see that the client left", [&] { return replica.gone() == 1; });
  Until("no request in flight",
        [&] { return fleet.Fetch("GET", "/fleet/replicas").body.find("\"in_flight\":0") != std::string::npos; });
}

// A slow client holds its replica back, not the router's memory.
TEST(ForwardTest, ASlowClientTakesNoMemory) {
  constexpr int64_t kPiece = 64 << 10, kMost = 64 << 20;
  FakeReplica replica;
  std::atomic<int64_t> written{0}, unsent{0};
  replica.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    replica.Hold(exchange);
  });
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  // A socket that asks and does not read.
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
  // Writes as long as it goes; stops when nothing has gone for a while.
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
  EXPECT_LT(written.load(), kMost) << "the router took everything that a client did not read";
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
  hangs.set_state("");  // it does not say how it is any more
  for (const auto& call : calls) EXPECT_EQ(fleet.Answer(call)->body, kEvent + kDone);
  EXPECT_NE(fleet.log().find("not heard of"), std::string::npos) << fleet.log();
}

TEST(ForwardTest, AHedgeTakesWhoComesFirst) {
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
  Until("the slow one to see that nobody waits", [&] { return slow.gone() == held; });
}

TEST(ForwardTest, KeysAreTheRoutersOwn) {
  FakeReplica replica;
  RouterOptions options;
  options.api_key = {"outer"};
  options.fleet.replica_api_key = "inner";
  RoutedFleet fleet({&replica}, options);
  fleet.AwaitReady(1);
  EXPECT_EQ(fleet.Answer(fleet.Post())->status, 401);
  EXPECT_EQ(fleet.Answer(fleet.Post("{}", {{"Authorization", "Bearer wrong"}}))->status, 401);
  EXPECT_EQ(replica.requests(), 0);
  EXPECT_EQ(fleet.Answer(fleet.Post("{}", {{"Authorization", "Bearer outer"}}))->status, 200);
  EXPECT_EQ(*replica.request().Find("Authorization"), "Bearer inner");
}

TEST(ForwardTest, AClientHasItsShareOnly) {
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
  Until("a place for the next", [&] { return fleet.server().in_flight() < 2; });
}

TEST(ForwardTest, ASequenceThatMovesIsFollowed) {
  FakeReplica from, to;
  from.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Write(kEvent + ": migrated {\"to\":\"" + to.url() + "\",\"ticket\":\"t7\"}\n\n");
    exchange->End();
  });
  to.set_answer(Stream(2));
  const SecretFile secret;
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  options.kv_secret_file = secret.path();
  options.rebalance_interval.ns = 3600 * kSecond;
  RoutedFleet fleet({&from, &to}, options);
  fleet.AwaitReady(2);
  fleet.Fetch("POST", "/fleet/drain", "{\"url\":\"" + to.url() + "\"}");  // it gets what moves there alone
  const auto answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->body, kEvent + kEvent + kEvent + kDone);
  EXPECT_EQ(to.request().path, "/fleet/streams/t7");
  EXPECT_EQ(*from.request().Find("x-tactus-route"), "1");
  from.set_answer([&](Ptr exchange) { exchange->Respond({.headers = {{"x-tactus-migrated", to.url() + " t8"}}}); });
  to.set_answer([](Ptr exchange) { exchange->Respond({.body = "{\"whole\":1}"}); });
  EXPECT_EQ(fleet.Answer(fleet.Post())->body, "{\"whole\":1}");
  EXPECT_EQ(to.request().path, "/fleet/streams/t8");
}

// Moves to `url` with this ticket, having told nothing.
FakeReplica::Answer MoveTo(const std::string& url, const std::string& ticket) {
  return [=](Ptr exchange) { exchange->Respond({.headers = {{"x-tactus-migrated", url + " " + ticket}}}); };
}

TEST(ForwardTest, WhereAReplicaSaysIsNotAlwaysGone) {
  FakeReplica lies, other;
  other.set_answer(Refuse(404));
  const SecretFile secret;
  RouterOptions options;
  options.kv_secret_file = secret.path();
  options.rebalance_interval.ns = 3600 * kSecond;
  RoutedFleet fleet({&lies, &other}, options);
  fleet.AwaitReady(2);
  fleet.Fetch("POST", "/fleet/drain", "{\"url\":\"" + other.url() + "\"}");
  const auto message = [&] {
    const auto answer = fleet.Answer(fleet.Post());
    EXPECT_EQ(answer->status, 502);
    return answer->text();
  };
  lies.set_answer(MoveTo("http://127.0.0.1:1", "t9"));
  EXPECT_NE(message().find("no Tactus replica of this fleet"), std::string::npos) << message();
  lies.set_answer(MoveTo(other.url(), "t HTTP/1.1"));  // another request, in the midst of ours
  EXPECT_NE(message().find("no valid ticket"), std::string::npos) << message();
  EXPECT_EQ(other.requests(), 0);
  lies.set_answer(MoveTo(other.url(), "t9"));  // which knows nothing of it
  EXPECT_NE(message().find("(404)"), std::string::npos) << message();
  EXPECT_GT(other.requests(), 0);
  lies.set_answer(MoveTo(lies.url(), "t9"));  // round and round
  const int before = lies.requests();
  EXPECT_NE(message().find("nothing came"), std::string::npos) << message();
  EXPECT_LT(lies.requests() - before, 60);
}

// What moved and cannot be followed is had anew where nothing was told.
TEST(ForwardTest, ARestThatIsNotGivenIsHadAnew) {
  FakeReplica from, to;
  std::atomic<int> moved{0};
  from.set_answer([&](Ptr exchange) {
    if (moved++ == 0) return exchange->Respond({.headers = {{"x-tactus-migrated", to.url() + " t1"}}});
    Stream(2)(std::move(exchange));
  });
  to.set_answer(Refuse(404));
  const SecretFile secret;
  RouterOptions options;
  options.kv_secret_file = secret.path();
  options.rebalance_interval.ns = 3600 * kSecond;
  RoutedFleet fleet({&from, &to}, options);
  fleet.AwaitReady(2);
  fleet.Fetch("POST", "/fleet/drain", "{\"url\":\"" + to.url() + "\"}");
  EXPECT_EQ(fleet.Answer(fleet.Post())->body, kEvent + kEvent + kDone);
  EXPECT_EQ(from.requests(), 2);
}

TEST(ForwardTest, WithoutTheSecretNothingIsAskedToMove) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  fleet.Answer(fleet.Post("{}", {{"x-tactus-route", "1"}, {"Accept-Encoding", "gzip"}}));
  EXPECT_EQ(replica.request().Find("x-tactus-route"), nullptr);
  EXPECT_EQ(replica.request().Find("Accept-Encoding"), nullptr);
}

const std::string kError = "data: {\"error\":{\"message\":\"step failed\"}}\n\n";

FakeReplica::Answer Say(const std::string& text) {
  return [text](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Write(text);
    exchange->End();
  };
}

TEST(ForwardTest, AStreamThatSaysAnErrorFirstIsHadElsewhere) {
  FakeReplica fails, works;
  fails.set_answer(Say(": ping\n\n" + kError));
  works.set_answer(Stream(1));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  RoutedFleet fleet({&fails, &works}, options);
  fleet.AwaitReady(2);
  for (int i = 0; i < 4; ++i) {
    const auto answer = fleet.Answer(fleet.Post());
    EXPECT_EQ(answer->text().find("error"), std::string::npos) << answer->text();
    EXPECT_NE(answer->text().find(kEvent + kDone), std::string::npos) << answer->text();
  }
  EXPECT_GT(fails.requests(), 0);
  EXPECT_EQ(fleet.Metric("tactus_route_retries_total"), fails.requests());
}

TEST(ForwardTest, AnErrorIsNoAnswer) {
  FakeReplica replica;
  replica.set_answer(Say(kError));
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  auto answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->status, 502);  // nothing was told: a status is still to be had
  EXPECT_NE(answer->body.find("step failed"), std::string::npos) << answer->body;
  replica.set_answer(Say(kEvent + kError));
  answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, kEvent + kError);
  EXPECT_NE(fleet.Fetch("GET", "/fleet/replicas").body.find("\"failures\":2"), std::string::npos)
      << fleet.Fetch("GET", "/fleet/replicas").body;
}

// Every event that a client gets is whole, and so is the error after it.
TEST(ForwardTest, OneThatDiesInsideAnEventEndsBetweenEvents) {
  FakeReplica dies;
  dies.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Write(kEvent + "data: {\"choi");
    dies.Hold(std::move(exchange));
  });
  RoutedFleet fleet({&dies});
  fleet.AwaitReady(1);
  const auto call = fleet.Post();
  Until("the first event", [&] { return call->text() == kEvent; });
  dies.Stop();
  EXPECT_EQ(fleet.Answer(call)->text().find(kEvent + "data: {\"error\":"), 0u) << call->text();
}

TEST(ForwardTest, OneThatDiesInsideItsFirstEventIsReplaced) {
  FakeReplica dies, lives;
  dies.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Write("data: {\"choi");
    dies.Hold(std::move(exchange));
  });
  lives.set_answer(Stream(1));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  RoutedFleet fleet({&dies, &lives}, options);
  fleet.AwaitReady(2);
  std::vector<std::shared_ptr<Recorder>> calls;
  for (int i = 0; i < 2; ++i) calls.push_back(fleet.Post());
  dies.AwaitHeld();
  dies.Stop();
  for (const auto& call : calls) EXPECT_EQ(fleet.Answer(call)->text(), kEvent + kDone);
}

// A body is counted as long as it may have to be sent again, and is there once.
TEST(ForwardTest, ABodyGoesWhenItsAnswerHasBegun) {
  FakeReplica replica;
  replica.set_answer([&](Ptr exchange) { replica.Hold(std::move(exchange)); });
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const std::string body =
      "{\"stream\":true,\"prompt\":\"" + std::string(1 << 20, 'x') + "\"}";  // read on its own thread
  const auto call = fleet.Post(body);
  const Ptr exchange = replica.AwaitHeld();
  EXPECT_TRUE(replica.body() == body);
  EXPECT_EQ(fleet.Metric("tactus_http_body_bytes"), static_cast<double>(body.size()));
  exchange->StartStream({.content_type = "text/event-stream"});
  exchange->Write(kEvent);
  Until("the body to be let go of", [&] { return fleet.Metric("tactus_http_body_bytes") == 0; });
  exchange->Write(kDone);
  exchange->End();
  EXPECT_EQ(fleet.Answer(call)->text(), kEvent + kDone);
}

// A stream whose bytes come is no lost one, whatever its replica says or does not say of itself.
TEST(ForwardTest, AStreamThatGoesOnIsNotLost) {
  FakeReplica replica;
  replica.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    replica.Hold(std::move(exchange));
  });
  RouterOptions options;
  options.fleet.poll_timeout.ns = 20 * kMillisecond;
  options.fleet.dead_after.ns = 300 * kMillisecond;
  RoutedFleet fleet({&replica}, options);
  fleet.AwaitReady(1);
  const auto call = fleet.Post(), silent = fleet.Post();
  const Ptr first = replica.AwaitHeld(), second = replica.AwaitHeld(2);
  second->Write(kEvent);
  Until("the second's event", [&] { return !call->text().empty() || !silent->text().empty(); });
  replica.set_state("");
  int events = 0;
  Until("the silent one to be given up", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    first->Write(kEvent);
    ++events;
    return call->is_done() || silent->is_done();
  });
  first->Write(kDone);
  first->End();
  const auto& whole = call->is_done() ? silent : call;
  std::string expected;
  for (int i = 0; i < events; ++i) expected += kEvent;
  EXPECT_EQ(fleet.Answer(whole)->text(), expected + kDone);
  const auto& cut = whole == call ? silent : call;
  EXPECT_NE(cut->text().find("\"error\""), std::string::npos) << cut->text();
}

// Its number was never another's.
TEST(ForwardTest, WhatRunsAtARemovedReplicaIsNobodyElses) {
  FakeReplica removed;
  removed.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Write(kEvent);
    removed.Hold(std::move(exchange));
  });
  RouterOptions options;
  options.fleet.dead_after.ns = 100 * kMillisecond;
  RoutedFleet fleet({&removed}, options);
  fleet.AwaitReady(1);
  const auto call = fleet.Post();
  Until("the first event", [&] { return call->text() == kEvent; });
  fleet.Fetch("DELETE", "/fleet/replicas", "{\"url\":\"" + removed.url() + "\"}");
  fleet.Fetch("POST", "/fleet/replicas", "{\"url\":\"http://127.0.0.1:9\"}");  // in its place, where nobody is
  Until("the new one to count as lost", [&] { return fleet.log().find(":9: not heard of") != std::string::npos; });
  const Ptr exchange = removed.AwaitHeld();
  exchange->Write(kDone);
  exchange->End();
  EXPECT_EQ(fleet.Answer(call)->text(), kEvent + kDone);
}

TEST(ForwardTest, WhatStoppingCutsOffGetsAnError) {
  FakeReplica replica;
  replica.set_answer([&](Ptr exchange) {
    if (exchange->request().Find("x-begin") != nullptr) {
      exchange->StartStream({.content_type = "text/event-stream"});
      exchange->Write(kEvent);
    }
    replica.Hold(std::move(exchange));
  });
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const auto begun = fleet.Post("{}", {{"x-begin", "1"}}), waits = fleet.Post("{}");
  replica.AwaitHeld(2);
  Until("the first event", [&] { return begun->text() == kEvent; });
  fleet.server().StopAdmission();
  EXPECT_FALSE(fleet.server().WaitUntilIdle(0));
  fleet.server().CutOff();
  EXPECT_TRUE(fleet.server().WaitUntilIdle(10 * kSecond));
  EXPECT_EQ(fleet.Answer(waits)->status, 503);
  EXPECT_NE(waits->text().find("--shutdown-timeout"), std::string::npos) << waits->text();
  EXPECT_EQ(fleet.Answer(begun)->text().find(kEvent + "data: {\"error\":"), 0u) << begun->text();
  EXPECT_TRUE(begun->ended.ok()) << begun->ended.ToString();
}

// Heads and comments are no answer: who comes first is who tells something.
TEST(ForwardTest, AHedgeDoesNotTakeAHeadForAnAnswer) {
  FakeReplica slow, quick;
  slow.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Write(": ping\n\n");
    slow.Hold(std::move(exchange));
  });
  quick.set_answer(Stream(1));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  options.hedge_after.ns = 30 * kMillisecond;
  RoutedFleet fleet({&slow, &quick}, options);
  fleet.AwaitReady(2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.Answer(fleet.Post())->body, kEvent + kDone);
  EXPECT_GT(slow.requests(), 0);
  EXPECT_EQ(fleet.Metric("tactus_route_hedges_total"), slow.requests());
}

// Of an answer whose end is the connection's end nobody can tell that it is whole, but by [DONE].
TEST(ForwardTest, AnEndByClosingIsNoEnd) {
  for (const bool whole : {true, false}) {
    RawReplica replica("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + kEvent +
                       (whole ? kDone : ""));
    RouterOptions options;
    options.fleet.replicas = {replica.url()};
    RoutedFleet fleet({}, options);
    fleet.AwaitReady(1);
    const auto answer = fleet.Answer(fleet.Post());
    if (whole)
      EXPECT_EQ(answer->body, kEvent + kDone);
    else
      EXPECT_EQ(answer->body.find(kEvent + "data: {\"error\":"), 0u) << answer->body;
  }
}

}  // namespace
}  // namespace tactus::router
