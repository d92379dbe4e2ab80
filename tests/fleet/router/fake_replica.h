// A scripted replica, an HTTP server on a free loopback port. Every wait has a limit and throws after it, which ends
// the test with the condition's name.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "http/server.h"

namespace tactus::fleet {

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
  // As when a process is killed: every connection ends.
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
  // The response to /fleet/state from now on; empty: none.
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
  // Stores an exchange that is not answered yet.
  void Hold(std::shared_ptr<http::Exchange> exchange) {
    exchange->OnClosed([this] { ++gone_; });
    std::lock_guard lock(mutex_);
    held_.push_back(std::move(exchange));
  }
  // An answer that begins its stream with `text` and is then held.
  Answer BeginAndHold(const std::string& text) {
    return [this, text](std::shared_ptr<http::Exchange> exchange) {
      exchange->StartStream({.content_type = "text/event-stream"});
      exchange->Write(text);
      Hold(std::move(exchange));
    };
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

// `events` events and the end.
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

}  // namespace tactus::fleet
