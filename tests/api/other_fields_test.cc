// Fields that a route does not read: known ones are refused by name, unknown ones are named or, with --strict-fields,
// refused.
#include "api/other_fields.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "api/request_parser.h"

namespace tactus::api {
namespace {

RequestLimits Limits(bool strict = false) {
  RequestLimits limits;
  limits.model = "m";
  limits.max_model_len = 1000;
  limits.vocab_size = 1000;
  limits.strict_fields = strict;
  return limits;
}

struct Route {
  const char* body;  // without its bracket
  Result<ParsedRequest> (*parse)(std::string_view body, const RequestLimits& limits, StopToken stop);
};

const Route kRoutes[] = {{R"({"messages": [{"role": "user", "content": "q"}])", ParseChatRequest},
                         {R"({"prompt": "q")", ParseCompletionRequest},
                         {R"({"input": "q")", ParseResponsesRequest},
                         {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "q"}])",
                          [](std::string_view body, const RequestLimits& limits, StopToken stop) {
                            return ParseMessagesRequest(body, limits, stop, false);
                          }}};

Result<ParsedRequest> Parse(const Route& route, const std::string& fields, bool strict = false) {
  return route.parse(route.body + (fields.empty() ? "" : ", " + fields) + "}", Limits(strict), {});
}

TEST(OtherFields, AKnownForeignFieldIsRefusedByNameOnEveryRoute) {
  for (const auto& [name, value] : {std::pair("grammar", "\"root ::= x\""),
                                    std::pair("ebnf", "\"root ::= x\""),
                                    std::pair("format", "\"json\""),
                                    std::pair("options", R"({"temperature": 0})"),
                                    std::pair("mirostat", "2"),
                                    std::pair("typical_p", "0.9"),
                                    std::pair("n_predict", "5"),
                                    std::pair("cache_prompt", "false"),
                                    std::pair("continue_final_message", "true"),
                                    std::pair("repeat_penalty", "1.1"),
                                    std::pair("lora", R"([{"id": 0}])"),
                                    std::pair("transforms", R"(["middle-out"])"),
                                    std::pair("safe_prompt", "true"),
                                    std::pair("random_seed", "3"),
                                    std::pair("enable_thinking", "false"),
                                    std::pair("images", R"(["x"])"),
                                    std::pair("prefix", "true"),
                                    std::pair("length_penalty", "2"),
                                    std::pair("stop_regex", "\"a\""),
                                    std::pair("models", R"(["a"])"),
                                    std::pair("extra_body", R"({"top_k": 1})"),
                                    std::pair("dry_multiplier", "0.8"),
                                    std::pair("max_new_tokens", "5"),
                                    std::pair("chat_template", "\"x\"")}) {
    for (const Route& route : kRoutes) {
      const auto parsed = Parse(route, "\"" + std::string(name) + "\": " + value);
      ASSERT_FALSE(parsed.ok()) << name << " of " << route.body;
      EXPECT_EQ(parsed.status().param(), name);
      EXPECT_TRUE(parsed.status().message().starts_with(std::string(name) + ":")) << parsed.status().message();
    }
  }
}

TEST(OtherFields, AValueThatAsksForNothingIsTaken) {
  for (const char* field :
       {R"("mirostat": 0)", R"("typical_p": 1.0)", R"("cache_prompt": true)", R"("repeat_penalty": 1)",
        R"("transforms": [])", R"("service_tier": "auto")", R"("store": true)", R"("prompt_cache_key": "k")",
        R"("grammar": "")", R"("n_probs": 0)", R"("keep_alive": "5m")", R"("options": null)", R"("prefix": false)"}) {
    for (const Route& route : kRoutes) {
      const auto parsed = Parse(route, field);
      ASSERT_TRUE(parsed.ok()) << field << " of " << route.body << ": " << parsed.status().message();
      EXPECT_TRUE(parsed->ignored.empty()) << field << " of " << route.body;
    }
  }
}

TEST(OtherFields, AFieldOfAnotherRouteIsRefused) {
  const auto& [chat, completions, responses, messages] = kRoutes;
  for (const auto& [route, field, name] :
       {std::tuple(&chat, R"("system": "s")", "system"), std::tuple(&chat, R"("input": "x")", "input"),
        std::tuple(&chat, R"("stop_sequences": ["x"])", "stop_sequences"),
        std::tuple(&chat, R"("max_output_tokens": 3)", "max_output_tokens"),
        std::tuple(&messages, R"("instructions": "x")", "instructions"),
        std::tuple(&messages, R"("logprobs": true)", "logprobs"), std::tuple(&responses, R"("system": "s")", "system"),
        std::tuple(&completions, R"("chat_template_kwargs": {})", "chat_template_kwargs")}) {
    const auto parsed = Parse(*route, field);
    ASSERT_FALSE(parsed.ok()) << field;
    EXPECT_EQ(parsed.status().param(), name);
  }
}

TEST(OtherFields, UnknownNamesAreListedAndStrictlyRefused) {
  for (const Route& route : kRoutes) {
    const auto parsed =
        Parse(route, R"("no_such_field": {"a": 1}, "nothing": null, "slo": {"class": "c", "wish": 3}, "another": 0)");
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->ignored, (std::vector<std::string>{"no_such_field", "slo.wish", "another"})) << route.body;
    const auto refused = Parse(route, R"("another": 0, "no_such_field": 1)", true);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().param(), "another");
    EXPECT_NE(refused.status().message().find("--strict-fields"), std::string::npos);
    EXPECT_TRUE(Parse(route, R"("temperature": 0.5, "slo": {"class": "c"})", true).ok());
  }
}

TEST(OtherFields, EveryKnownFieldIsKnown) {
  // What docs/api.md lists of a chat; none of it is ignored.
  const auto chat = Parse(kRoutes[0], R"("model": "m", "temperature": 1, "top_p": 1, "top_k": 1, "min_p": 0,
      "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {"1": 1}, "seed": 1, "n": 1,
      "stop": "x", "stop_token_ids": [1], "ignore_eos": true, "min_tokens": 0, "max_tokens": 1,
      "max_completion_tokens": 1, "logprobs": true, "top_logprobs": 1, "add_generation_prompt": true, "documents": [],
      "chat_template_kwargs": {"any": {"thing": 1}}, "tools": [], "tool_choice": "auto", "parallel_tool_calls": true,
      "reasoning_effort": "low", "thinking": {"type": "adaptive"}, "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "priority": 1, "user": "u",
      "slo": {"ttft_ms": 1, "tbt_ms": 1, "jct_ms": 2}, "response_format": {"type": "json_schema", "json_schema": {
      "name": "n", "description": "d", "strict": true, "schema": {}}}, "cache_salt": "s", "skip_special_tokens": true)",
                          true);
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  const auto responses = Parse(kRoutes[2], R"("instructions": "i", "text": {"format": {"type": "text"}},
      "reasoning": {"effort": "low"}, "tools": [], "metadata": {"a": "b"}, "store": false, "include": [],
      "truncation": "disabled", "previous_response_id": null)",
                               true);
  EXPECT_TRUE(responses.ok()) << responses.status().message();
  const auto messages = Parse(kRoutes[3], R"("system": "s", "stop_sequences": ["x"], "thinking": {"type": "enabled",
      "budget_tokens": 2000}, "output_config": {"effort": "low"}, "metadata": {"user_id": "u"}, "top_k": 1,
      "context_management": {"edits": []}, "tools": [], "tool_choice": {"type": "auto"})",
                              true);
  EXPECT_TRUE(messages.ok()) << messages.status().message();
}

TEST(OtherFields, AnAssistantsTurnThatIsToGoOnIsRefused) {
  for (const char* name : {"prefix", "partial"}) {
    const auto parsed = ParseChatRequest(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant",
        "content": "a", ")" + std::string(name) +
                                             R"(": true}]})",
                                         Limits());
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.status().param(), std::string("messages[1].") + name);
  }
}

TEST(OtherFields, SchemasAtTheTopAndBesideJsonObjectAreKeptTo) {
  for (const char* field : {R"("response_format": {"type": "json_object", "schema": {"const": 7}})",
                            R"("json_schema": {"const": 7})", R"("json_schema": "{\"const\": 7}")"}) {
    const auto parsed = Parse(kRoutes[0], field);
    ASSERT_TRUE(parsed.ok()) << field << parsed.status().message();
    EXPECT_EQ(parsed->base.output.kind, OutputRule::Kind::kJsonSchema) << field;
    EXPECT_NE(parsed->base.output.text.find("7"), std::string::npos) << field;
  }
  EXPECT_EQ(Parse(kRoutes[1], R"("regex": "a+")")->base.output.kind, OutputRule::Kind::kRegex);
  EXPECT_EQ(
      Parse(kRoutes[2], R"("text": {"format": {"type": "json_object", "schema": {"const": 7}}})")->base.output.kind,
      OutputRule::Kind::kJsonSchema);
  EXPECT_EQ(Parse(kRoutes[0], R"("response_format": {"type": "text", "schema": {}})").status().param(),
            "response_format.schema");
}

TEST(OtherFields, NumbersOfSchemasThatNoDoubleHoldsAreNamed) {
  for (const auto& [field, number] :
       {std::pair(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema":
                  {"const": 123456789012345678901234567890}}})",
                  "123456789012345678901234567890"),
        std::pair(R"("guided_json": "{\"minimum\": 0.12345678901234567890123}")", "0.12345678901234567890123"),
        std::pair(R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
                  "properties": {"a": {"enum": [-99999999999999999999999]}}}}}])",
                  "-99999999999999999999999"),
        std::pair(R"("json_schema": {"maximum": 1e999})", "1e999")}) {
    const auto parsed = Parse(kRoutes[0], field);
    ASSERT_FALSE(parsed.ok()) << field;
    EXPECT_NE(parsed.status().message().find(number), std::string::npos) << parsed.status().message();
  }
  EXPECT_TRUE(Parse(kRoutes[0], R"("temperature": 0.70000000000000000001, "json_schema": {"const": 1e3})").ok());
}

}  // namespace
}  // namespace tactus::api
