// Framing and host of requests: the server refuses ambiguous framing, so that no request can hide inside another, and
// bounds the bytes around a body like the body itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "http/head_check.h"
#include "http_fixture.h"

namespace tactus::http {
namespace {

using FramingTest = HttpServerTest;

constexpr std::string_view kHidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";

struct Case {
  const char* lines;  // header lines after the request line
  int status;
};

TEST_F(FramingTest, BodiesWithoutAClearEndAreRefusedAndNothingIsReadBehindThem) {
  Start();
  for (const Case& c : std::initializer_list<Case>{
           {"Host: x\r\nTransfer-Encoding: xchunked\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: identity\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: gzip\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: \"chunked\"\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: chunked, identity\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: chunked;q=1\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: \r\n", 400},
           {"Host: x\r\nTransfer-Encoding: ,\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: chunked, chunked\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: gzip, chunked\r\n", 501},
           {"Host: x\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 501},
           {"Host: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
           {"Host: x\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n", 400},
           {"Host: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n", 400},
           {"Host: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n", 400},
           {"Host: x\r\nContent-Length: 5, 5\r\n", 400},
           {"Host: x\r\nContent-Length: +5\r\n", 400},
           {"Host: x\r\nContent-Length: 0x5\r\n", 400},
           {"Host: x\r\nContent-Length: -1\r\n", 400},
           {"Host: x\r\nContent-Length: \r\n", 400},
           {"Host: x\r\nTransfer-Encoding : chunked\r\n", 400},
       }) {
    const std::string all = Talk(fmt::format("POST /x HTTP/1.1\r\n{}\r\n{}", c.lines, kHidden));
    EXPECT_EQ(all.rfind(fmt::format("HTTP/1.1 {} ", c.status), 0), 0u) << c.lines << " -> " << all;
    EXPECT_TRUE(Has(all, "Connection: close")) << c.lines << " -> " << all;
    EXPECT_FALSE(Has(all, "/hidden")) << c.lines << " -> " << all;
  }
  const std::string old = Talk(fmt::format("POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{}", kHidden));
  EXPECT_TRUE(old.rfind("HTTP/1.1 400", 0) == 0 && !Has(old, "/hidden")) << old;
  const std::string clear = Talk("POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n");
  EXPECT_TRUE(clear.rfind("HTTP/1.1 400", 0) == 0 && Has(clear, "not part of HTTP/1.0")) << clear;
  // Valid values are accepted in any spelling.
  for (const char* lines :
       {"Transfer-Encoding: chunked", "transfer-encoding: CHUNKED", "Transfer-Encoding: , chunked"}) {
    EXPECT_TRUE(Has(
        Talk(fmt::format("POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}\r\n\r\n1\r\na\r\n0\r\n\r\n", lines)),
        "POST /x [a]"))
        << lines;
  }
}

TEST_F(FramingTest, HostIsGivenOnceAndValid) {
  Start();
  for (const Case& c : std::initializer_list<Case>{{"", 400},
                                                   {"Host: a\r\nHost: a\r\n", 400},
                                                   {"Host: a\r\nHost: b\r\n", 400},
                                                   {"Host: \r\n", 400},
                                                   {"Host: a b\r\n", 400},
                                                   {"Host: a/b\r\n", 400},
                                                   {"Host: u@a\r\n", 400},
                                                   {"Host: a:b\r\n", 400},
                                                   {"Host: a:80:80\r\n", 400},
                                                   {"Host: [::1\r\n", 400},
                                                   {"Host: [x]\r\n", 400},
                                                   {"Host: a, b\r\n", 400},
                                                   {"Host: a\r\n", 200},
                                                   {"Host: a.example:8000\r\n", 200},
                                                   {"Host: a:\r\n", 200},
                                                   {"Host: 127.0.0.1:80\r\n", 200},
                                                   {"Host: [::1]:80\r\n", 200}}) {
    const std::string all = Talk(fmt::format("GET /x HTTP/1.1\r\n{}Connection: close\r\n\r\n{}", c.lines, kHidden));
    EXPECT_EQ(all.rfind(fmt::format("HTTP/1.1 {} ", c.status), 0), 0u) << c.lines << " -> " << all;
    EXPECT_FALSE(Has(all, "/hidden")) << c.lines << " -> " << all;
  }
  EXPECT_TRUE(Has(Talk("GET /old HTTP/1.0\r\n\r\n"), "GET /old []"));  // HTTP/1.0 has no Host
  EXPECT_TRUE(Has(Talk("GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 400"));
  EXPECT_TRUE(Has(Talk("GET http://a/x HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n"), "HTTP/1.1 400"));
  EXPECT_TRUE(Has(Talk("GET http://a/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "[]"));
}

// The parser refuses some of these earlier; the check must not depend on that.
TEST(HeadCheckTest, FaultsAreNamed) {
  const auto fault = [](Headers headers, bool http10 = false) {
    HttpRequest head;
    head.method = "POST";
    head.authority = "x";
    head.headers = std::move(headers);
    head.headers.emplace_back("Host", "x");
    const auto found = CheckHeadFraming(head, http10);
    return found ? fmt::format("{} {}", found->status, found->message) : "none";
  };
  EXPECT_EQ(fault({{"Content-Length", "5"}}), "none");
  EXPECT_EQ(fault({{"Content-Length", "5"}, {"content-length", "5"}}),
            "400 Content-Length: given more than once; give it once");
  EXPECT_EQ(fault({{"Transfer-Encoding", "chunked"}}), "none");
  EXPECT_EQ(fault({{"Transfer-Encoding", "chunked"}, {"Content-Length", "5"}}),
            "400 Content-Length and Transfer-Encoding exclude each other; give one");
  EXPECT_EQ(fault({{"Transfer-Encoding", "chunked"}}, true),
            "400 Transfer-Encoding: not part of HTTP/1.0; use HTTP/1.1 or Content-Length");
  EXPECT_EQ(fault({{"Transfer-Encoding", "chunked, chunked"}}),
            "400 Transfer-Encoding: 'chunked' more than once; give it once");
  EXPECT_EQ(fault({{"Transfer-Encoding", "gzip, chunked"}}),
            "501 Transfer-Encoding: 'gzip' is not supported; only 'chunked' is");
}

TEST(HeadCheckTest, HostWithoutPortAndBrackets) {
  EXPECT_EQ(HostOf("A.Example:80"), "a.example");
  EXPECT_EQ(HostOf("[::1]:80"), "::1");
  EXPECT_EQ(HostOf("[::1]"), "::1");
  EXPECT_EQ(HostOf("127.0.0.1"), "127.0.0.1");
}

TEST_F(FramingTest, MethodsWithoutABodyTakeNone) {
  Start();
  for (const char* method : {"GET", "HEAD", "OPTIONS"}) {
    for (const char* body :
         {"Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"}) {
      const std::string all = Talk(fmt::format("{} /x HTTP/1.1\r\nHost: x\r\n{}", method, body));
      EXPECT_TRUE(all.rfind("HTTP/1.1 400", 0) == 0 && Has(all, "Connection: close")) << method << " -> " << all;
    }
    const std::string none =
        Talk(fmt::format("{} /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method));
    EXPECT_TRUE(none.rfind("HTTP/1.1 200", 0) == 0) << method << " -> " << none;
  }
}

// The refusal is sent before the body arrives: no body bytes are kept.
TEST_F(FramingTest, ARefusedBodyIsNotWaitedFor) {
  Start();
  RawSocket socket(port_);
  socket.Send("GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_TRUE(Has(socket.ReadAll(), "HTTP/1.1 400"));
  EXPECT_EQ(server_->Stats().body_bytes, 0);
}

TEST_F(FramingTest, BytesAroundChunksAreBounded) {
  ServerOptions options;
  options.max_header_bytes = 4000;
  Start(options);
  const std::string head = "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string long_text(64 << 10, 'a');
  std::string many;
  for (int i = 0; i < 100; ++i) many += fmt::format("1;{}\r\nx\r\n", std::string(100, 'a'));
  std::string trailers;
  for (int i = 0; i < 1000; ++i) trailers += fmt::format("T{}: {}\r\n", i, std::string(100, 'a'));
  const struct {
    const char* what;
    std::string body;
  } cases[] = {{"an extension without an end", "1;" + long_text},
               {"an extension with an end", "1;" + long_text + "\r\nx\r\n0\r\n\r\n"},
               {"an extension of the last chunk", "0;" + long_text},
               {"a size with zeros in front", std::string(64 << 10, '0')},
               {"many extensions, none of them long", many},
               {"a trailer without an end", "1\r\nx\r\n0\r\nT: " + long_text},
               {"many trailers", "1\r\nx\r\n0\r\n" + trailers},
               {"many trailers and their end", "1\r\nx\r\n0\r\n" + trailers + "\r\n"}};
  for (const auto& c : cases) {
    const std::string all = Talk(head + c.body);
    EXPECT_TRUE(Has(all, "HTTP/1.1 431") && Has(all, "4000 bytes")) << c.what << " -> " << all;
  }
}

TEST_F(FramingTest, ShortChunksAndSmallExtensionsAreFine) {
  ServerOptions options;
  options.max_header_bytes = 4000;
  Start(options);
  const std::string head = "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string body, text;
  for (int i = 0; i < 100000; ++i) {
    body += fmt::format("1\r\n{}\r\n", static_cast<char>('a' + i % 26));
    text += static_cast<char>('a' + i % 26);
  }
  EXPECT_TRUE(Has(Talk(head + body + "0\r\nT: trailer\r\n\r\n"), "[" + text + "]"));
  EXPECT_TRUE(Has(Talk(head + "3;name=value;\"q\"\r\nabc\r\n0\r\n\r\n"), "HTTP/1.1 400"));
  EXPECT_TRUE(Has(Talk(head + "3;name=value;other=\"q\"\r\nabc\r\n0;last\r\n\r\n"), "[abc]"));
}

// Pieces of every size, so that the input ends in every state of the parser.
TEST_F(FramingTest, BodiesArriveInAnyPieces) {
  Start();
  const std::string body = "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: u\r\n\r\n";
  for (size_t piece = 1; piece < body.size(); ++piece) {
    RawSocket socket(port_);
    socket.Send("POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0; at < body.size(); at += piece) socket.Send(std::string_view(body).substr(at, piece));
    EXPECT_TRUE(Has(socket.ReadAll(), "POST /x [abcde]")) << piece;
  }
}

}  // namespace
}  // namespace tactus::http
