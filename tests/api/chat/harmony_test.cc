// gpt-oss's format "harmony": from a chat's body to its prompt, and from recorded answers to chats, complete and
// streamed in pieces of every length.
#include <gtest/gtest.h>

#include <sstream>

#include "api/chat/chat_style.h"
#include "api/chat/conversation.h"
#include "api/request_parser.h"
#include "base/json.h"
#include "language/text/chat_template.h"
#include "serve/fake_engine.h"

namespace tactus::api::harmony_test {
namespace {

using json = SortedJson;

// The format's messages: `<|start|>role`, perhaps ` to=recipient`, `<|channel|>name`, `<|message|>`, the text, an end.
constexpr const char* kTemplate = R"(<|start|>system<|message|>Reasoning: {{ reasoning_effort or 'medium' }}<|end|>
{%- set first = messages[0].role in ['system', 'developer'] -%}
{%- set rest = messages[1:] if first else messages -%}
{%- if first or tools -%}
  <|start|>developer<|message|>{{ messages[0].content if first }}
  {%- for t in tools or [] -%}
    type {{ t.function.name }} = (_: {{ t.function.parameters|tojson }}) => any;
  {%- endfor -%}
  <|end|>
{%- endif -%}
{%- set call = namespace(name='') -%}
{%- for m in rest -%}
  {%- if m.role == 'user' -%}
    <|start|>user<|message|>{{ m.content }}<|end|>
  {%- elif m.role == 'tool' -%}
    <|start|>functions.{{ call.name }} to=assistant<|channel|>commentary<|message|>{{ m.content|tojson }}<|end|>
  {%- elif m.tool_calls -%}
    {%- set call.name = m.tool_calls[0].function.name -%}
    {%- if m.thinking -%}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{%- endif -%}
    <|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>
    {{- m.tool_calls[0].function.arguments|tojson }}<|call|>
  {%- else -%}
    <|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%})";

const json kTools = json::parse(R"([{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}])");

constexpr const char* kCalls =
    "<|channel|>analysis<|message|>The user wants the weather in Z\u00fcrich.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>I look it up.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    "{\"city\": \"Z\u00fcrich\", \"days\": 3}<|call|>";
constexpr const char* kSays =
    "<|channel|>analysis<|message|>12 degrees.<|end|><|start|>assistant<|channel|>final<|message|>It is <b>12</b> "
    "\u00b0C.<|return|>";

class HarmonyTest : public testing::Test {
 protected:
  HarmonyTest() {
    auto compiled = language::ChatTemplate::Compile(kTemplate);
    EXPECT_TRUE(compiled.ok()) << compiled.status().message();
    template_ = std::move(compiled).value();
    engine_.on_template = [this](const std::string& variables) { return template_->Render(Json::parse(variables)); };
    engine_.mutable_model().chat_template = kTemplate;
    limits_ = LimitsOf(engine_, 100);
  }
  Prepared Prepare(const json& body) {
    auto parsed = ParseChatRequest(body.dump(), limits_);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    auto prepared = PrepareConversation(std::move(parsed).value(), engine_, limits_);
    EXPECT_TRUE(prepared.ok()) << prepared.status().message();
    return std::move(prepared).value();
  }
  // The message and the reason of its end of a chat with tools that the model answers with `text`, in pieces of
  // `length` characters.
  json Answered(const std::string& text, size_t length, bool stream) {
    const json question = {{"role", "user"}, {"content", "Q"}};
    const json body = {{"messages", json::array({question})}, {"tools", kTools}, {"stream", stream}};
    Answer answer(engine_, Prepare(body).shape, {"id", 5, "print"}, {"", "\n"});
    std::string chunks;
    for (size_t at = 0; at < text.size();) {
      TokenDelta delta;
      for (size_t n = 0; n < length && at < text.size(); ++n) {
        do delta.text += text[at++];
        while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u);
      }
      delta.tokens = {'t'};
      if (at == text.size()) delta.finish = FinishReason::kStop;
      EXPECT_TRUE(answer.OnDelta(0, delta, &chunks).ok());
    }
    answer.OnDone(0, Usage{1, 0, 9}, &chunks);
    if (stream) return Sum(chunks);
    json choice = json::parse(std::move(answer).Complete())["choices"][0];
    choice["message"]["finish_reason"] = choice["finish_reason"];
    return choice["message"];
  }
  // The message that the chunks of a stream add up to.
  static json Sum(const std::string& chunks) {
    json sum = {{"role", "assistant"}, {"content", ""}};
    const auto append = [](json* text, const json& more) {
      *text = text->is_null() ? more.get<std::string>() : text->get<std::string>() + more.get<std::string>();
    };
    std::istringstream in(chunks);
    for (std::string line; std::getline(in, line);) {
      const json chunk = json::parse(line);
      for (const json& choice : chunk["choices"]) {
        const json& delta = choice["delta"];
        for (const char* key : {"content", "reasoning_content"}) {
          if (delta.contains(key) && delta[key].is_string()) append(&sum[key], delta[key]);
        }
        for (const json& call : delta.value("tool_calls", json::array())) {
          json& into = sum["tool_calls"][call["index"].get<size_t>()];
          if (call.contains("id")) into["id"] = call["id"];
          for (const auto& [key, value] : call["function"].items()) append(&into[key], value);
        }
        if (!choice["finish_reason"].is_null()) sum["finish_reason"] = choice["finish_reason"];
      }
    }
    return sum;
  }

  FakeEngine engine_;
  std::unique_ptr<language::ChatTemplate> template_;
  RequestLimits limits_;
};

TEST_F(HarmonyTest, TheTemplateTellsTheFormat) {
  const ChatStyle style = ChatStyleOf(engine_);
  ASSERT_TRUE(style.harmony());
  EXPECT_EQ(style.reasoning, nullptr) << "its channels are read with its calls";
  EXPECT_TRUE(style.template_knows_tools && style.tool_history.one_call_a_turn);
}

TEST_F(HarmonyTest, AChatBecomesItsPrompt) {
  const json call = {{"id", "c1"},
                     {"type", "function"},
                     {"function", {{"name", "weather"}, {"arguments", R"({"city": "Bern", "days": 1})"}}}};
  const json body = {{"tools", kTools},
                     {"reasoning_effort", "high"},
                     {"messages",
                      {{{"role", "developer"}, {"content", "Be brief."}},
                       {{"role", "user"}, {"content", "Weather in Bern?"}},
                       {{"role", "assistant"}, {"reasoning_content", "I ask."}, {"tool_calls", json::array({call})}},
                       {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "12 \"mild\""}},
                       {{"role", "assistant"}, {"content", "Mild."}},
                       {{"role", "user"}, {"content", "Thanks."}}}}};
  const std::vector<TokenId> prompt = *Prepare(body).requests[0].prompt;
  EXPECT_EQ(
      std::string(prompt.begin(), prompt.end()),
      "<|start|>system<|message|>Reasoning: high<|end|>"
      "<|start|>developer<|message|>Be brief.type weather = (_: {\"properties\": {\"city\": {\"type\": \"string\"}, "
      "\"days\": {\"type\": \"integer\"}}, \"type\": \"object\"}) => any;<|end|>"
      "<|start|>user<|message|>Weather in Bern?<|end|>"
      "<|start|>assistant<|channel|>analysis<|message|>I ask.<|end|>"
      "<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Bern\", "
      "\"days\": 1}<|call|>"
      "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>\"12 \\\"mild\\\"\"<|end|>"
      "<|start|>assistant<|channel|>final<|message|>Mild.<|end|>"
      "<|start|>user<|message|>Thanks.<|end|><|start|>assistant");
}

TEST_F(HarmonyTest, ChannelsBecomeReasoningCallsAndContent) {
  for (size_t length = 1; length <= std::string_view(kCalls).size(); ++length) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(testing::Message() << "pieces of " << length << (stream ? ", streamed" : ""));
      json message = Answered(kCalls, length, stream);
      EXPECT_EQ(message["reasoning_content"], "The user wants the weather in Z\u00fcrich.");
      EXPECT_EQ(message["content"], "I look it up.");
      ASSERT_EQ(message["tool_calls"].size(), 1u) << message;
      json& call = message["tool_calls"][0];
      json& function = stream ? call : call["function"];
      EXPECT_EQ(function["name"], "weather");
      EXPECT_EQ(function["arguments"], "{\"city\": \"Z\u00fcrich\", \"days\": 3}");
      EXPECT_FALSE(call["id"].get<std::string>().empty());
      EXPECT_EQ(message["finish_reason"], "tool_calls");

      json said = Answered(kSays, length, stream);
      EXPECT_EQ(said["reasoning_content"], "12 degrees.");
      EXPECT_EQ(said["content"], "It is <b>12</b> \u00b0C.");
      EXPECT_FALSE(said.contains("tool_calls")) << said;
      EXPECT_EQ(said["finish_reason"], "stop");
    }
  }
}

}  // namespace
}  // namespace tactus::api::harmony_test
