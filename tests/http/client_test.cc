#include "http/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "raw_socket.h"

namespace tactus::http {
namespace {

TEST(UrlTest, PartsAndFaults) {
  const auto url = ParseUrl("http://host:81/v1");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "host");
  EXPECT_EQ(url->port, 81);
  EXPECT_EQ(url->path, "/v1");
  EXPECT_EQ(ParseUrl("http://host")->port, 80);
  EXPECT_EQ(ParseUrl("http://host")->path, "/");
  EXPECT_EQ(ParseUrl("http://[::1]:9/")->host, "::1");
  for (const char* bad : {"https://host", "host:80", "http://", "http://h:0", "http://h:65536", "http://h:8x",
                          "http://[::1", "http://u:p@h"}) {
    EXPECT_FALSE(ParseUrl(bad).ok()) << bad;
  }
}

TEST(SseParserTest, EventsWhateverThePieces) {
  const std::string text =
      ": ping\n\ndata: one\n\nevent: x\r\ndata:two\r\ndata: three\r\n\r\nid: 1\n\ndata:\n\ndata: cut";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    SseParser parser;
    std::vector<std::string> events;
    for (size_t at = 0; at < text.size(); at += piece) {
      parser.Feed(std::string_view(text).substr(at, piece), [&](std::string_view data) { events.emplace_back(data); });
    }
    EXPECT_EQ(events, (std::vector<std::string>{"one", "two\nthree", ""})) << piece;
  }
}

struct Outcome : ResponseHandler {
  void OnDone(const Status& s, const HttpResponse& r, TimeNs) override {
    ++calls;
    status = s;
    response = r;
    if (on_done) on_done();
  }
  int calls = 0;
  std::function<void()> on_done;
  Status status;
  HttpResponse response;
};

// A listener that never answers.
class Silent {
 public:
  Silent() {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  ~Silent() { close(fd_); }
  uint16_t port = 0;

 protected:
  int fd_;
};

TEST(ClientTest, SaysWhyThereIsNoAnswer) {
  Silent silent;
  auto outcome = std::make_shared<Outcome>();
  Client slow({"127.0.0.1", silent.port, "/"}, {.timeout_ns = 20 * kMillisecond}, SystemClock());
  slow.Send({.path = "/x"}, outcome);
  EXPECT_EQ(slow.in_flight(), 1);
  slow.Run();
  EXPECT_EQ(outcome->status.code(), StatusCode::kDeadlineExceeded);

  Client cancelled({"127.0.0.1", silent.port, "/"}, {}, SystemClock());
  const auto id = cancelled.Send({.path = "/x"}, outcome);
  cancelled.At(SystemClock().NowNs() + kMillisecond, [&] { cancelled.Cancel(id); });
  cancelled.Run();
  EXPECT_EQ(outcome->status.code(), StatusCode::kCancelled);
  EXPECT_EQ(outcome->calls, 2);

  uint16_t closed_port = 0;
  {
    Silent gone;
    closed_port = gone.port;
  }
  const auto refused = Fetch({"127.0.0.1", closed_port, "/"}, {"GET", "/", {}, {}}, 0, SystemClock());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
}

// On each connection in turn: answers one request after the other with what is written for it, then closes.
class Scripted : public Silent {
 public:
  using Connections = std::vector<std::vector<std::string>>;
  explicit Scripted(Connections script) {
    thread_ = std::thread([this, script = std::move(script)] {
      for (const auto& answers : script) {
        pollfd ready{fd_, POLLIN, 0};
        while (!stop_ && poll(&ready, 1, 20) == 0) {
        }
        if (stop_) return;
        const int client = accept(fd_, nullptr, nullptr);
        const timeval limit{kPatienceSeconds, 0};
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        ++connections;
        for (const std::string& answer : answers) {
          std::string head;
          char byte = 0;
          while (head.find("\r\n\r\n") == std::string::npos && recv(client, &byte, 1, 0) == 1) head += byte;
          EXPECT_EQ(send(client, answer.data(), answer.size(), MSG_NOSIGNAL), static_cast<ssize_t>(answer.size()));
        }
        close(client);
      }
    });
  }
  ~Scripted() {
    stop_ = true;
    thread_.join();
  }
  std::atomic<int> connections{0};

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The outcome of one call, which has kPatienceSeconds.
std::shared_ptr<Outcome> CallOnce(Client* client) {
  auto outcome = std::make_shared<Outcome>();
  outcome->on_done = [client] { client->Stop(); };
  client->Send({.method = "GET", .path = "/x"}, outcome);
  client->At(SystemClock().NowNs() + kPatienceSeconds * kSecond, [client, outcome] {
    if (outcome->calls == 0) client->Stop();
  });
  client->Run();
  EXPECT_EQ(outcome->calls, 1) << "the call did not end within " << kPatienceSeconds << " s";
  return outcome;
}

constexpr const char* kFine = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

TEST(ClientTest, InterimAnswersAreSkipped) {
  Scripted server({{std::string("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n") + kFine}});
  Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
  const auto outcome = CallOnce(&client);
  EXPECT_TRUE(outcome->status.ok()) << outcome->status.ToString();
  EXPECT_EQ(outcome->response.status, 200);
  EXPECT_EQ(outcome->response.body, "fine");
  EXPECT_EQ(outcome->response.Find("Link"), nullptr);
}

TEST(ClientTest, InterimAnswersHaveAnEnd) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "HTTP/1.1 102 Processing\r\n\r\n";
  Scripted server({{many + kFine}, {"HTTP/1.1 101 Switching Protocols\r\n\r\n"}});
  Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
  const auto outcome = CallOnce(&client);
  EXPECT_EQ(outcome->status.code(), StatusCode::kUnavailable);
  EXPECT_NE(outcome->status.message().find("interim answers"), std::string::npos) << outcome->status.ToString();
  EXPECT_NE(CallOnce(&client)->status.message().find("another protocol"), std::string::npos);
}

// The server closes a kept connection as the next request goes out: that one goes out again on a new connection.
TEST(ClientTest, AStaleConnectionIsReplaced) {
  Scripted server({{kFine}, {kFine}});
  Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
  EXPECT_TRUE(CallOnce(&client)->status.ok());
  const auto second = CallOnce(&client);
  EXPECT_TRUE(second->status.ok()) << second->status.ToString();
  EXPECT_EQ(server.connections, 2);
}

// Once anything of an answer has come, the request may have been done: it is not sent again.
TEST(ClientTest, AnAnswerThatBreaksOffIsNotAskedForAgain) {
  for (const char* broken :
       {"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfi"}) {
    Scripted server({{kFine, broken}, {kFine}});
    Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
    EXPECT_TRUE(CallOnce(&client)->status.ok());
    EXPECT_FALSE(CallOnce(&client)->status.ok()) << broken;
    EXPECT_EQ(server.connections, 1) << broken;
  }
}

// What would be two requests, or another one, is not sent.
TEST(ClientTest, WhatBreaksALineIsRefused) {
  Scripted server({{kFine}});
  Client client({"127.0.0.1", server.port, "/"}, {.timeout_ns = 3600 * kSecond}, SystemClock());
  const auto refused = [&](ClientRequest request) {
    auto outcome = std::make_shared<Outcome>();
    client.Send(std::move(request), outcome);
    client.Run();  // at once: nothing is waited for
    return outcome->status;
  };
  for (const char* path : {"", "x", "/a b", "/a\r\nX: y", "/a\tb", "/a\x7f"}) {
    EXPECT_EQ(refused({.path = path}).code(), StatusCode::kInvalidArgument) << path;
  }
  EXPECT_EQ(refused({.path = "/", .headers = {{"X", "a\r\nY: b"}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({.path = "/", .headers = {{"X y", "a"}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({.method = "GET /", .path = "/"}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(CallOnce(&client)->status.ok());
}

TEST(ClientTest, IdleConnectionsAreClosedWhenAsked) {
  Scripted server({{kFine, kFine}, {kFine}});
  Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
  EXPECT_TRUE(CallOnce(&client)->status.ok());
  client.CloseIdle(3600 * kSecond);
  EXPECT_TRUE(CallOnce(&client)->status.ok());
  EXPECT_EQ(server.connections, 1);
  client.CloseIdle(0);
  EXPECT_TRUE(CallOnce(&client)->status.ok());
  EXPECT_EQ(server.connections, 2);
}

TEST(ClientTest, ActionsRunInTheOrderOfTheirTimes) {
  Client client({"127.0.0.1", 1, "/"}, {}, SystemClock());
  std::vector<int> order;
  const TimeNs now = SystemClock().NowNs();
  client.At(now + 3 * kMillisecond, [&] { order.push_back(2); });
  client.At(now + 1 * kMillisecond, [&] { order.push_back(1); });
  client.Run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace tactus::http
