// The load generator: the requests it sends, and a missing server. Whole runs against a real server are in tests/e2e.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/json.h"
#include "cli/bench/alone_latency.h"
#include "cli/bench/load_generator.h"
#include "http/server.h"

namespace tactus::cli {
namespace {

// A loopback port that refuses every connection: bound, without a listener.
class ClosedPort {
 public:
  ClosedPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    number_ = ntohs(address.sin_port);
  }
  ~ClosedPort() { close(fd_); }
  ClosedPort(const ClosedPort&) = delete;
  ClosedPort& operator=(const ClosedPort&) = delete;
  uint16_t number() const { return number_; }

 private:
  int fd_;
  uint16_t number_ = 0;
};

// Holds requests until the server's next tick and answers them together, so that concurrent requests can be counted.
// With `refuse_every` n every n-th request gets 503.
class Endpoint final : public http::Handler {
 public:
  Endpoint() {
    auto server = http::Server::Listen({}, this, SystemClock());
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
    server_->Start();
  }
  LoadOptions Options() const {
    LoadOptions o;
    o.url = fmt::format("http://127.0.0.1:{}", server_->port());
    o.model = "m";
    o.vocab_size = 1000;
    o.timeout_ns = 30 * kSecond;
    return o;
  }
  std::optional<http::HttpResponse> CheckHead(const http::HttpRequest&) override { return std::nullopt; }
  http::HttpResponse ErrorResponse(int status, const std::string&) override { return {.status = status}; }
  void Handle(std::shared_ptr<http::Exchange> exchange) override {
    std::lock_guard lock(mutex_);
    bodies_.push_back(Json::parse(exchange->TakeBody().text()));
    held_.push_back(std::move(exchange));
    most_held_ = std::max(most_held_, held_.size());
  }
  void OnTick(TimeNs) override {
    std::lock_guard lock(mutex_);
    for (auto& exchange : held_) Answer(*exchange);
    held_.clear();
  }
  std::vector<Json> bodies() {
    std::lock_guard lock(mutex_);
    return bodies_;
  }
  size_t most_held() {
    std::lock_guard lock(mutex_);
    return most_held_;
  }
  int refuse_every = 0;

 private:
  void Answer(http::Exchange& exchange) {
    if (refuse_every > 0 && ++answered_ % refuse_every == 0) {
      exchange.Respond({.status = 503, .body = R"({"error": {"message": "full"}})"});
      return;
    }
    exchange.StartStream({.content_type = "text/event-stream"});
    for (const char* text : {"a", "", "b"})
      exchange.Write(fmt::format("data: {{\"choices\": [{{\"text\": \"{}\"}}]}}\n\n", text));
    exchange.Write(
        R"(data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}})"
        "\n\ndata: [DONE]\n\n");
    exchange.End();
  }

  std::mutex mutex_;
  std::vector<Json> bodies_;
  std::vector<std::shared_ptr<http::Exchange>> held_;
  size_t most_held_ = 0;
  int answered_ = 0;
  std::unique_ptr<http::Server> server_;  // last: its thread uses the other members
};

std::vector<sim::WorkloadRequest> Requests(size_t count) {
  std::vector<sim::WorkloadRequest> workload(count);
  for (size_t i = 0; i < count; ++i) {
    workload[i].index = static_cast<int64_t>(i);
    workload[i].prompt_tokens = 4;
    workload[i].output_tokens = 2;
  }
  return workload;
}

bool GoOn(const LoadProgress&) {
  return true;
}

std::vector<int64_t> PromptOf(const LoadOptions& o, const sim::WorkloadRequest& r, int64_t index) {
  return Json::parse(RequestBody(o, r, index))["prompt"].get<std::vector<int64_t>>();
}

TEST(LoadGenerator, PromptsHaveExactLengthsAndTheWorkloadsSharedText) {
  LoadOptions o;
  o.vocab_size = 1000;
  sim::WorkloadRequest r;
  r.prompt_tokens = 20;
  r.prefix_id = 3;
  r.shared_tokens = 12;
  const auto a = PromptOf(o, r, 0), b = PromptOf(o, r, 1);
  ASSERT_EQ(a.size(), 20u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 12, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 12, a.end(), b.begin() + 12));
  for (int64_t id : a) {
    EXPECT_GE(id, 100);
    EXPECT_LT(id, 1000);
  }
  EXPECT_EQ(a, PromptOf(o, r, 0));
  o.seed = 1;
  EXPECT_NE(a, PromptOf(o, r, 0));
}

TEST(LoadGenerator, TurnsRepeatTheConversationAndTraceBlocksRepeatById) {
  LoadOptions o;
  sim::WorkloadRequest first, second;
  first.conversation = second.conversation = 5;
  first.prompt_tokens = 10;
  second.prompt_tokens = 25;
  const auto a = PromptOf(o, first, 0), b = PromptOf(o, second, 1);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));

  sim::WorkloadRequest x, y;
  x.prompt_tokens = y.prompt_tokens = 1100;
  x.block_ids = {7, 8, 9};
  y.block_ids = {7, 10, 11};
  const auto p = PromptOf(o, x, 0), q = PromptOf(o, y, 1);
  EXPECT_TRUE(std::equal(p.begin(), p.begin() + 512, q.begin()));
  EXPECT_FALSE(std::equal(p.begin() + 512, p.begin() + 1024, q.begin() + 512));
}

TEST(LoadGenerator, BodiesFollowTheOptions) {
  LoadOptions o;
  o.model = "m";
  o.send_slo = true;
  o.slo.ttft_ns = 500 * kMillisecond;
  sim::WorkloadRequest r;
  r.prompt_tokens = 3;
  r.output_tokens = 7;
  const Json ids = Json::parse(RequestBody(o, r, 0));
  EXPECT_EQ(ids["max_tokens"], 7);
  EXPECT_EQ(ids["ignore_eos"], true);
  EXPECT_EQ(ids["stream"], true);
  EXPECT_EQ(ids["slo"], Json({{"ttft_ms", 500.0}}));
  EXPECT_FALSE(ids.contains("priority") || ids.contains("user")) << "which some servers reject";
  // Objectives in the workload override the options.
  r.slo.tbt_ns = 1'500'000;
  r.slo_class = "gold";
  r.priority = -2;
  r.client = "ann";
  const Json stated = Json::parse(RequestBody(o, r, 0));
  EXPECT_EQ(stated["slo"], Json({{"tbt_ms", 1.5}, {"class", "gold"}}));
  EXPECT_EQ(stated["priority"], -2);
  EXPECT_EQ(stated["user"], "ann");
  o.send_slo = false;
  EXPECT_FALSE(Json::parse(RequestBody(o, r, 0)).contains("slo"));
  o.endpoint = "chat";
  const Json chat = Json::parse(RequestBody(o, r, 0));
  EXPECT_EQ(chat["messages"][0]["role"], "user");
  EXPECT_FALSE(chat.contains("prompt"));
}

TEST(LoadGenerator, RecordsHaveTheWorkloadsObjectives) {
  Endpoint server;
  LoadOptions o = server.Options();
  o.concurrency = 1;
  std::vector<sim::WorkloadRequest> workload = Requests(2);
  workload[1].slo.ttft_ns = 5;
  workload[1].slo_class = "gold";
  const auto result = RunLoad(o, workload, SystemClock(), GoOn);
  ASSERT_TRUE(result.ok() && result->records.size() == 2);
  EXPECT_FALSE(result->records[0].slo.any());
  EXPECT_EQ(result->records[1].slo.ttft_ns, 5);
  EXPECT_EQ(result->records[1].slo_class, "gold");
}

TEST(AloneLatency, MeasuresOneRequestAtATimeWithTheWorkloadsLengths) {
  Endpoint server;
  LoadOptions o = server.Options();
  o.send_slo = true;
  std::vector<sim::WorkloadRequest> workload = Requests(5);
  for (size_t i = 0; i < 5; ++i) workload[i].prompt_tokens = i == 4 ? 90 : i == 0 ? 4 : 30;
  const auto points = MeasureAlone(o, workload, SystemClock(), [] { return true; });
  ASSERT_TRUE(points.ok()) << points.status().message();
  ASSERT_EQ(points->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*points)[i].prompt_tokens, (std::vector<int64_t>{4, 30, 90})[i]);
    EXPECT_GT((*points)[i].ttft_ns, 0);
  }
  EXPECT_EQ(server.most_held(), 1u);
  std::set<Json> prompts;
  for (const Json& body : server.bodies()) {
    prompts.insert(body["prompt"]);
    EXPECT_FALSE(body.contains("slo"));
  }
  EXPECT_EQ(prompts.size(), 6u) << "each with its own text";
  for (size_t i = 0; i < 5; ++i) EXPECT_FALSE(prompts.contains(PromptOf(o, workload[i], static_cast<int64_t>(i))));
  server.refuse_every = 2;
  EXPECT_EQ(MeasureAlone(o, workload, SystemClock(), [] { return true; })->size(), 3u) << "one of two is enough";
  server.refuse_every = 1;
  const Status refused = MeasureAlone(o, workload, SystemClock(), [] { return true; }).status();
  EXPECT_NE(refused.message().find("all 6 requests"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("6 x HTTP 503: full"), std::string::npos) << refused.message();
  EXPECT_EQ(MeasureAlone(o, workload, SystemClock(), [] { return false; }).status().code(), StatusCode::kCancelled);
}

TEST(LoadGenerator, WithoutAServerEveryRequestFails) {
  LoadOptions o;
  const ClosedPort closed;
  o.url = fmt::format("http://127.0.0.1:{}", closed.number());
  o.concurrency = 2;
  std::vector<sim::WorkloadRequest> workload(3);
  for (auto& r : workload) r.prompt_tokens = r.output_tokens = 1;
  auto result = RunLoad(o, workload, SystemClock(), [](const LoadProgress&) { return true; });
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->records.size(), 3u);
  for (const auto& r : result->records) EXPECT_EQ(r.outcome, RequestRecord::Outcome::kFailed);
  ASSERT_EQ(result->failures.size(), 1u);
  EXPECT_EQ(result->failures.begin()->second, 3);
  EXPECT_TRUE(result->rejections.empty());
}

TEST(LoadGenerator, AClosedLoopKeepsItsConcurrencyAndUsesTheServersCounts) {
  Endpoint endpoint;
  LoadOptions o = endpoint.Options();
  o.concurrency = 3;
  o.warmup = 2;
  const auto result = RunLoad(o, Requests(7), SystemClock(), GoOn);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(endpoint.most_held(), 3u);
  EXPECT_EQ(endpoint.bodies().size(), 9u);
  ASSERT_EQ(result->records.size(), 7u);  // without the warm-up
  for (const RequestRecord& r : result->records) {
    EXPECT_EQ(r.outcome, RequestRecord::Outcome::kCompleted);
    EXPECT_EQ(r.prompt_tokens, 7);
    EXPECT_EQ(r.output_tokens, 3);
    EXPECT_EQ(r.cached_tokens, 5);
    EXPECT_EQ(r.gaps_ns.size(), 1u);  // between the two events with text
    EXPECT_LE(r.sent_ns, r.first_token_ns);
    EXPECT_LE(r.last_token_ns, r.done_ns);
  }
  EXPECT_FALSE(result->interrupted);
  EXPECT_TRUE(result->failures.empty() && result->rejections.empty() && result->warmup_error.empty());
  // All prompts differ, also from the warm-up's, so that the prefix cache cannot help.
  std::set<std::string> prompts;
  for (const Json& body : endpoint.bodies()) prompts.insert(body["prompt"].dump());
  EXPECT_EQ(prompts.size(), 9u);
}

TEST(LoadGenerator, AnOpenLoopSendsAtArrivalTimesOnly) {
  Endpoint endpoint;
  std::vector<sim::WorkloadRequest> workload = Requests(5);
  for (size_t i = 0; i < workload.size(); ++i) workload[i].arrival_ns = static_cast<TimeNs>(i) * kMillisecond;
  const auto result = RunLoad(endpoint.Options(), workload, SystemClock(), GoOn);
  ASSERT_TRUE(result.ok() && result->records.size() == 5);
  for (size_t i = 0; i < 5; ++i) {
    const RequestRecord& r = result->records[i];
    EXPECT_EQ(r.due_ns - result->records[0].due_ns, static_cast<TimeNs>(i) * kMillisecond);
    EXPECT_GE(r.sent_ns, r.due_ns);
  }
  EXPECT_GT(result->duration_ns, 0);
}

TEST(LoadGenerator, ATurnIsSentAfterThePreviousTurnEnds) {
  Endpoint endpoint;
  std::vector<sim::WorkloadRequest> workload = Requests(4);
  for (size_t i = 0; i < 4; ++i) {
    workload[i].conversation = static_cast<int64_t>(i / 2);
    workload[i].turn = static_cast<int64_t>(i % 2);
    workload[i].prompt_tokens = workload[i].turn == 0 ? 4 : 10;
    if (workload[i].turn > 0) workload[i].arrival_ns = -1;
  }
  for (const int64_t concurrency : {0, 2}) {
    LoadOptions o = endpoint.Options();
    o.concurrency = concurrency;
    const auto result = RunLoad(o, workload, SystemClock(), GoOn);
    ASSERT_TRUE(result.ok() && result->records.size() == 4) << concurrency;
    for (const size_t first : {size_t{0}, size_t{2}})
      EXPECT_GE(result->records[first + 1].sent_ns, result->records[first].done_ns);
  }
}

TEST(LoadGenerator, RejectionsAreCountedByReasonAndAreNotFailures) {
  Endpoint endpoint;
  endpoint.refuse_every = 3;
  LoadOptions o = endpoint.Options();
  o.concurrency = 2;
  const auto result = RunLoad(o, Requests(9), SystemClock(), GoOn);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->failures.empty());
  EXPECT_EQ(result->rejections, (std::map<std::string, int64_t>{{"HTTP 503: full", 3}}));
}

TEST(LoadGenerator, ProgressCountsRejectionsSeparatelyFromFailures) {
  Endpoint endpoint;
  endpoint.refuse_every = 3;
  LoadOptions o = endpoint.Options();
  o.concurrency = 2;
  LoadProgress last;
  const auto result = RunLoad(o, Requests(100'000), SystemClock(), [&](const LoadProgress& p) {
    last = p;
    return p.rejected < 2 && p.done < 100;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_GE(last.rejected, 2) << "of " << last.done;
  EXPECT_EQ(last.failed, 0);
}

TEST(LoadGenerator, AnInterruptKeepsCompletedRequestsAlsoInTheWarmUp) {
  Endpoint endpoint;
  LoadOptions o = endpoint.Options();
  o.concurrency = 2;
  auto result = RunLoad(o, Requests(100'000), SystemClock(), [](const LoadProgress& p) { return p.done < 4; });
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->interrupted);
  EXPECT_GE(result->records.size(), 4u);
  EXPECT_LT(result->records.size(), 100u);
  for (const RequestRecord& r : result->records) EXPECT_EQ(r.outcome, RequestRecord::Outcome::kCompleted);
  o.warmup = 1;
  int asked = 0;
  result = RunLoad(o, Requests(100'000), SystemClock(), [&](const LoadProgress&) { return ++asked < 1; });
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->interrupted);
  EXPECT_TRUE(result->records.empty());
}

TEST(LoadGenerator, ReasonsAreListedByFrequency) {
  EXPECT_EQ(ReasonsText({}, "failed", 5), "");
  EXPECT_EQ(ReasonsText({{"a", 1}}, "failed", 5), "1 of 5 requests failed: 1 x a");
  EXPECT_EQ(ReasonsText({{"a", 1}, {"b", 7}, {"c", 2}}, "failed", 10), "10 of 10 requests failed: 7 x b; 2 x c; 1 x a");
  EXPECT_EQ(ReasonsText({{"a", 1}, {"b", 7}, {"c", 2}, {"d", 3}, {"e", 1}}, "were refused", 20),
            "14 of 20 requests were refused: 7 x b; 3 x d; 2 x c; and 2 other reasons");
}

TEST(LoadGenerator, ABadUrlIsRefused) {
  LoadOptions o;
  o.url = "ftp://x";
  EXPECT_FALSE(RunLoad(o, {}, SystemClock(), [](const LoadProgress&) { return true; }).ok());
}

}  // namespace
}  // namespace tactus::cli
