// Results of probing a template, and the exact turns that are passed to it.
#include <gtest/gtest.h>

#include "api/chat/answer_text.h"
#include "api/chat/chat_style.h"
#include "api/chat/history.h"
#include "api/tools/tools.h"
#include "api/tools/written_calls.h"
#include "base/json.h"
#include "language/text/chat_template.h"
#include "serve/fake_engine.h"

namespace tactus::api {
namespace {

using Silence = HistoryForm::Silence;
using Words = HistoryForm::Words;

// The style of a template that renders each message with `message`.
ChatStyle StyleOf(const std::string& message) {
  FakeEngine engine;
  const std::string source = "{{ tools|tojson }}{% for m in messages %}<{{ m.role }}>" + message + "{% endfor %}";
  const auto compiled = language::ChatTemplate::Compile(source);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  engine.on_template = [&](const std::string& variables) { return (*compiled)->Render(Json::parse(variables)); };
  engine.mutable_model().chat_template = source;
  return ChatStyleOf(engine);
}
HistoryForm Form(const std::string& message) {
  return StyleOf(message).tool_history;
}

const std::string kCalls =  // NOLINT: a text
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}";

TEST(AskTemplate, FindsWhatAnEmptyContentMustBe) {
  EXPECT_EQ(Form("{{ m.content + '' }}" + kCalls).silence, Silence::kEmptyText);
  EXPECT_EQ(Form("{{ m.content }}" + kCalls).silence, Silence::kEmptyText) << "not the word None";
  EXPECT_EQ(Form("{% if m.content is none %}" + kCalls + "{% else %}{{ m.content }}{% endif %}").silence,
            Silence::kNull);
  EXPECT_EQ(Form("{% if 'content' in m %}{% if m.tool_calls %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% "
                 "endif %}" +
                 kCalls)
                .silence,
            Silence::kAbsent);
  EXPECT_EQ(Form("{{ m.content }}" + kCalls).nothing, "");
  const std::string refuses = "{% if not m.content|trim and not m.tool_calls %}{{ raise_exception('no') }}{% endif %}";
  EXPECT_EQ(Form(refuses + "{{ m.content }}" + kCalls).nothing, "(no answer)");
}

TEST(AskTemplate, FindsTheFormOfCalls) {
  const std::string content = "{{ m.content }}";
  const HistoryForm plain = Form(content + kCalls);
  EXPECT_TRUE(plain.shows_calls && plain.broken_arguments && plain.takes_reasoning);
  EXPECT_FALSE(plain.arguments_as_text || plain.one_call_a_turn || plain.short_ids || plain.named_results ||
               plain.roles_alternate || plain.results_answered);
  EXPECT_EQ(plain.words, Words::kBesideCalls);
  const std::string each = content + "{% for c in m.tool_calls or [] %}";
  const HistoryForm items = Form(each +
                                 "{{ c.function.name }}{% for k, v in c.function.arguments|items %}{{ k }}={{ v }}"
                                 "{% endfor %}{% endfor %}");
  EXPECT_FALSE(items.broken_arguments || items.arguments_as_text);
  EXPECT_TRUE(Form(each + "{{ c.function.name + c.function.arguments }}{% endfor %}").arguments_as_text);
  EXPECT_TRUE(Form(content +
                   "{% if m.tool_calls and m.tool_calls|length > 1 %}{{ raise_exception('one') }}{% endif %}" + kCalls)
                  .one_call_a_turn);
  EXPECT_TRUE(Form(content + "{% if m.tool_calls %}{{ m.tool_calls[0].function|tojson }}{% endif %}").one_call_a_turn);
  EXPECT_TRUE(Form(content +
                   "{% if m.tool_call_id and m.tool_call_id|length != 9 %}{{ raise_exception('9') }}{% endif %}" +
                   kCalls)
                  .short_ids);
  EXPECT_TRUE(Form("{% if m.role == 'tool' %}{{ m.name + ':' }}{% endif %}" + content + kCalls).named_results);
  EXPECT_EQ(Form("{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('no') }}{% endif %}" + content +
                 kCalls)
                .words,
            Words::kInReasoning);
  EXPECT_EQ(Form("{% if m.tool_calls and m.content %}{{ raise_exception('no') }}{% endif %}" + content + kCalls).words,
            Words::kBeforeCalls);
  EXPECT_FALSE(
      Form("{% if m.thinking is defined %}{{ raise_exception('no') }}{% endif %}" + content + kCalls).takes_reasoning);
}

TEST(AskTemplate, FindsTemplatesThatShowNoCalls) {
  const ChatStyle without = StyleOf("{{ m.content }}");
  EXPECT_FALSE(without.tool_history.shows_calls);
  EXPECT_TRUE(without.tool_history.shows_results);
  EXPECT_TRUE(without.template_knows_tools);
  const HistoryForm neither = Form("{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}");
  EXPECT_FALSE(neither.shows_calls || neither.shows_results);
}

TEST(AskTemplate, ToolsThatTheTemplateRefusesAreWrittenAsText) {
  EXPECT_FALSE(StyleOf("{% if tools %}{{ raise_exception('no') }}{% endif %}{{ m.content }}").template_knows_tools);
}

// --- Fitted turns ---

std::string Fitted(const HistoryForm& form, const char* messages, const ToolFormat* calls = nullptr) {
  Json list = Json::parse(messages);
  FitHistory(form, calls, true, &list);
  AlternateRoles(form, &list);
  std::string shown;
  for (const Json& message : list) shown += message.dump() + "\n";
  return shown;
}

TEST(FitHistory, OneCallPerTurnIsFollowedByItsResult) {
  HistoryForm form;
  form.one_call_a_turn = true;
  EXPECT_EQ(Fitted(form, R"([{"role":"user","content":"q"},{"role":"assistant","content":"s","reasoning":"r",
      "tool_calls":[{"id":"a"},{"id":"b"}]},{"role":"tool","tool_call_id":"b","content":"B"},
      {"role":"tool","tool_call_id":"a","content":"A"},{"role":"user","content":"w"}])"),
            R"({"role":"user","content":"q"}
{"role":"assistant","content":"s","reasoning":"r","tool_calls":[{"id":"a"}]}
{"role":"tool","tool_call_id":"a","content":"A"}
{"role":"assistant","content":"","tool_calls":[{"id":"b"}]}
{"role":"tool","tool_call_id":"b","content":"B"}
{"role":"user","content":"w"}
)");
}

TEST(FitHistory, ArgumentsThatAreNotAnObjectAreWrapped) {
  HistoryForm form;
  const char* turn = R"([{"role":"assistant","content":"","tool_calls":[{"function":{"arguments":"{\"a"}}]}])";
  EXPECT_EQ(Fitted(form, turn), R"({"role":"assistant","content":"","tool_calls":[{"function":{"arguments":"{\"a"}}]}
)");
  form.broken_arguments = false;
  EXPECT_EQ(Fitted(form, turn),
            R"({"role":"assistant","content":"","tool_calls":[{"function":{"arguments":{"_incomplete":"{\"a"}}}]}
)");
  form.arguments_as_text = true;
  EXPECT_EQ(
      Fitted(form, turn),
      R"({"role":"assistant","content":"","tool_calls":[{"function":{"arguments":"{\"_incomplete\":\"{\\\"a\"}"}}]}
)");
}

TEST(FitHistory, IdsAreShortAndStillMatch) {
  HistoryForm form;
  form.short_ids = true;
  Json list =
      Json::parse(R"([{"role":"assistant","content":"","tool_calls":[{"id":"call_0123456789"},{"id":"abcdef123"},
      {"id":"c"}]},{"role":"tool","tool_call_id":"call_0123456789","content":""}])");
  FitHistory(form, nullptr, true, &list);
  const Json& calls = list[0]["tool_calls"];
  EXPECT_EQ(calls[0]["id"], list[1]["tool_call_id"]);
  EXPECT_EQ(calls[1]["id"], "abcdef123");
  for (const Json& call : calls) EXPECT_EQ(call["id"].get<std::string>().size(), 9u);
  EXPECT_NE(calls[0]["id"], calls[2]["id"]);
}

TEST(FitHistory, ResultsAreNamedByTheirCalls) {
  HistoryForm form;
  form.named_results = true;
  EXPECT_EQ(Fitted(form, R"([{"role":"assistant","content":"","tool_calls":[{"id":"a","function":{"name":"f"}}]},
      {"role":"tool","tool_call_id":"a","content":"A"},{"role":"tool","tool_call_id":"a","name":"own","content":"B"}])"),
            R"({"role":"assistant","content":"","tool_calls":[{"id":"a","function":{"name":"f"}}]}
{"role":"tool","tool_call_id":"a","content":"A","name":"f"}
{"role":"tool","tool_call_id":"a","name":"own","content":"B"}
)");
}

TEST(FitHistory, TextBesideCallsGoesWhereTheTemplateAcceptsIt) {
  const char* turn = R"([{"role":"assistant","content":"s","thinking":"r","tool_calls":[{"id":"a"}]}])";
  HistoryForm form;
  form.words = Words::kInReasoning;
  EXPECT_EQ(Fitted(form, turn),
            R"({"role":"assistant","content":"","tool_calls":[{"id":"a"}],"reasoning_content":"r\n\ns"}
)");
  form.words = Words::kBeforeCalls;
  form.silence = Silence::kNull;
  EXPECT_EQ(Fitted(form, turn), R"({"role":"assistant","content":"s"}
{"role":"assistant","content":null,"thinking":"r","tool_calls":[{"id":"a"}]}
)");
  form.silence = Silence::kAbsent;
  form.takes_reasoning = false;
  EXPECT_EQ(Fitted(form, turn), R"({"role":"assistant","content":"s"}
{"role":"assistant","tool_calls":[{"id":"a"}]}
)");
}

TEST(FitHistory, RolesAlternate) {
  HistoryForm form;
  form.roles_alternate = form.results_answered = true;
  form.nothing = "-";
  EXPECT_EQ(
      Fitted(form, R"([{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"user","content":"b"},
      {"role":"assistant","content":"c"},{"role":"assistant","content":"","reasoning_content":"r"},
      {"role":"user","content":"d"},{"role":"assistant","content":"e"},
      {"role":"assistant","content":"","tool_calls":[{"id":"1"}]},{"role":"tool","content":"R"},
      {"role":"user","content":"f"}])"),
      R"({"role":"system","content":"S"}
{"role":"user","content":"a\n\nb"}
{"role":"assistant","content":"c","reasoning_content":"r"}
{"role":"user","content":"d"}
{"role":"assistant","content":"e","tool_calls":[{"id":"1"}]}
{"role":"tool","content":"R"}
{"role":"assistant","content":"-"}
{"role":"user","content":"f"}
)");
}

// The parser of answers reads the written calls back.
TEST(WrittenCalls, AreReadBackInEveryForm) {
  const Json calls = Json::parse(R"([
    {"function": {"name": "f", "arguments": {"s": "a \"b\" <c> é", "n": 3, "t": true, "l": [1, null, {"k": "v"}]}}},
    {"function": {"name": "g", "arguments": {}}}])");
  const auto tools = *ReadTools(Json::parse(R"({"tools": [{"type": "function", "function": {"name": "f"}},
    {"type": "function", "function": {"name": "g"}}]})"));
  for (const ToolFormat& format : ToolFormats()) {
    const bool in_lines = format.body == ToolFormat::Body::kParameters || format.body == ToolFormat::Body::kHarmony;
    AnswerText reader({.calls = in_lines ? FindToolFormat("json") : &format, .tools = tools}, "id");
    std::vector<AnswerPart> parts;
    reader.Append(WrittenCalls(&format, calls), &parts);
    reader.Finish(&parts);
    std::vector<std::string> names;
    std::vector<std::string> arguments(2);
    for (const AnswerPart& part : parts) {
      if (part.kind == AnswerPart::Kind::kCallBegin) names.push_back(part.name);
      if (part.kind == AnswerPart::Kind::kCallArguments && part.call < 2)
        arguments[static_cast<size_t>(part.call)] += part.text;
    }
    EXPECT_EQ(names, (std::vector<std::string>{"f", "g"})) << format.name << ": " << WrittenCalls(&format, calls);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(Json::parse(arguments[i], nullptr, false), calls[i]["function"]["arguments"])
          << format.name << ": " << WrittenCalls(&format, calls);
    }
  }
}

TEST(FitHistory, CallsThatTheTemplateDoesNotShowAreWrittenAsTheModelWrites) {
  HistoryForm form;
  form.shows_calls = false;
  const char* turns =
      R"([{"role":"assistant","content":"s","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a"}}]},
      {"role":"tool","tool_call_id":"1","content":"R"}])";
  EXPECT_EQ(Fitted(form, turns, FindToolFormat("hermes")),
            R"({"role":"assistant","content":"s\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a}\n</tool_call>"}
{"role":"tool","tool_call_id":"1","content":"R"}
)");
  form.shows_results = false;
  EXPECT_EQ(Fitted(form, turns, FindToolFormat("pythonic")), R"({"role":"assistant","content":"s\n[f({\"a)]"}
{"role":"user","content":"Result of f:\nR"}
)");
}

}  // namespace
}  // namespace tactus::api
