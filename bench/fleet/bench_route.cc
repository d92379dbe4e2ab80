// Measures the delay that the router adds to streams: the time from the write of an event at a replica to its arrival
// at the client, for many concurrent streams, in turns directly and through `tactus route`. The replica writes events
// at a fixed rate and computes nothing.
//
//   bench_route [--streams 1000] [--rate 20] [--seconds 5] [--rounds 3]
//
// Prints a line per round and part: events, P50, P99 and the largest in microseconds, and the memory of the process.
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "fleet/balance/fleet.h"
#include "fleet/router/router_server.h"
#include "http/client.h"
#include "http/server.h"
#include "http/serving_process.h"
#include "results/obs/histogram.h"

namespace tactus {
namespace {

struct Options {
  int64_t streams = 1000, rate = 20, seconds = 5, rounds = 3;
};

// Streams events that contain the time of their write.
class Replica final : public http::Handler {
 public:
  explicit Replica(int64_t rate) : rate_(rate) {
    http::ServerOptions options;
    options.max_connections = 8192;
    options.max_connections_per_client = 8192;
    server_ = std::move(http::Server::Listen(options, this, SystemClock())).value();
    server_->Start();
    pace_ = std::thread([this] { Pace(); });
  }
  ~Replica() override {
    stop_.store(true);
    pace_.join();
    server_.reset();
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", server_->port()); }
  void EndAll() {
    std::lock_guard lock(mutex_);
    for (const auto& stream : streams_) stream->End();
    streams_.clear();
  }
  size_t open() {
    std::lock_guard lock(mutex_);
    return streams_.size();
  }

  std::optional<http::HttpResponse> CheckHead(const http::HttpRequest&) override { return std::nullopt; }
  void Handle(std::shared_ptr<http::Exchange> exchange) override {
    if (exchange->request().path == "/fleet/state") {
      return exchange->Respond(
          {.body = R"({"status":"ready","version":"1","model":"m","running":1,"waiting":0,"waiting_tokens":0,)"
                   R"("free_kv_tokens":1000,"kv_tokens":1000,"step_tokens":512})"});
    }
    exchange->StartStream({.content_type = "text/event-stream"});
    std::lock_guard lock(mutex_);
    streams_.push_back(std::move(exchange));
  }
  http::HttpResponse ErrorResponse(int status, const std::string& message) override {
    return {.status = status, .body = message};
  }

 private:
  // Writes, each millisecond, to the streams that are due.
  void Pace() {
    const auto period = static_cast<size_t>(1000 / rate_);
    for (size_t tick = 0; !stop_.load(); ++tick) {
      {
        std::lock_guard lock(mutex_);
        for (size_t i = tick % period; i < streams_.size(); i += period)
          streams_[i]->Write(fmt::format("data: {}\n\n", SystemClock().NowNs()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const int64_t rate_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<http::Exchange>> streams_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<http::Server> server_;
  std::thread pace_;
};

struct Latency : http::ResponseHandler {
  Latency(results::Histogram* h, const std::atomic<bool>* c) : histogram(h), counting(c) {}
  void OnEvent(std::string_view data, TimeNs received_ns) override {
    int64_t sent_ns = 0;
    std::from_chars(data.data(), data.data() + data.size(), sent_ns);
    if (counting->load(std::memory_order_relaxed)) histogram->Add(received_ns - sent_ns);
  }
  void OnDone(const Status& status, const http::HttpResponse& response, TimeNs) override {
    if (!status.ok() || response.status != 200) ++failed;
  }
  static inline std::atomic<int64_t> failed{0};
  results::Histogram* const histogram;
  const std::atomic<bool>* const counting;
};

int64_t ResidentKiB() {
  FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr && std::sscanf(line, "VmRSS: %ld", &kib) != 1) {
  }
  std::fclose(file);
  return kib;
}

results::Histogram Measure(const std::string& url, Replica* replica, const Options& options) {
  results::Histogram histogram;
  std::atomic<bool> counting{false};
  http::Client client(*http::ParseUrl(url), {}, SystemClock());
  const auto handler = std::make_shared<Latency>(&histogram, &counting);
  for (int64_t i = 0; i < options.streams; ++i)
    client.Send({"POST", "/v1/completions", {{"Content-Type", "application/json"}}, "{\"prompt\":\"x\"}"}, handler);
  std::thread thread([&] { client.Run(); });
  while (replica->open() < static_cast<size_t>(options.streams))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  counting.store(true);
  std::this_thread::sleep_for(std::chrono::seconds(options.seconds));
  counting.store(false);
  replica->EndAll();
  thread.join();
  return histogram;
}

// Measures decisions in a fleet of 512 replicas, for every balancer.
void Decisions() {
  for (const fleet::BalancerInfo& info : fleet::Balancers()) {
    auto fleet = std::move(fleet::Fleet::Create(512, info.name, 1)).value();
    std::vector<Hash128> keys(64);
    for (int32_t i = 0; i < 512; ++i) fleet->Told(i, {i % 50, i * 37 % 4096, 100'000 - i * 11, 200'000, 1024});
    results::Histogram took;
    for (uint64_t n = 0; n < 50'000; ++n) {
      for (size_t k = 0; k < keys.size(); ++k) keys[k] = {n % 500 * 100 + k, 1};
      const TimeNs start_ns = SystemClock().NowNs();
      const int32_t replica = fleet->Route({.prompt_tokens = 1024, .keys = keys, .block_size = 16});
      took.Add(SystemClock().NowNs() - start_ns);
      if (n % 4 != 0) fleet->Ended(replica, 1024, 128);
      if (n % 100 == 0) fleet->Told(static_cast<int32_t>(n / 100 % 512), {40, 1000, 90'000, 200'000, 1024});
    }
    fmt::print("decision, 512 replicas, {:18} P50 {:6.2f} us  P99 {:6.2f} us\n", info.name, took.Quantile(0.5) * 1e-3,
               took.Quantile(0.99) * 1e-3);
  }
}

int Main(int argc, char** argv) {
  Options options;
  const std::map<std::string, int64_t*> flags = {{"--streams", &options.streams},
                                                 {"--rate", &options.rate},
                                                 {"--seconds", &options.seconds},
                                                 {"--rounds", &options.rounds}};
  for (int i = 1; i < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    const int64_t value = i + 1 < argc ? std::atoll(argv[i + 1]) : 0;
    if (flag == flags.end() || value < 1) {
      std::fprintf(stderr, "bench_route: '%s' is unknown or has no number above 0; see the head of its source\n",
                   argv[i]);
      return 2;
    }
    *flag->second = value;
  }
  http::RaiseFileLimit(8'000, 2,
                       [](std::string_view line) { std::fprintf(stderr, "%s\n", std::string(line).c_str()); });
  Decisions();
  Replica replica(options.rate);
  fleet::RouterOptions router;
  router.port = 0;
  router.fleet.replicas = {replica.url()};
  router.max_connections = router.max_connections_per_client = router.max_streams_per_client = 8192;
  const auto server = fleet::RouterServer::Listen(router, SystemClock(), {});
  if (!server.ok()) {
    std::fprintf(stderr, "bench_route: %s\n", server.status().message().c_str());
    return 1;
  }
  while ((*server)->ready_replicas() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::string routed = fmt::format("http://127.0.0.1:{}", (*server)->port());
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (const bool direct : {true, false}) {
      const results::Histogram h = Measure(direct ? replica.url() : routed, &replica, options);
      fmt::print("round {}, {:7} {:7} events  P50 {:7.1f} us  P99 {:7.1f} us  max {:8.1f} us  {} failed  {} MiB\n",
                 round + 1, direct ? "direct" : "routed", h.count(), h.Quantile(0.5) * 1e-3, h.Quantile(0.99) * 1e-3,
                 static_cast<double>(h.max()) * 1e-3, Latency::failed.load(), ResidentKiB() / 1024);
      std::fflush(stdout);
    }
  }
  return Latency::failed.load() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  return tactus::Main(argc, argv);
}
