// From a body to engine requests and back to an answer: early refusals of prompts that cannot fit, and cancellation
// within a template.
#include "api/chat/conversation.h"
#include "api/token_routes.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <atomic>

#include "serve/fake_engine.h"

namespace tactus::api {
namespace {

using json = SortedJson;

std::vector<TokenId> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

class ConversationTest : public testing::Test {
 protected:
  ConversationTest() { limits_ = LimitsOf(engine_, 100); }
  Result<Prepared> Prepare(bool chat, const json& body, StopToken stop = {}) {
    const std::string text = body.dump();
    TACTUS_ASSIGN_OR_RETURN(ParsedRequest parsed,
                            chat ? ParseChatRequest(text, limits_, stop) : ParseCompletionRequest(text, limits_, stop));
    parsed.base.id = "id";
    return PrepareConversation(std::move(parsed), engine_, limits_, stop);
  }
  static json Message(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

  FakeEngine engine_;
  RequestLimits limits_;
};

TEST_F(ConversationTest, LimitsComeFromTheModel) {
  engine_.mutable_model().generation_defaults.top_k = 7;
  const RequestLimits limits = LimitsOf(engine_, 9);
  EXPECT_EQ(limits.model, "fake");
  EXPECT_EQ(limits.max_model_len, 4096);
  EXPECT_EQ(limits.vocab_size, 512);
  EXPECT_EQ(limits.default_max_tokens, 9);
  EXPECT_EQ(limits.generation_defaults.top_k, 7);
}

TEST_F(ConversationTest, AChatIsOneRequestOfItsTemplatesTokens) {
  const auto prepared = Prepare(true, {{"messages", {Message("user", "x")}},
                                       {"n", 2},
                                       {"stop", {"END"}},
                                       {"temperature", 0},
                                       {"stream", true},
                                       {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}},
                                       {"logprobs", true},
                                       {"top_logprobs", 3}});
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  EXPECT_EQ(json::parse(engine_.last_variables())["messages"], json({Message("user", "x")}));
  ASSERT_EQ(prepared->requests.size(), 1u);
  const Request& request = prepared->requests[0];
  EXPECT_EQ(*request.prompt, Bytes("chat:"));
  EXPECT_EQ(request.id, "id");
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.stop.max_tokens, 100) << "the default of chats";
  EXPECT_EQ(request.stop.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(request.sampling.temperature, 0);
  const AnswerShape& shape = prepared->shape;
  EXPECT_TRUE(shape.chat && shape.stream && shape.include_usage && shape.continuous_usage);
  EXPECT_FALSE(shape.echo || shape.prompt_logprobs);
  EXPECT_EQ(shape.logprobs, 3);
  EXPECT_EQ(shape.choices_per_prompt, 2);
  ASSERT_EQ(shape.prompts.size(), 1u);
  EXPECT_EQ(shape.prompts[0].tokens, request.prompt);
}

TEST_F(ConversationTest, EveryPromptBecomesANumberedRequest) {
  const auto prepared =
      Prepare(false, {{"prompt", {json("ab"), json({100, 101, 102})}}, {"n", 2}, {"echo", true}, {"logprobs", 1}});
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  ASSERT_EQ(prepared->requests.size(), 2u);
  EXPECT_EQ(prepared->requests[0].id, "id-0");
  EXPECT_EQ(prepared->requests[1].id, "id-1");
  EXPECT_EQ(*prepared->requests[0].prompt, (std::vector<TokenId>{256, 'a', 'b'}));  // 256: the special token
  EXPECT_EQ(*prepared->requests[1].prompt, Bytes("def"));
  EXPECT_EQ(prepared->requests[0].stop.max_tokens, 16) << "the default of completions";
  EXPECT_TRUE(prepared->requests[0].prompt_logprobs);
  EXPECT_EQ(prepared->shape.prompts[0].echo, "ab");
  EXPECT_EQ(prepared->shape.prompts[1].echo, "def");
  EXPECT_TRUE(prepared->shape.echo && prepared->shape.prompt_logprobs);
  for (const json& prompt : {json("ab"), json({100})}) {
    const auto quiet = Prepare(false, {{"prompt", prompt}});
    ASSERT_TRUE(quiet.ok());
    EXPECT_EQ(quiet->shape.prompts[0].echo, "") << prompt;
    EXPECT_EQ(quiet->requests[0].id, "id");
    EXPECT_FALSE(quiet->shape.include_usage || quiet->shape.continuous_usage);
  }
}

TEST_F(ConversationTest, SequencesAreChoicesOfAllPrompts) {
  const auto count = [&](bool chat, const json& body) {
    const auto parsed = chat ? ParseChatRequest(body.dump(), limits_) : ParseCompletionRequest(body.dump(), limits_);
    return parsed.ok() ? SequenceCount(*parsed) : -1;
  };
  EXPECT_EQ(count(true, {{"messages", {Message("user", "x")}}, {"n", 3}}), 3);
  EXPECT_EQ(count(false, {{"prompt", {"a", "b"}}, {"n", 3}}), 6);
  EXPECT_EQ(count(false, {{"prompt", {1, 2}}}), 1);
}

// A front end without JSON bodies creates the same request from messages.
TEST_F(ConversationTest, AChatOfMessagesEqualsThatOfItsBody) {
  engine_.mutable_model().generation_defaults.top_p = 0.5f;
  engine_.mutable_model().generation_defaults.logprobs = 3;  // only on request, never a default
  limits_ = LimitsOf(engine_, 100);
  const ParsedRequest made = ChatOf({{"system", "be\n\"brief\""}, {"user", "x"}}, limits_);
  const json body = {{"messages", {Message("system", "be\n\"brief\""), Message("user", "x")}}};
  const auto parsed = ParseChatRequest(Json::parse(body.dump()).dump(), limits_);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(json::parse(made.template_variables), json::parse(parsed->template_variables));
  const auto left = PrepareConversation(made, engine_, limits_), right = PrepareConversation(*parsed, engine_, limits_);
  ASSERT_TRUE(left.ok() && right.ok());
  EXPECT_EQ(*left->requests[0].prompt, *right->requests[0].prompt);
  EXPECT_EQ(left->requests[0].stop.max_tokens, right->requests[0].stop.max_tokens);
  EXPECT_EQ(left->requests[0].sampling.top_p, 0.5f);
  EXPECT_EQ(right->requests[0].sampling.top_p, 0.5f);
  EXPECT_EQ(left->shape.chat, right->shape.chat);
  EXPECT_EQ(left->shape.logprobs, -1);
  EXPECT_EQ(right->shape.logprobs, -1);
}

TEST_F(ConversationTest, MessagesThatAreNotUtf8AreReplaced) {
  const ParsedRequest made = ChatOf({{"user", "a\xFF"}}, limits_);
  EXPECT_EQ(json::parse(made.template_variables)["messages"][0]["content"], "a\xEF\xBF\xBD");
}

TEST_F(ConversationTest, AContinuationIsItsTextAndAsLongAsAChatsAnswer) {
  const auto prepared = PrepareConversation(ContinuationOf("ab", limits_), engine_, limits_);
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(*prepared->requests[0].prompt, (std::vector<TokenId>{256, 'a', 'b'}));
  EXPECT_EQ(prepared->requests[0].stop.max_tokens, 100);
  EXPECT_FALSE(prepared->shape.chat || prepared->shape.stream);
}

TEST_F(ConversationTest, APromptThatCannotFitIsRefusedBeforeTokenising) {
  engine_.SetLongestToken(2);
  std::atomic<int> texts{0};
  engine_.OnText([&](StopToken) { ++texts; });
  const auto prepared = Prepare(false, {{"prompt", {"fits", std::string(8192, 'x')}}});
  EXPECT_EQ(prepared.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(prepared.status().message().find("prompt of at least 4096 tokens"), std::string::npos)
      << prepared.status().message();
  EXPECT_EQ(texts, 1) << "the prompt that cannot fit was tokenised";
  texts = 0;
  engine_.SetLongestToken(1);
  limits_.max_model_len = 5;  // the length of its rendered template
  const auto chat = Prepare(true, {{"messages", {Message("user", "x")}}});
  EXPECT_NE(chat.status().message().find("prompt of at least 5 tokens"), std::string::npos) << chat.status().message();
  EXPECT_EQ(texts, 1) << "the chat that cannot fit was tokenised";
}

TEST_F(ConversationTest, APromptAndItsAnswerMustFitTheContext) {
  const auto refused = Prepare(false, {{"prompt", {{1}, {1, 2}}}, {"max_tokens", 4095}});
  EXPECT_EQ(refused.status().message(),
            "prompt of 2 tokens + max_tokens of 4095 exceed the context of 4096 tokens; give max_tokens up to 4094");
  const auto rest = Prepare(true, {{"messages", {Message("user", "x")}}, {"max_tokens", 4091}});
  ASSERT_TRUE(rest.ok()) << rest.status().ToString();
  EXPECT_EQ(rest->requests[0].stop.max_tokens, 4091);
}

TEST_F(ConversationTest, ATemplateErrorFailsTheRequest) {
  const auto prepared = Prepare(true, {{"messages", {Message("user", "raise")}}});
  EXPECT_EQ(prepared.status().message(), "the chat template says: no");
}

TEST_F(ConversationTest, ACancelledRequestStopsWithinItsTemplate) {
  std::atomic<bool> over{false};
  int texts = 0;
  engine_.OnText([&](StopToken stop) {
    EXPECT_FALSE(stop.stopped());
    ++texts;
    over = true;
    EXPECT_TRUE(stop.stopped()) << "the template cannot detect that the request is over";
  });
  const auto chat = Prepare(true, {{"messages", {Message("user", "x")}}}, StopToken(&over));
  EXPECT_EQ(chat.status().code(), StatusCode::kCancelled) << chat.status().ToString();
  EXPECT_EQ(texts, 1) << "a cancelled request was tokenised";
}

// A stopped tokeniser returns no tokens; that must not be reported as an empty prompt.
TEST_F(ConversationTest, ARequestCancelledWhileTokenisingIsNotRefused) {
  std::atomic<bool> over{false};
  engine_.OnText([&](StopToken) { over = true; });
  const auto completion = Prepare(false, {{"prompt", {"a", "b"}}}, StopToken(&over));
  EXPECT_EQ(completion.status().code(), StatusCode::kCancelled) << completion.status().ToString();
  over = false;
  int texts = 0;
  engine_.OnText([&](StopToken) { over = ++texts == 2; });  // after the template, before the tokens
  const auto chat = Prepare(true, {{"messages", {Message("user", "x")}}}, StopToken(&over));
  EXPECT_EQ(chat.status().code(), StatusCode::kCancelled) << chat.status().ToString();
  over = false;
  texts = 1;
  const auto tokens =
      AnswerTokenize(R"({"messages":[{"role":"user","content":"x"}]})", engine_, limits_, StopToken(&over));
  EXPECT_EQ(tokens.status().code(), StatusCode::kCancelled) << tokens.status().ToString();
  over = false;
  engine_.OnText([&](StopToken) { over = true; });
  const auto text = AnswerTokenize(R"({"prompt":"x"})", engine_, limits_, StopToken(&over));
  EXPECT_EQ(text.status().code(), StatusCode::kCancelled) << text.status().ToString();
}

TEST_F(ConversationTest, TextsAndTokensAreAnsweredWithoutARequest) {
  EXPECT_EQ(AnswerTokenize(R"({"prompt":"ab","return_token_strs":true})", engine_, limits_).value(),
            R"({"count":3,"max_model_len":4096,"tokens":[256,97,98],"token_strs":["<256>","a","b"]})");
  EXPECT_EQ(AnswerTokenize(R"({"messages":[{"role":"user","content":"x"}]})", engine_, limits_).value(),
            R"({"count":5,"max_model_len":4096,"tokens":[99,104,97,116,58],"token_strs":null})");
  EXPECT_EQ(AnswerDetokenize(R"({"tokens":[97,98]})", engine_, limits_).value(), R"({"prompt":"ab"})");
  EXPECT_EQ(AnswerDetokenize("{}", engine_, limits_).status().param(), "tokens");
  EXPECT_TRUE(engine_.submitted().empty());
}

// The fake template's prompt ends with "chat:", which opens the reasoning in this test.
class FormatTest : public ConversationTest {
 protected:
  FormatTest() { limits_.style.calls = FindToolFormat("hermes"); }
  void OpenReasoning() { limits_.style.reasoning = &reasoning_; }
  // Returns the grammar, or the error; sets thinks_ if the answer begins in reasoning.
  std::string Ask(const json& more) {
    json body = {{"messages", {Message("user", "x")}}};
    body.update(more);
    const auto prepared = Prepare(true, body);
    if (!prepared.ok()) return prepared.status().param() + "|" + prepared.status().message();
    thinks_ = prepared->shape.reading && prepared->shape.reading->begins_in_reasoning;
    kind_ = prepared->requests[0].output.kind;
    return prepared->requests[0].output.text;
  }
  static json Tools(bool strict) { return {{{"type", "function"}, {"function", {{"name", "f"}, {"strict", strict}}}}}; }
  static bool Has(const std::string& rule, const char* part) { return rule.find(part) != std::string::npos; }

  const ReasoningFormat reasoning_ = {.name = "test", .begin = "chat:", .end = "</think>"};
  const json schema_ = {{"type", "json_schema"},
                        {"json_schema", {{"name", "n"}, {"schema", {{"properties", {{"a", true}}}}}}}};
  bool thinks_ = false;
  OutputRule::Kind kind_{};
};

TEST_F(FormatTest, AppliesAfterReasoningThatThePromptHasOpened) {
  EXPECT_EQ(Ask({{"response_format", schema_}}), R"({"properties":{"a":true}})")
      << "without reasoning the schema is unchanged";
  OpenReasoning();
  const std::string rule = Ask({{"response_format", schema_}});
  EXPECT_TRUE(thinks_);
  EXPECT_EQ(kind_, OutputRule::Kind::kLark);
  EXPECT_TRUE(Has(rule, "until_2[lazy]: TEXT \"</think>\"\nstart: until_2 SPACE? format\n")) << rule;
  EXPECT_TRUE(Has(rule, R"(json_1: %json {"properties":{"a":true},"x-guidance")")) << rule;
  const std::string object = Ask({{"response_format", {{"type", "json_object"}}}});
  EXPECT_TRUE(Has(object, R"(%json {"type":"object","x-guidance")")) << object;
  const std::string choice = Ask({{"guided_choice", {"a", "b"}}});
  EXPECT_TRUE(Has(choice, "format: %lark {\nstart: CHOICE\nCHOICE: \"a\" | \"b\"\n}\n")) << choice;
  EXPECT_EQ(Ask({{"guided_regex", "[ab]"}}), "[ab]");
  EXPECT_FALSE(thinks_) << "the expression applies from the first token, so there is no reasoning";
  EXPECT_TRUE(Ask(json::object()).empty());
  EXPECT_TRUE(thinks_);
}

TEST_F(FormatTest, IsAllowedWithOptionalCalls) {
  for (const bool strict : {false, true}) {
    const std::string rule = Ask({{"response_format", schema_}, {"tools", Tools(strict)}});
    EXPECT_TRUE(Has(rule, "start: (format | calls)\n")) << rule;
    EXPECT_TRUE(Has(rule, "tool_0: ")) << rule;
  }
  limits_.style.calls = FindToolFormat("json");
  const std::string bare = Ask({{"response_format", schema_}, {"tools", Tools(true)}});
  EXPECT_TRUE(Has(bare, R"(tool_0: "{" "\"name\"" /:[ ]?/ "\"f\"" /,[ ]?/ "\"arguments\"" /:[ ]?/ json_2 "}")"))
      << "a call that begins like the format has the same lexemes: " << bare;
  limits_.style.calls = FindToolFormat("hermes");
  OpenReasoning();
  const std::string rule = Ask({{"response_format", schema_}, {"tools", Tools(true)}});
  EXPECT_TRUE(Has(rule, " SPACE? (format | calls)\n")) << rule;
  limits_.style.calls = FindToolFormat("openai");
  const std::string channels = Ask({{"response_format", schema_}, {"tools", Tools(true)}});
  EXPECT_TRUE(Has(channels, "\"final<|message|>\" format | ")) << channels;
}

TEST_F(FormatTest, IsRefusedWithARequiredCall) {
  for (const auto& [name, value] :
       {std::pair("response_format", json{{"type", "json_object"}}), std::pair("guided_json", json::object()),
        std::pair("guided_choice", json{"a"}), std::pair("guided_regex", json("a"))}) {
    EXPECT_EQ(
        Ask({{name, value}, {"tools", Tools(false)}, {"tool_choice", "required"}}),
        std::string("tool_choice|tool_choice: a call that is required leaves no room for ") + name + "; leave one out");
  }
  EXPECT_EQ(Ask({{"guided_regex", "a"}, {"tools", Tools(false)}}),
            "guided_regex|guided_regex: with tools an expression leaves no room for a call; give a schema or a "
            "grammar, or leave out tools");
  EXPECT_EQ(Ask({{"guided_regex", "a"}, {"tools", Tools(false)}, {"tool_choice", "none"}}), "a");
  EXPECT_EQ(Ask({{"guided_grammar", "start: \"impossible\""}, {"tools", Tools(true)}}),
            "guided_grammar|guided_grammar: 'impossible' is not supported");
}

TEST_F(FormatTest, ReasoningThatThePromptHasClosedDoesNotBeginAgain) {
  const json call = {{"tools", Tools(false)}, {"tool_choice", "required"}};
  const ReasoningFormat open = {.name = "test", .begin = "<think>", .end = "</think>"};
  limits_.style.reasoning = &open;
  EXPECT_TRUE(Has(Ask(call), "<think>"));
  const ReasoningFormat closed = {.name = "test", .begin = "<think>", .end = "chat:"};
  limits_.style.reasoning = &closed;
  EXPECT_FALSE(Has(Ask(call), "<think>"));
}

// Each compilation takes a second; the limit of a request is five.
TEST_F(FormatTest, ToolsOfARequestShareOneCompileTime) {
  int compiled = 0;
  engine_.on_rule = [&](const OutputRule& rule, RuleWait* wait) {
    ++compiled;
    wait->waited_ms += 1000;
    wait->over = wait->waited_ms >= 5000;
    return rule.text.find("hostile") != std::string::npos ? InvalidArgument("compiling it takes too long") : Status();
  };
  for (const bool strict : {false, true}) {
    json tools = json::array();
    for (int i = 0; i < 60; ++i) {
      const json parameters = {{"type", "object"},
                               {"properties", {{"p", {{"type", "string"}, {"pattern", "hostile"}}}}}};
      tools.push_back(
          {{"type", "function"},
           {"function", {{"name", "f" + std::to_string(i)}, {"strict", strict}, {"parameters", parameters}}}});
    }
    compiled = 0;
    const std::string rule = Ask({{"tools", tools}, {"tool_choice", "required"}});
    if (strict) {
      EXPECT_TRUE(rule.starts_with("tools[0].function.parameters|")) << rule;
    } else {
      EXPECT_TRUE(Has(rule, R"("properties":{"p":{}})")) << rule;
      EXPECT_FALSE(Has(rule, "hostile")) << rule;
    }
    EXPECT_LE(compiled, 7) << strict;
  }
  // The first bad tool is reached after the limit, so the error names all tools.
  json tools = json::array();
  for (int i = 0; i < 60; ++i) {
    const char* const pattern = i < 50 ? "a" : "hostile";
    const json parameters = {{"type", "object"}, {"properties", {{"p", {{"type", "string"}, {"pattern", pattern}}}}}};
    tools.push_back({{"type", "function"},
                     {"function", {{"name", "f" + std::to_string(i)}, {"strict", true}, {"parameters", parameters}}}});
  }
  compiled = 0;
  EXPECT_TRUE(Ask({{"tools", tools}, {"tool_choice", "required"}}).starts_with("tool_choice|tool_choice: "));
  EXPECT_LE(compiled, 7);
}

TEST_F(FormatTest, AToolWithUnsupportedParametersIsNamed) {
  json tools = Tools(true);
  tools.push_back({{"type", "function"},
                   {"function",
                    {{"name", "g"},
                     {"strict", true},
                     {"parameters", {{"type", "object"}, {"properties", {{"impossible", json::object()}}}}}}}});
  const std::string fault = "tools[1].function.parameters|tools[1].function.parameters: 'impossible' is not supported";
  EXPECT_EQ(Ask({{"tools", tools}}), fault);
  EXPECT_EQ(Ask({{"tools", tools}, {"tool_choice", "required"}}), fault);
}

// A front end without HTTP: collects the answer to a body.
class AnswerSink final : public ResponseSink {
 public:
  AnswerSink(const Engine& engine, AnswerShape shape) : answer_(engine, std::move(shape), {"id", 5, "print"}) {}
  void OnDelta(const TokenDelta& delta) override {
    std::lock_guard lock(mutex_);
    if (Status status = answer_.OnDelta(0, delta, &chunks_); !status.ok()) status_ = status;
  }
  void OnPromptLogprobs(const std::vector<std::vector<TokenLogprob>>& rows) override {
    std::lock_guard lock(mutex_);
    answer_.OnPromptLogprobs(0, rows);
  }
  void OnDone(const Usage& usage) override {
    std::lock_guard lock(mutex_);
    answer_.OnDone(0, usage, &chunks_);
    changed_.notify_all();
  }
  Result<json> Await() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kAwaitLimit, [this] { return answer_.done(); }))
      return Internal("the request did not end");
    if (!status_.ok()) return status_;
    return json::parse(std::move(answer_).Complete());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_;
  std::string chunks_;
  Status status_;
};

TEST_F(ConversationTest, ABodyBecomesAnAnswerWithoutHttp) {
  const auto ask = [&](const json& body) -> Result<json> {
    TACTUS_ASSIGN_OR_RETURN(Prepared prepared, Prepare(true, body));
    auto sink = std::make_shared<AnswerSink>(engine_, std::move(prepared.shape));
    TACTUS_RETURN_IF_ERROR(engine_.Submit(std::move(prepared.requests[0]), sink).status());
    return sink->Await();
  };
  const json body = {{"messages", {Message("user", "x")}}, {"n", 2}, {"max_tokens", 5}};
  const auto answer = ask(body);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  for (const json& choice : (*answer)["choices"]) {
    EXPECT_EQ(choice["message"]["content"], "Hello world!");
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  EXPECT_EQ((*answer)["choices"].size(), 2u);
  EXPECT_EQ((*answer)["usage"]["completion_tokens"], 10);
  json stopped = body;
  stopped["stop"] = "wor";
  const auto shorter = ask(stopped);
  ASSERT_TRUE(shorter.ok());
  EXPECT_EQ((*shorter)["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ((*shorter)["choices"][0].value("stop_reason", ""), "wor");
  engine_.FailAfter(2, Status(StatusCode::kInternal, "the executor went"));
  EXPECT_EQ(ask(body).status().message(), "the executor went");
}

}  // namespace
}  // namespace tactus::api
