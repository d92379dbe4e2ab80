// Answers that lie, break off, move or begin with an error, and requests whose replica fails.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fleet/router/forward.h"
#include "fleet_fixture.h"

namespace tactus::fleet {
namespace {

using Ptr = std::shared_ptr<http::Exchange>;

// Answers polls as a Tactus server, and every other request with the same bytes; then closes the connection.
class RawReplica {
 public:
  // `polls`: the response to polls; empty: a state that is ready.
  explicit RawReplica(std::string bytes, std::string polls = "")
      : bytes_(std::move(bytes)), polls_(std::move(polls)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
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
  int answers() const { return answers_.load(); }

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
      const std::string text = poll && !polls_.empty() ? polls_
                               : poll                  ? fmt::format(
                                            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                                                             "Content-Length: {}\r\n\r\n{}",
                                            state.size(), state)
                                      : bytes_;
      (void)send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      ++answers_;
      shutdown(fd, SHUT_WR);
      while (recv(fd, buffer, sizeof buffer, 0) > 0) {
      }
      close(fd);
    }
  }

  const std::string bytes_, polls_;
  const int listener_;
  std::atomic<int> answers_{0};
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(BrokenAnswersTest, ASequenceThatMovesIsFollowed) {
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
  fleet.Fetch("POST", "/fleet/drain", "{\"url\":\"" + to.url() + "\"}");  // it only gets sequences that move there
  const auto answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->body, kEvent + kEvent + kEvent + kDone);
  EXPECT_EQ(to.request().path, "/fleet/streams/t7");
  EXPECT_EQ(*from.request().Find("x-tactus-route"), "1");
  from.set_answer([&](Ptr exchange) { exchange->Respond({.headers = {{"x-tactus-migrated", to.url() + " t8"}}}); });
  to.set_answer([](Ptr exchange) { exchange->Respond({.body = "{\"whole\":1}"}); });
  EXPECT_EQ(fleet.Answer(fleet.Post())->body, "{\"whole\":1}");
  EXPECT_EQ(to.request().path, "/fleet/streams/t8");
}

// An answer that moves to `url` with this ticket, without any event.
FakeReplica::Answer MoveTo(const std::string& url, const std::string& ticket) {
  return [=](Ptr exchange) { exchange->Respond({.headers = {{"x-tactus-migrated", url + " " + ticket}}}); };
}

TEST(BrokenAnswersTest, AMoveToAnInvalidPlaceOrTicketIsNotFollowed) {
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
  EXPECT_NE(message().find("not a Tactus replica of this fleet"), std::string::npos) << message();
  lies.set_answer(MoveTo(other.url(), "t HTTP/1.1"));  // would insert another request into ours
  EXPECT_NE(message().find("without a valid ticket"), std::string::npos) << message();
  EXPECT_EQ(other.requests(), 0);
  lies.set_answer(MoveTo(other.url(), "t9"));  // an unknown ticket there
  EXPECT_NE(message().find("(404)"), std::string::npos) << message();
  EXPECT_GT(other.requests(), 0);
  lies.set_answer(MoveTo(lies.url(), "t9"));  // an endless loop
  const int before = lies.requests();
  EXPECT_NE(message().find("without an answer"), std::string::npos) << message();
  EXPECT_LT(lies.requests() - before, 60);
}

// A request that moved and cannot be followed is sent again if nothing was passed on.
TEST(BrokenAnswersTest, AMovedRequestWhoseRestIsRefusedIsSentAgain) {
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

TEST(BrokenAnswersTest, WithoutTheSecretNoReplicaMayMoveARequest) {
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

TEST(BrokenAnswersTest, AStreamThatBeginsWithAnErrorIsRetriedElsewhere) {
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

TEST(BrokenAnswersTest, AnErrorEventCountsAsAFailure) {
  FakeReplica replica;
  replica.set_answer(Say(kError));
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  auto answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->status, 502);  // nothing was passed on: a status can still be sent
  EXPECT_NE(answer->body.find("step failed"), std::string::npos) << answer->body;
  replica.set_answer(Say(kEvent + kError));
  answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, kEvent + kError);
  EXPECT_NE(fleet.Fetch("GET", "/fleet/replicas").body.find("\"failures\":2"), std::string::npos)
      << fleet.Fetch("GET", "/fleet/replicas").body;
}

// Every event that a client receives is complete, and so is the error after it.
TEST(BrokenAnswersTest, AStreamThatDiesInsideAnEventEndsBetweenEvents) {
  FakeReplica dies;
  dies.set_answer(dies.BeginAndHold(kEvent + "data: {\"choi"));
  RoutedFleet fleet({&dies});
  fleet.AwaitReady(1);
  const auto call = fleet.Post();
  Until("the first event", [&] { return call->text() == kEvent; });
  dies.Stop();
  EXPECT_EQ(fleet.Answer(call)->text().find(kEvent + "data: {\"error\":"), 0u) << call->text();
}

TEST(BrokenAnswersTest, AReplicaThatDiesInsideItsFirstEventIsReplaced) {
  FakeReplica dies, lives;
  dies.set_answer(dies.BeginAndHold("data: {\"choi"));
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

// A body counts while it may have to be sent again, and there is one copy of it.
TEST(BrokenAnswersTest, ABodyIsFreedWhenItsAnswerBegins) {
  FakeReplica replica;
  replica.set_answer([&](Ptr exchange) { replica.Hold(std::move(exchange)); });
  RoutedFleet fleet({&replica});
  fleet.AwaitReady(1);
  const std::string body =
      "{\"stream\":true,\"prompt\":\"" + std::string(1 << 20, 'x') + "\"}";  // parsed on the separate thread
  const auto call = fleet.Post(body);
  const Ptr exchange = replica.AwaitHeld();
  EXPECT_TRUE(replica.body() == body);
  EXPECT_EQ(fleet.Metric("tactus_http_body_bytes"), static_cast<double>(body.size()));
  exchange->StartStream({.content_type = "text/event-stream"});
  exchange->Write(kEvent);
  Until("the body to be freed", [&] { return fleet.Metric("tactus_http_body_bytes") == 0; });
  exchange->Write(kDone);
  exchange->End();
  EXPECT_EQ(fleet.Answer(call)->text(), kEvent + kDone);
}

// A stream with incoming bytes is not lost, whether or not its replica responds to polls.
TEST(BrokenAnswersTest, AStreamThatContinuesIsNotLost) {
  FakeReplica replica;
  replica.set_answer([&](Ptr exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    replica.Hold(std::move(exchange));
  });
  RouterOptions options;
  options.fleet.poll_timeout.ns = 20 * kMillisecond;
  options.fleet.dead_after.ns = 1000 * kMillisecond;
  RoutedFleet fleet({&replica}, options);
  fleet.AwaitReady(1);
  const auto call = fleet.Post(), silent = fleet.Post();
  const Ptr first = replica.AwaitHeld(), second = replica.AwaitHeld(2);
  second->Write(kEvent);
  Until("the second's event", [&] { return !call->text().empty() || !silent->text().empty(); });
  replica.set_state("");
  int events = 0;
  Until("the silent one to be ended", [&] {
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

// Numbers of replicas are never reused.
TEST(BrokenAnswersTest, ARequestAtARemovedReplicaIsNotLostWithAnotherReplica) {
  FakeReplica removed;
  removed.set_answer(removed.BeginAndHold(kEvent));
  RouterOptions options;
  options.fleet.dead_after.ns = 100 * kMillisecond;
  RoutedFleet fleet({&removed}, options);
  fleet.AwaitReady(1);
  const auto call = fleet.Post();
  Until("the first event", [&] { return call->text() == kEvent; });
  fleet.Fetch("DELETE", "/fleet/replicas", "{\"url\":\"" + removed.url() + "\"}");
  fleet.Fetch("POST", "/fleet/replicas", "{\"url\":\"http://127.0.0.1:9\"}");  // takes its place; no server is there
  Until("the new one to count as lost", [&] { return fleet.log().find(":9: no response") != std::string::npos; });
  const Ptr exchange = removed.AwaitHeld();
  exchange->Write(kDone);
  exchange->End();
  EXPECT_EQ(fleet.Answer(call)->text(), kEvent + kDone);
}

TEST(BrokenAnswersTest, RequestsCutOffAtTheStopEndWithAnError) {
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

// Heads and comments are not answers: the first replica that sends an event leads.
TEST(BrokenAnswersTest, AHedgeIsNotDecidedByAHead) {
  FakeReplica slow, quick;
  slow.set_answer(slow.BeginAndHold(": ping\n\n"));
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

// An answer that ends with the connection is complete only if [DONE] came.
TEST(BrokenAnswersTest, AStreamThatEndsByClosingNeedsDone) {
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

const std::string kChunkedStream =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
std::string Chunk(const std::string& text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

// One answer of a replica that answers all requests alike.
std::shared_ptr<Recorder> AnswerOf(const std::string& bytes, const std::string& body) {
  RawReplica replica(bytes);
  RouterOptions options;
  options.fleet.replicas = {replica.url()};
  RoutedFleet fleet({}, options);
  fleet.AwaitReady(1);
  return fleet.Answer(fleet.Post(body));
}

// HTTP reports a complete answer, but the API's last event is missing.
TEST(BrokenAnswersTest, AStreamWithoutItsLastEventIsCut) {
  const std::string stop = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n";
  const auto answer = [](const std::string& text, const char* body) {
    return AnswerOf(kChunkedStream + Chunk(text) + "0\r\n\r\n", body)->text();
  };
  EXPECT_EQ(answer(kEvent, "{}").find(kEvent + "data: {\"error\":"), 0u);
  EXPECT_EQ(answer(kEvent + stop, "{}"), kEvent + stop);
  EXPECT_EQ(answer(kEvent + kDone, "{\"n\":2}"), kEvent + kDone);
  EXPECT_EQ(answer(stop + stop, "{\"n\":2}"), stop + stop);
  EXPECT_EQ(answer(stop, "{\"n\":2}").find(stop + "data: {\"error\":"), 0u);
  EXPECT_EQ(answer(stop, "{\"prompt\":[\"a\",\"b\"]}").find(stop + "data: {\"error\":"), 0u);
  EXPECT_EQ(AnswerOf(kChunkedStream + "0\r\n\r\n", "{}")->status, 502);  // nothing was passed on
}

TEST(BrokenAnswersTest, AnAnswerWithoutALengthIsCompleteWhenItsJsonIs) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
  const std::string json = "{\"choices\":[{\"text\":\"}\"}]}";
  EXPECT_EQ(AnswerOf(head + json, "{}")->status, 200);
  for (size_t cut = 0; cut < json.size(); ++cut) {
    const auto answer = AnswerOf(head + json.substr(0, cut), "{}");
    ASSERT_EQ(answer->status, 502) << cut;
    ASSERT_NE(answer->body.find("incomplete"), std::string::npos) << answer->body;
  }
  // Too long to be held: its head has been passed on, and the connection breaks.
  const auto large = AnswerOf(head + "[\"" + std::string(2 * kHeldBytes, 'x'), "{}");
  EXPECT_EQ(large->status, 200);
  EXPECT_FALSE(large->ended.ok());
}

TEST(BrokenAnswersTest, ARedirectOfAReplicaIsNotPassedOn) {
  for (const char* status : {"301 Moved", "307 Temporary", "308 Permanent"}) {
    const auto answer = AnswerOf(
        fmt::format("HTTP/1.1 {}\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", status), "{}");
    EXPECT_EQ(answer->status, 502) << status;
    EXPECT_EQ(http::FindHeader(answer->headers, "Location"), nullptr) << status;
  }
}

// In a poll and in an answer: the router must continue whatever a replica sends.
TEST(BrokenAnswersTest, HeadersOverAllLimitsFailOnlyTheirReplica) {
  for (const size_t bytes : {65'534, 65'536, 1'000'000}) {
    const std::string head = "HTTP/1.1 200 OK\r\nX: " + std::string(bytes, 'y') + "\r\nContent-Length: 2\r\n\r\n{}";
    RawReplica lies(head), polled(head, head);
    FakeReplica sound;
    RouterOptions options;
    options.fleet.balancer = "round-robin";
    options.fleet.replicas = {lies.url(), polled.url()};
    RoutedFleet fleet({&sound}, options);
    fleet.AwaitReady(2);
    Until("the liar to be polled often", [&] { return polled.answers() >= 4; });
    for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.Answer(fleet.Post("{}"))->text(), "{\"ok\":true}");
    EXPECT_NE(fleet.Fetch("GET", "/fleet/replicas").body.find("unreachable"), std::string::npos);
  }
}

}  // namespace
}  // namespace tactus::fleet
