// Bodies of other APIs translated to chats, and answers in their formats: mapped fields, fields named in errors, and
// events of parts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "api/messages/messages_request.h"
#include "api/messages/messages_writer.h"
#include "api/request_parser.h"
#include "api/responses/responses_request.h"
#include "api/responses/responses_writer.h"
#include "base/json.h"

namespace tactus::api::translations_test {
namespace {

Json ChatOf(const Result<Translation>& translation) {
  EXPECT_TRUE(translation.ok()) << translation.status().message();
  return translation.ok() ? translation->chat : Json();
}
Json Responses(const char* body) {
  return ChatOf(ChatOfResponses(Json::parse(body)));
}
Json Messages(const char* body) {
  return ChatOf(ChatOfMessages(Json::parse(body)));
}

RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "m";
  limits.max_model_len = 1000;
  limits.vocab_size = 100;
  return limits;
}

TEST(ResponsesRequest, ItemsBecomeMessages) {
  const Json chat = Responses(R"({
    "instructions": "Be brief.",
    "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "one moment"}]},
      {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\":1}"},
      {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "1"},
      {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]}
    ]})");
  EXPECT_EQ(chat["messages"], Json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "a\nb"},
    {"role": "assistant", "content": "one moment", "reasoning_content": "hm", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
      {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "1"},
    {"role": "tool", "tool_call_id": "c2", "content": "2"}])"));
}

TEST(ResponsesRequest, ACallMayHaveReturnedNothing) {
  const auto item = [](const char* output) {
    return std::string(R"({"input": [{"type": "function_call_output", "call_id": "c1")") + output + "}]}";
  };
  EXPECT_EQ(Responses(item(R"(, "output": null)").c_str())["messages"],
            Json::parse(R"([{"role": "tool", "tool_call_id": "c1", "content": ""}])"));
  EXPECT_EQ(ParseResponsesRequest(item(""), Limits()).status().message(), "input[0].output: missing");
}

TEST(ResponsesRequest, NonFunctionToolsAreLeftOutAndNamed) {
  const auto parsed = ParseResponsesRequest(R"({"input": "q", "tools": [{"type": "web_search"},
      {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}, {"type": "custom", "name": "g"},
      {"type": "function", "name": "h"}]})",
                                            Limits());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->ignored, (std::vector<std::string>{"tools[0] (web_search)", "tools[2] (custom)"}));
  ASSERT_EQ(parsed->tools->tools.size(), 2u);
  EXPECT_EQ(parsed->tools->tools[1].name, "h");
  const Json echo = Json::parse("{" + parsed->echo_members.substr(1) + "}");
  EXPECT_EQ(echo["tools"], Json::parse(R"([{"type": "function", "name": "f", "parameters": {"type": "object",
      "properties": {}}}, {"type": "function", "name": "h"}])"))
      << "the tools that the model may call";
  const auto fault = ParseResponsesRequest(
      R"({"input": "q", "tools": [{"type": "mcp"}, {"type": "function", "name": "a b"}]})", Limits());
  EXPECT_EQ(fault.status().param(), "tools[1].name") << "the client's own place";
  RequestLimits strict = Limits();
  strict.strict_fields = true;
  EXPECT_EQ(ParseResponsesRequest(R"({"input": "q", "tools": [{"type": "mcp"}]})", strict).status().param(),
            "tools[0]");
}

TEST(MessagesRequest, ToolsMayBeManyAndTheirNamesLong) {
  std::string tools;
  for (int i = 0; i < 300; ++i)
    tools += (i > 0 ? "," : "") +
             fmt::format(R"({{"name": "t{}{}", "input_schema": {{"type": "object"}}}})", i, std::string(120, 'a'));
  const auto body = [](const std::string& list) {
    return R"({"max_tokens": 1, "messages": [{"role": "user", "content": "q"}], "tools": [)" + list + "]}";
  };
  const auto parsed = ParseMessagesRequest(body(tools), Limits());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->tools->tools.size(), 300u);
  const auto named = [&](size_t bytes) {
    return ParseMessagesRequest(
        body(R"({"name": ")" + std::string(bytes, 'n') + R"(", "input_schema": {"type": "object"}})"), Limits());
  };
  EXPECT_TRUE(named(128).ok());
  EXPECT_NE(named(129).status().message().find("1 to 128 letters"), std::string::npos);
}

TEST(MessagesRequest, ContextManagementClearsReasoningAndNamesTheRest) {
  const auto chat = [](const std::string& edits) {
    return ChatOfMessages(
        Json::parse(R"({"max_tokens": 1, "context_management": {"edits": [)" + edits + R"(]}, "messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "old"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t1"}, {"type": "tool_use", "id": "i", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": "r"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t2"}, {"type": "text", "text": "d"}]},
        {"role": "user", "content": "e"}]})"));
  };
  const auto thoughts = [](const Result<Translation>& translation) {
    std::string out;
    for (const Json& message : translation->chat["messages"]) out += message.value("reasoning_content", "") + ",";
    return out;
  };
  const auto all = chat(R"({"type": "clear_thinking_20251015", "keep": "all"})");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(thoughts(all), ",old,,t1,,t2,,");
  EXPECT_TRUE(all->ignored.empty());
  EXPECT_EQ(thoughts(chat(R"({"type": "clear_thinking_20251015"})")), ",,,t1,,t2,,")
      << "the last turn's, calls and all";
  EXPECT_EQ(thoughts(chat(R"({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}})")),
            ",old,,t1,,t2,,");
  const auto tools = chat(R"({"type": "clear_tool_uses_20250919"})");
  ASSERT_TRUE(tools.ok());
  EXPECT_EQ(tools->ignored, (std::vector<std::string>{"context_management.edits[0] (clear_tool_uses_20250919)"}));
  EXPECT_EQ(
      chat(R"({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 0}})").status().param(),
      "context_management.edits[0].keep.value");
}

TEST(MessagesErrors, ErrorOfATooLongPromptHasTheWordsThatClientsLookFor) {
  EXPECT_NE(
      MessagesErrorText(
          400, "prompt of 9000 tokens + max_tokens of 10 exceed the context of 8192 tokens; shorten the prompt", {})
          .find("prompt is too long: 9000 tokens > 8191 maximum"),
      std::string::npos);
  EXPECT_NE(MessagesErrorText(
                400, "prompt of 8000 tokens + max_tokens of 1000 exceed the context of 8192 tokens; give less", {})
                .find("input length and `max_tokens` exceed context limit: 8000 + 1000 > 8192"),
            std::string::npos);
}

TEST(MessagesRequest, BlocksOfABodyAreLimited) {
  const auto status = [](int blocks) {
    Json body = {{"max_tokens", 1}, {"messages", Json::array()}};
    for (int message = 0; message < 2; ++message) {
      Json content = Json::array();
      for (int i = 0; i < blocks / 2; ++i) content.push_back({{"type", "text"}, {"text", ""}});
      body["messages"].push_back({{"role", "user"}, {"content", std::move(content)}});
    }
    return ChatOfMessages(body).status();
  };
  EXPECT_TRUE(status(16384).ok());
  EXPECT_EQ(status(16386).message(), "messages[1].content: the body has more than 16384 blocks, the limit");
  EXPECT_EQ(status(16386).param(), "messages[1].content");
}

TEST(MessagesRequest, ReasoningOfATurnIsJoined) {
  const Json chat = Messages(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "q"}, {"role": "assistant",
    "content": [{"type": "thinking", "thinking": "a"}, {"type": "thinking", "thinking": "b"},
                {"type": "text", "text": "c"}]}, {"role": "user", "content": "r"}]})");
  EXPECT_EQ(chat["messages"][1]["reasoning_content"], "ab");
}

TEST(ResponsesRequest, OtherFieldsKeepTheirMeaning) {
  const Json chat = Responses(R"({
    "model": "m", "input": "hi", "max_output_tokens": 5, "temperature": 0, "top_k": 3, "stream": true,
    "reasoning": {"effort": "low", "summary": "auto"}, "parallel_tool_calls": false, "safety_identifier": "u",
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}},
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": false}],
    "tool_choice": {"type": "function", "name": "f"}, "store": true, "metadata": {"a": "b"}, "unknown": 1})");
  EXPECT_EQ(chat, Json::parse(R"({
    "model": "m", "temperature": 0, "top_k": 3, "stream": true,
    "messages": [{"role": "user", "content": "hi"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": true}},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": false}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "reasoning_effort": "low", "max_completion_tokens": 5, "parallel_tool_calls": false, "user": "u"})"));
}

struct Refused {
  const char* body;
  const char* param;
  const char* says;
};

TEST(ResponsesRequest, ErrorsNameTheClientsOwnFields) {
  for (const Refused& refused : std::vector<Refused>{
           {R"({})", "input", "missing"},
           {R"({"input": []})", "input", "no items"},
           {R"({"input": 5})", "input", "a list"},
           {R"({"input": "x", "temperature": 9})", "temperature", "out of range"},
           {R"({"input": "x", "max_output_tokens": 0})", "max_output_tokens", "out of range"},
           {R"({"input": "x", "max_tokens": 5})", "max_tokens", "max_output_tokens"},
           {R"({"input": "x", "messages": []})", "messages", "input"},
           {R"({"input": "x", "n": 2})", "n", "one answer"},
           {R"({"input": "x", "previous_response_id": "r"})", "previous_response_id", "whole conversation"},
           {R"({"input": "x", "background": true})", "background", "not supported"},
           {R"({"input": "x", "truncation": "auto"})", "truncation", "disabled"},
           {R"({"input": "x", "skip_special_tokens": false})", "skip_special_tokens", "only true"},
           {R"({"input": "x", "tool_choice": {"type": "web_search"}})", "tool_choice", "web_search"},
           {R"({"input": "x", "metadata": {"a": 1}})", "metadata", "texts"},
           {R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]})",
            "input[0].content[0]", "input_image"},
           {R"({"input": [{"role": "other", "content": "x"}]})", "input[0].role", "other"},
           {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]})", "input[0].arguments", "missing"},
           {R"({"input": [{"type": "function_call_output", "output": ""}]})", "input[0].call_id", "missing"},
           {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0]", "item_reference"}}) {
    const auto parsed = ParseResponsesRequest(refused.body, Limits());
    ASSERT_FALSE(parsed.ok()) << refused.body;
    EXPECT_EQ(parsed.status().param(), refused.param) << parsed.status().message();
    EXPECT_NE(parsed.status().message().find(refused.says), std::string::npos) << parsed.status().message();
  }
}

TEST(MessagesRequest, BlocksBecomeMessages) {
  const Json chat = Messages(R"({
    "max_tokens": 9, "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
    "messages": [
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}]},
        {"type": "text", "text": "and?"}]}]})");
  EXPECT_EQ(chat["messages"], Json::parse(R"([
    {"role": "system", "content": "S"},
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [
      {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
    {"role": "tool", "tool_call_id": "t1", "content": "r"},
    {"role": "user", "content": "and?"}])"));
  EXPECT_EQ(chat["max_tokens"], 9);
}

TEST(MessagesRequest, OtherFieldsKeepTheirMeaning) {
  const Json chat = Messages(R"({
    "model": "m", "max_tokens": 5, "temperature": 0.5, "top_k": 3, "stop_sequences": ["x"],
    "messages": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "u"},
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "thinking": {"type": "disabled"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}}})");
  EXPECT_EQ(chat, Json::parse(R"({
    "model": "m", "temperature": 0.5, "top_k": 3, "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"parameters": {"type": "object"}, "name": "f", "description": "d"}}],
    "parallel_tool_calls": false, "tool_choice": "required", "chat_template_kwargs": {"enable_thinking": false, "thinking": false},
    "reasoning_effort": "high",
    "response_format": {"type": "json_schema",
      "json_schema": {"name": "answer", "strict": true, "schema": {"type": "object"}}},
    "max_tokens": 5, "stop": ["x"], "user": "u"})"));
}

TEST(MessagesRequest, ErrorsNameTheClientsOwnFields) {
  for (
      const Refused& refused : std::vector<Refused>{
          {R"({"max_tokens": 1})", "messages", "missing"},
          {R"({"messages": [{"role": "user", "content": "x"}]})", "max_tokens", "missing"},
          {R"({"max_tokens": 0, "messages": [{"role": "user", "content": "x"}]})", "max_tokens", "out of range"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]})",
           "messages[1]", "end with a message of the user"},
          {R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "x"}]})", "messages[0].role", "tool"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "use_beam_search": true})",
           "use_beam_search", "not supported"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
           "messages[0].content[0]", "image"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]})",
           "messages[0].content[0].tool_use_id", "missing"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "stop_sequences": [""]})",
           "stop_sequences", "0 bytes"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "metadata": {"user_id": 5}})",
           "metadata.user_id", "a string"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f"}]})",
           "tools[0].input_schema", "missing"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}],
                "tools": [{"type": "web_search_20250305", "name": "w"}]})",
           "tools[0]", "web_search"},
          {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "maybe"}})",
           "tool_choice.type", "maybe"}}) {
    const auto parsed = ParseMessagesRequest(refused.body, Limits());
    ASSERT_FALSE(parsed.ok()) << refused.body;
    EXPECT_EQ(parsed.status().param(), refused.param) << parsed.status().message();
    EXPECT_NE(parsed.status().message().find(refused.says), std::string::npos) << parsed.status().message();
  }
  EXPECT_TRUE(ParseMessagesRequest(R"({"messages": [{"role": "user", "content": "x"}]})", Limits(), {}, true).ok());
}

// --- Answers ---

std::vector<AnswerPart> Parts() {
  using Kind = AnswerPart::Kind;
  return {{Kind::kReasoning, "hm"},
          {Kind::kText, "I look."},
          {.kind = Kind::kCallBegin, .name = "f", .id = "c1", .call = 0},
          {.kind = Kind::kCallArguments, .text = "{\"x\":", .call = 0},
          {.kind = Kind::kCallArguments, .text = "1}", .call = 0}};
}

const AnswerUsage kUsage(Usage{.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 7}, 3);

// One delta for each part, then the end.
std::vector<Json> Events(AnswerWriter* writer, FinishReason finish, std::string_view stop_string = {}) {
  std::string out;
  const std::vector<std::vector<TokenLogprob>> none;
  writer->AppendBegin(&out, 0, nullptr, kUsage);
  for (const AnswerPart& part : Parts()) {
    const std::vector<AnswerPart> one = {part};
    writer->AppendDelta(&out, 0, {.parts = one, .logprobs = none, .called = true}, kUsage);
  }
  const std::vector<AnswerPart> no_parts;
  writer->AppendDelta(
      &out, 0, {.parts = no_parts, .logprobs = none, .finish = finish, .called = true, .stop_string = stop_string},
      kUsage);
  writer->AppendLast(&out, kUsage, {});
  std::vector<Json> events;
  for (size_t at = 0; at < out.size();) {
    const size_t end = out.find("\n\n", at), line = out.find('\n', at);
    EXPECT_EQ(out.substr(at, 7), "event: ");
    events.push_back(Json::parse(out.substr(line + 7, end - line - 7)));
    EXPECT_EQ(events.back()["type"], out.substr(at + 7, line - at - 7));
    at = end + 2;
  }
  return events;
}

std::vector<std::string> Types(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  return types;
}

TEST(ResponsesRequest, EchoedNumbersAreTheClientsNumbers) {
  const auto parsed = ParseResponsesRequest(R"({"input": "x", "temperature": 0.7, "top_p": 0.95})", Limits());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_NE(parsed->echo_members.find(R"("temperature":0.7,)"), std::string::npos) << parsed->echo_members;
  EXPECT_NE(parsed->echo_members.find(R"("top_p":0.95,)"), std::string::npos) << parsed->echo_members;
}

ResponsesWriter Response() {
  return ResponsesWriter({.id = "resp_1", .created = 5, .model = "m", .echo = R"(,"tools":[])"});
}

TEST(ResponsesWriter, EventsAreNumberedAndEndWithTheWholeObject) {
  ResponsesWriter writer = Response();
  const auto events = Events(&writer, FinishReason::kStop);
  EXPECT_EQ(Types(events), (std::vector<std::string>{"response.created",
                                                     "response.in_progress",
                                                     "response.output_item.added",
                                                     "response.content_part.added",
                                                     "response.reasoning_text.delta",
                                                     "response.reasoning_text.done",
                                                     "response.content_part.done",
                                                     "response.output_item.done",
                                                     "response.output_item.added",
                                                     "response.content_part.added",
                                                     "response.output_text.delta",
                                                     "response.output_text.done",
                                                     "response.content_part.done",
                                                     "response.output_item.done",
                                                     "response.output_item.added",
                                                     "response.function_call_arguments.delta",
                                                     "response.function_call_arguments.delta",
                                                     "response.function_call_arguments.done",
                                                     "response.output_item.done",
                                                     "response.completed"}));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  const Json& call = events[17];
  EXPECT_EQ(call["arguments"], "{\"x\":1}");
  EXPECT_EQ(call["output_index"], 2);
  EXPECT_EQ(call["item_id"], events[14]["item"]["id"]);

  const Json& response = events.back()["response"];
  ResponsesWriter other = Response();
  ChoiceText choice;
  for (const AnswerPart& part : Parts()) AppendPart(part, &choice.parts);
  choice.finish = FinishReason::kStop;
  EXPECT_EQ(response, Json::parse(other.Whole({choice}, kUsage, {})));
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["output"].size(), 3u);
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "I look.");
  EXPECT_EQ(response["usage"]["input_tokens_details"], Json::parse(R"({"cached_tokens": 4})"))
      << "unknown figures are left out";
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 3);
  EXPECT_EQ(response["tools"], Json::array());
}

TEST(ResponsesWriter, AnAnswerThatIsCutOffIsIncomplete) {
  ResponsesWriter writer = Response();
  const auto events = Events(&writer, FinishReason::kLength);
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  EXPECT_EQ(events.back()["response"]["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(events.back()["response"]["output"][2]["status"], "incomplete");
}

TEST(ResponsesWriter, ACallThatAStopStringCutsOffIsIncomplete) {
  ResponsesWriter writer = Response();
  ChoiceText choice;
  choice.finish = FinishReason::kStop;
  choice.stop_string = "\": ";
  AnswerPart call{AnswerPart::Kind::kCallBegin, ""};
  call.name = "f";
  choice.parts = {call, {AnswerPart::Kind::kCallArguments, "{\"x"}};
  EXPECT_EQ(Json::parse(writer.Whole({choice}, kUsage, {}))["output"][0]["status"], "incomplete");
  ResponsesWriter whole = Response();
  choice.parts[1].text = "{\"x\": 1}";
  EXPECT_EQ(Json::parse(whole.Whole({choice}, kUsage, {}))["output"][0]["status"], "completed");
}

TEST(ResponsesWriter, AnErrorIsASeparateEvent) {
  ResponsesWriter writer = Response();
  std::string out;
  writer.AppendError(&out, Internal("broke"));
  EXPECT_EQ(out,
            "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"server_error\",\"message\":"
            "\"broke\",\"param\":null}\n\n");
  out.clear();
  ResponsesWriter begun = Response();
  begun.AppendBegin(&out, 0, nullptr, kUsage);
  out.clear();
  begun.AppendError(&out, Internal("broke"));
  EXPECT_TRUE(out.starts_with("event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":2,"));
  EXPECT_NE(out.find(R"("error":{"code":"server_error","message":"broke"})"), std::string::npos);
}

TEST(MessagesWriter, EventsAreBlocks) {
  MessagesWriter writer("msg_1", "m");
  const auto events = Events(&writer, FinishReason::kStop);
  EXPECT_EQ(Types(events),
            (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta",
                                      "content_block_stop", "content_block_start", "content_block_delta",
                                      "content_block_stop", "content_block_start", "content_block_delta",
                                      "content_block_delta", "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(events[0]["message"]["content"], Json::array());
  EXPECT_EQ(events[2]["delta"], (Json{{"type", "thinking_delta"}, {"thinking", "hm"}}));
  EXPECT_EQ(events[7]["content_block"], Json::parse(R"({"type": "tool_use", "id": "c1", "name": "f", "input": {}})"));
  EXPECT_EQ(events[9]["delta"], (Json{{"type", "input_json_delta"}, {"partial_json", "1}"}}));
  EXPECT_EQ(events[9]["index"], 2);
  EXPECT_EQ(events[11]["delta"], (Json{{"stop_reason", "tool_use"}, {"stop_sequence", nullptr}}));
  EXPECT_EQ(events[11]["usage"]["input_tokens"], 6);  // cached tokens are counted separately
  EXPECT_EQ(events[11]["usage"]["cache_read_input_tokens"], 4);
}

TEST(MessagesWriter, WholeEqualsTheStream) {
  MessagesWriter writer("msg_1", "m");
  ChoiceText choice;
  for (const AnswerPart& part : Parts()) AppendPart(part, &choice.parts);
  choice.finish = FinishReason::kStop;
  EXPECT_EQ(Json::parse(writer.Whole({choice}, kUsage, {})), Json::parse(R"({
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [
      {"type": "thinking", "signature": "", "thinking": "hm"}, {"type": "text", "text": "I look."},
      {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}}],
    "stop_reason": "tool_use", "stop_sequence": null,
    "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 7}})"));
  choice.stop_string = "END";
  const Json called = Json::parse(writer.Whole({choice}, kUsage, {}));
  EXPECT_EQ(called["stop_reason"], "tool_use") << "the call is whole";
  EXPECT_EQ(called["stop_sequence"], nullptr);
  choice.parts.back().text = "{\"x";
  EXPECT_EQ(Json::parse(writer.Whole({choice}, kUsage, {}))["stop_reason"], "stop_sequence") << "it is cut off";
  choice.parts = {{AnswerPart::Kind::kText, "x"}};
  const Json stopped = Json::parse(writer.Whole({choice}, kUsage, {}));
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "END");
  choice.finish = FinishReason::kLength;
  choice.stop_string.clear();
  EXPECT_EQ(Json::parse(writer.Whole({choice}, kUsage, {}))["stop_reason"], "max_tokens");
}

}  // namespace
}  // namespace tactus::api::translations_test
