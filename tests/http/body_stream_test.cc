// Streamed bodies: a request's pieces reach their receiver one at a time as they arrive; an answer's pieces are
// requested as the client accepts them; a disconnect ends both.
#include "http/body_stream.h"

#include <deque>

#include "http_fixture.h"

namespace tactus::http {
namespace {

// The observed calls of a receiver, and its answers.
struct Seen {
  std::mutex mutex;
  std::string bytes;
  int pieces = 0, ended = 0;
  size_t longest = 0;
  bool hold = false;  // pieces are kept until Go
  std::deque<BodyReceiver::Taken> held;
  size_t refuse_after = ~size_t{0};

  void Go() {
    std::deque<BodyReceiver::Taken> go;
    {
      std::lock_guard lock(mutex);
      hold = false;
      go.swap(held);
    }
    for (const auto& taken : go) taken(std::nullopt);
  }
  template <class F>
  auto Get(F f) {
    std::lock_guard lock(mutex);
    return f();
  }
};

class TestReceiver final : public BodyReceiver {
 public:
  TestReceiver(Seen* seen, int64_t most) : seen_(*seen), most_(most) {}
  ~TestReceiver() override {
    std::lock_guard lock(seen_.mutex);
    ++seen_.ended;
  }
  int64_t max_bytes() const override { return most_; }
  const char* max_bytes_option() const override { return "--most"; }
  void Take(std::string piece, Taken taken) override {
    {
      std::lock_guard lock(seen_.mutex);
      seen_.bytes += piece;
      seen_.longest = std::max(seen_.longest, piece.size());
      ++seen_.pieces;
      if (seen_.hold) {
        seen_.held.push_back(std::move(taken));
        return;
      }
      if (seen_.bytes.size() > seen_.refuse_after) return RefuseOnAnotherThread(std::move(taken));
    }
    taken(std::nullopt);
  }
  void Whole(std::shared_ptr<Exchange> exchange) override {
    exchange->Respond({.content_type = "text/plain", .body = "whole"});
  }

 private:
  static void RefuseOnAnotherThread(Taken taken) {
    std::thread([taken = std::move(taken)] {
      taken(HttpResponse{.status = 400, .content_type = "text/plain", .body = "refused"});
    }).detach();
  }
  Seen& seen_;
  const int64_t most_;
};

class TestSource final : public BodySource {
 public:
  TestSource(int64_t bytes, int64_t come) : bytes_(bytes), left_(come) {}
  int64_t bytes() const override { return bytes_; }
  void Next(Come come) override {
    const auto size = static_cast<size_t>(std::min<int64_t>(left_, 100'000));
    left_ -= static_cast<int64_t>(size);
    ++asked;
    come(size == 0 ? std::optional<std::string>() : std::string(size, 's'));
  }
  std::atomic<int> asked{0};

 private:
  const int64_t bytes_;
  int64_t left_;
};

class StreamHandler final : public Handler {
 public:
  std::optional<HttpResponse> CheckHead(const HttpRequest&) override { return std::nullopt; }
  std::shared_ptr<BodyReceiver> ReceiveBody(const HttpRequest& head) override {
    if (head.path != "/receive") return nullptr;
    return std::make_shared<TestReceiver>(&seen, most);
  }
  void Handle(std::shared_ptr<Exchange> exchange) override {
    HttpResponse response{.content_type = "text/plain"};
    if (exchange->request().path == "/source")
      response.source = source;
    else
      response.body = "held";
    exchange->Respond(std::move(response));
  }
  HttpResponse ErrorResponse(int status, const std::string& message) override {
    return {.status = status, .content_type = "text/plain", .body = message};
  }
  Seen seen;
  int64_t most = 10 << 20;
  std::shared_ptr<TestSource> source;
};

class BodyStreamTest : public testing::Test {
 protected:
  void Start(ServerOptions options = {}, Clock& clock = SystemClock()) {
    options.max_body_bytes = 1000;
    options.tick_ns = 5 * kMillisecond;
    auto server = Server::Listen(options, &handler_, clock);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
    server_->Start();
  }
  static std::string Head(const char* path, size_t bytes) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", path, bytes);
  }
  void AwaitEnded() {
    Until("the receiver has ended", [&] { return handler_.seen.Get([&] { return handler_.seen.ended; }) == 1; });
  }

  StreamHandler handler_;
  TestClock clock_;
  std::unique_ptr<Server> server_;
};

TEST_F(BodyStreamTest, ALargeBodyReachesItsReceiverInPieces) {
  Start();
  const std::string body(1'000'000, 'b');
  RawSocket socket(server_->port());
  socket.Send(Head("/receive", body.size()) + body);
  EXPECT_NE(socket.ReadUntil("whole").find("HTTP/1.1 200"), std::string::npos);
  EXPECT_EQ(handler_.seen.bytes, body);
  EXPECT_LE(handler_.seen.longest, size_t{64} << 10);
  // The connection continues, and a body without receiver keeps its limit.
  socket.Send("POST /receive HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  EXPECT_NE(socket.ReadUntil("whole").find("HTTP/1.1 200"), std::string::npos);
  socket.Send(Head("/held", 1001));
  EXPECT_NE(socket.ReadAll().find("HTTP/1.1 413"), std::string::npos);
}

TEST_F(BodyStreamTest, NothingMoreIsReadWhileAPieceIsNotTaken) {
  handler_.seen.hold = true;
  Start();
  RawSocket socket(server_->port());
  socket.Send(Head("/receive", 8 << 20));
  const size_t taken_by_sockets = socket.Fill(std::string(1 << 16, 'b'), 8 << 20);
  Until("a piece arrives", [&] { return handler_.seen.Get([&] { return handler_.seen.pieces; }) == 1; });
  const size_t more = socket.Fill(std::string(1 << 16, 'b'), (8 << 20) - taken_by_sockets);
  EXPECT_LT(taken_by_sockets + more, size_t{8} << 20) << "the server took all of it";
  EXPECT_EQ(handler_.seen.Get([&] { return handler_.seen.pieces; }), 1);
  handler_.seen.Go();
  const size_t rest = (8 << 20) - taken_by_sockets - more;
  socket.Send(std::string(rest, 'b'));
  EXPECT_NE(socket.ReadUntil("whole").find("200"), std::string::npos);
}

TEST_F(BodyStreamTest, ARefusalIsTheLastAnswer) {
  handler_.seen.refuse_after = 100'000;
  Start();
  RawSocket socket(server_->port());
  socket.Send(Head("/receive", 10 << 20) + std::string(300'000, 'b'));
  const std::string all = socket.ReadAll();
  EXPECT_EQ(all.rfind("HTTP/1.1 400", 0), 0u) << all;
  EXPECT_NE(all.find("Connection: close"), std::string::npos) << all;
  AwaitEnded();
}

TEST_F(BodyStreamTest, TheReceiversLimitAppliesToAnnouncedAndReceivedBytes) {
  handler_.most = 5000;
  Start();
  RawSocket announced(server_->port());
  announced.Send(Head("/receive", 5001));
  const std::string refused = announced.ReadAll();
  EXPECT_EQ(refused.rfind("HTTP/1.1 413", 0), 0u) << refused;
  EXPECT_NE(refused.find("larger than 5000 bytes (--most)"), std::string::npos) << refused;
  EXPECT_EQ(handler_.seen.pieces, 0);
  RawSocket chunked(server_->port());
  chunked.Send("POST /receive HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1389\r\n" +
               std::string(5001, 'b'));
  EXPECT_EQ(chunked.ReadAll().rfind("HTTP/1.1 413", 0), 0u);
}

TEST_F(BodyStreamTest, AClientThatLeavesEndsTheReceiver) {
  Start();
  RawSocket socket(server_->port());
  socket.Send(Head("/receive", 1'000'000) + std::string(1000, 'b'));
  Until("a piece arrives", [&] { return handler_.seen.Get([&] { return handler_.seen.pieces; }) > 0; });
  socket.Reset();
  AwaitEnded();
}

TEST_F(BodyStreamTest, ASlowBodyIsAcceptedWhileItArrives) {
  ServerOptions options;
  options.body_timeout_ns = 10 * kSecond;
  Start(options, clock_);
  RawSocket socket(server_->port());
  const std::string mebibyte(1 << 20, 'b');
  socket.Send(Head("/receive", 5 << 20));
  for (size_t i = 1; i <= 4; ++i) {
    socket.Send(mebibyte);
    Until("a MiB arrives", [&] { return handler_.seen.Get([&] { return handler_.seen.bytes.size(); }) == i << 20; });
    EXPECT_FALSE(socket.Readable(20)) << "the request ended although its body arrives";
    clock_.Advance(8 * kSecond);
  }
  Until("the slow client gets its error", [&] { return socket.Readable(0); }, [&] { clock_.Advance(kSecond); });
  EXPECT_EQ(socket.ReadAll().rfind("HTTP/1.1 408", 0), 0u);
  AwaitEnded();
}

TEST_F(BodyStreamTest, TimeOfTheReceiverDoesNotCountForTheClient) {
  ServerOptions options;
  options.body_timeout_ns = 10 * kSecond;
  handler_.seen.hold = true;
  Start(options, clock_);
  RawSocket socket(server_->port());
  socket.Send(Head("/receive", 2000) + std::string(1000, 'b'));
  Until("a piece arrives", [&] { return handler_.seen.Get([&] { return handler_.seen.pieces; }) == 1; });
  clock_.Advance(1000 * kSecond);
  EXPECT_FALSE(socket.Readable(50));
  handler_.seen.Go();
  socket.Send(std::string(1000, 'b'));
  EXPECT_NE(socket.ReadUntil("whole").find("200"), std::string::npos);
}

TEST_F(BodyStreamTest, AnAnswerComesFromItsSource) {
  handler_.source = std::make_shared<TestSource>(250'000, 250'000);
  Start();
  RawSocket socket(server_->port());
  socket.Send("GET /source HTTP/1.1\r\nHost: x\r\n\r\nGET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = socket.ReadAll();
  EXPECT_NE(all.find("Content-Length: 250000"), std::string::npos) << all.substr(0, 300);
  EXPECT_EQ(std::count(all.begin(), all.end(), 's') >= 250'000, true);
  EXPECT_EQ(all.substr(all.size() - 4), "held") << "the next request on the connection";
  EXPECT_EQ(handler_.source->asked, 3);
}

TEST_F(BodyStreamTest, HeadRequestsReadNothingFromTheSource) {
  handler_.source = std::make_shared<TestSource>(250'000, 250'000);
  Start();
  RawSocket socket(server_->port());
  socket.Send("HEAD /source HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(socket.ReadAll().find("Content-Length: 250000"), std::string::npos);
  EXPECT_EQ(handler_.source->asked, 0);
}

TEST_F(BodyStreamTest, ASourceThatFailsEndsTheConnection) {
  handler_.source = std::make_shared<TestSource>(250'000, 100'000);
  Start();
  RawSocket socket(server_->port());
  socket.Send("GET /source HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_LT(socket.ReadAll().size(), 200'000u);
}

TEST_F(BodyStreamTest, AClientThatReadsNothingHoldsOnePiece) {
  handler_.source = std::make_shared<TestSource>(int64_t{1} << 30, int64_t{1} << 30);
  Start();
  RawSocket socket(server_->port(), 4096);
  socket.Send("GET /source HTTP/1.1\r\nHost: x\r\n\r\n");
  Until("the answer begins", [&] { return socket.Readable(0); });
  EXPECT_LT(handler_.source->asked, 1000) << "the source is read faster than the client accepts it";
  socket.Reset();
  Until("the server notices the disconnect", [&] { return server_->Stats().client_gone == 1; });
}

}  // namespace
}  // namespace tactus::http
