// Replicas that do as a test says, each an HTTP server on a free port of the loopback, and a router in front of them.
// No wait is without a limit: one that passes it throws, which ends the test with what it waited for.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "http/access.h"
#include "http/client.h"
#include "http/server.h"
#include "router/router_server.h"

namespace tactus::router {

inline constexpr DurationNs kCallLimit = 30 * kSecond;

inline void Until(const std::string& what, const std::function<bool()>& condition) {
  for (int looks = 0; looks < 15'000; ++looks) {
    if (condition()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  throw std::runtime_error("not within 30 s: " + what);
}

class FakeReplica final : public http::Handler {
 public:
  using Answer = std::function<void(std::shared_ptr<http::Exchange>)>;

  explicit FakeReplica(std::string model = "m") : model_(std::move(model)) { Start(0); }
  ~FakeReplica() override { Stop(); }

  void Start(uint16_t port) {
    http::ServerOptions options;
    options.port = port;
    auto server = http::Server::Listen(options, this, SystemClock());
    if (!server.ok()) throw std::runtime_error(server.status().ToString());
    server_ = std::move(*server);
    server_->Start();
    port_ = server_->port();
  }
  // As a process that is killed: every connection ends.
  void Stop() {
    server_.reset();
    std::lock_guard lock(mutex_);
    held_.clear();
  }
  void Restart() { Start(port_); }
  uint16_t port() const { return port_; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  void set_answer(Answer answer) {
    std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  // What /fleet/state says from now on; empty: it does not answer.
  void set_state(std::optional<std::string> state) {
    std::lock_guard lock(mutex_);
    state_ = std::move(state);
  }
  std::string State(int64_t waiting_tokens = 0, int64_t free_kv_tokens = 1 << 20) const {
    return fmt::format(
        R"({{"status":"ready","version":"1","model":"{}","running":1,"waiting":0,"waiting_tokens":{},"free_kv_tokens":{},)"
        R"("kv_tokens":1048576,"step_tokens":512}})",
        model_, waiting_tokens, free_kv_tokens);
  }
  int requests() const { return requests_.load(); }
  int polls() const { return polls_.load(); }
  int gone() const { return gone_.load(); }
  std::string polled_with() const {  // the key of the last poll
    std::lock_guard lock(mutex_);
    return polled_with_;
  }
  std::string body() const {
    std::lock_guard lock(mutex_);
    return body_;
  }
  http::HttpRequest request() const {
    std::lock_guard lock(mutex_);
    return request_;
  }
  // The exchanges that its answer kept.
  void Hold(std::shared_ptr<http::Exchange> exchange) {
    exchange->OnClosed([this] { ++gone_; });
    std::lock_guard lock(mutex_);
    held_.push_back(std::move(exchange));
  }
  std::shared_ptr<http::Exchange> AwaitHeld(size_t count = 1) {
    Until(fmt::format("{} requests held by a replica", count), [&] {
      std::lock_guard lock(mutex_);
      return held_.size() >= count;
    });
    std::lock_guard lock(mutex_);
    return held_[count - 1];
  }

  std::optional<http::HttpResponse> CheckHead(const http::HttpRequest&) override { return std::nullopt; }
  void Handle(std::shared_ptr<http::Exchange> exchange) override {
    if (exchange->request().path == "/fleet/state") {
      ++polls_;
      std::lock_guard lock(mutex_);
      const std::string* key = exchange->request().Find("Authorization");
      polled_with_ = key != nullptr ? *key : std::string();
      if (state_ && state_->empty()) return held_polls_.push_back(std::move(exchange));
      return exchange->Respond({.body = state_.value_or(State())});
    }
    Answer answer;
    {
      std::lock_guard lock(mutex_);
      body_ = std::string(exchange->TakeBody().text());
      request_ = exchange->request();
      answer = answer_;
    }
    ++requests_;
    answer(std::move(exchange));
  }
  http::HttpResponse ErrorResponse(int status, const std::string& message) override {
    return {.status = status, .body = message};
  }

 private:
  const std::string model_;
  mutable std::mutex mutex_;
  Answer answer_ = [](std::shared_ptr<http::Exchange> exchange) { exchange->Respond({.body = "{\"ok\":true}"}); };
  std::optional<std::string> state_;
  std::string body_, polled_with_;
  http::HttpRequest request_;
  std::vector<std::shared_ptr<http::Exchange>> held_, held_polls_;
  std::atomic<int> requests_{0}, polls_{0}, gone_{0};
  uint16_t port_ = 0;
  std::unique_ptr<http::Server> server_;
};

inline const std::string kEvent = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n", kDone = "data: [DONE]\n\n";

// So many events and the end.
inline FakeReplica::Answer Stream(int events) {
  return [events](std::shared_ptr<http::Exchange> exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    for (int i = 0; i < events; ++i) exchange->Write(kEvent);
    exchange->Write(kDone);
    exchange->End();
  };
}

inline FakeReplica::Answer Refuse(int status) {
  return [status](std::shared_ptr<http::Exchange> exchange) {
    exchange->Respond({.status = status, .body = fmt::format("{{\"error\":{{\"message\":\"mine, {}\"}}}}", status)});
  };
}

// A fleet's secret in a file, as long as it lives.
class SecretFile {
 public:
  SecretFile() : path_(testing::TempDir() + "secret_" + http::RandomId()) {
    FILE* file = std::fopen(path_.c_str(), "w");
    if (file == nullptr) throw std::runtime_error("cannot write " + path_);
    std::fputs("0123456789abcdef0123456789abcdef\n", file);
    std::fclose(file);
    if (chmod(path_.c_str(), 0600) != 0) throw std::runtime_error("cannot guard " + path_);
  }
  ~SecretFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// Keeps what an answer brought, byte for byte.
struct Recorder : http::ResponseHandler {
  void OnHead(int status_in, const http::Headers& headers_in, TimeNs) override {
    std::lock_guard lock(mutex);
    status = status_in;
    headers = headers_in;
  }
  bool OnPiece(std::string_view bytes) override {
    std::lock_guard lock(mutex);
    body += bytes;
    return true;
  }
  void OnDone(const Status& ended_in, const http::HttpResponse&, TimeNs) override {
    std::lock_guard lock(mutex);
    ended = ended_in;
    done = true;
  }
  bool is_done() const {
    std::lock_guard lock(mutex);
    return done;
  }
  std::string text() const {
    std::lock_guard lock(mutex);
    return body;
  }
  mutable std::mutex mutex;
  int status = 0;
  http::Headers headers;
  std::string body;
  Status ended = Internal("no answer");
  bool done = false;
};

// A router over replicas, and calls to it on a thread of their own.
class RoutedFleet {
 public:
  explicit RoutedFleet(const std::vector<const FakeReplica*>& replicas, RouterOptions options = {}) {
    for (const FakeReplica* replica : replicas) options.fleet.replicas.push_back(replica->url());
    options.port = 0;
    options.fleet.poll_interval.ns = 10 * kMillisecond;
    options.fleet.poll_timeout.ns = std::min<int64_t>(options.fleet.poll_timeout.ns, 500 * kMillisecond);
    auto server = RouterServer::Listen(options, SystemClock(), [this](std::string_view line) {
      std::lock_guard lock(mutex_);
      log_ += std::string(line) + "\n";
    });
    if (!server.ok()) throw std::runtime_error(server.status().ToString());
    server_ = std::move(*server);
    url_ = *http::ParseUrl(fmt::format("http://127.0.0.1:{}", server_->port()));
    client_ = std::make_unique<http::Client>(url_, http::ClientOptions{.timeout_ns = kCallLimit, .pieces = true},
                                             SystemClock(), loop_);
    LookForTheEnd();
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~RoutedFleet() {
    stop_.store(true);
    thread_.join();
    client_.reset();
  }

  void AwaitReady(int64_t count) {
    Until(fmt::format("{} replicas ready; the log: {}", count, log()),
          [&] { return server_->ready_replicas() == count; });
  }
  std::shared_ptr<Recorder> Send(http::ClientRequest request) {
    auto recorder = std::make_shared<Recorder>();
    loop_.Post(
        [this, recorder, request = std::move(request)]() mutable { client_->Send(std::move(request), recorder); });
    return recorder;
  }
  std::shared_ptr<Recorder> Post(const std::string& body = "{\"prompt\":\"x\",\"stream\":true}",
                                 http::Headers headers = {}) {
    headers.emplace_back("Content-Type", "application/json");
    return Send({"POST", "/v1/completions", std::move(headers), body});
  }
  std::shared_ptr<Recorder> Answer(std::shared_ptr<Recorder> call) {
    Until("the end of an answer; so far: " + call->text(), [&] { return call->is_done(); });
    return call;
  }
  http::HttpResponse Fetch(const std::string& method, const std::string& path, const std::string& body = "",
                           http::Headers headers = {}) {
    if (!body.empty()) headers.emplace_back("Content-Type", "application/json");
    auto response = http::Fetch(url_, {method, path, std::move(headers), body}, kCallLimit, SystemClock());
    if (!response.ok()) throw std::runtime_error(response.status().ToString());
    return std::move(*response);
  }
  // A metric's value, 0 where it is not there.
  double Metric(const std::string& name) {
    const std::string text = "\n" + Fetch("GET", "/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size() + 2));
  }
  std::string log() const {
    std::lock_guard lock(mutex_);
    return log_;
  }
  RouterServer& server() { return *server_; }
  const http::Url& url() const { return url_; }
  void Cancel() {
    loop_.Post([this] {
      client_.reset(new http::Client(url_, {.timeout_ns = kCallLimit, .pieces = true}, SystemClock(), loop_));
    });
  }

 private:
  // Keeps the loop going meanwhile.
  void LookForTheEnd() {
    if (stop_.load()) return loop_.Stop();
    loop_.After(5 * kMillisecond, [this] { LookForTheEnd(); });
  }

  mutable std::mutex mutex_;
  std::string log_;
  std::unique_ptr<RouterServer> server_;
  http::Url url_;
  http::Loop loop_;
  std::unique_ptr<http::Client> client_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tactus::router
