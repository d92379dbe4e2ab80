// Access to the server: keys, hosts, content types, bodies, connections.
#include "http/access.h"

#include "http/raw_socket.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using http::AllowedHosts;

class AccessTest : public ServerTest {
 protected:
  static Status StartStatus(const ServeOptions& options) {
    ServeOptions any_port = options;
    any_port.port = 0;
    return serve::ApiServer::Listen(any_port, SystemClock()).status();
  }
  std::string Talk(const std::string& bytes) {
    RawSocket socket(server_->port());
    socket.Send(bytes);
    return socket.ReadAll();
  }
  static std::string Post(const std::string& headers, const std::string& body) {
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  int64_t Metric(const std::string& name) {
    const std::string text = Call("GET", "/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + name.size() + 2));
  }
};

constexpr const char* kBody = R"({"prompt":"abc","max_tokens":2})";
constexpr const char* kJson = "Content-Type: application/json\r\n";

TEST_F(AccessTest, EmptyOrInvalidKeysPreventTheStart) {
  ServeOptions options;
  for (const std::string key : {"", " ", "secret key", "secret\n", "\tsecret", "sec\x01ret", "secret\x7f"}) {
    options.api_key = {key};
    for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
      options.host = host;
      const Status status = StartStatus(options);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << "'" << key << "'";
      EXPECT_EQ(status.param(), "api-key");
      EXPECT_NE(status.message().find("--api-key"), std::string::npos) << status.message();
      EXPECT_EQ(status.message().find("secret"), std::string::npos) << "a key is shown: " << status.message();
    }
  }
  options.api_key = {"good", ""};
  EXPECT_NE(StartStatus(options).message().find("number 2 is empty"), std::string::npos);
  options.api_key = {"good", "g\xc3\xb6od+/=~"};
  EXPECT_TRUE(StartStatus(options).ok());
  options.api_key = {};
  EXPECT_TRUE(StartStatus(options).ok());
}

TEST_F(AccessTest, ContentTypesWithoutPreflightAreRefused) {
  StartServer();
  for (const std::string type :
       {"", "Content-Type: text/plain\r\n", "Content-Type: \r\n", "Content-Type: text/plain; application/json\r\n"}) {
    const std::string all = Talk(Post(type, kBody));
    EXPECT_EQ(all.rfind("HTTP/1.1 415", 0), 0u) << type << " -> " << all;
  }
  for (const std::string type : {kJson, "content-type: Application/JSON; charset=utf-8\r\n"}) {
    EXPECT_EQ(Talk(Post("Connection: close\r\n" + type, kBody)).rfind("HTTP/1.1 200", 0), 0u) << type;
  }
}

TEST_F(AccessTest, HostsOfALoopbackServer) {
  StartServer();
  const auto status = [this](const std::string& line) {
    return Talk("GET /version HTTP/1.1\r\n" + line + "Connection: close\r\n\r\n").substr(9, 3);
  };
  for (const char* host : {"localhost", "LocalHost:8000", "127.0.0.1", "127.9.8.7:1", "[::1]", "[::1]:80", "[0:0::1]"})
    EXPECT_EQ(status(std::string("Host: ") + host + "\r\n"), "200") << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]",
                           "evil.example:8000", "127.1", "0.0.0.0", "2130706433"})
    EXPECT_EQ(status(std::string("Host: ") + host + "\r\n"), "403") << host;
  // A host in the target wins over the Host header.
  EXPECT_EQ(
      Talk("GET http://evil.example/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").substr(9, 3),
      "403");
  EXPECT_EQ(Talk("GET /version HTTP/1.0\r\n\r\n").substr(9, 3), "200");
  const std::string refused = Talk("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
  EXPECT_NE(refused.find("'evil.example' is not a name of this server (--allowed-hosts)"), std::string::npos)
      << refused;
}

TEST(AllowedHostsTest, HostsDependOnTheListenerAndTheOption) {
  const http::AllowedHosts loopback({}, "myhost", true);
  EXPECT_TRUE(loopback.Allows("myhost:80") && loopback.Allows("localhost") && loopback.Allows("[::ffff:127.0.0.1]"));
  EXPECT_FALSE(loopback.Allows("other"));
  const http::AllowedHosts more({"API.example", "10.0.0.1", "2001:DB8::1"}, "127.0.0.1", true);
  EXPECT_TRUE(more.Allows("api.EXAMPLE:80") && more.Allows("10.0.0.1") && more.Allows("[2001:db8::1]:80"));
  EXPECT_TRUE(more.Allows("localhost"));
  EXPECT_FALSE(more.Allows("example"));
  EXPECT_TRUE(http::AllowedHosts({}, "0.0.0.0", false).Allows("anything"));
  const http::AllowedHosts open({"api.example"}, "0.0.0.0", false);
  EXPECT_TRUE(open.Allows("api.example"));
  EXPECT_FALSE(open.Allows("localhost") || open.Allows("0.0.0.0"));
  EXPECT_TRUE(http::AllowedHosts({"*"}, "127.0.0.1", true).Allows("anything"));
}

TEST_F(AccessTest, AllowedHostsAreHosts) {
  ServeOptions options;
  for (const char* bad : {"", "http://a", "a:80", "a b", "*.a", "a/b", "[::1]:80"}) {
    options.allowed_hosts = {bad};
    EXPECT_EQ(StartStatus(options).param(), "allowed-hosts") << bad;
  }
  options.allowed_hosts = {"*", "a.example", "::1", "[::1]", "10.0.0.1"};
  EXPECT_TRUE(StartStatus(options).ok());
}

TEST_F(AccessTest, BodiesOfRefusedRequestsAreNotRead) {
  ServeOptions options;
  options.api_key = {"key"};
  StartServer(options);
  // The body is never sent: an answer shows that the server does not wait for it.
  const std::string length = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n";
  for (const auto& [line, status] : std::vector<std::pair<const char*, const char*>>{{"POST /v1/completions", "401"},
                                                                                     {"POST /tokenize", "401"},
                                                                                     {"GET /health", "400"},
                                                                                     {"GET /v1/models", "400"},
                                                                                     {"HEAD /ready", "400"},
                                                                                     {"OPTIONS /v1/completions", "400"},
                                                                                     {"POST /health", "405"},
                                                                                     {"POST /", "405"},
                                                                                     {"PUT /v1/completions", "405"},
                                                                                     {"POST /nothing", "404"}}) {
    const std::string all = Talk(std::string(line) + " HTTP/1.1\r\n" + length);
    EXPECT_EQ(all.substr(9, 3), status) << line;
    EXPECT_NE(all.find("Connection: close"), std::string::npos) << line;
  }
  EXPECT_EQ(Metric("tactus_http_body_bytes"), 0);
}

TEST_F(AccessTest, ABodyCountsOnlyUntilItIsParsed) {
  StartServer();
  engine_.Hold();
  RawSocket socket(server_->port());
  socket.Send(Post(kJson, kBody));
  engine_.AwaitSubmitted(1);
  EXPECT_EQ(Metric("tactus_http_body_bytes"), 0);  // while the request is being answered
  EXPECT_EQ(Call("POST", "/tokenize", R"({"prompt":"x"})", {{"Content-Type", "application/json"}}).status, 200);
  EXPECT_EQ(Metric("tactus_http_body_bytes"), 0);
  EXPECT_EQ(Metric("tactus_http_body_bytes_limit"), int64_t{256} << 20);
}

TEST_F(AccessTest, BodiesBeyondTheirSumGet503) {
  ServeOptions options;
  options.max_body.bytes = options.max_body_total.bytes = 1000;
  StartServer(options);
  const std::string head = std::string("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n") + kJson +
                           "Content-Length: 1000\r\n\r\n" + std::string(700, ' ');
  RawSocket first(server_->port());
  first.Send(head);
  for (int looks = 0; Metric("tactus_http_body_bytes") != 700; ++looks)
    ASSERT_LT(looks, 10000) << "the body is not counted";
  const std::string refused = Talk(head);
  EXPECT_EQ(refused.rfind("HTTP/1.1 503", 0), 0u) << refused;
  EXPECT_NE(refused.find("Retry-After: 1"), std::string::npos) << refused;
  EXPECT_NE(refused.find("--max-body-total"), std::string::npos) << refused;
  EXPECT_EQ(Metric("tactus_http_bodies_refused_total"), 1);
  options.max_body.bytes = 1001;
  EXPECT_EQ(StartStatus(options).param(), "max-body-total");
}

TEST_F(AccessTest, LimitsOfBodiesFollowTheMemoryPlan) {
  ServeOptions options;
  options.max_body.bytes = 1 << 20;
  options.max_body_total.bytes = 8 << 20;
  const int64_t wanted = options.FrontEndBytes();
  for (const int64_t all : {int64_t{0}, wanted, wanted + 1}) {
    EXPECT_EQ(options.BodiesWithin(all).max_body_bytes, 1 << 20) << all;
    EXPECT_EQ(options.BodiesWithin(all).max_body_total_bytes, 8 << 20) << all;
  }
  EXPECT_EQ(options.BodiesWithin(wanted / 4).max_body_bytes, 1 << 18);
  EXPECT_EQ(options.BodiesWithin(wanted / 4).max_body_total_bytes, 2 << 20);

  engine_.mutable_model().front_end_bytes = wanted / 4;
  StartServer(options);
  const auto of_size = [](size_t bytes) {
    const std::string body = R"({"prompt":"x"})";
    return body + std::string(bytes - body.size(), ' ');
  };
  const auto tokenize = [&](size_t bytes) { return ServerTest::Post("/tokenize", of_size(bytes)); };
  EXPECT_EQ(tokenize(1 << 18).status, 200);
  const auto refused = tokenize((1 << 18) + 1);
  EXPECT_EQ(refused.status, 413);
  EXPECT_NE(refused.body.find("larger than 262144 bytes"), std::string::npos) << refused.body;
  EXPECT_EQ(Metric("tactus_http_body_bytes_limit"), 2 << 20);
}

TEST(ServeOptionsTest, FrontEndBytesIncludeEachBatch) {
  ServeOptions options;
  options.max_batches = 1;
  const int64_t without = options.FrontEndBytes();
  options.files_dir = "files";
  const int64_t one = options.FrontEndBytes();
  options.max_batches = 3;
  EXPECT_EQ(options.FrontEndBytes() - one, 2 * (one - without));
  EXPECT_EQ(one - without, (int64_t{64} + 48 + 64) << 20) << "its plan, a parsed line, its results";
}

TEST_F(AccessTest, ProbesAreAnsweredWhenEveryConnectionIsTaken) {
  ServeOptions options;
  options.max_connections = 1;
  StartServer(options);
  engine_.Hold();
  RawSocket holder(server_->port());
  holder.Send(Post(kJson, kBody));
  engine_.AwaitSubmitted(1);
  EXPECT_EQ(Call("GET", "/health").status, 200);
  EXPECT_EQ(Call("GET", "/ready").status, 200);
  for (const char* path : {"/metrics", "/v1/models", "/"}) {
    const auto refused = Call("GET", path);
    EXPECT_EQ(refused.status, 503) << path;
    EXPECT_EQ(*refused.Find("Retry-After"), "1");
  }
}

}  // namespace
}  // namespace tactus
