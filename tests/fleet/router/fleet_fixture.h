// A router in front of scripted replicas, and calls to it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fake_replica.h"
#include "fleet/router/router_server.h"
#include "http/access.h"
#include "http/client.h"

namespace tactus::fleet {

inline constexpr DurationNs kCallLimit = 30 * kSecond;

// A fleet's secret in a file that exists while this does.
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

// Stores an answer byte for byte.
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

// A router over replicas, and calls to it on a separate thread.
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
  // A metric's value; 0 if missing.
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
  // Also keeps the loop running.
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

}  // namespace tactus::fleet
