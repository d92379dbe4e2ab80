#include "http/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
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
  EXPECT_FALSE(url->tls);
  EXPECT_TRUE(ParseUrl("https://host")->tls);
  EXPECT_EQ(ParseUrl("https://host")->port, 443);
  EXPECT_EQ(ParseUrl("https://host:8/x")->port, 8);
  for (const char* bad : {"ftp://host", "https://", "https:/host", "host:80", "http://", "http://h:0", "http://h:65536",
                          "http://h:8x", "http://[::1", "http://u:p@h"}) {
    EXPECT_FALSE(ParseUrl(bad).ok()) << bad;
  }
}

TEST(SseParserTest, EventsDoNotDependOnThePieces) {
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

TEST(ClientTest, FailuresWithoutAnAnswerAreReported) {
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

// Serves scripted connections in turn: answers each request with the next text of the script, then closes.
class Scripted : public Silent {
 public:
  using Connections = std::vector<std::vector<std::string>>;
  // kCutOff: the client may stop reading an answer. kLastUnasked: the last answer of the first connection is sent
  // without a request.
  enum class How { kTaken, kCutOff, kLastUnasked };
  explicit Scripted(Connections script, How how = How::kTaken) {
    thread_ = std::thread([this, script = std::move(script), how] {
      for (const auto& answers : script) {
        pollfd ready{fd_, POLLIN, 0};
        while (!stop_ && poll(&ready, 1, 20) == 0) {
        }
        if (stop_) return;
        const int client = accept(fd_, nullptr, nullptr);
        const timeval limit{kPatienceSeconds, 0};
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        ++connections;
        size_t left = answers.size();
        for (const std::string& answer : answers) {
          std::string head;
          char byte = 0;
          const bool asked = how != How::kLastUnasked || connections > 1 || left-- > 1;
          while (asked && head.find("\r\n\r\n") == std::string::npos && recv(client, &byte, 1, 0) == 1) head += byte;
          while (!asked && !unasked_wanted_ && !stop_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          const ssize_t sent = send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
          EXPECT_TRUE(how == How::kCutOff || sent == static_cast<ssize_t>(answer.size())) << sent;
          if (!asked) sent_unasked_ = true;
        }
        char byte = 0;
        while (how == How::kLastUnasked && recv(client, &byte, 1, 0) > 0) {
        }
        close(client);
      }
    });
  }
  ~Scripted() {
    stop_ = true;
    thread_.join();
  }
  // Makes the server send the unrequested answer, and waits until it is sent.
  void SendUnasked() {
    unasked_wanted_ = true;
    for (int looks = 0; looks < 1000 * kPatienceSeconds && !sent_unasked_; ++looks)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(sent_unasked_);
  }
  std::atomic<int> connections{0};

 private:
  std::atomic<bool> stop_{false}, unasked_wanted_{false}, sent_unasked_{false};
  std::thread thread_;
};

// The outcome of one call, with a limit of kPatienceSeconds.
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

TEST(ClientTest, InterimAnswersAreLimited) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "HTTP/1.1 102 Processing\r\n\r\n";
  Scripted server({{many + kFine}, {"HTTP/1.1 101 Switching Protocols\r\n\r\n"}});
  Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
  const auto outcome = CallOnce(&client);
  EXPECT_EQ(outcome->status.code(), StatusCode::kUnavailable);
  EXPECT_NE(outcome->status.message().find("interim answers"), std::string::npos) << outcome->status.ToString();
  EXPECT_NE(CallOnce(&client)->status.message().find("another protocol"), std::string::npos);
}

// The server closes a kept connection while the next request is sent: the request is repeated on a new connection.
TEST(ClientTest, AStaleConnectionIsReplaced) {
  Scripted server({{kFine}, {kFine}});
  Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
  EXPECT_TRUE(CallOnce(&client)->status.ok());
  const auto second = CallOnce(&client);
  EXPECT_TRUE(second->status.ok()) << second->status.ToString();
  EXPECT_EQ(server.connections, 2);
}

// After the first bytes of an answer the request may have taken effect, so it is not sent again.
TEST(ClientTest, ARequestWithABrokenAnswerIsNotSentAgain) {
  for (const char* broken :
       {"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfi"}) {
    Scripted server({{kFine, broken}, {kFine}});
    Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
    EXPECT_TRUE(CallOnce(&client)->status.ok());
    EXPECT_FALSE(CallOnce(&client)->status.ok()) << broken;
    EXPECT_EQ(server.connections, 1) << broken;
  }
}

// A request that could be parsed as two requests, or as a different one, is not sent.
TEST(ClientTest, RequestsThatBreakALineAreRefused) {
  Scripted server({{kFine}});
  Client client({"127.0.0.1", server.port, "/"}, {.timeout_ns = 3600 * kSecond}, SystemClock());
  const auto refused = [&](ClientRequest request) {
    auto outcome = std::make_shared<Outcome>();
    client.Send(std::move(request), outcome);
    client.Run();  // returns at once, without waiting
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

TEST(ClientTest, CloseIdleClosesIdleConnections) {
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

// Beast throws for a header field of 64 KiB in any position: that must end the call, not the process.
TEST(ClientTest, TooLongAnswersEndTheCall) {
  const std::string body = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const auto field = [](const std::string& name, size_t bytes) {
    return "HTTP/1.1 200 OK\r\n" + name + ": " + std::string(bytes, 'y') + "\r\nContent-Length: 4\r\n\r\nfine";
  };
  std::vector<std::string> answers;
  for (const size_t bytes : {65'533, 65'534, 65'535, 65'536, 70'000, 1'000'000}) {
    answers.push_back(field("X", bytes));
    answers.push_back(field(std::string(bytes, 'X'), 1));
    answers.push_back(body + "4\r\nfine\r\n0\r\nX: " + std::string(bytes, 'y') + "\r\n\r\n");
    answers.push_back(body + "4;x=" + std::string(bytes, 'y') + "\r\nfine\r\n0\r\n\r\n");
    answers.push_back("HTTP/1.1 103 Hints\r\nX: " + std::string(bytes, 'y') + "\r\n\r\n" + kFine);
  }
  std::string many = "HTTP/1.1 200 OK\r\n", tiny = body;
  for (int i = 0; i < 20'000; ++i) many += "X: y\r\n";
  for (int i = 0; i < 2'000; ++i) tiny += "1;" + std::string(100, 'x') + "\r\ny\r\n";
  answers.push_back(many + "Content-Length: 4\r\n\r\nfine");
  answers.push_back(tiny + "0\r\n\r\n");
  answers.push_back(field("X", 65'000));
  Scripted::Connections script;
  for (const std::string& answer : answers) script.push_back({answer});
  Scripted server(script, Scripted::How::kCutOff);
  for (size_t i = 0; i < answers.size(); ++i) {
    Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
    const auto outcome = CallOnce(&client);
    EXPECT_EQ(outcome->status.ok(), i + 1 == answers.size()) << i << ": " << answers[i].substr(0, 60);
    EXPECT_EQ(outcome->calls, 1);
  }
}

TEST(ClientTest, AnswersWithAmbiguousFramingAreRefused) {
  Scripted::Connections script;
  const std::vector<std::string> heads = {
      "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nfine",
      "HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\nfine",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nfine",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n",
      "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nfine",
      "HTTP/1.1 099 No\r\nContent-Length: 4\r\n\r\nfine",
      "HTTP/1.1 999 No\r\nContent-Length: 4\r\n\r\nfine"};
  for (const std::string& head : heads) script.push_back({head});
  Scripted server(script);
  for (const std::string& head : heads) {
    Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
    EXPECT_EQ(CallOnce(&client)->status.code(), StatusCode::kUnavailable) << head;
  }
}

TEST(ClientTest, AHeldAnswerHasALimit) {
  const std::string chunk = "4\r\nfine\r\n";
  std::string chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 4; ++i) chunks += chunk;
  Scripted server({{"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nfine answer"}, {chunks + "0\r\n\r\n"}});
  for (int i = 0; i < 2; ++i) {
    Client client({"127.0.0.1", server.port, "/"}, {.max_response_bytes = 10}, SystemClock());
    const Status status = CallOnce(&client)->status;
    EXPECT_NE(status.message().find("longer than 10 bytes"), std::string::npos) << status.ToString();
  }
}

TEST(SseParserTest, AnEventHasALimit) {
  SseParser parser;
  const std::string mib(1 << 20, 'x');
  const SseParser::OnData ignore = [](std::string_view) {};
  EXPECT_TRUE(parser.Feed("data: ", ignore));
  size_t fed = 0;
  while (fed < 4 * SseParser::kMostEventBytes && parser.Feed(mib, ignore)) fed += mib.size();
  EXPECT_LE(fed, SseParser::kMostEventBytes);
  SseParser lines;
  for (fed = 0; fed < 4 * SseParser::kMostEventBytes && lines.Feed("data: " + mib + "\n", ignore);) fed += mib.size();
  EXPECT_LE(fed, SseParser::kMostEventBytes);
}

// Unrequested bytes on a kept connection must not be taken for the answer to the next request.
TEST(ClientTest, BytesAfterAnAnswerAreNotTheNextAnswer) {
  const std::string lies = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlies";
  for (const bool later : {false, true}) {
    const std::vector<std::string> together = {kFine + lies}, apart = {kFine, lies};
    Scripted server({later ? apart : together, {kFine}}, later ? Scripted::How::kLastUnasked : Scripted::How::kTaken);
    Client client({"127.0.0.1", server.port, "/"}, {}, SystemClock());
    EXPECT_EQ(CallOnce(&client)->response.body, "fine");
    if (later) server.SendUnasked();
    EXPECT_EQ(CallOnce(&client)->response.body, "fine");
    EXPECT_EQ(server.connections, 2);
  }
}

// An exception of a handler ends its own call; the loop and other calls continue.
TEST(ClientTest, AHandlersExceptionEndsItsCall) {
  struct Throws : Outcome {
    void OnHead(int, const Headers&, TimeNs) override {
      if (where == 0) throw std::length_error("in the head");
    }
    bool OnPiece(std::string_view) override {
      if (where == 1) throw std::runtime_error("in a piece");
      return true;
    }
    void OnDone(const Status& s, const HttpResponse& r, TimeNs now_ns) override {
      Outcome::OnDone(s, r, now_ns);
      if (where == 2) throw std::bad_alloc();
    }
    int where = 0;
  };
  for (int where = 0; where < 3; ++where) {
    Scripted server({{kFine}, {kFine}});
    Client client({"127.0.0.1", server.port, "/"}, {.pieces = true}, SystemClock());
    auto throws = std::make_shared<Throws>();
    throws->where = where;
    throws->on_done = [&client] { client.Stop(); };
    client.Send({.method = "GET", .path = "/x"}, throws);
    client.Run();
    EXPECT_EQ(throws->calls, 1);
    EXPECT_EQ(throws->status.ok(), where == 2) << throws->status.ToString();
    EXPECT_EQ(client.in_flight(), 0);
    EXPECT_TRUE(CallOnce(&client)->status.ok());
  }
}

TEST(LoopTest, ACallbacksExceptionEndsOnlyThatCallback) {
  Loop loop;
  int ran = 0;
  loop.Post([] { throw std::runtime_error("posted"); });
  loop.After(0, [] { throw std::bad_alloc(); });
  loop.Post([&] { ++ran; });
  loop.After(kMillisecond, [&] { ++ran; });
  loop.Run();
  EXPECT_EQ(ran, 2);
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
