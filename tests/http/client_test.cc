#include "http/client.h"

#include <gtest/gtest.h>

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
  void OnDone(const Status& s, const HttpResponse&, TimeNs) override {
    ++calls;
    status = s;
  }
  int calls = 0;
  Status status;
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

 private:
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
