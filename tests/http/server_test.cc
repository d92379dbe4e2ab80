// The HTTP server with unusual, slow and disconnecting clients.
#include "http/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "http/exchange.h"
#include "http_fixture.h"

namespace tactus::http {
namespace {

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  const std::string all = Talk(
      "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
      "GET /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const size_t a = all.find("GET /a []"), b = all.find("POST /b [hi]"), c = all.find("GET /c []");
  ASSERT_NE(c, std::string::npos) << all;
  EXPECT_LT(a, b);
  EXPECT_LT(b, c);
}

TEST_F(HttpServerTest, ARequestPipelinedBehindAStreamWaitsForItsEnd) {
  Start();
  RawSocket socket(port_);
  socket.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  socket.Send("GET /after HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  exchange->Write("one");
  socket.ReadUntil("one");
  exchange->Write("two");
  exchange->End();
  const std::string rest = socket.ReadAll();
  EXPECT_LT(rest.find("two"), rest.find("GET /after []")) << rest;
  EXPECT_EQ(handler_.closed(), 0);
}

TEST_F(HttpServerTest, ChunkedBodiesAndExpectContinue) {
  Start();
  EXPECT_TRUE(Has(Talk("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: "
                       "close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
                  "POST /c [abcde]"));
  RawSocket socket(port_);
  socket.Send("POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(socket.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  socket.Send("ok");
  EXPECT_TRUE(Has(socket.ReadAll(), "POST /e [ok]"));
  EXPECT_TRUE(Has(Talk("POST /e HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\nContent-Length: 2\r\n\r\nok"), "417 "));
  // A refusal is sent instead of 100 Continue.
  EXPECT_TRUE(Talk("POST /refuse HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
                  .rfind("HTTP/1.1 403", 0) == 0);
}

TEST_F(HttpServerTest, RefusedBodiesAreNotTakenForRequests) {
  Start();
  const std::string hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string all =
      Talk(fmt::format("POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", hidden.size(), hidden));
  EXPECT_TRUE(Has(all, "403")) << all;
  EXPECT_FALSE(Has(all, "hidden")) << all;
}

TEST_F(HttpServerTest, OversizedBodiesAndHeaders) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2000;
  Start(options);
  const std::string declared =
      Talk("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x'));
  EXPECT_TRUE(Has(declared, "HTTP/1.1 413")) << declared;
  EXPECT_TRUE(Has(declared, "1000 bytes")) << declared;
  const std::string chunked = Talk("POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                                   std::string(2000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_TRUE(Has(chunked, "HTTP/1.1 413")) << chunked;
  EXPECT_TRUE(Has(Talk("GET /x HTTP/1.1\r\nHost: x\r\nA: " + std::string(3000, 'a') + "\r\n\r\n"), "HTTP/1.1 431"));
  EXPECT_TRUE(
      Has(Talk("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n"), "HTTP/1.1 4"));
}

TEST_F(HttpServerTest, MalformedRequests) {
  Start();
  for (const char* bytes : {"nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /x HTTP/1.1\r\nbad header\r\n\r\n",
                            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                            "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"}) {
    const std::string all = Talk(bytes);
    EXPECT_TRUE(all.rfind("HTTP/1.1 400", 0) == 0) << bytes << " -> " << all;
  }
  EXPECT_EQ(handler_.closed(), 0);
}

TEST_F(HttpServerTest, SlowClientsTimeOut) {
  ServerOptions options;
  options.header_timeout_ns = options.body_timeout_ns = options.idle_timeout_ns = kSecond;
  StartOnTestClock(options);
  const std::string head = TalkWhileTimePasses("GET /x HTT");
  EXPECT_TRUE(Has(head, "HTTP/1.1 408") && Has(head, "headers")) << head;
  RawSocket socket(port_);
  socket.Send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  handler_.AwaitHeads(1);
  PassTimeUntilReadable(&socket);
  const std::string body = socket.ReadAll();
  EXPECT_TRUE(Has(body, "HTTP/1.1 408") && Has(body, "body")) << body;
  EXPECT_EQ(TalkWhileTimePasses(""), "");  // idle: closed without an answer
}

TEST_F(HttpServerTest, NoClientTimesOutEarly) {
  ServerOptions options;
  options.idle_timeout_ns = kSecond;
  StartOnTestClock(options);
  RawSocket socket(port_);
  for (int i = 0; i < 3; ++i) {
    socket.Send("GET /y HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(Has(socket.ReadUntil("[]"), "200"));
    clock_.Advance(kSecond - 1);
    handler_.AwaitTicks(2);  // the second tick began after the time had passed
  }
  PassTimeUntilReadable(&socket);
  EXPECT_EQ(socket.ReadAll(), "");
}

TEST_F(HttpServerTest, AClientThatStopsReadingIsGone) {
  ServerOptions options;
  options.write_timeout_ns = kSecond;
  StartOnTestClock(options);
  RawSocket socket(port_, 4096);
  socket.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  for (int i = 0; i < 64; ++i) exchange->Write(std::string(1 << 20, 'x'));  // more than the socket buffers
  const auto gone = [&] { return exchange->closed(); };
  Until("the client counts as gone", gone, [&] { clock_.Advance(kSecond / 4); });
  handler_.AwaitClosed(1);
  exchange->Write("this is not read");
  exchange->End();
  EXPECT_EQ(server_->Stats().client_gone, 1);
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticedWhileNothingIsWritten) {
  Start();
  int expected = 0;
  for (const char* path : {"/hold", "/stream"}) {
    for (const bool reset : {false, true}) {
      RawSocket socket(port_);
      socket.Send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", path));
      auto exchange = handler_.AwaitHeld(static_cast<size_t>(++expected));
      if (reset)
        socket.Reset();
      else
        socket.Close();
      handler_.AwaitClosed(expected);
      EXPECT_TRUE(exchange->closed());
    }
  }
}

TEST_F(HttpServerTest, OnClosedAfterTheClientWentIsCalledAtOnce) {
  Start();
  RawSocket socket(port_);
  socket.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  socket.Close();
  handler_.AwaitClosed(1);
  bool called = false;
  exchange->OnClosed([&] { called = true; });
  EXPECT_TRUE(called);
}

TEST_F(HttpServerTest, ALateEndOfAStreamSendsOnlyTheLastChunk) {
  StartOnTestClock();
  RawSocket socket(port_);
  socket.Send("GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  exchange->Write("abc");
  socket.ReadUntil("abc\r\n");
  handler_.AwaitTicks(2);  // the connection waits for more
  exchange->End();
  EXPECT_EQ(socket.ReadAll(), "0\r\n\r\n");
}

TEST(ExchangeBufferTest, NothingIsWrittenAfterTheEndOrTheDisconnect) {
  ExchangeBuffer::Output output;
  const auto ended = std::make_shared<ExchangeBuffer>(HttpRequest(), Body(), std::make_shared<WakeList>());
  ended->StartStream({});
  ended->Write("a");
  ended->End();
  ended->Write("b");
  ended->Take(&output);
  EXPECT_EQ(output.bytes, "a");
  EXPECT_TRUE(output.ended);
  const auto left = std::make_shared<ExchangeBuffer>(HttpRequest(), Body(), std::make_shared<WakeList>());
  left->StartStream({});
  left->ClientGone();
  left->Write("a");
  left->Take(&output);
  EXPECT_EQ(output.bytes, "") << "kept for a disconnected client";
}

TEST_F(HttpServerTest, OldClientsGetAStreamThatEndsWithTheConnection) {
  Start();
  RawSocket socket(port_);
  socket.Send("GET /stream HTTP/1.0\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  exchange->Write("abc");
  exchange->End();
  const std::string all = socket.ReadAll();
  EXPECT_FALSE(Has(all, "chunked"));
  EXPECT_FALSE(Has(all, "Content-Length")) << all;
  EXPECT_TRUE(Has(all, "Connection: close"));
  EXPECT_EQ(all.substr(all.find("\r\n\r\n") + 4), "abc");
}

// The client requests keep-alive, but only closing the connection marks the end of a body without length.
TEST_F(HttpServerTest, AStreamToAnOldClientClosesEvenWhenItAsksToKeepTheConnection) {
  Start();
  RawSocket socket(port_);
  socket.Send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  exchange->Write("abc");
  exchange->End();
  const std::string all = socket.ReadAll();
  EXPECT_TRUE(Has(all, "Connection: close")) << all;
  EXPECT_EQ(all.substr(all.find("\r\n\r\n") + 4), "abc");
}

TEST_F(HttpServerTest, AThrowingHandlerEndsItsConnectionOnly) {
  Start();
  EXPECT_EQ(Talk("GET /throw HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  EXPECT_TRUE(Has(Talk("GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "200"));
  EXPECT_TRUE(server_->WaitUntilIdle(kPatienceSeconds * kSecond));
}

TEST_F(HttpServerTest, DrainingClosesAfterTheAnswer) {
  Start();
  RawSocket socket(port_);
  socket.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  server_->SetDraining();
  EXPECT_FALSE(server_->WaitUntilIdle(0));
  exchange->Respond({.body = "late"});
  EXPECT_TRUE(Has(socket.ReadAll(), "late"));
  EXPECT_TRUE(server_->WaitUntilIdle(kPatienceSeconds * kSecond));
}

TEST_F(HttpServerTest, StoppingTheServerNotifiesProducers) {
  Start();
  RawSocket socket(port_);
  socket.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = handler_.AwaitHeld(1);
  server_.reset();
  EXPECT_EQ(handler_.closed(), 1);
  exchange->Write("x");  // the exchange outlives the server
  exchange->End();
}

TEST_F(HttpServerTest, APortInUseIsNamed) {
  Start();
  ServerOptions options;
  options.port = port_;
  const auto second = Server::Listen(options, &handler_, SystemClock());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(fmt::format("port {} on 127.0.0.1 is in use", port_)), std::string::npos);
  options.host = "no.such.host.invalid";
  EXPECT_EQ(Server::Listen(options, &handler_, SystemClock()).status().param(), "host");
}

}  // namespace
}  // namespace tactus::http
