// Limits on clients: bytes of bodies, connections, pipelined requests.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "http/connection_places.h"
#include "http_fixture.h"

namespace tactus::http {
namespace {

TEST(BodyTest, IsCountedUntilItIsFreed) {
  auto total = std::make_shared<BodyTotal>(10);
  {
    Body one(total);
    EXPECT_TRUE(one.Append("abcdef"));
    Body two(total);
    EXPECT_FALSE(two.Append("12345"));
    EXPECT_TRUE(two.Append("1234"));
    EXPECT_EQ(total->held(), 10);
    Body moved(std::move(one));
    EXPECT_EQ(moved.text(), "abcdef");
    EXPECT_EQ(total->held(), 10);
    two = std::move(moved);
    EXPECT_EQ(two.text(), "abcdef");
    EXPECT_EQ(total->held(), 6);
  }
  EXPECT_EQ(total->held(), 0);
}

TEST(ConnectionPlacesTest, OneClientHasItsShareAndProbesHaveTheirOwnPlaces) {
  ConnectionPlaces places(4, 2);
  EXPECT_EQ(places.Enter("a"), Place::kServed);
  EXPECT_EQ(places.Enter("a"), Place::kServed);
  EXPECT_FALSE(places.ClientIsFull("b"));
  EXPECT_TRUE(places.ClientIsFull("a"));
  for (int i = 0; i < kProbePlacesPerClient; ++i) EXPECT_EQ(places.Enter("a"), Place::kProbeOnly);
  EXPECT_EQ(places.Enter("a"), Place::kNone);
  EXPECT_EQ(places.Enter("b"), Place::kServed);
  places.Leave("a", Place::kNone);
  places.Leave("a", Place::kServed);
  EXPECT_EQ(places.Enter("a"), Place::kServed);
  EXPECT_EQ(places.Enter("b"), Place::kServed);
  EXPECT_EQ(places.Enter("c"), Place::kProbeOnly);  // the total limit
  int64_t probe_places = kProbePlacesPerClient + 1;
  for (int i = 0; i < 1000; ++i) probe_places += places.Enter(fmt::format("d{}", i)) == Place::kProbeOnly;
  EXPECT_EQ(probe_places, kProbePlaces);
}

TEST(ConnectionPlacesTest, ConnectionsFollowFromTheDescriptors) {
  for (const int64_t each : {1, 2}) {
    const int64_t all = FilesFor(4096, each);
    EXPECT_EQ(RoomWithin(all, 4096, each).connections, 4096);
    EXPECT_EQ(RoomWithin(all, 4096, each).beyond, kPlacesBeyondLimit);
    int64_t before = 0;
    for (int64_t files = 8; files < all; ++files) {
      const ConnectionRoom room = RoomWithin(files, 4096, each);
      ASSERT_LT(room.connections * each + room.beyond, files) << files;  // descriptors remain for other files
      ASSERT_GE(room.connections, std::max<int64_t>(1, before)) << files;
      ASSERT_TRUE(room.less) << files;
      before = room.connections;
    }
  }
  EXPECT_EQ(RoomWithin(200, 4096, 1).connections, 75);
  EXPECT_FALSE(RoomWithin(200, 10, 1).less);  // all requested connections
  EXPECT_EQ(RoomWithin(200, 10, 1).connections, 10);
}

TEST(ConnectionPlacesTest, AClientIsItsAddress) {
  EXPECT_EQ(ClientKey("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(ClientKey("::ffff:10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(ClientKey("2001:db8::1"), ClientKey("2001:db8::ffff:2"));
  EXPECT_NE(ClientKey("2001:db8::1"), ClientKey("2001:db8:0:1::1"));
  EXPECT_EQ(ClientKey("fe80::1%eth0"), "fe80::/64");
}

class LimitsTest : public HttpServerTest {
 protected:
  static std::string Post(const char* path, int64_t bytes) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path, bytes,
                       std::string(static_cast<size_t>(bytes), 'b'));
  }
  void AwaitBodyBytes(int64_t bytes) {
    Until(fmt::format("{} bytes of bodies are held", bytes).c_str(),
          [&] { return server_->Stats().body_bytes == bytes; });
  }
};

TEST_F(LimitsTest, BodiesTogetherAreBounded) {
  ServerOptions options;
  options.max_body_total_bytes = 1000;
  Start(options);
  RawSocket first(port_);
  first.Send(Post("/hold", 600));
  auto exchange = handler_.AwaitHeld(1);
  EXPECT_EQ(server_->Stats().body_bytes, 600);
  for (const char* refused : {"Content-Length: 600\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n258\r\n"}) {
    const std::string all = Talk(fmt::format("POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}{}\r\n0\r\n\r\n",
                                             refused, std::string(600, 'b')));
    EXPECT_TRUE(Has(all, "HTTP/1.1 503") && Has(all, "--max-body-total")) << all;
  }
  EXPECT_EQ(server_->Stats().bodies_refused, 2);
  EXPECT_EQ(server_->Stats().body_bytes, 600);
  {
    const Body body = exchange->TakeBody();
    EXPECT_EQ(body.bytes(), 600);
    EXPECT_EQ(exchange->TakeBody().bytes(), 0);
    EXPECT_EQ(server_->Stats().body_bytes, 600);  // still counted, for the owner of the body
  }
  EXPECT_EQ(server_->Stats().body_bytes, 0);  // freed while the request is still being answered
  RawSocket second(port_);
  second.Send(Post("/hold", 600));
  handler_.AwaitHeld(2);
}

TEST_F(LimitsTest, OnlyReceivedBytesOfABodyCount) {
  ServerOptions options;
  options.max_body_total_bytes = options.max_body_bytes = 1000;
  Start(options);
  RawSocket one(port_), two(port_);
  one.Send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + std::string(300, 'b'));
  AwaitBodyBytes(300);
  two.Send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n" + std::string(700, 'b'));
  AwaitBodyBytes(1000);
  one.Close();
  AwaitBodyBytes(700);
  two.Send(std::string(200, 'b'));
  EXPECT_TRUE(Has(two.ReadUntil("]"), "HTTP/1.1 200"));
  AwaitBodyBytes(0);
}

TEST_F(LimitsTest, TheBodyOfADisconnectedClientIsFreed) {
  Start();
  RawSocket socket(port_);
  socket.Send(Post("/hold", 600));
  auto exchange = handler_.AwaitHeld(1);
  socket.Close();
  handler_.AwaitClosed(1);
  AwaitBodyBytes(0);
  EXPECT_EQ(exchange->TakeBody().bytes(), 0);
}

TEST_F(LimitsTest, ABodyMayOutliveTheServer) {
  Start();
  RawSocket socket(port_);
  socket.Send(Post("/hold", 600));
  const Body body = handler_.AwaitHeld(1)->TakeBody();
  server_.reset();
  EXPECT_EQ(body.bytes(), 600);
}

TEST_F(LimitsTest, ConnectionsBeyondTheLimitGet503AndProbesAreAnswered) {
  ServerOptions options;
  options.max_connections = options.max_connections_per_client = 2;
  Start(options);
  RawSocket one(port_), two(port_);
  for (RawSocket* s : {&one, &two}) {
    s->Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    s->ReadUntil("[]");
  }
  const std::string refused = Talk("GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "127.0.0.2");
  EXPECT_TRUE(Has(refused, "HTTP/1.1 503") && Has(refused, "(--max-connections)")) << refused;
  EXPECT_EQ(server_->Stats().connections_refused, 1);
  const std::string probe = Talk("GET /probe HTTP/1.1\r\nHost: x\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(Has(probe, "GET /probe []") && Has(probe, "Connection: close")) << probe;
  EXPECT_FALSE(Has(probe, "GET /x")) << probe;  // only one request is answered
  EXPECT_EQ(server_->Stats().connections_refused, 1);
  one.Close();
  std::string answer;  // the place is free once the server has noticed the close
  Until("a place is free again", [&] {
    answer = Talk("GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    return Has(answer, "HTTP/1.1 200");
  });
}

TEST_F(LimitsTest, OneClientCannotHoldEveryConnection) {
  ServerOptions options;
  options.max_connections = 4;
  Start(options);  // half of them for one client
  RawSocket one(port_), two(port_);
  for (RawSocket* s : {&one, &two}) {
    s->Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    s->ReadUntil("[]");
  }
  const std::string refused = Talk("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(Has(refused, "HTTP/1.1 503") && Has(refused, "2 connections of this client") &&
              Has(refused, "--max-connections-per-client"))
      << refused;
  EXPECT_TRUE(Has(Talk("GET /probe HTTP/1.1\r\nHost: x\r\n\r\n"), "GET /probe []"));
  EXPECT_TRUE(Has(Talk("GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "127.0.0.2"), "GET /x []"));
}

TEST_F(LimitsTest, AConnectionBeyondTheLimitHasAShortTimeOut) {
  ServerOptions options;
  options.max_connections = 1;
  StartOnTestClock(options);
  RawSocket one(port_);
  one.Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  one.ReadUntil("[]");
  for (const char* bytes : {"", "GET /probe HT"}) {
    RawSocket idle(port_);
    idle.Send(bytes);
    Until("its connection is counted", [&] { return server_->Stats().connections == 2; });
    const TimeNs before_ns = clock_.NowNs();
    PassTimeUntilReadable(&idle);
    const std::string all = idle.ReadAll();
    EXPECT_TRUE(Has(all, "HTTP/1.1 503")) << all;
    EXPECT_GE(clock_.NowNs() - before_ns, 2 * kSecond);
    idle.Close();
    Until("its connection has ended", [&] { return server_->Stats().connections == 1; });
  }
  EXPECT_EQ(server_->Stats().connections_refused, 2);
}

// A client without a place gets a readable answer, whether it sends its request before or after the answer.
TEST_F(LimitsTest, AConnectionBeyondAllPlacesGetsAnAnswer) {
  ServerOptions options;
  options.max_connections = 1;
  StartOnTestClock(options);
  std::vector<std::unique_ptr<RawSocket>> holders;
  for (int64_t i = 0; i < 1 + kProbePlacesPerClient; ++i) holders.push_back(std::make_unique<RawSocket>(port_));
  Until("every place is taken", [&] { return server_->Stats().connections == 1 + kProbePlacesPerClient; });
  RawSocket silent(port_);
  EXPECT_TRUE(Has(silent.ReadAll(), "HTTP/1.1 503"));
  RawSocket late(port_);
  ASSERT_TRUE(late.Readable(kPatienceSeconds * 1000));  // already refused
  EXPECT_TRUE(late.Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n"));
  handler_.AwaitTicks(2);
  EXPECT_TRUE(late.Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n")) << "the first request caused a reset";
  const std::string all = late.ReadAll();
  EXPECT_TRUE(Has(all, "HTTP/1.1 503") && Has(all, "Connection: close")) << all;
  EXPECT_EQ(server_->Stats().connections, 1 + kProbePlacesPerClient);
  EXPECT_EQ(server_->Stats().connections_refused, 2);
  // Far more connections than may wait to be closed: the oldest are closed first, and the server continues.
  for (int i = 0; i < 2 * kPlacesBeyondLimit; ++i) {
    RawSocket more(port_);
    ASSERT_TRUE(Has(more.ReadAll(), "HTTP/1.1 503")) << i;
  }
  holders.clear();
  std::string answer;
  Until("there is a place again", [&] {
    answer = Talk("GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    return Has(answer, "HTTP/1.1 200");
  });
}

// With few descriptors one client's idle connections leave places for others, and get 503 themselves.
TEST_F(LimitsTest, OneClientCannotUseAllOfFewDescriptors) {
  ServerOptions options;
  options.max_files = 64;
  StartOnTestClock(options);
  std::vector<std::unique_ptr<RawSocket>> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(std::make_unique<RawSocket>(port_, 0, "127.0.0.2"));
  EXPECT_TRUE(Has(idle.back()->ReadAll(), "HTTP/1.1 503"));
  EXPECT_TRUE(Has(Talk("GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "HTTP/1.1 200"));
  EXPECT_LT(server_->Stats().connections, 64);
}

// Without a free descriptor the next client gets 503, and the listener keeps accepting.
TEST_F(LimitsTest, AConnectionWithoutAFreeDescriptorGetsAnAnswer) {
  StartOnTestClock();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 128;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int clients[] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_STREAM, 0)};
  std::vector<int> taken;
  for (int file; (file = dup(clients[0])) >= 0;) taken.push_back(file);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const int client : clients) {
    const timeval limit{kPatienceSeconds, 0};
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    char text[4096] = {};
    EXPECT_GT(recv(client, text, sizeof text - 1, 0), 0);
    EXPECT_TRUE(Has(text, "HTTP/1.1 503") && Has(text, "ulimit -n")) << text;
  }
  for (const int file : taken) close(file);
  for (const int client : clients) close(client);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string answer = Talk("GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(Has(answer, "HTTP/1.1 200")) << answer;
}

TEST_F(LimitsTest, ADisconnectAfterPipelinedRequestsIsNoticed) {
  StartOnTestClock();
  const std::string ahead = "GET /ahead HTTP/1.1\r\nHost: x\r\n\r\n";
  int gone = 0;
  // The size of the read-ahead; more than that; as much as the kernel buffers, so that the close cannot arrive.
  for (const size_t bytes : {size_t{64} << 10, size_t{200} << 10, size_t{64} << 20}) {
    RawSocket socket(port_);
    socket.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    auto exchange = handler_.AwaitHeld(static_cast<size_t>(++gone));
    EXPECT_GE(socket.Fill(ahead, bytes), std::min(bytes, size_t{64} << 10));
    socket.Close();
    Until(
        fmt::format("a client that left with {} bytes sent ahead is noticed", bytes).c_str(),
        [&] { return exchange->closed(); }, [&] { clock_.Advance(kSecond / 4); });
    handler_.AwaitClosed(gone);
  }
  EXPECT_EQ(server_->Stats().client_gone, gone);
}

TEST_F(LimitsTest, PipelinedRequestsAreDelayedNotLost) {
  StartOnTestClock();  // no time passes: requests beyond the read-ahead wait in the socket
  RawSocket socket(port_);
  socket.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  constexpr int kAhead = 4000;  // 140 kB
  std::string ahead;
  for (int i = 0; i < kAhead; ++i) ahead += "GET /ahead HTTP/1.1\r\nHost: x\r\n\r\n";
  socket.Send(ahead);
  handler_.AwaitTicks(4);
  exchange->Respond({.body = "first"});
  const std::string all = socket.ReadUntil("GET /ahead []", kAhead);
  EXPECT_LT(all.find("first"), all.find("GET /ahead []"));
  EXPECT_EQ(Count(all, "GET /ahead []"), kAhead);
  EXPECT_EQ(handler_.closed(), 0);
}

TEST_F(LimitsTest, TooManyPipelinedBytesMakeTheAnswerTheLast) {
  StartOnTestClock();
  RawSocket socket(port_);
  socket.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  socket.Fill("GET /ahead HTTP/1.1\r\nHost: x\r\n\r\n", 200 << 10);
  handler_.AwaitTicks(4);
  clock_.Advance(2 * kSecond);
  handler_.AwaitTicks(4);
  exchange->Respond({.body = "first"});
  const std::string all = socket.ReadAll();
  EXPECT_TRUE(Has(all, "first") && Has(all, "Connection: close")) << all.substr(0, 500);
  EXPECT_FALSE(Has(all, "GET /ahead"));
  EXPECT_EQ(handler_.closed(), 0);
  handler_.AwaitTicks(4);
  EXPECT_EQ(server_->Stats().connections, 1) << "closed at once: the reset for later bytes may overtake the answer";
  socket.Close();
  Until("the connection ends with its client", [&] { return server_->Stats().connections == 0; });
}

TEST_F(LimitsTest, AClientThatNeverStopsPipeliningIsDisconnected) {
  StartOnTestClock();
  RawSocket socket(port_);
  socket.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  socket.Fill("GET /ahead HTTP/1.1\r\nHost: x\r\n\r\n", 200 << 10);
  handler_.AwaitTicks(4);
  clock_.Advance(2 * kSecond);  // from now on incoming bytes are dropped
  const std::string more(1 << 20, 'x');
  int sent = 0;
  while (sent < 64 && socket.Send(more)) ++sent;
  ASSERT_LT(sent, 64) << "MiB were read and dropped";
  Until("the client counts as gone", [&] { return exchange->closed(); });
}

}  // namespace
}  // namespace tactus::http
