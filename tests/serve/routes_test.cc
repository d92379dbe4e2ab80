#include <set>
#include <thread>

#include "base/json.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using json = SortedJson;

class RoutesTest : public ServerTest {
 protected:
  json PostJson(const std::string& path, const json& body, int expect = 200) {
    const auto response = Post(path, body.dump());
    EXPECT_EQ(response.status, expect) << response.body;
    return json::parse(response.body, nullptr, false);
  }
  static json Chat(json extra = json::object()) {
    json body = {{"model", "fake"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 3}};
    body.update(extra);
    return body;
  }
  static json Completion(json extra = json::object()) {
    json body = {{"model", "fake"}, {"prompt", "abc"}, {"max_tokens", 3}};
    body.update(extra);
    return body;
  }
};

TEST_F(RoutesTest, ChatAnswersInOpenAiShape) {
  StartServer();
  const json a = PostJson("/v1/chat/completions", Chat());
  EXPECT_EQ(a["object"], "chat.completion");
  EXPECT_EQ(a["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  EXPECT_EQ(a["model"], "fake");
  EXPECT_GT(a["created"], 1600000000);
  EXPECT_EQ(a["system_fingerprint"].get<std::string>().rfind("tactus-", 0), 0u);
  ASSERT_EQ(a["choices"].size(), 1u);
  EXPECT_EQ(a["choices"][0]["message"], json({{"role", "assistant"}, {"content", "Hello wor"}, {"refusal", nullptr}}));
  EXPECT_EQ(a["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(a["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(a["usage"]["prompt_tokens"], 5);  // "chat:"
  EXPECT_EQ(a["usage"]["completion_tokens"], 3);
  EXPECT_EQ(a["usage"]["total_tokens"], 8);
  EXPECT_EQ(a["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST_F(RoutesTest, ChatStreamsRoleTextFinishAndDone) {
  StartServer();
  auto r = Stream("/v1/chat/completions", Chat({{"stream", true}}).dump());
  ASSERT_EQ(r->http_status, 200);
  ASSERT_EQ(r->events.size(), 5u);
  const json first = json::parse(r->events[0]);
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_FALSE(first.contains("usage"));
  EXPECT_EQ(json::parse(r->events[1])["choices"][0]["delta"]["content"], "Hel");
  EXPECT_EQ(json::parse(r->events[1])["choices"][0]["finish_reason"], nullptr);
  EXPECT_EQ(json::parse(r->events[1])["id"], first["id"]);
  EXPECT_EQ(json::parse(r->events[3])["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(r->events[4], "[DONE]");
}

TEST_F(RoutesTest, UsageChunkComesLastAndOnlyWhenAsked) {
  StartServer();
  auto r =
      Stream("/v1/chat/completions", Chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}).dump());
  ASSERT_EQ(r->events.size(), 6u);
  EXPECT_EQ(json::parse(r->events[1])["usage"], nullptr);
  EXPECT_TRUE(json::parse(r->events[1]).contains("usage"));
  const json last = json::parse(r->events[4]);
  EXPECT_EQ(last["choices"], json::array());
  EXPECT_EQ(last["usage"]["completion_tokens"], 3);
  r = Stream(
      "/v1/completions",
      Completion({{"stream", true}, {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}})
          .dump());
  EXPECT_EQ(json::parse(r->events[0])["usage"]["completion_tokens"], 1);
  EXPECT_EQ(json::parse(r->events[1])["usage"]["completion_tokens"], 2);
}

TEST_F(RoutesTest, EveryChoiceOfEveryPromptHasItsIndex) {
  StartServer();
  const json a = PostJson("/v1/completions", Completion({{"prompt", {"a", "bc"}}, {"n", 2}}));
  EXPECT_EQ(a["object"], "text_completion");
  ASSERT_EQ(a["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(a["choices"][static_cast<size_t>(i)]["index"], i);
  EXPECT_EQ(a["usage"]["prompt_tokens"], 2 + 3);  // each with the special token
  EXPECT_EQ(a["usage"]["completion_tokens"], 12);
  auto r = Stream("/v1/completions", Completion({{"prompt", {{1, 2}, {3}}}, {"n", 2}, {"stream", true}}).dump());
  std::map<int, std::string> texts;
  std::set<int> ended;
  for (const auto& event : r->events) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    texts[choice["index"]] += choice["text"].get<std::string>();
    if (choice["finish_reason"] == "length") ended.insert(choice["index"].get<int>());
  }
  EXPECT_EQ(texts,
            (std::map<int, std::string>{{0, "Hello wor"}, {1, "Hello wor"}, {2, "Hello wor"}, {3, "Hello wor"}}));
  EXPECT_EQ(ended.size(), 4u);
  EXPECT_EQ(engine_.submitted()[2].prompt->size(), 2u);
}

TEST_F(RoutesTest, ChatLogprobsInOpenAiShape) {
  StartServer();
  const json a = PostJson("/v1/chat/completions", Chat({{"logprobs", true}, {"top_logprobs", 2}}));
  const json content = a["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"], json::array({97}));
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][1], json({{"token", "b"}, {"logprob", -1.5}, {"bytes", {98}}}));
  EXPECT_EQ(PostJson("/v1/chat/completions",
                     Chat({{"logprobs", true}}))["choices"][0]["logprobs"]["content"][0]["top_logprobs"],
            json::array());
  auto r = Stream("/v1/chat/completions", Chat({{"logprobs", true}, {"stream", true}}).dump());
  EXPECT_EQ(json::parse(r->events[1])["choices"][0]["logprobs"]["content"][0]["token"], "a");
}

TEST_F(RoutesTest, CompletionLogprobsWithEchoCoverThePrompt) {
  StartServer();
  const json a =
      PostJson("/v1/completions", Completion({{"prompt", {100, 101, 300}}, {"echo", true}, {"logprobs", 1}}));
  const json choice = a["choices"][0];
  EXPECT_EQ(choice["text"], "deHello wor");
  const json l = choice["logprobs"];
  EXPECT_EQ(l["tokens"], json({"d", "e", "<300>", "a", "b", "c"}));
  EXPECT_EQ(l["token_logprobs"][0], nullptr);
  EXPECT_EQ(l["top_logprobs"][0], nullptr);
  EXPECT_EQ(l["token_logprobs"][1], -0.5);
  EXPECT_EQ(l["top_logprobs"][1], json({{"e", -0.5}}));
  EXPECT_EQ(l["text_offset"], json({0, 1, 2, 7, 8, 9}));
  EXPECT_EQ(PostJson("/v1/completions", Completion({{"logprobs", 0}}))["choices"][0]["logprobs"]["top_logprobs"],
            nullptr);
  auto r = Stream("/v1/completions",
                  Completion({{"prompt", {100, 101}}, {"echo", true}, {"logprobs", 1}, {"stream", true}}).dump());
  const json first = json::parse(r->events[0])["choices"][0];
  EXPECT_EQ(first["text"], "de");
  EXPECT_EQ(first["logprobs"]["tokens"], json({"d", "e"}));
  EXPECT_EQ(json::parse(r->events[1])["choices"][0]["logprobs"]["text_offset"], json({2}));
}

TEST_F(RoutesTest, StopStringEndsAndIsNamed) {
  StartServer();
  const json a = PostJson("/v1/completions", Completion({{"stop", " wor"}, {"max_tokens", 50}}));
  EXPECT_EQ(a["choices"][0]["text"], "Hello");
  EXPECT_EQ(a["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(a["choices"][0]["stop_reason"], " wor");
}

TEST_F(RoutesTest, RequestReachesTheEngineAsStated) {
  StartServer();
  const auto response = Post("/v1/chat/completions",
                             Chat({{"seed", 7},
                                   {"temperature", 0},
                                   {"priority", -3},
                                   {"user", "u"},
                                   {"cache_salt", "s"},
                                   {"slo", {{"tbt_ms", 50}}}})
                                 .dump(),
                             {{"X-Request-Id", "my-id"}, {"x-slo-ttft-ms", "200"}, {"x-llm-d-slo-tpot-ms", "9"}});
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(*response.Find("X-Request-Id"), "my-id");
  EXPECT_EQ(json::parse(response.body)["id"], "chatcmpl-my-id");
  const Request request = engine_.submitted().at(0);
  EXPECT_EQ(request.id, "my-id");
  EXPECT_EQ(request.sampling.seed, 7u);
  EXPECT_EQ(request.sampling.temperature, 0.0f);
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.client, "u");
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.slo.ttft_ns, 200 * kMillisecond);
  EXPECT_EQ(request.slo.tbt_ns, 50 * kMillisecond);  // the body wins over the header
}

TEST_F(RoutesTest, AnAbsentSeedIsLeftToTheEngine) {
  StartServer();
  PostJson("/v1/completions", Completion());
  PostJson("/v1/completions", Completion({{"seed", 0}}));
  EXPECT_FALSE(engine_.submitted()[0].sampling.has_seed);
  EXPECT_TRUE(engine_.submitted()[1].sampling.has_seed);
}

TEST_F(RoutesTest, TemplateGetsMessagesInOrderAndItsErrorsAre400) {
  StartServer();
  PostJson("/v1/chat/completions",
           Chat({{"messages",
                  {{{"role", "developer"},
                    {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}},
                   {{"role", "user"}, {"content", "q"}}}},
                 {"chat_template_kwargs", {{"enable_thinking", false}}}}));
  const json variables = json::parse(engine_.last_variables());
  EXPECT_EQ(variables["messages"][0], json({{"role", "system"}, {"content", "a\nb"}}));
  EXPECT_EQ(variables["add_generation_prompt"], true);
  EXPECT_EQ(variables["enable_thinking"], false);
  const json error =
      PostJson("/v1/chat/completions", Chat({{"messages", {{{"role", "user"}, {"content", "raise"}}}}}), 400);
  EXPECT_EQ(error["error"]["message"], "the chat template says: no");
}

TEST_F(RoutesTest, ErrorsNameFieldValueAndLimit) {
  StartServer();
  auto message = [&](const std::string& path, const json& body, int status = 400) {
    const json error = PostJson(path, body, status)["error"];
    EXPECT_TRUE(error["code"].is_string() || error["code"].is_null());
    return error["param"].is_string() ? error["param"].get<std::string>() + "|" + error["message"].get<std::string>()
                                      : error["message"].get<std::string>();
  };
  EXPECT_EQ(message("/v1/chat/completions", Chat({{"temperature", -1}})),
            "temperature|temperature: -1 is out of range; give a number from 0 to 2");
  EXPECT_EQ(message("/v1/chat/completions", Chat({{"model", "gpt-4"}}), 404),
            "model|model 'gpt-4' does not exist here; this server has 'fake'");
  EXPECT_EQ(message("/v1/completions", Completion({{"max_tokens", 5000}})),
            "max_tokens|prompt of 4 tokens + max_tokens of 5000 exceed the context of 4096 tokens; give max_tokens up "
            "to 4092. This model's maximum context length is 4096 tokens.");
  EXPECT_NE(message("/v1/completions", Completion({{"prompt", std::string(5000, 'x')}})).find("prompt of 5001 tokens"),
            std::string::npos);
  EXPECT_EQ(message("/v1/chat/completions", Chat({{"tools", {{{"type", "function"}}}}})),
            "tools[0].function|tools[0].function: missing");
  EXPECT_EQ(engine_.submitted().size(), 0u);
  // The engine counts requests that can never fit, and no other invalid requests.
  ASSERT_EQ(engine_.refused().size(), 2u);
  EXPECT_NE(engine_.refused()[0].find("give max_tokens up to 4092"), std::string::npos) << engine_.refused()[0];
  EXPECT_NE(engine_.refused()[1].find("prompt of 5001 tokens"), std::string::npos) << engine_.refused()[1];
}

TEST_F(RoutesTest, FailureBeforeTheFirstTokenHasAStatus) {
  StartServer();
  engine_.FailAfter(0);
  EXPECT_EQ(PostJson("/v1/completions", Completion(), 500)["error"]["type"], "server_error");
  engine_.SetQueueLimit(0);
  const auto full = Post("/v1/completions", Completion({{"stream", true}}).dump());
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(*full.Find("Retry-After"), "1");
}

TEST_F(RoutesTest, FailureInMidStreamIsAnEventAndNoDoneFollows) {
  StartServer();
  engine_.FailAfter(2);
  auto r = Stream("/v1/completions", Completion({{"stream", true}}).dump());
  ASSERT_EQ(r->http_status, 200);
  ASSERT_EQ(r->events.size(), 3u);
  EXPECT_EQ(json::parse(r->events[2])["error"]["message"], "the executor failed");
  EXPECT_EQ(json::parse(r->events[2])["error"]["code"], nullptr);
}

TEST_F(RoutesTest, OneRefusedPromptCancelsTheOthers) {
  StartServer();
  engine_.Hold();
  engine_.SetQueueLimit(1);
  PostJson("/v1/completions", Completion({{"prompt", {"a", "b"}}}), 503);
  engine_.AwaitCancelled(1);
  engine_.AwaitLive(0);
}

TEST_F(RoutesTest, TokenizeAndDetokenizeInVllmShape) {
  StartServer();
  json a = PostJson("/tokenize", {{"prompt", "ab"}, {"return_token_strs", true}});
  EXPECT_EQ(
      a, json({{"count", 3}, {"max_model_len", 4096}, {"tokens", {256, 97, 98}}, {"token_strs", {"<256>", "a", "b"}}}));
  a = PostJson("/tokenize", {{"model", "fake"}, {"prompt", "ab"}, {"add_special_tokens", false}});
  EXPECT_EQ(a["tokens"], json({97, 98}));
  EXPECT_EQ(a["token_strs"], nullptr);
  EXPECT_EQ(PostJson("/tokenize",
                     {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"add_generation_prompt", false}})["count"],
            5);
  EXPECT_EQ(json::parse(engine_.last_variables())["add_generation_prompt"], false);
  EXPECT_EQ(PostJson("/detokenize", {{"tokens", {97, 98}}}), json({{"prompt", "ab"}}));
  PostJson("/detokenize", {{"tokens", {97, 512}}}, 400);
  PostJson("/tokenize", {{"prompt", 5}}, 400);
}

TEST_F(RoutesTest, ModelsNameTheContext) {
  StartServer();
  const json list = json::parse(Call("GET", "/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "fake");
  EXPECT_EQ(list["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(json::parse(Call("GET", "/v1/models/fake").body)["object"], "model");
  EXPECT_EQ(Call("GET", "/v1/models/other").status, 404);
}

TEST_F(RoutesTest, ProbesAndPageBeforeAndAfterReady) {
  StartServer({}, false);
  EXPECT_EQ(Call("GET", "/health").status, 200);
  const auto loading = Call("GET", "/ready");
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(json::parse(loading.body)["status"], "loading");
  EXPECT_EQ(Call("GET", "/").status, 200);
  EXPECT_EQ(Call("GET", "/events").status, 503);
  EXPECT_EQ(Call("GET", "/metrics").status, 200);
  EXPECT_EQ(Call("GET", "/v1/models").status, 503);
  EXPECT_EQ(Post("/v1/completions", Completion().dump()).status, 503);
  server_->SetEngine(&engine_, EngineOptions());
  EXPECT_EQ(Call("GET", "/ready").status, 200);
  EXPECT_EQ(Call("GET", "/").status, 200);
  const auto metrics = Call("GET", "/metrics");
  EXPECT_NE(metrics.body.find("fake_metric 1\n"), std::string::npos);
  EXPECT_NE(metrics.body.find("tactus_http_responses_total{code=\"503\"} 4\n"), std::string::npos);
  EXPECT_EQ(metrics.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_TRUE(json::parse(Call("GET", "/version").body).contains("version"));
  engine_.SetHealthy(false);
  EXPECT_EQ(Call("GET", "/ready").status, 503);
  EXPECT_EQ(Call("GET", "/health").status, 503);
}

TEST_F(RoutesTest, MethodsAndTypes) {
  StartServer();
  EXPECT_EQ(Call("GET", "/nothing").status, 404);
  const auto get = Call("GET", "/v1/completions");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(*get.Find("Allow"), "POST, OPTIONS");
  EXPECT_EQ(Post("/health", "{}").status, 405);
  EXPECT_EQ(Call("POST", "/v1/completions", "prompt=x", {{"Content-Type", "application/x-www-form-urlencoded"}}).status,
            415);
  EXPECT_EQ(Call("POST", "/v1/completions", Completion().dump(), {{"Content-Type", "application/json; charset=utf-8"}})
                .status,
            200);
  EXPECT_EQ(Post("/v1/completions", "x", {{"Content-Encoding", "gzip"}}).status, 415);
  const auto head = Call("HEAD", "/v1/models");
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.body.empty());
  EXPECT_NE(*head.Find("Content-Length"), "0");
}

TEST_F(RoutesTest, ApiKeysGuardAllButProbes) {
  ServeOptions options;
  options.api_key = {"secret-1", "secret-2"};
  StartServer(options);
  EXPECT_EQ(Call("GET", "/health").status, 200);
  EXPECT_EQ(Call("GET", "/metrics").status, 200);
  const auto none = Call("GET", "/v1/models");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.body.find("secret"), std::string::npos);
  EXPECT_EQ(Call("GET", "/v1/models", {}, {{"Authorization", "Bearer secret"}}).status, 401);
  EXPECT_EQ(Call("GET", "/v1/models", {}, {{"Authorization", "Bearer secret-11"}}).status, 401);
  EXPECT_EQ(Call("GET", "/v1/models", {}, {{"Authorization", "secret-1"}}).status, 401);
  EXPECT_EQ(Call("GET", "/v1/models", {}, {{"Authorization", "Bearer secret-1"}}).status, 200);
  EXPECT_EQ(Call("GET", "/v1/models", {}, {{"authorization", "bearer secret-2"}}).status, 200);
  EXPECT_EQ(Post("/tokenize", R"({"prompt":"x"})").status, 401);
}

TEST_F(RoutesTest, CorsForAllowedOriginsOnly) {
  ServeOptions options;
  options.allowed_origins = {"https://a.example"};
  options.api_key = {"k"};
  StartServer(options);
  const http::Headers preflight = {{"Origin", "https://a.example"}, {"Access-Control-Request-Method", "POST"}};
  const auto allowed = Call("OPTIONS", "/v1/chat/completions", {}, preflight);
  EXPECT_EQ(allowed.status, 204);
  EXPECT_EQ(*allowed.Find("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_NE(allowed.Find("Access-Control-Allow-Methods"), nullptr);
  const auto other = Call("OPTIONS", "/v1/chat/completions", {}, {{"Origin", "https://b.example"}});
  EXPECT_EQ(other.Find("Access-Control-Allow-Origin"), nullptr);
  const auto actual = Call("GET", "/health", {}, {{"Origin", "https://a.example"}});
  EXPECT_EQ(*actual.Find("Access-Control-Allow-Origin"), "https://a.example");
}

TEST_F(RoutesTest, RequestIdsAreValidatedAndMade) {
  StartServer();
  EXPECT_EQ(Call("GET", "/health").Find("X-Request-Id")->size(), 32u);
  EXPECT_EQ(Call("GET", "/health", {}, {{"X-Request-Id", std::string(257, 'x')}}).status, 400);
  EXPECT_EQ(Call("GET", "/health", {}, {{"X-Request-Id", "a b"}}).status, 400);
}

}  // namespace
}  // namespace tactus
