// A server on a free port of the loopback whose handler echoes, holds or streams, depending on the path. Every wait has
// a limit, after which it throws, which ends the test with the name of the condition.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "http/raw_socket.h"
#include "http/server.h"

namespace tactus::http {

// A clock that only Advance changes. Any thread.
class TestClock final : public Clock {
 public:
  TimeNs NowNs() override { return now_ns_.load(); }
  void Advance(DurationNs by_ns) { now_ns_.fetch_add(by_ns); }

 private:
  std::atomic<TimeNs> now_ns_{kSecond};
};

// Polls `condition`, with `step` between checks, for at most kPatienceSeconds.
inline void Until(const char* what, const std::function<bool()>& condition, const std::function<void()>& step = {}) {
  constexpr int kPauseMs = 2;
  for (int looks = 0; looks < kPatienceSeconds * 1000 / kPauseMs; ++looks) {
    if (condition()) return;
    if (step) step();
    std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
  }
  throw std::runtime_error(fmt::format("not within {} s: {}", kPatienceSeconds, what));
}

class TestHandler final : public Handler {
 public:
  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override {
    Change([this] { ++heads_; });
    if (head.path == "/refuse") return ErrorResponse(403, "refused");
    return std::nullopt;
  }
  bool IsProbe(const HttpRequest& head) override { return head.path == "/probe"; }
  void Handle(std::shared_ptr<Exchange> exchange) override {
    const HttpRequest& r = exchange->request();
    if (r.path == "/throw") throw std::runtime_error("a handler's fault");
    if (r.path == "/hold" || r.path == "/stream") {
      if (r.path == "/stream") exchange->StartStream({.content_type = "text/event-stream"});
      exchange->OnClosed([this] { Change([this] { ++closed_; }); });
      Change([&] { held_.push_back(std::move(exchange)); });
      return;
    }
    const Body body = exchange->TakeBody();
    exchange->Respond(
        {.content_type = "text/plain", .body = fmt::format("{} {} [{}]", r.method, r.target, body.text())});
  }
  HttpResponse ErrorResponse(int status, const std::string& message) override {
    return {.status = status, .content_type = "text/plain", .body = message};
  }
  void OnTick(TimeNs) override {
    Change([this] { ++ticks_; });
  }

  std::shared_ptr<Exchange> AwaitHeld(size_t count) {
    Await("requests at the handler", count, [this] { return held_.size(); });
    std::lock_guard lock(mutex_);
    return held_[count - 1];
  }
  void AwaitClosed(int count) {
    Await("noticed disconnects", count, [this] { return closed_; });
  }
  void AwaitHeads(int count) {
    Await("heads checked", count, [this] { return heads_; });
  }
  // Waits for `count` further ticks.
  void AwaitTicks(int count) {
    std::unique_lock lock(mutex_);
    const int until = ticks_ + count;
    lock.unlock();
    Await("ticks", until, [this] { return ticks_; });
  }
  int closed() {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  // Frees every exchange and its body.
  void Forget() {
    Change([this] { held_.clear(); });
  }

 private:
  void Change(const std::function<void()>& f) {
    std::lock_guard lock(mutex_);
    f();
    changed_.notify_all();
  }
  template <class N, class Count>
  void Await(const char* what, N wanted, Count count) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::seconds(kPatienceSeconds), [&] { return count() >= wanted; })) return;
    throw std::runtime_error(fmt::format("{}: {} of {} within {} s", what, count(), wanted, kPatienceSeconds));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Exchange>> held_;
  int closed_ = 0, heads_ = 0, ticks_ = 0;
};

class HttpServerTest : public testing::Test {
 protected:
  void Start(ServerOptions options = {}) { StartOn(SystemClock(), options); }
  // Time changes only by clock_.Advance; the server checks it often.
  void StartOnTestClock(ServerOptions options = {}) {
    options.tick_ns = 5 * kMillisecond;
    StartOn(clock_, options);
  }
  std::string Talk(std::string_view bytes, const char* from = "127.0.0.1") {
    RawSocket socket(port_, 0, from);
    socket.Send(bytes);
    return socket.ReadAll();
  }
  std::string TalkWhileTimePasses(std::string_view bytes) {
    RawSocket socket(port_);
    socket.Send(bytes);
    PassTimeUntilReadable(&socket);
    return socket.ReadAll();
  }
  void PassTimeUntilReadable(RawSocket* socket) {
    Until("the server answers or closes", [&] { return socket->Readable(0); }, [&] { clock_.Advance(kSecond / 4); });
  }
  static bool Has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }
  static int Count(const std::string& text, std::string_view part) {
    int count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
  }

  TestHandler handler_;
  TestClock clock_;
  std::unique_ptr<Server> server_;
  uint16_t port_ = 0;

 private:
  void StartOn(Clock& clock, ServerOptions options) {
    auto server = Server::Listen(options, &handler_, clock);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
    server_->Start();
    port_ = server_->port();
  }
};

}  // namespace tactus::http
