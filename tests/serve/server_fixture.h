// A server with a FakeEngine on a free port of the loopback, and functions to call it. Every wait has a limit, after
// which it throws or fails with a message.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "fake_engine.h"
#include "http/client.h"
#include "serve/api_server.h"
#include "test_clock.h"

namespace tactus {

inline constexpr DurationNs kCallLimit = 30 * kSecond;

// Records a streamed answer.
struct Recorder : http::ResponseHandler {
  void OnHead(int s, const http::Headers&, TimeNs) override { http_status = s; }
  void OnEvent(std::string_view data, TimeNs) override { events.emplace_back(data); }
  void OnDone(const Status& s, const http::HttpResponse& r, TimeNs) override {
    status = s;
    response = r;
    done = true;
  }
  int http_status = 0;
  std::vector<std::string> events;
  Status status;
  http::HttpResponse response;
  bool done = false;
};

// Calls on a separate thread, while the test continues. Each ends after kCallLimit at the latest.
class Calls {
 public:
  explicit Calls(const http::Url& url) : client_(url, {.timeout_ns = kCallLimit}, SystemClock()) {}
  ~Calls() {
    client_.Stop();
    if (thread_.joinable()) thread_.join();
  }
  // Call before Start.
  std::shared_ptr<Recorder> Post(const std::string& path, const std::string& body, http::Headers headers = {}) {
    auto recorder = std::make_shared<Recorder>();
    headers.emplace_back("Content-Type", "application/json");
    client_.Send({"POST", path, std::move(headers), body}, recorder);
    return recorder;
  }
  void Start() {
    thread_ = std::thread([this] { client_.Run(); });
  }
  // Returns when all calls have ended; then the recorders may be read.
  void Join() { thread_.join(); }

 private:
  http::Client client_;
  std::thread thread_;
};

class ServerTest : public testing::Test {
 protected:
  void StartServer(ServeOptions options = {}, bool with_engine = true, Clock& clock = SystemClock()) {
    options.port = 0;
    auto server = serve::ApiServer::Listen(options, clock);
    if (!server.ok()) throw std::runtime_error(server.status().ToString());
    server_ = std::move(*server);
    url_ = {"127.0.0.1", server_->port(), "/"};
    if (with_engine) server_->SetEngine(&engine_, engine_options_);
  }
  http::HttpResponse Call(const std::string& method, const std::string& path, const std::string& body = {},
                          http::Headers headers = {}) {
    auto response = http::Fetch(url_, {method, path, std::move(headers), body}, kCallLimit, SystemClock());
    EXPECT_TRUE(response.ok()) << method << " " << path << ": " << response.status().ToString();
    return response.ok() ? *response : http::HttpResponse{.status = 0};
  }
  http::HttpResponse Post(const std::string& path, const std::string& body, http::Headers headers = {}) {
    headers.emplace_back("Content-Type", "application/json");
    return Call("POST", path, body, std::move(headers));
  }
  std::shared_ptr<Recorder> Stream(const std::string& path, const std::string& body) {
    Calls calls(url_);
    const auto recorder = calls.Post(path, body);
    calls.Start();
    calls.Join();
    EXPECT_TRUE(recorder->status.ok()) << recorder->status.ToString();
    return recorder;
  }

  FakeEngine engine_;
  EngineOptions engine_options_;
  TestClock clock_;  // for tests that pass it to StartServer
  std::unique_ptr<serve::ApiServer> server_;
  http::Url url_;
};

}  // namespace tactus
