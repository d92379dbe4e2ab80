// A server over a FakeEngine on a free port of the loopback, and short ways to talk to it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fake_engine.h"
#include "http/client.h"
#include "serve/api_server.h"

namespace tactus {

// Keeps what a streamed answer brought.
struct Recorder : http::ResponseHandler {
  void OnHead(int s, const http::Headers&, TimeNs) override { http_status = s; }
  void OnEvent(std::string_view data, TimeNs) override {
    events.emplace_back(data);
    if (on_event) on_event();
  }
  void OnDone(const Status& s, const http::HttpResponse& r, TimeNs) override {
    status = s;
    response = r;
    done = true;
  }
  int http_status = 0;
  std::vector<std::string> events;
  std::function<void()> on_event;
  Status status;
  http::HttpResponse response;
  bool done = false;
};

class ServerTest : public testing::Test {
 protected:
  void StartServer(ServeOptions options = {}, bool with_engine = true) {
    options.port = 0;
    auto server = serve::ApiServer::Listen(options, SystemClock());
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
    url_ = {"127.0.0.1", server_->port(), "/"};
    if (with_engine) server_->SetEngine(&engine_, EngineOptions());
  }
  http::HttpResponse Call(const std::string& method, const std::string& path, const std::string& body = {},
                          http::Headers headers = {}) {
    auto response = http::Fetch(url_, {method, path, std::move(headers), body}, 60 * kSecond, SystemClock());
    EXPECT_TRUE(response.ok()) << method << " " << path << ": " << response.status().ToString();
    return response.ok() ? *response : http::HttpResponse{.status = 0};
  }
  http::HttpResponse Post(const std::string& path, const std::string& body, http::Headers headers = {}) {
    headers.emplace_back("Content-Type", "application/json");
    return Call("POST", path, body, std::move(headers));
  }
  std::shared_ptr<Recorder> Stream(const std::string& path, const std::string& body) {
    auto recorder = std::make_shared<Recorder>();
    http::Client client(url_, {}, SystemClock());
    client.Send({"POST", path, {{"Content-Type", "application/json"}}, body}, recorder);
    client.Run();
    EXPECT_TRUE(recorder->status.ok()) << recorder->status.ToString();
    return recorder;
  }

  FakeEngine engine_;
  std::unique_ptr<serve::ApiServer> server_;
  http::Url url_;
};

}  // namespace tactus
