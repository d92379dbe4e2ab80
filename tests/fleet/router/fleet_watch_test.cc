// Which replicas receive requests, by their reports and results.
#include "fleet_fixture.h"

namespace tactus::fleet {
namespace {

using Ptr = std::shared_ptr<http::Exchange>;

TEST(FleetWatchTest, TheFreerReplicaGetsTheRequest) {
  FakeReplica busy, idle;
  busy.set_state(busy.State(100'000));
  RoutedFleet fleet({&busy, &idle});  // sal
  fleet.AwaitReady(2);
  for (int i = 0; i < 5; ++i) fleet.Answer(fleet.Post());
  EXPECT_EQ(idle.requests(), 5);
  busy.set_state(busy.State(0));
  idle.set_state(idle.State(100'000));
  const int polls = idle.polls();
  Until("the new states", [&] { return idle.polls() > polls + 2; });
  for (int i = 0; i < 5; ++i) fleet.Answer(fleet.Post());
  EXPECT_EQ(busy.requests(), 5);
}

TEST(FleetWatchTest, MemoryIsTakenFromTheReport) {
  FakeReplica full, free;
  full.set_state(full.State(0, 12'345));
  RouterOptions options;
  options.fleet.balancer = "llumnix";
  RoutedFleet fleet({&full, &free}, options);
  fleet.AwaitReady(2);
  const std::string list = fleet.Fetch("GET", "/fleet/replicas").body;
  EXPECT_NE(list.find("\"free_kv_tokens\":12345"), std::string::npos) << list;
  for (int i = 0; i < 5; ++i) fleet.Answer(fleet.Post());
  EXPECT_EQ(free.requests(), 5);
}

TEST(FleetWatchTest, AReplicaThatIsNotReadyGetsNoRequest) {
  FakeReplica loads, ready;
  loads.set_state("{\"status\":\"loading\",\"version\":\"1\"}");
  RoutedFleet fleet({&loads, &ready});
  fleet.AwaitReady(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fleet.Answer(fleet.Post())->status, 200);
  EXPECT_EQ(loads.requests(), 0);
  loads.set_state(std::nullopt);
  fleet.AwaitReady(2);
}

TEST(FleetWatchTest, WithoutAReplicaTheClientGetsA503WithTheReason) {
  RoutedFleet none({});
  auto answer = none.Answer(none.Post());
  EXPECT_EQ(answer->status, 503);
  EXPECT_NE(answer->body.find("--replicas"), std::string::npos) << answer->body;
  EXPECT_EQ(none.Fetch("GET", "/ready").status, 503);
  EXPECT_EQ(none.Fetch("GET", "/health").status, 200);
  FakeReplica loads;
  loads.set_state("{\"status\":\"loading\",\"version\":\"1\"}");
  RoutedFleet fleet({&loads});
  answer = fleet.Answer(fleet.Post());
  EXPECT_EQ(answer->status, 503);
  EXPECT_NE(answer->body.find("no replica accepts requests"), std::string::npos) << answer->body;
}

TEST(FleetWatchTest, AReplicaOfAnotherModelIsRefused) {
  FakeReplica ours("ours"), other("other");
  RouterOptions options;
  options.fleet.model = "ours";
  RoutedFleet fleet({&other, &ours}, options);
  fleet.AwaitReady(1);
  Until("the warning",
        [&] { return fleet.log().find("it serves 'other', but this fleet serves 'ours'") != std::string::npos; });
  EXPECT_NE(fleet.Fetch("GET", "/fleet/replicas").body.find("\"state\":\"refused\""), std::string::npos);
}

TEST(FleetWatchTest, AReplicaWithAnImpossibleReportGetsNoRequest) {
  FakeReplica liar, honest;
  liar.set_state(liar.State(0, 2 << 20));  // more free memory than it has
  RoutedFleet fleet({&liar, &honest});
  fleet.AwaitReady(1);
  Until("the reason", [&] { return fleet.log().find("which is impossible") != std::string::npos; });
  fleet.Answer(fleet.Post());
  EXPECT_EQ(liar.requests(), 0);
}

TEST(FleetWatchTest, AReplicaThatRestartsIsUsedAgain) {
  FakeReplica dies, lives;
  RouterOptions options;
  options.fleet.slow_start.ns = 0;
  options.fleet.balancer = "round-robin";
  RoutedFleet fleet({&dies, &lives}, options);
  fleet.AwaitReady(2);
  dies.Stop();
  fleet.AwaitReady(1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.Answer(fleet.Post())->status, 200);
  dies.Restart();
  fleet.AwaitReady(2);
  const int before = dies.requests();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.Answer(fleet.Post())->status, 200);
  EXPECT_EQ(dies.requests(), before + 2);
}

TEST(FleetWatchTest, AReplicaAddedLaterGetsItsShareGradually) {
  FakeReplica first, later;
  RouterOptions options;
  options.fleet.slow_start.ns = 3600 * kSecond;  // its share stays at a tenth
  options.fleet.balancer = "round-robin";
  RoutedFleet fleet({&first}, options);
  fleet.AwaitReady(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // replicas of the first second start together
  fleet.Fetch("POST", "/fleet/replicas", "{\"url\":\"" + later.url() + "\"}");
  fleet.AwaitReady(2);
  for (int i = 0; i < 60; ++i) fleet.Answer(fleet.Post());
  EXPECT_GE(later.requests(), 2);
  EXPECT_LE(later.requests(), 10);
}

TEST(FleetWatchTest, AFailingReplicaIsEjectedUnlessHalfAreEjected) {
  FakeReplica broken, good;
  broken.set_answer(Refuse(502));
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  options.fleet.eject_after = 3;
  options.fleet.eject_time.ns = 3600 * kSecond;
  RoutedFleet fleet({&broken, &good}, options);
  fleet.AwaitReady(2);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(fleet.Answer(fleet.Post())->status, 200);
  EXPECT_EQ(broken.requests(), 3);
  EXPECT_EQ(fleet.server().ready_replicas(), 1);
  good.set_answer(Refuse(502));  // half are ejected already: it stays
  for (int i = 0; i < 10; ++i) EXPECT_EQ(fleet.Answer(fleet.Post())->status, 502);
  EXPECT_EQ(fleet.server().ready_replicas(), 1);
}

TEST(FleetWatchTest, ADrainedReplicaFinishesAndGetsNoMoreRequests) {
  FakeReplica drained, other;
  drained.set_answer([&](Ptr exchange) { drained.Hold(std::move(exchange)); });
  other.set_answer([&](Ptr exchange) { exchange->Respond({.body = "{}"}); });
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  RoutedFleet fleet({&drained, &other}, options);
  fleet.AwaitReady(2);
  const std::vector calls = {fleet.Post(), fleet.Post()};
  const Ptr held = drained.AwaitHeld();
  const auto list = fleet.Fetch("POST", "/fleet/drain", "{\"url\":\"" + drained.url() + "\"}");
  EXPECT_NE(list.body.find("\"state\":\"draining\""), std::string::npos) << list.body;
  for (int i = 0; i < 4; ++i) fleet.Answer(fleet.Post());
  EXPECT_EQ(drained.requests(), 1);
  held->Respond({.body = "{\"held\":1}"});
  std::string both;
  for (const auto& call : calls) both += fleet.Answer(call)->body;
  EXPECT_NE(both.find("held"), std::string::npos);
  fleet.Fetch("POST", "/fleet/undrain", "{\"url\":\"" + drained.url() + "\"}");
  fleet.AwaitReady(2);
}

TEST(FleetWatchTest, InvalidReplicaCommandsAreRefused) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  for (const auto& [body, text] :
       {std::pair("{}", "url: give"), std::pair("{\"url\":5}", "url: give"), std::pair("[", "line 1"),
        std::pair("{\"url\":\"ftp://x\"}", "not an http:// or https:// URL"),
        std::pair("{\"url\":\"http://x/v1\"}", "without a path")}) {
    const auto answer = fleet.Fetch("POST", "/fleet/replicas", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_NE(answer.body.find(text), std::string::npos) << answer.body;
  }
  EXPECT_EQ(fleet.Fetch("DELETE", "/fleet/replicas", "{\"url\":\"http://127.0.0.1:1\"}").status, 404);
  EXPECT_EQ(fleet.Fetch("POST", "/fleet/drain", "{\"url\":\"http://127.0.0.1:1\"}").status, 404);
  fleet.AwaitReady(1);
  EXPECT_EQ(fleet.Fetch("DELETE", "/fleet/replicas", "{\"url\":\"" + replica.url() + "\"}").status, 200);
  EXPECT_EQ(fleet.server().ready_replicas(), 0);
}

TEST(FleetWatchTest, WithAnAdminKeyFleetRoutesNeedIt) {
  RouterOptions options;
  options.admin_key = "secret";
  RoutedFleet fleet({}, options);
  EXPECT_EQ(fleet.Fetch("GET", "/fleet/replicas").status, 401);
  EXPECT_EQ(fleet.Fetch("GET", "/fleet/replicas", "", {{"Authorization", "Bearer secret"}}).status, 200);
}

// Web pages can send other types to another site without its permission.
TEST(FleetWatchTest, CommandsNeedTheJsonContentType) {
  RoutedFleet fleet({});
  for (const char* method : {"POST", "DELETE"}) {
    const auto answer = fleet.Fetch(method, "/fleet/replicas", "", {{"Content-Type", "text/plain"}});
    EXPECT_EQ(answer.status, 415) << method;
    EXPECT_NE(answer.body.find("give application/json"), std::string::npos) << answer.body;
  }
}

TEST(FleetWatchTest, InvalidOptionsAreRefusedByName) {
  const auto refused = [](RouterOptions options) {
    options.port = 0;
    const auto server = RouterServer::Listen(options, SystemClock(), {});
    return server.ok() ? std::string("accepted") : server.status().message();
  };
  RouterOptions options;
  options.fleet.replicas = {"http://a:1,ftp://b"};
  EXPECT_NE(refused(options).find("--replicas"), std::string::npos) << refused(options);
  options = {};
  options.fleet.balancer = "none such";
  EXPECT_NE(refused(options).find("unknown balancer"), std::string::npos) << refused(options);
  options = {};
  options.fleet.replicas_file = "/nowhere";
  EXPECT_NE(refused(options).find("--replicas-file"), std::string::npos) << refused(options);
  options = {};
  options.fleet.replicas_dns = "host";
  EXPECT_NE(refused(options).find("HOST:PORT"), std::string::npos) << refused(options);
  options = {};
  options.fleet.poll_interval.ns = 0;
  EXPECT_NE(refused(options).find("--poll-interval"), std::string::npos) << refused(options);
}

// A replica that two sources name is removed only when neither names it.
TEST(FleetWatchTest, AReplicaOfTheOptionsIsNotRemovedByTheFile) {
  FakeReplica one, two;
  const std::string path = testing::TempDir() + "named_" + http::RandomId();
  const auto write = [&](const std::string& text) {
    FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs(text.c_str(), file);
    std::fclose(file);
  };
  write(one.url() + "\n" + two.url() + "\n");
  RouterOptions options;
  options.fleet.replicas_file = path;
  RoutedFleet fleet({&one}, options);
  fleet.AwaitReady(2);
  write("http://127.0.0.1:9\n");
  Until("the removal of the file's replica",
        [&] { return fleet.log().find(two.url() + ": removed") != std::string::npos; });
  EXPECT_EQ(fleet.server().ready_replicas(), 1);
  EXPECT_EQ(fleet.log().find(one.url() + ": removed"), std::string::npos);
  std::remove(path.c_str());
}

TEST(FleetWatchTest, PollsCarryTheReplicasKey) {
  FakeReplica replica;
  RouterOptions options;
  options.fleet.replica_api_key = "inner";
  RoutedFleet fleet({&replica}, options);
  fleet.AwaitReady(1);
  EXPECT_EQ(replica.polled_with(), "Bearer inner");
  options.fleet.replica_api_key = "inner\n";
  options.port = 0;
  const auto refused = RouterServer::Listen(options, SystemClock(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("--replica-api-key has white space"), std::string::npos)
      << refused.status().message();
}

// A proxy on this machine does not make its clients trusted.
TEST(FleetWatchTest, RequestsThroughAProxyAreNotAdmin) {
  FakeReplica replica;
  RoutedFleet fleet({&replica});
  EXPECT_EQ(fleet.Fetch("GET", "/fleet/replicas").status, 200);
  for (const char* header : {"X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"})
    EXPECT_EQ(fleet.Fetch("GET", "/fleet/replicas", "", {{header, "for=192.0.2.1"}}).status, 403) << header;
}

// Requests that a replica served while it was the only one are no debt later.
TEST(FleetWatchTest, SlowStartCountsNoRequestsServedAsTheOnlyReplica) {
  FakeReplica first, late;
  RouterOptions options;
  options.fleet.balancer = "round-robin";
  options.fleet.slow_start.ns = 3600 * kSecond;
  RoutedFleet fleet({&first, &late}, options);
  fleet.AwaitReady(2);
  late.set_state("{\"status\":\"loading\",\"version\":\"1\"}");
  fleet.AwaitReady(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // replicas that start together share the slow start
  late.set_state(std::nullopt);
  fleet.AwaitReady(2);
  first.set_state("{\"status\":\"loading\",\"version\":\"1\"}");
  fleet.AwaitReady(1);
  for (int i = 0; i < 100; ++i) fleet.Answer(fleet.Post());
  const int alone = late.requests();
  ASSERT_GE(alone, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  first.set_state(std::nullopt);
  fleet.AwaitReady(2);
  for (int i = 0; i < 100; ++i) fleet.Answer(fleet.Post());
  EXPECT_GE(late.requests() - alone, 20);  // both start slowly: about half of the requests
}

TEST(FleetWatchTest, AFileAddsAndRemovesReplicas) {
  FakeReplica one, two;
  const std::string path = testing::TempDir() + fmt::format("replicas_{}", one.port());
  const auto write = [&](const std::string& text) {
    FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs(text.c_str(), file);
    std::fclose(file);
  };
  write("# the fleet\n" + one.url() + "\n");
  RouterOptions options;
  options.fleet.replicas_file = path;
  RoutedFleet fleet({}, options);
  fleet.AwaitReady(1);
  write(one.url() + "\n" + two.url() + " # new\n");
  fleet.AwaitReady(2);
  write("");  // as during a write
  Until("the warning", [&] { return fleet.log().find("no longer names any replica") != std::string::npos; });
  EXPECT_EQ(fleet.server().ready_replicas(), 2);
  write("nonsense\n");
  Until("the warning", [&] { return fleet.log().find("line 1") != std::string::npos; });
  EXPECT_EQ(fleet.server().ready_replicas(), 2);
  write(two.url() + "\n");
  fleet.AwaitReady(1);
  std::remove(path.c_str());
}

// With the fleet's secret, sequences at a drained replica are moved, by signed commands.
TEST(FleetWatchTest, SequencesAtADrainedReplicaAreMoved) {
  FakeReplica drained, other;
  const SecretFile secret;
  const auto answer = [](const std::string& body) {
    return [body](Ptr exchange) { exchange->Respond({.body = body}); };
  };
  drained.set_answer(answer(R"({"moved":5,"failed":7})"));
  RouterOptions options;
  options.kv_secret_file = secret.path();
  options.rebalance_interval.ns = 10 * kMillisecond;
  RoutedFleet fleet({&drained, &other}, options);
  fleet.AwaitReady(2);
  EXPECT_EQ(drained.requests(), 0);
  fleet.Fetch("POST", "/fleet/drain", "{\"url\":\"" + drained.url() + "\"}");
  Until("a command", [&] { return drained.requests() > 0; });
  EXPECT_EQ(drained.request().path, "/fleet/migrate");
  EXPECT_EQ(drained.body(), "{\"to\":\"" + other.url() + "\",\"all\":true}");
  EXPECT_NE(drained.request().Find("x-tactus-fleet"), nullptr);
  EXPECT_EQ(other.requests(), 0);
  const auto moved = [&] { return fleet.Metric("tactus_route_migrations_total{result=\"moved\"}"); };
  Until("more commands", [&] { return drained.requests() > 3; });
  for (const char* none : {"{}", "[]", "moved"}) {
    drained.set_answer(answer(none));
    const int before = drained.requests();
    Until("more commands", [&] { return drained.requests() > before + 2; });
  }
  EXPECT_EQ(moved(), 0) << "a response without a list counts no sequence";
  drained.set_answer(answer(R"({"moved":[{"request_id":"a"},{"request_id":"b"}],"failed":[]})"));
  Until("two sequences counted", [&] { return moved() >= 2; });
}

// A server without a load report: only its models, or vLLM's metrics.
TEST(FleetWatchTest, OtherOpenAiServersAreReplicasToo) {
  FakeReplica plain;
  class Handler final : public http::Handler {
   public:
    std::optional<http::HttpResponse> CheckHead(const http::HttpRequest&) override { return std::nullopt; }
    void Handle(Ptr exchange) override {
      const std::string path = exchange->request().path;
      if (path == "/v1/models") return exchange->Respond({.body = R"({"data":[{"id":"m"}]})"});
      if (path == "/metrics" && vllm) {
        return exchange->Respond({.content_type = "text/plain",
                                  .body = "vllm:num_requests_running{a=\"b\"} 1\nvllm:num_requests_waiting{a=\"b\"} 0\n"
                                          "vllm:kv_cache_usage_perc{a=\"b\"} 0.5\n"});
      }
      exchange->Respond({.status = path == "/v1/completions" ? 200 : 404, .body = "{}"});
    }
    http::HttpResponse ErrorResponse(int status, const std::string&) override { return {.status = status}; }
    std::atomic<bool> vllm{false};
  };
  for (const bool vllm : {false, true}) {
    Handler handler;
    handler.vllm = vllm;
    http::ServerOptions server_options;
    auto server = http::Server::Listen(server_options, &handler, SystemClock());
    ASSERT_TRUE(server.ok());
    (*server)->Start();
    RouterOptions options;
    options.fleet.replicas = {fmt::format("http://127.0.0.1:{}", (*server)->port())};
    RoutedFleet fleet({}, options);
    fleet.AwaitReady(1);
    EXPECT_NE(fleet.log().find(vllm ? "vllm, m" : "plain, m"), std::string::npos) << fleet.log();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(fleet.Answer(fleet.Post())->status, 200);
  }
}

}  // namespace
}  // namespace tactus::fleet
