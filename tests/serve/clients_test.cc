// Limits and isolation of one client: its share of the queue, its own cached prefixes, its time to send and to read.

#include "base/json.h"
#include "http/raw_socket.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using json = SortedJson;

class ClientsTest : public ServerTest {
 protected:
  static std::string Body(json extra = json::object()) {
    json body = {{"prompt", "abc"}, {"max_tokens", 3}};
    body.update(extra);
    return body.dump();
  }
  static http::Headers Key(const std::string& key) { return {{"Authorization", "Bearer " + key}}; }
  static std::string Http(const std::string& body) {
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }
};

TEST_F(ClientsTest, ByDefaultOneClientHasThreeQuartersOfTheQueue) {
  ServeOptions options;
  options.api_key = {"greedy", "other"};
  StartServer(options);
  engine_.Hold();
  Calls calls(url_);
  std::vector<std::shared_ptr<Recorder>> held;
  for (int i = 0; i < 12; ++i) held.push_back(calls.Post("/v1/completions", Body({{"n", 128}}), Key("greedy")));
  calls.Start();
  engine_.AwaitLive(12);  // 1,536 sequences of a queue of 2,048
  const auto refused = Post("/v1/completions", Body({{"n", 128}}), Key("greedy"));
  EXPECT_EQ(refused.status, 429);
  ASSERT_NE(refused.Find("Retry-After"), nullptr);
  EXPECT_EQ(*refused.Find("Retry-After"), "1");
  EXPECT_NE(refused.Find("X-Request-Id"), nullptr);
  EXPECT_NE(refused.body.find("1536 sequences of this client are open and this request has 1: more than 1536"),
            std::string::npos)
      << refused.body;
  EXPECT_EQ(Post("/tokenize", R"({"prompt":"x"})", Key("greedy")).status, 429);
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[1]})", Key("greedy")).status, 429);
  EXPECT_EQ(Call("GET", "/v1/models", {}, Key("greedy")).status, 200);
  EXPECT_EQ(Post("/tokenize", R"({"prompt":"x"})", Key("other")).status, 200);
  engine_.Release();
  EXPECT_EQ(Post("/v1/completions", Body({{"n", 128}}), Key("other")).status, 200);
  calls.Join();
  for (const auto& call : held) EXPECT_EQ(call->http_status, 200);
  EXPECT_EQ(Post("/v1/completions", Body({{"n", 128}}), Key("greedy")).status, 200);
}

TEST_F(ClientsTest, TheDefaultFollowsMaxQueueAndTheOptionWins) {
  engine_options_.max_queue = 8;
  StartServer();
  EXPECT_EQ(Post("/v1/completions", Body({{"n", 6}})).status, 200);
  const auto beyond = Post("/v1/completions", Body({{"n", 7}}));
  EXPECT_EQ(beyond.status, 400);
  EXPECT_EQ(beyond.Find("Retry-After"), nullptr);
  EXPECT_NE(beyond.body.find("7 sequences (prompts times n) is beyond 6, the limit of one client "
                             "(--max-streams-per-client)"),
            std::string::npos)
      << beyond.body;
  ServeOptions options;
  options.max_streams_per_client = 8;
  StartServer(options);
  EXPECT_EQ(Post("/v1/completions", Body({{"n", 8}})).status, 200);
  EXPECT_EQ(Post("/v1/completions", Body({{"n", 9}})).status, 400);
}

TEST_F(ClientsTest, OneClientCannotTakeEveryPlace) {
  ServeOptions options;
  options.max_streams_per_client = 2;
  StartServer(options);
  engine_.Hold();
  Calls calls(url_);
  const auto one = calls.Post("/v1/completions", Body({{"stream", true}})), two = calls.Post("/v1/completions", Body());
  calls.Start();
  engine_.AwaitSubmitted(2);
  const auto third = Post("/v1/completions", Body());
  EXPECT_EQ(third.status, 429);
  EXPECT_NE(third.body.find("2 sequences"), std::string::npos);
  engine_.Release();
  calls.Join();
  EXPECT_EQ(one->http_status, 200);
  EXPECT_EQ(two->http_status, 200);
  EXPECT_EQ(Post("/v1/completions", Body()).status, 200);
}

// With a limit of one, a place that is not released before its answer can be read would refuse the next request.
TEST_F(ClientsTest, EveryAnswerComesAfterItsPlaceIsFree) {
  ServeOptions options;
  options.max_streams_per_client = 1;
  StartServer(options);
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(Post("/v1/completions", Body()).status, 200);
    EXPECT_EQ(Stream("/v1/completions", Body({{"stream", true}}))->http_status, 200);
    EXPECT_EQ(Post("/v1/completions", "{").status, 400);
    EXPECT_EQ(Post("/v1/completions", Body({{"n", 2}})).status, 400);
    EXPECT_EQ(Post("/v1/completions", Body({{"max_tokens", 5000}})).status, 400);
    EXPECT_EQ(Post("/tokenize", R"({"prompt":"x"})").status, 200);
    EXPECT_EQ(Post("/tokenize", "{").status, 400);
    EXPECT_EQ(Post("/detokenize", R"({"tokens":[1]})").status, 200);
    engine_.SetQueueLimit(0);
    EXPECT_EQ(Post("/v1/completions", Body()).status, 503);
    engine_.SetQueueLimit(10);
    if (HasFailure()) FAIL() << "in round " << round;
  }
}

TEST_F(ClientsTest, AKeyIsOneClientAndAnAddressWithManyKeysIsMany) {
  ServeOptions options;
  options.max_streams_per_client = 1;
  options.api_key = {"one", "two", "one"};
  StartServer(options);
  engine_.Hold();
  Calls calls(url_);
  const auto first = calls.Post("/v1/completions", Body(), Key("one"));
  calls.Start();
  engine_.AwaitLive(1);
  EXPECT_EQ(Post("/v1/completions", Body(), Key("one")).status, 429);
  engine_.HoldAfter(100);  // lets all requests end
  EXPECT_EQ(Post("/v1/completions", Body(), Key("two")).status, 200);
  calls.Join();
  EXPECT_EQ(first->http_status, 200);
  EXPECT_EQ(engine_.submitted()[0].client, "key 1");
  EXPECT_EQ(engine_.submitted()[1].client, "key 2");
  StartServer();
  Post("/v1/completions", Body());
  EXPECT_EQ(engine_.submitted()[2].client, "127.0.0.1");
}

TEST_F(ClientsTest, AKeyHasItsClassAndCountsAsOneClient) {
  ServeOptions options;
  options.api_key = {"one", "two"};
  options.api_key_class = {"chat", "none"};
  StartServer(options);
  Post("/v1/completions", Body({{"user", "u"}}), Key("one"));
  Post("/v1/completions", Body({{"slo", {{"class", "batch"}}}}), Key("one"));
  Post("/v1/completions", Body({{"slo", {{"ttft_ms", 5}}}}), Key("one"));
  Post("/v1/completions", Body(), Key("two"));
  const auto r = engine_.submitted();
  ASSERT_EQ(r.size(), 4u);
  EXPECT_EQ(r[0].slo_class, "chat");
  EXPECT_EQ(r[0].client, "key 1");
  EXPECT_EQ(r[1].slo_class, "batch");
  EXPECT_EQ(r[2].slo_class, "") << "it states its own objectives";
  EXPECT_EQ(r[3].slo_class, "");
  options.api_key = {"one"};
  options.api_key_class = {};
  StartServer(options);
  Post("/v1/completions", Body({{"user", "u"}}), Key("one"));
  EXPECT_EQ(engine_.submitted()[4].client, "u") << "one key may serve many users, such as that of a front end";
}

TEST_F(ClientsTest, PlacesOfADisconnectedClientAreReleasedWhenTheEngineHasEnded) {
  ServeOptions options;
  options.max_streams_per_client = 2;
  StartServer(options);
  engine_.Hold();
  engine_.HearNoCancel(true);
  {
    RawSocket socket(server_->port());
    socket.Send(Http(Body({{"n", 2}})));
    engine_.AwaitLive(1);
  }
  engine_.AwaitCancelled(1);
  EXPECT_EQ(Post("/v1/completions", Body()).status, 429);
  engine_.HearNoCancel(false);
  engine_.AwaitLive(0);
  engine_.Release();
  EXPECT_EQ(Post("/v1/completions", Body({{"n", 2}})).status, 200);
}

TEST_F(ClientsTest, SeveralKeysShareNoCachedPrefix) {
  ServeOptions options;
  options.api_key = {"one", "two"};
  StartServer(options);
  for (const char* key : {"one", "two", "one"}) Post("/v1/completions", Body(), Key(key));
  Post("/v1/completions", Body({{"cache_salt", "mine"}}), Key("one"));
  const auto r = engine_.submitted();
  ASSERT_EQ(r.size(), 4u);
  EXPECT_EQ(r[0].cache_salt.size(), 32u);
  EXPECT_NE(r[0].cache_salt, r[1].cache_salt);
  EXPECT_EQ(r[0].cache_salt, r[2].cache_salt);
  EXPECT_EQ(r[3].cache_salt, r[0].cache_salt + "mine");
  StartServer(options);  // like a restart: the prompts on disk belong to the same key
  Post("/v1/completions", Body(), Key("one"));
  EXPECT_EQ(engine_.submitted()[4].cache_salt, r[0].cache_salt);
}

TEST_F(ClientsTest, OneKeyNoKeyOrTheOptionShareThePrefixCache) {
  ServeOptions options;
  StartServer(options);
  Post("/v1/completions", Body());
  options.api_key = {"one", "one"};
  StartServer(options);
  Post("/v1/completions", Body({{"cache_salt", "s"}}), Key("one"));
  options.api_key = {"one", "two"};
  options.share_prefix_cache = true;
  StartServer(options);
  Post("/v1/completions", Body(), Key("one"));
  Post("/v1/completions", Body({{"cache_salt", "s"}}), Key("two"));
  const auto r = engine_.submitted();
  ASSERT_EQ(r.size(), 4u);
  EXPECT_EQ(r[0].cache_salt, "");
  EXPECT_EQ(r[1].cache_salt, "s");
  EXPECT_EQ(r[2].cache_salt, "");
  EXPECT_EQ(r[3].cache_salt, "s");
}

// --- Time to send and to read ---

// Sends the start of a request and advances the clock until the server answers.
class SlowSenderTest : public ClientsTest {
 protected:
  std::string AnswerTo(const std::string& part, ServeOptions options) {
    options.idle_timeout.ns = 1'000'000 * kSecond;  // time may pass before the server has read the first byte
    StartServer(options, true, clock_);
    RawSocket socket(server_->port());
    socket.Send(part);
    std::atomic<bool> answered{false};
    std::string answer;
    std::thread reader([&] {
      answer = socket.ReadUntil("}}");
      answered.store(true);
    });
    const bool came = clock_.AdvanceUntil(kSecond / 4, 1000 * kSecond, [&] { return answered.load(); });
    EXPECT_TRUE(came) << "no answer within 1,000 s of the server's time to: " << part;
    if (!came) server_.reset();  // unblocks the reader
    reader.join();
    return answer;
  }
};

TEST_F(SlowSenderTest, ReadTimeoutAppliesToHeadersAndBodies) {
  ServeOptions options;
  options.read_timeout.ns = 3 * kSecond;
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Le";
  std::string answer = AnswerTo(head, options);
  EXPECT_NE(answer.find("HTTP/1.1 408"), std::string::npos) << answer;
  EXPECT_NE(answer.find("the request's headers did not arrive within 3000 ms"), std::string::npos) << answer;
  answer = AnswerTo(head + "ngth: 100\r\n\r\n{", options);
  EXPECT_NE(answer.find("the request's body did not arrive within 3000 ms"), std::string::npos) << answer;
}

TEST_F(SlowSenderTest, HeadersKeepTheirTimeOutWithALongReadTimeout) {
  ServeOptions options;
  options.read_timeout.ns = 40 * kSecond;
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Le";
  EXPECT_NE(AnswerTo(head, options).find("headers did not arrive within 15000 ms"), std::string::npos);
  EXPECT_NE(AnswerTo(head + "ngth: 100\r\n\r\n{", options).find("body did not arrive within 40000 ms"),
            std::string::npos);
}

TEST_F(ClientsTest, AClientThatReadsNothingForTheWriteTimeoutIsGone) {
  ServeOptions options;
  options.write_timeout.ns = kSecond;
  options.read_timeout.ns = 20 * kMillisecond;  // makes ticks short
  StartServer(options, true, clock_);
  engine_.SetPieces({std::string(1 << 20, 'x')});
  engine_.HoldAfter(32);  // 32 MiB: more than all buffers between server and client
  RawSocket socket(server_->port(), 4096);
  socket.Send(Http(Body({{"stream", true}, {"max_tokens", 100}})));
  engine_.AwaitLive(1);
  EXPECT_EQ(engine_.cancelled(), 0u);
  // The default of 30 s is not reached.
  EXPECT_TRUE(clock_.AdvanceUntil(kSecond / 100, 25 * kSecond, [&] { return engine_.cancelled() == 1; }))
      << "a client that reads nothing was kept beyond --write-timeout";
  engine_.AwaitLive(0);
}

TEST_F(ClientsTest, AnIdleConnectionIsClosedAfterTheIdleTimeout) {
  ServeOptions options;
  options.idle_timeout.ns = 5 * kSecond;
  StartServer(options, true, clock_);
  RawSocket socket(server_->port());
  socket.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(socket.ReadUntil("\"ok\"").find("200"), std::string::npos);
  std::atomic<bool> closed{false};
  std::thread reader([&] {
    socket.ReadAll();
    closed.store(true);
  });
  EXPECT_TRUE(clock_.AdvanceUntil(kSecond / 20, 60 * kSecond, [&] { return closed.load(); }));
  if (!closed.load()) server_.reset();
  reader.join();
}

TEST_F(ClientsTest, ABodyOfMaxBodyIsAcceptedAndALongerOneIsNot) {
  ServeOptions options;
  options.max_body.bytes = 1000;
  StartServer(options);
  std::string body = Body();
  body.resize(1000, ' ');
  EXPECT_EQ(Post("/v1/completions", body).status, 200);
  const auto longer = Post("/v1/completions", body + ' ');
  EXPECT_EQ(longer.status, 413);
  EXPECT_NE(longer.body.find("larger than 1000 bytes (--max-body)"), std::string::npos) << longer.body;
}

TEST_F(ClientsTest, MaxChoicesIsTheLargestN) {
  ServeOptions options;
  options.max_choices = 3;
  StartServer(options);
  EXPECT_EQ(Post("/v1/completions", Body({{"n", 3}})).status, 200);
  const auto beyond = Post("/v1/completions", Body({{"n", 4}}));
  EXPECT_EQ(beyond.status, 400);
  EXPECT_NE(beyond.body.find("n: 4 is out of range; give a whole number from 1 to 3"), std::string::npos);
}

TEST_F(ClientsTest, ConnectionsBeyondTheLimitGet503) {
  ServeOptions options;
  options.max_connections = 1;
  options.max_connections_per_client = 2;
  StartServer(options);
  RawSocket first(server_->port());
  first.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  first.ReadUntil("\"ok\"");
  RawSocket second(server_->port());
  const std::string answer = second.ReadAll();
  EXPECT_NE(answer.find("HTTP/1.1 503"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Retry-After: 1"), std::string::npos) << answer;
  EXPECT_NE(answer.find("1 connections are open, the limit (--max-connections)"), std::string::npos) << answer;
}

}  // namespace
}  // namespace tactus
