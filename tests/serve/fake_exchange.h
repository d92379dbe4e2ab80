// An HTTP exchange without a connection: records a Generation's answer, with a client that can disconnect.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>

#include "fake_engine.h"
#include "http/server.h"

namespace tactus {

class FakeExchange final : public http::Exchange {
 public:
  explicit FakeExchange(const std::string& body, http::Headers headers = {}) {
    request_.method = "POST";
    request_.headers = std::move(headers);
    body_.Append(body);
    request_.peer = "192.0.2.1";
  }
  // Called inside Respond and End, before the answer can be read.
  std::function<void()> on_answer;
  // Called when the body is taken, before it is parsed.
  std::function<void()> on_take;

  // --- The client ---
  void Leave() {
    std::function<void()> gone;
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      gone.swap(on_closed_);
    }
    if (gone) gone();
  }
  // The whole answer; throws after kAwaitLimit.
  http::HttpResponse Answer() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kAwaitLimit, [this] { return answered_; }))
      throw std::runtime_error("no answer; so far: " + response_.body);
    return response_;
  }
  std::string written() const {
    std::lock_guard lock(mutex_);
    return response_.body;
  }
  bool streaming() const {
    std::lock_guard lock(mutex_);
    return streaming_;
  }
  int answers() const {
    std::lock_guard lock(mutex_);
    return answers_;
  }

  // --- Exchange ---
  const http::HttpRequest& request() const override { return request_; }
  http::Body TakeBody() override {
    if (on_take) on_take();
    return std::move(body_);
  }
  void Respond(http::HttpResponse response) override {
    if (on_answer) on_answer();
    std::lock_guard lock(mutex_);
    response_ = std::move(response);
    Answered();
  }
  void StartStream(http::HttpResponse head) override {
    std::lock_guard lock(mutex_);
    response_ = std::move(head);
    streaming_ = true;
  }
  void Write(std::string_view bytes) override {
    std::lock_guard lock(mutex_);
    response_.body += bytes;
  }
  void End() override {
    if (on_answer) on_answer();
    std::lock_guard lock(mutex_);
    Answered();
  }
  void Abort() override { End(); }
  int64_t unsent() const override { return unsent_bytes; }
  std::atomic<int64_t> unsent_bytes{0};
  void WhenSent(std::function<void()> callback) override { callback(); }
  void OnClosed(std::function<void()> callback) override {
    {
      std::lock_guard lock(mutex_);
      if (!closed_) {
        on_closed_ = std::move(callback);
        return;
      }
    }
    if (callback) callback();
  }
  bool closed() const override {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  void Answered() {
    answered_ = true;
    ++answers_;
    changed_.notify_all();
  }

  http::HttpRequest request_;
  http::Body body_{std::make_shared<http::BodyTotal>(int64_t{1} << 30)};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  http::HttpResponse response_;
  std::function<void()> on_closed_;
  bool streaming_ = false, answered_ = false, closed_ = false;
  int answers_ = 0;
};

}  // namespace tactus
