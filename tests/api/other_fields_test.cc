// Fields that a route does not read: known ones are refused by name, unknown ones are listed or, with --strict-fields,
// refused.
#include "api/other_fields.h"
#include "base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "api/fields/nested_fields.h"
#include "api/request_parser.h"

namespace tactus::api::other_fields_test {
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
  const char* body;  // without its closing bracket
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

TEST(OtherFields, AValueWithoutEffectIsAccepted) {
  for (const char* field : {R"("mirostat": 0)",
                            R"("typical_p": 1.0)",
                            R"("cache_prompt": true)",
                            R"("repeat_penalty": 1)",
                            R"("transforms": [])",
                            R"("service_tier": "auto")",
                            R"("store": true)",
                            R"("prompt_cache_key": "k")",
                            R"("grammar": "")",
                            R"("n_probs": 0)",
                            R"("keep_alive": "5m")",
                            R"("options": null)",
                            R"("prefix": false)",
                            R"("prefix": "")",
                            R"("raw": false)",
                            R"("template": "")",
                            R"("provider": {})",
                            R"("search_parameters": {})",
                            R"("suffix": "")",
                            R"("audio": {})",
                            R"("bad_words": [])",
                            R"("functions": [])",
                            R"("function_call": "none")",
                            R"("function_call": "auto")"}) {
    for (const Route& route : kRoutes) {
      const auto parsed = Parse(route, field);
      ASSERT_TRUE(parsed.ok()) << field << " of " << route.body << ": " << parsed.status().message();
      EXPECT_TRUE(parsed->ignored.empty()) << field << " of " << route.body;
    }
  }
}

TEST(OtherFields, AdviceNamesFieldsOfTheRoute) {
  const auto& [chat, completions, responses, messages] = kRoutes;
  const auto advice = [](const Route& route, const char* field) {
    const std::string said = Parse(route, field).status().message();
    return said.substr(std::min(said.find("; "), said.size()));
  };
  EXPECT_EQ(advice(chat, R"("n_predict": 5)"), "; give max_tokens");
  EXPECT_EQ(advice(responses, R"("n_predict": 5)"), "; give max_output_tokens");
  EXPECT_EQ(advice(responses, R"("format": "json")"), "; give text.format");
  EXPECT_EQ(advice(responses, R"("n_probs": 3)"), "; leave it out");
  EXPECT_EQ(advice(completions, R"("n_probs": 3)"), "; give logprobs");
  EXPECT_EQ(advice(chat, R"("n_probs": 3)"), "; give logprobs or top_logprobs");
  EXPECT_EQ(advice(messages, R"("stop_words": ["x"])"), "; give stop_sequences");
  EXPECT_EQ(advice(messages, R"("output_format": {"type": "json_schema"})"), "; give output_config.format");
  EXPECT_EQ(advice(chat, R"("enable_thinking": true)"), "; give chat_template_kwargs or thinking or reasoning_effort");
  EXPECT_NE(advice(responses, R"("enable_thinking": true)").find("reasoning.effort"), std::string::npos);
  EXPECT_EQ(advice(completions, R"("enable_thinking": true)"), "; leave it out");
  EXPECT_EQ(Parse(responses, R"("echo": true)").status().message(), "echo: belongs to /v1/completions; leave it out");
}

// Clients of other servers send all settings of a sampler even if it is off.
TEST(OtherFields, ASettingOfADisabledSamplerIsAccepted) {
  for (const char* off :
       {R"("mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1)", R"("mirostat_tau": 5)",
        R"("xtc_probability": 0, "xtc_threshold": 0.1)", R"("dynatemp_range": 0, "dynatemp_exponent": 1)",
        R"("dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1)"}) {
    const auto parsed = Parse(kRoutes[0], off);
    ASSERT_TRUE(parsed.ok()) << off << ": " << parsed.status().message();
    EXPECT_TRUE(parsed->ignored.empty()) << off;
  }
  EXPECT_EQ(Parse(kRoutes[0], R"("mirostat_tau": 5, "mirostat": 2)").status().param(), "mirostat_tau");
}

TEST(OtherFields, SettingsOfResponsesWithoutEffectAreAccepted) {
  const auto taken = Parse(kRoutes[2], R"("reasoning": {"effort": "low", "summary": "auto"}, "echo": false,
      "text": {"verbosity": "medium"}, "stream": true, "stream_options": {"include_obfuscation": false})",
                           false);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_EQ(taken->ignored, std::vector<std::string>{"echo"});
  EXPECT_EQ(Parse(kRoutes[2], R"("text": {"verbosity": "low"})").status().param(), "text.verbosity");
  const auto edits = Parse(kRoutes[2], R"("context_management": [{"type": "compaction", "compact_threshold": 1000}])");
  ASSERT_TRUE(edits.ok()) << edits.status().message();
  EXPECT_EQ(edits->ignored, std::vector<std::string>{"context_management[0] (compaction)"});
  const auto choice = Parse(kRoutes[2], R"("tools": [{"type": "web_search"}], "tool_choice": "required")");
  EXPECT_EQ(choice.status().message(), "tool_choice: \"required\" although none of the tools is a function; give one");
  EXPECT_TRUE(Parse(kRoutes[0], R"("logprobs": false, "top_logprobs": 0, "truncation": "disabled")").ok());
}

TEST(OtherFields, UnknownNamesInThinkingPartsAreListed) {
  const auto parsed = ParseChatRequest(R"({"messages": [{"role": "assistant", "content": [
      {"type": "thinking", "thinking": [{"type": "text", "text": "t", "wish": 1}], "closed": true, "hope": 1},
      {"type": "text", "text": "a"}]}, {"role": "user", "content": "q"}]})",
                                       Limits());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->ignored,
            (std::vector<std::string>{"messages[0].content[0].thinking[0].wish", "messages[0].content[0].hope"}));
}

TEST(OtherFields, ANameWithASpaceIsNamedWhole) {
  EXPECT_EQ(Parse(kRoutes[0], R"("my field": 1)", true).status().param(), "my field");
}

TEST(OtherFields, AnEmptyFieldOfAnotherRouteIsListed) {
  const auto& [chat, completions, responses, messages] = kRoutes;
  for (const auto& [route, field] : {std::pair(&chat, "reasoning"), std::pair(&completions, "context_management")}) {
    for (const char* value : {"[]", "{}", R"("")"}) {
      const auto parsed = Parse(*route, fmt::format(R"("{}": {})", field, value));
      ASSERT_TRUE(parsed.ok()) << field << ": " << parsed.status().message();
      EXPECT_EQ(parsed->ignored, std::vector<std::string>{field});
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
        std::tuple(&completions, R"("chat_template_kwargs": {"a": 1})", "chat_template_kwargs")}) {
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

Result<ParsedRequest> ParseMessages(const std::string& body, bool strict = false) {
  return ParseMessagesRequest(body, Limits(strict), {}, false);
}

TEST(OtherFields, UnknownNestedNamesAreListedWithTheirPlaceAndStrictlyRefused) {
  const auto expect = [](const auto& parse, const std::string& body, std::vector<std::string> names) {
    const auto parsed = parse(body, false);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->ignored, names);
    const auto refused = parse(body, true);
    ASSERT_FALSE(refused.ok()) << body;
    EXPECT_EQ(refused.status().param(), names[0].substr(0, names[0].find(' ')));
  };
  expect([](const std::string& body, bool strict) { return ParseChatRequest(body, Limits(strict)); }, R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "q", "wish": 1}], "hope": 1},
      {"role": "assistant", "content": null, "wish": null, "tool_calls": [{"id": "c", "type": "function", "wish": 1,
        "function": {"name": "f", "arguments": {"wish": 1}, "hope": 1}}]},
      {"role": "tool", "tool_call_id": "c", "content": [{"type": "image", "wish": 1}]}],
      "tools": [{"type": "function", "wish": 1, "function": {"name": "f", "hope": 1, "parameters": {"type": "object",
        "wish": 1}}}],
      "tool_choice": {"type": "function", "function": {"name": "f", "wish": 1}, "hope": 1},
      "thinking": {"type": "enabled", "wish": 1}, "chat_template_kwargs": {"wish": {"a": 1}}, "metadata": {"a": 1}})",
         {"messages[0].content[0].wish", "messages[0].hope", "messages[1].tool_calls[0].wish",
          "messages[1].tool_calls[0].function.hope", "tools[0].wish", "tools[0].function.hope",
          "tool_choice.function.wish", "tool_choice.hope", "thinking.wish"});
  expect([](const std::string& body, bool strict) { return ParseResponsesRequest(body, Limits(strict)); },
         R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "q", "wish": 1}], "wish": 1},
      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "wish": 1},
      {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r", "wish": 1}]}],
      "tools": [{"type": "function", "name": "f", "parameters": {"wish": 1}, "wish": 1}],
      "text": {"format": {"type": "json_schema", "name": "n", "schema": {"const": 1}, "wish": 1}, "hope": 1},
      "tool_choice": {"type": "function", "name": "f", "wish": 1}, "metadata": {"wish": "a"}})",
         {"input[0].content[0].wish", "input[0].wish (2 places)", "input[2].output[0].wish", "tools[0].wish",
          "text.format.wish", "text.hope", "tool_choice.wish"});
  expect(ParseMessages, R"({"max_tokens": 1, "system": [{"type": "text", "text": "s", "wish": 1}], "messages": [
      {"role": "user", "content": "q", "wish": 1},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"wish": 1}, "hope": 1}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [
        {"type": "text", "text": "r", "wish": 1}], "wish": 1}]}],
      "tools": [{"name": "f", "input_schema": {"wish": 1}, "wish": 1}], "tool_choice": {"type": "auto", "wish": 1},
      "thinking": {"type": "adaptive", "wish": 1}, "metadata": {"wish": 1}})",
         {"system[0].wish", "messages[0].wish", "messages[1].content[0].hope", "messages[2].content[0].content[0].wish",
          "messages[2].content[0].wish", "tools[0].wish", "tool_choice.wish", "thinking.wish"});
}

TEST(OtherFields, NestedFieldsThatClientsSendAreKnown) {
  const auto chat = ParseChatRequest(R"({"messages": [
      {"role": "user", "name": "u", "content": [{"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}]},
      {"role": "assistant", "content": "a", "refusal": null, "annotations": [], "audio": null, "reasoning": "r",
       "reasoning_content": "r", "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f",
       "arguments": "{}", "parsed_arguments": {"a": 1}}}]},
      {"role": "tool", "tool_call_id": "c", "name": "f", "content": "x"}], "tools": [{"type": "function",
      "cache_control": {"type": "ephemeral"}, "function": {"name": "f", "strict": false, "description": "d"}}]})",
                                     Limits(true));
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  const auto responses = ParseResponsesRequest(R"({"input": [
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
      {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}], "content": [
        {"type": "reasoning_text", "text": "r"}], "encrypted_content": "e", "status": "completed"},
      {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
      {"type": "function_call_output", "id": "o", "call_id": "c", "output": "x", "status": "completed"},
      {"type": "message", "id": "m", "role": "assistant", "status": "completed", "phase": "final_answer", "content": [
        {"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]}, {"role": "user", "content": "q"}],
      "tools": [{"type": "function", "name": "f", "description": "d", "strict": false, "parameters": {}}],
      "text": {"format": {"type": "json_schema", "name": "n", "strict": true, "description": "d", "schema": {}}}})",
                                               Limits(true));
  EXPECT_TRUE(responses.ok()) << responses.status().message();
  const auto messages = ParseMessages(R"({"max_tokens": 1,
      "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}], "messages": [
      {"role": "user", "content": [{"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "a", "citations": []}, {"type": "tool_use", "id": "c", "name": "f", "input": {},
        "cache_control": {"type": "ephemeral"}, "caller": {"type": "direct"}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": false, "content": [
        {"type": "text", "text": "r"}, {"type": "search_result", "title": "t", "source": "s", "content": [
        {"type": "text", "text": "x"}], "citations": {"enabled": true}}]}]}],
      "tools": [{"name": "f", "description": "d", "input_schema": {}, "strict": false, "defer_loading": false,
        "cache_control": {"type": "ephemeral"}}],
      "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns",
        "value": 1}}]}, "output_config": {"format": {"type": "json_schema", "schema": {}}}})",
                                      true);
  EXPECT_TRUE(messages.ok()) << messages.status().message();
}

TEST(OtherFields, OneNameInManyPlacesIsListedOnce) {
  std::string list, others;
  for (int i = 0; i < 1000; ++i) {
    list += R"({"role": "user", "content": "q", "wish": 1},)";
    others += R"({"role": "user", "content": "q", "wish)" + std::to_string(i) + R"(": 1},)";
  }
  list.pop_back();
  others.pop_back();
  const auto parsed = ParseChatRequest(R"({"messages": [)" + list + "]}", Limits());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->ignored, std::vector<std::string>{"messages[0].wish (1000 places)"});
  EXPECT_EQ(ParseChatRequest(R"({"messages": [)" + others + "]}", Limits())->ignored.size(), kMostNestedNames);
  const auto refused = ParseChatRequest(R"({"messages": [)" + list + "]}", Limits(true));
  EXPECT_EQ(refused.status().param(), "messages[0].wish");
}

TEST(OtherFields, EveryDocumentedChatFieldIsKnown) {
  // The chat fields that docs/reference/api.md lists; none is ignored.
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

TEST(OtherFields, ContinuingTheAssistantsTurnIsRefused) {
  for (const char* name : {"prefix", "partial"}) {
    const auto parsed = ParseChatRequest(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant",
        "content": "a", ")" + std::string(name) +
                                             R"(": true}]})",
                                         Limits());
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.status().param(), std::string("messages[1].") + name);
  }
}

TEST(OtherFields, SchemasAtTheTopAndBesideJsonObjectAreEnforced) {
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
        std::pair(R"("json_schema": {"maximum": 1e999})", "1e999"),
        std::pair(R"("json_schema": {"properties": {"default": {"const": 18446744073709551617}}})",
                  "18446744073709551617"),
        std::pair(R"("json_schema": {"$defs": {"examples": {"enum": [123456789012345678901]}}})",
                  "123456789012345678901"),
        std::pair(R"("guided_json": "{\"const\": {\"default\": 123456789012345678901}}")", "123456789012345678901")}) {
    const auto parsed = Parse(kRoutes[0], field);
    ASSERT_FALSE(parsed.ok()) << field;
    EXPECT_NE(parsed.status().message().find(number), std::string::npos) << parsed.status().message();
  }
  EXPECT_TRUE(Parse(kRoutes[0], R"("temperature": 0.70000000000000000001, "json_schema": {"const": 1e3})").ok());
  EXPECT_TRUE(Parse(kRoutes[0], R"("json_schema": {"type": "integer", "default": 18446744073709551617})").ok());
}

}  // namespace
}  // namespace tactus::api::other_fields_test
