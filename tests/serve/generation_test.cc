// One Generation with a fake engine and a fake exchange, without sockets, on a manual clock: cancellation, release of
// places, echo, pings and time limits.
#include "serve/calls/generation.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "fake_engine.h"
#include "fake_exchange.h"
#include "test_clock.h"

namespace tactus::serve {
namespace {

using json = SortedJson;

class GenerationTest : public testing::Test {
 protected:
  GenerationTest() {
    context_->engine = &engine_;
    context_->clock = &clock_;
    context_->limits.model = "fake";
    context_->limits.max_model_len = 4096;
    context_->limits.vocab_size = 512;
    context_->fingerprint = "print";
  }
  std::shared_ptr<Generation> Make(const std::shared_ptr<FakeExchange>& exchange, bool chat = false) {
    auto places = counts_.Enter("c");
    if (!places.ok()) throw std::runtime_error(places.status().ToString());
    exchange->on_answer = [this] { open_at_answer_ = counts_.open("c"); };
    return std::make_shared<Generation>(context_, exchange, chat ? api::kChatApi : api::kCompletionsApi, "id",
                                        http::Headers{{"X-Request-Id", "id"}},
                                        Caller{.client = "c", .cache_salt = salt_, .places = std::move(*places)});
  }
  std::shared_ptr<FakeExchange> Start(const json& body, http::Headers headers = {}) {
    auto exchange = std::make_shared<FakeExchange>(body.dump(), std::move(headers));
    generation_ = Make(exchange, body.contains("messages"));
    generation_->Watch();
    generation_->Run();
    return exchange;
  }
  static json Body(json extra = json::object()) {
    json body = {{"prompt", "abc"}, {"max_tokens", 3}};
    body.update(extra);
    return body;
  }
  static std::vector<json> Events(const std::string& stream) {
    std::vector<json> events;
    for (size_t at = stream.find("data: "); at != std::string::npos; at = stream.find("data: ", at + 1)) {
      const std::string data = stream.substr(at + 6, stream.find("\n\n", at) - at - 6);
      if (data != "[DONE]") events.push_back(json::parse(data));
    }
    return events;
  }

  FakeEngine engine_;
  TestClock clock_;
  http::ClientCounts counts_{10};
  std::string salt_;
  int64_t open_at_answer_ = -1;
  const std::shared_ptr<GenerationContext> context_ = std::make_shared<GenerationContext>();
  std::shared_ptr<Generation> generation_;
};

// --- Bodies kept for a move ---

TEST_F(GenerationTest, TheBodyOfAMovableRequestIsCountedUntilItEnds) {
  context_->movable = true;
  for (const bool leaves : {false, true}) {
    engine_.Hold();
    const json body = Body({{"stream", true}});
    auto exchange = Start(body, {{"x-tactus-route", "1"}});
    engine_.AwaitLive(1);
    EXPECT_TRUE(generation_->MovableHandle(kSecond).ok()) << generation_->MovableHandle(kSecond).status().ToString();
    EXPECT_EQ(generation_->origin().body, body.dump());
    EXPECT_EQ(context_->kept_bodies->held(), static_cast<int64_t>(body.dump().size()));
    leaves ? exchange->Leave() : engine_.Release();
    engine_.AwaitLive(0);
    EXPECT_EQ(context_->kept_bodies->held(), 0) << (leaves ? "its client left" : "it has been answered");
  }
}

TEST_F(GenerationTest, ALongBodyIsNotKeptAndItsRequestStays) {
  context_->movable = true;
  engine_.Hold();
  auto exchange =
      Start(Body({{"metadata", {{"k", std::string(BodyLimits::kLongestKeptBody, 'x')}}}}), {{"x-tactus-route", "1"}});
  engine_.AwaitLive(1);
  EXPECT_EQ(context_->kept_bodies->held(), 0);
  const std::string why = generation_->MovableHandle(kSecond).status().message();
  EXPECT_NE(why.find("at most 1048576 are kept"), std::string::npos) << why;
  engine_.Release();
  EXPECT_EQ(exchange->Answer().status, 200);
}

TEST_F(GenerationTest, ARequestStaysIfKeptBodiesHaveNoRoom) {
  context_->movable = true;
  context_->kept_bodies->SetLimit(100);
  ASSERT_TRUE(context_->kept_bodies->Add(90));
  engine_.Hold();
  auto exchange = Start(Body(), {{"x-tactus-route", "1"}});
  engine_.AwaitLive(1);
  EXPECT_EQ(context_->kept_bodies->held(), 90);
  const std::string why = generation_->MovableHandle(kSecond).status().message();
  EXPECT_NE(why.find("other bodies use 100"), std::string::npos) << why;
  engine_.Release();
  EXPECT_EQ(exchange->Answer().status, 200);
}

TEST_F(GenerationTest, ARequestWithSeveralChoicesKeepsNoBody) {
  context_->movable = true;
  engine_.Hold();
  auto exchange = Start(Body({{"n", 2}}), {{"x-tactus-route", "1"}});
  engine_.AwaitLive(1);
  EXPECT_EQ(context_->kept_bodies->held(), 0);
  engine_.Release();
  EXPECT_EQ(exchange->Answer().status, 200);
}

// --- Places ---

TEST_F(GenerationTest, PlacesOfAllSequencesAreReleasedBeforeTheAnswer) {
  for (const bool stream : {false, true}) {
    engine_.Hold();
    auto exchange = Start(Body({{"prompt", {"a", "b"}}, {"n", 3}, {"stream", stream}}));
    engine_.AwaitLive(2);
    EXPECT_EQ(counts_.open("c"), 6);
    engine_.Release();
    EXPECT_EQ(exchange->Answer().status, 200);
    EXPECT_EQ(open_at_answer_, 0);
    engine_.AwaitLive(0);
  }
}

TEST_F(GenerationTest, AChatIsOnePromptTimesN) {
  engine_.Hold();
  auto exchange = Start({{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"n", 4}});
  engine_.AwaitLive(1);
  EXPECT_EQ(counts_.open("c"), 4);
  exchange->Leave();
  engine_.AwaitLive(0);
  EXPECT_EQ(counts_.open("c"), 0);
}

TEST_F(GenerationTest, ASequenceReleasesItsPlaceWhenItEnds) {
  engine_.SetLengths({2, 5, 5});
  engine_.HoldAfter(3);
  auto exchange = Start(Body({{"n", 3}, {"max_tokens", 9}, {"stream", true}}));
  engine_.Await("two choices that stand at 3 tokens", [&] { return Events(exchange->written()).size() == 2 + 3 + 3; });
  EXPECT_EQ(counts_.open("c"), 2);
  engine_.Release();
  exchange->Answer();
  EXPECT_EQ(open_at_answer_, 0);
}

TEST_F(GenerationTest, ARequestBeyondTheLimitIs429AndIsNotSubmitted) {
  auto others = counts_.Enter("c", 5);
  auto exchange = Start(Body({{"prompt", {"a", "b"}}, {"n", 3}}));
  const auto answer = exchange->Answer();
  EXPECT_EQ(answer.status, 429);
  ASSERT_NE(answer.Find("Retry-After"), nullptr);
  EXPECT_EQ(*answer.Find("Retry-After"), "1");
  EXPECT_EQ(*answer.Find("X-Request-Id"), "id");
  const json error = json::parse(answer.body)["error"];
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_EQ(error["message"],
            "5 sequences of this client are open and this request has 6: more than 10, the limit "
            "(--max-streams-per-client); try again when some have ended");
  EXPECT_EQ(open_at_answer_, 5);  // its own place is released
  EXPECT_TRUE(engine_.submitted().empty());
  EXPECT_EQ(Start(Body({{"n", 5}}))->Answer().status, 200);  // exactly the limit
}

TEST_F(GenerationTest, ARequestLargerThanTheLimitIs400) {
  const auto answer = Start(Body({{"n", 11}}))->Answer();
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.Find("Retry-After"), nullptr);
  EXPECT_EQ(json::parse(answer.body)["error"]["param"], "n");
  EXPECT_EQ(counts_.open("c"), 0);
}

TEST_F(GenerationTest, EveryFailureReleasesThePlacesBeforeItsAnswer) {
  EXPECT_EQ(Start(Body({{"temperature", -1}}))->Answer().status, 400);  // while parsing
  EXPECT_EQ(std::exchange(open_at_answer_, -1), 0);
  EXPECT_EQ(Start(Body({{"max_tokens", 5000}, {"n", 2}}))->Answer().status, 400);  // beyond the context
  EXPECT_EQ(std::exchange(open_at_answer_, -1), 0);
  EXPECT_EQ(Start({{"messages", {{{"role", "user"}, {"content", "raise"}}}}})->Answer().status, 400);  // the template
  EXPECT_EQ(std::exchange(open_at_answer_, -1), 0);
  EXPECT_EQ(Start(Body(), {{"x-slo-ttft-ms", "soon"}})->Answer().status, 400);  // a header
  EXPECT_EQ(std::exchange(open_at_answer_, -1), 0);
  engine_.SetQueueLimit(0);
  const auto full = Start(Body({{"n", 2}}))->Answer();  // by the engine
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(*full.Find("Retry-After"), "1");
  EXPECT_EQ(std::exchange(open_at_answer_, -1), 0);
  EXPECT_TRUE(engine_.submitted().empty());
}

TEST_F(GenerationTest, ARefusedPromptKeepsOnlyPlacesOfRunningSequences) {
  engine_.Hold();
  engine_.HearNoCancel(true);
  engine_.SetQueueLimit(1);
  auto exchange = Start(Body({{"prompt", {"a", "b", "c"}}, {"n", 2}}));
  EXPECT_EQ(exchange->Answer().status, 503);
  EXPECT_EQ(open_at_answer_, 2);  // of 6: the places of the first prompt
  EXPECT_EQ(engine_.cancelled(), 1u);
  engine_.HearNoCancel(false);
  engine_.AwaitLive(0);
  EXPECT_EQ(counts_.open("c"), 0);
}

TEST_F(GenerationTest, AStreamWithARefusedPromptHasAStatus) {
  engine_.Hold();
  engine_.SetQueueLimit(1);
  auto exchange = Start(Body({{"prompt", {"a", "b"}}, {"stream", true}}));
  EXPECT_EQ(exchange->Answer().status, 503);
  EXPECT_FALSE(exchange->streaming());
}

// The gate decides after the engine has accepted the request, and before its first token.
TEST_F(GenerationTest, ARequestRefusedByTheGateIs503WithRetryAfter) {
  engine_.SetMayRefuse();
  Status refused(StatusCode::kResourceExhausted, "the first token is predicted 4.30 s after the request came");
  refused.set_retry_after_ns(2'300 * kMillisecond);
  for (const bool stream : {false, true}) {
    engine_.FailAfter(0, refused);
    auto exchange = Start(Body({{"stream", stream}}));
    const auto answer = exchange->Answer();
    EXPECT_EQ(answer.status, 503);
    EXPECT_FALSE(exchange->streaming()) << "a stream that has begun cannot say 503";
    EXPECT_NE(answer.body.find("predicted 4.30 s"), std::string::npos) << answer.body;
    const auto header = std::find_if(answer.headers.begin(), answer.headers.end(),
                                     [](const auto& h) { return h.first == "Retry-After"; });
    ASSERT_NE(header, answer.headers.end());
    EXPECT_EQ(header->second, "3") << "whole seconds, rounded up";
    engine_.AwaitLive(0);
    EXPECT_EQ(counts_.open("c"), 0);
  }
}

TEST_F(GenerationTest, AStreamThatMayBeRefusedBeginsWithItsFirstTokenOrPing) {
  context_->ping_interval_ns = 10 * kSecond;
  engine_.SetMayRefuse();
  engine_.Hold();
  auto exchange = Start(Body({{"stream", true}}));
  EXPECT_FALSE(exchange->streaming());
  generation_->Tick(clock_.NowNs() + 10 * kSecond - 1);
  EXPECT_FALSE(exchange->streaming());
  generation_->Tick(clock_.NowNs() + 10 * kSecond);
  EXPECT_TRUE(exchange->streaming());
  EXPECT_EQ(exchange->written(), ": ping\n\n");
  exchange->Leave();
  auto other = Start(Body({{"stream", true}}));
  engine_.HoldAfter(1);
  engine_.Await("a first event", [&] { return Events(other->written()).size() == 1; });
  EXPECT_TRUE(other->streaming());
  other->Leave();
}

TEST_F(GenerationTest, AFailedStepReleasesThePlaces) {
  for (const bool stream : {false, true}) {
    engine_.FailAfter(stream ? 1 : 0);
    auto exchange = Start(Body({{"n", 2}, {"stream", stream}}));
    EXPECT_EQ(exchange->Answer().status, stream ? 200 : 500);
    engine_.AwaitLive(0);
    EXPECT_EQ(counts_.open("c"), 0);
  }
}

TEST_F(GenerationTest, AFailureWithoutAReasonIs500) {
  engine_.FailAfter(0, Status());
  const auto answer = Start(Body())->Answer();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(json::parse(answer.body)["error"]["message"], "generation ended without a reason");
}

TEST_F(GenerationTest, PlacesOfAClientThatLeftAreKeptUntilTheEngineHasEnded) {
  engine_.Hold();
  engine_.HearNoCancel(true);
  auto exchange = Start(Body({{"prompt", {"a", "b"}}, {"n", 2}}));
  engine_.AwaitLive(2);
  exchange->Leave();
  EXPECT_EQ(engine_.cancelled(), 2u);
  EXPECT_EQ(counts_.open("c"), 4);
  engine_.HearNoCancel(false);
  engine_.AwaitLive(0);
  EXPECT_EQ(counts_.open("c"), 0);
  EXPECT_EQ(exchange->answers(), 0);
}

TEST_F(GenerationTest, ADisconnectBeforeTheStartSubmitsNothing) {
  auto exchange = std::make_shared<FakeExchange>(Body().dump());
  generation_ = Make(exchange);
  EXPECT_EQ(counts_.open("c"), 1);
  exchange->Leave();
  generation_->Watch();
  generation_->Run();
  EXPECT_EQ(counts_.open("c"), 0);
  EXPECT_TRUE(engine_.submitted().empty());
  EXPECT_EQ(exchange->answers(), 0);
}

TEST_F(GenerationTest, AGenerationThatNeverStartsReleasesItsPlace) {
  generation_ = Make(std::make_shared<FakeExchange>(Body().dump()));
  EXPECT_EQ(counts_.open("c"), 1);
  generation_.reset();  // as the worker pool at shutdown
  EXPECT_EQ(counts_.open("c"), 0);
}

TEST_F(GenerationTest, EngineShutdownReleasesThePlaces) {
  engine_.Hold();
  auto exchange = Start(Body({{"n", 3}}));
  engine_.AwaitLive(1);
  EXPECT_EQ(engine_.Drain(0), 1);
  EXPECT_EQ(exchange->Answer().status, 503);
  EXPECT_EQ(counts_.open("c"), 0);
}

// --- The client leaves ---

TEST_F(GenerationTest, AClientThatLeavesDuringSubmitIsCancelled) {
  engine_.Hold();
  auto exchange = std::make_shared<FakeExchange>(Body({{"prompt", {"a", "b"}}}).dump());
  engine_.on_submit = [&] { exchange->Leave(); };
  generation_ = Make(exchange);
  generation_->Watch();
  generation_->Run();
  EXPECT_EQ(engine_.cancelled(), 1u) << "its handle was unknown at the disconnect";
  EXPECT_EQ(engine_.submitted().size(), 1u) << "the second prompt was submitted after the disconnect";
  engine_.AwaitLive(0);
  EXPECT_EQ(counts_.open("c"), 0);
}

TEST_F(GenerationTest, AClientThatLeavesWhileTokenisingIsNeverSubmitted) {
  auto exchange = std::make_shared<FakeExchange>(Body().dump());
  engine_.OnText([&](StopToken) { exchange->Leave(); });
  generation_ = Make(exchange);
  generation_->Watch();
  generation_->Run();
  EXPECT_TRUE(engine_.submitted().empty());
  EXPECT_EQ(counts_.open("c"), 0);
}

TEST_F(GenerationTest, AClientThatLeavesBeforeItsBodyIsParsedTakesNoPlaces) {
  auto exchange = std::make_shared<FakeExchange>(Body({{"n", 4}}).dump());
  exchange->on_take = [&] { exchange->Leave(); };
  generation_ = Make(exchange);
  generation_->Watch();
  generation_->Run();
  EXPECT_EQ(counts_.open("c"), 0) << "places were taken after the release";
  EXPECT_TRUE(engine_.submitted().empty());
}

TEST_F(GenerationTest, ALateFinishAfterTheClientLeftIsDropped) {
  engine_.HoldAfter(1);
  auto exchange = Start(Body({{"stream", true}}));
  engine_.Await("a first event", [&] { return Events(exchange->written()).size() == 1; });
  engine_.HearNoCancel(true);
  exchange->Leave();
  const std::string before = exchange->written();
  engine_.Release();
  engine_.AwaitLive(0);
  EXPECT_EQ(exchange->written(), before);
  EXPECT_EQ(exchange->answers(), 0);
}

// --- What reaches the engine ---

// Parsing, template and tokens are part of a request's latency.
TEST_F(GenerationTest, ArrivalIsTheTimeBeforeTokenising) {
  const TimeNs came_in = clock_.NowNs();
  engine_.OnText([this](StopToken) { clock_.Advance(3 * kSecond); });
  Start(Body());
  engine_.AwaitSubmitted(1);
  EXPECT_GE(clock_.NowNs(), came_in + 3 * kSecond);
  EXPECT_EQ(engine_.submitted()[0].arrival_ns, came_in);
}

TEST_F(GenerationTest, RequestsAreNumberedOnlyWhenThereAreSeveral) {
  Start(Body())->Answer();
  Start(Body({{"prompt", {"a", "b"}}}))->Answer();
  const auto submitted = engine_.submitted();
  ASSERT_EQ(submitted.size(), 3u);
  EXPECT_EQ(submitted[0].id, "id");
  EXPECT_EQ(submitted[1].id, "id-0");
  EXPECT_EQ(submitted[2].id, "id-1");
  EXPECT_EQ(submitted[0].client, "c");
  EXPECT_EQ(submitted[0].cache_salt, "");
}

TEST_F(GenerationTest, TheCallersSaltPrecedesTheBodysSalt) {
  salt_ = "S";
  Start(Body())->Answer();
  Start(Body({{"cache_salt", "s"}, {"user", "u"}}))->Answer();
  EXPECT_EQ(engine_.submitted()[0].cache_salt, "S");
  EXPECT_EQ(engine_.submitted()[1].cache_salt, "Ss");
  EXPECT_EQ(engine_.submitted()[1].client, "u");
}

// --- Echo and logprobs ---

TEST_F(GenerationTest, EchoOfAOneTokenPromptHasItsRow) {
  const json choice =
      json::parse(Start(Body({{"prompt", {100}}, {"echo", true}, {"logprobs", 1}}))->Answer().body)["choices"][0];
  EXPECT_EQ(choice["text"], "dHello wor");
  const json l = choice["logprobs"];
  EXPECT_EQ(l["tokens"], json({"d", "a", "b", "c"}));
  EXPECT_EQ(l["token_logprobs"], json({nullptr, -0.5, -0.5, -0.5}));
  EXPECT_EQ(l["top_logprobs"][0], nullptr);
  EXPECT_EQ(l["text_offset"], json({0, 1, 2, 3}));
}

// The joined chunks of a stream equal the whole answer, for every choice of every prompt.
TEST_F(GenerationTest, AStreamOfEchoAndLogprobsAddsUpToTheWholeAnswer) {
  const std::vector<json> prompt_sets = {{{100}}, {{100}, {101, 102}, {300, 103, 104}}, {"x"}};
  for (const json& prompts : prompt_sets) {
    for (const int n : {1, 2}) {
      for (const int max_tokens : {1, 3}) {
        for (const bool echo : {true, false}) {
          const json asked = Body({{"prompt", prompts},
                                   {"n", n},
                                   {"max_tokens", max_tokens},
                                   {"echo", echo},
                                   {"logprobs", 2},
                                   {"add_special_tokens", false}});
          SCOPED_TRACE(asked.dump());
          const json whole = json::parse(Start(asked)->Answer().body)["choices"];
          json streaming = asked;
          streaming["stream"] = true;
          std::vector<json> sum(whole.size(), {{"text", ""},
                                               {"tokens", json::array()},
                                               {"token_logprobs", json::array()},
                                               {"top_logprobs", json::array()},
                                               {"text_offset", json::array()}});
          for (const json& event : Events(Start(streaming)->Answer().body)) {
            const json& chunk = event["choices"][0];
            json& into = sum.at(chunk["index"].get<size_t>());
            into["text"] = into["text"].get<std::string>() + chunk["text"].get<std::string>();
            for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
              for (const json& item : chunk["logprobs"][list]) into[list].push_back(item);
          }
          for (size_t i = 0; i < whole.size(); ++i) {
            const json& l = whole[i]["logprobs"];
            const json expected = {{"text", whole[i]["text"]},
                                   {"tokens", l["tokens"]},
                                   {"token_logprobs", l["token_logprobs"]},
                                   {"top_logprobs", l["top_logprobs"]},
                                   {"text_offset", l["text_offset"]}};
            EXPECT_EQ(sum[i], expected) << "choice " << i;
            const json& prompt = prompts[i / static_cast<size_t>(n)];
            const size_t rows = !echo ? 0 : prompt.is_string() ? prompt.get<std::string>().size() : prompt.size();
            EXPECT_EQ(l["tokens"].size(), rows + static_cast<size_t>(max_tokens)) << "choice " << i;
            EXPECT_EQ(l["text_offset"][0], 0);
            if (echo) {
              EXPECT_EQ(l["token_logprobs"][0], nullptr);
            }
          }
        }
      }
    }
  }
}

TEST_F(GenerationTest, EchoWithoutLogprobsReturnsNone) {
  const json choice = json::parse(Start(Body({{"prompt", {100}}, {"echo", true}}))->Answer().body)["choices"][0];
  EXPECT_EQ(choice["text"], "dHello wor");
  EXPECT_EQ(choice["logprobs"], nullptr);
  EXPECT_FALSE(engine_.submitted()[0].prompt_logprobs);
}

// --- Chunks of a stream, and their times ---

TEST_F(GenerationTest, AStreamsHeadForbidsBufferingAndCaching) {
  auto exchange = Start(Body({{"stream", true}}));
  const auto answer = exchange->Answer();
  EXPECT_TRUE(exchange->streaming());
  EXPECT_EQ(answer.content_type, "text/event-stream; charset=utf-8");
  EXPECT_EQ(*answer.Find("Cache-Control"), "no-cache");
  EXPECT_EQ(*answer.Find("X-Accel-Buffering"), "no");
  EXPECT_EQ(*answer.Find("X-Request-Id"), "id");
  EXPECT_TRUE(answer.body.ends_with("\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(answer.body.find("ping"), std::string::npos);
}

// Tokens may arrive before Submit has returned: the first chunk begins the stream, even if writing it fails.
TEST_F(GenerationTest, AFailedFirstChunkIsAnErrorInTheStream) {
  const json body = Body({{"prompt", {100}}, {"logprobs", 1}, {"stream", true}});
  auto exchange = std::make_shared<FakeExchange>(body.dump());
  engine_.OnText([](StopToken) { throw std::bad_alloc(); });  // fails on a token's string
  engine_.on_submit = [&] { exchange->Answer(); };
  generation_ = Make(exchange);
  generation_->Watch();
  generation_->Run();
  EXPECT_TRUE(exchange->streaming()) << exchange->written();
  EXPECT_TRUE(exchange->written().starts_with("data: {\"error\":")) << exchange->written();
  EXPECT_EQ(exchange->answers(), 1);
}

TEST_F(GenerationTest, TokensWithoutTextMakeChunksOnlyWithLogprobs) {
  engine_.SetPieces({"", "a", ""});  // the last one has the finish reason
  EXPECT_EQ(Events(Start(Body({{"stream", true}}))->Answer().body).size(), 2u);
  EXPECT_EQ(Events(Start(Body({{"stream", true}, {"logprobs", 0}}))->Answer().body).size(), 3u);
}

TEST_F(GenerationTest, UsageIsTheSumOfPromptsAndContinuousPerPrompt) {
  const auto whole = Start(Body({{"prompt", {{1, 2}, {3, 4, 5}}}, {"n", 2}}))->Answer();
  const json usage = json::parse(whole.body)["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 5);
  EXPECT_EQ(usage["completion_tokens"], 12);
  EXPECT_EQ(usage["total_tokens"], 17);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 2);
  const json options = {{"include_usage", true}, {"continuous_usage_stats", true}};
  const auto events =
      Events(Start(Body({{"prompt", {{1, 2, 3}}}, {"stream", true}, {"stream_options", options}}))->Answer().body);
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i]["usage"]["completion_tokens"], i + 1);
    EXPECT_EQ(events[i]["usage"]["prompt_tokens"], 3);
    EXPECT_EQ(events[i]["usage"]["total_tokens"], i + 4);
  }
  EXPECT_EQ(events[3]["usage"]["completion_tokens"], 3);
  EXPECT_EQ(events[3]["choices"], json::array());
}

TEST_F(GenerationTest, PingsComeEachIntervalUntilTheFirstToken) {
  context_->ping_interval_ns = 10 * kSecond;
  engine_.Hold();
  auto exchange = Start(Body({{"stream", true}}));
  const TimeNs begin = clock_.NowNs();
  auto pings = [&] {
    const std::string text = exchange->written();
    int count = 0;
    for (size_t at = text.find(": ping\n\n"); at != std::string::npos; at = text.find(": ping\n\n", at + 1)) ++count;
    return count;
  };
  generation_->Tick(begin + 10 * kSecond - 1);
  EXPECT_EQ(pings(), 0);
  generation_->Tick(begin + 10 * kSecond);
  EXPECT_EQ(pings(), 1);
  generation_->Tick(begin + 20 * kSecond - 1);
  EXPECT_EQ(pings(), 1);
  generation_->Tick(begin + 20 * kSecond);
  EXPECT_EQ(pings(), 2);
  engine_.HoldAfter(1);
  engine_.Await("a first event", [&] { return Events(exchange->written()).size() == 1; });
  generation_->Tick(begin + 90 * kSecond);
  EXPECT_EQ(pings(), 2);
  exchange->Leave();
}

TEST_F(GenerationTest, NoPingsWithoutAStreamAnIntervalOrAClient) {
  context_->ping_interval_ns = kSecond;
  engine_.Hold();
  auto whole = Start(Body());
  generation_->Tick(clock_.NowNs() + 60 * kSecond);
  EXPECT_EQ(whole->written(), "");
  whole->Leave();
  auto left = Start(Body({{"stream", true}}));
  left->Leave();
  generation_->Tick(clock_.NowNs() + 60 * kSecond);
  EXPECT_EQ(left->written(), "");
  context_->ping_interval_ns = 0;
  auto never = Start(Body({{"stream", true}}));
  generation_->Tick(clock_.NowNs() + 60 * kSecond);
  EXPECT_EQ(never->written(), "");
}

TEST_F(GenerationTest, TheTimeLimitEndsARequestWhenItIsReached) {
  context_->request_timeout_ns = 600 * kSecond;
  engine_.Hold();
  auto exchange = Start(Body({{"n", 2}}));
  const TimeNs begin = clock_.NowNs();
  engine_.AwaitLive(1);
  generation_->Tick(begin + 600 * kSecond - 1);
  EXPECT_EQ(exchange->answers(), 0);
  generation_->Tick(begin + 600 * kSecond);
  const auto answer = exchange->Answer();
  EXPECT_EQ(answer.status, 408);
  EXPECT_EQ(json::parse(answer.body)["error"]["message"],
            "the request took longer than 600000 ms, the limit (--request-timeout)");
  engine_.AwaitCancelled(1);
  engine_.AwaitLive(0);
  EXPECT_EQ(counts_.open("c"), 0);
  generation_->Tick(begin + 700 * kSecond);
  EXPECT_EQ(exchange->answers(), 1);
}

TEST_F(GenerationTest, RequestsWithoutATimeLimitDoNotEnd) {
  engine_.Hold();
  auto exchange = Start(Body());
  generation_->Tick(clock_.NowNs() + 1'000'000 * kSecond);
  EXPECT_EQ(exchange->answers(), 0);
  engine_.Release();
  EXPECT_EQ(exchange->Answer().status, 200);
}

}  // namespace
}  // namespace tactus::serve
