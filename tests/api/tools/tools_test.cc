// Tools of a request: error texts, the template's variables, the grammar of each format, and a chat from its body to
// its answer.
#include "api/tools/tools.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "api/chat/conversation.h"
#include "api/tools/tool_rule.h"
#include "serve/fake_engine.h"
#include "time_limit.h"

namespace tactus::api::tools_test {
namespace {

constexpr const char* kTwo = R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",
  "properties":{"a":{"type":"integer"},"s":{"type":"string"}},"required":["a"]}}},
  {"type":"function","function":{"name":"g"}}])";

Result<std::shared_ptr<const ToolSet>> Read(const std::string& fields) {
  return ReadTools(Json::parse("{" + fields + "}"));
}
std::string Error(const std::string& fields) {
  const auto set = Read(fields);
  return set.ok() ? "none" : set.status().param() + "|" + set.status().message();
}
std::string ToolError(const std::string& tool) {
  return Error(R"("tools":[{"type":"function","function":{"name":"f"}},)" + tool + "]");
}

TEST(Tools, AreRead) {
  const auto set = *Read(std::string(kTwo) + R"(,"parallel_tool_calls":false)");
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(set->tools.size(), 2u);
  EXPECT_FALSE(set->parallel);
  EXPECT_FALSE(set->strict());
  EXPECT_EQ(set->choice, ToolSet::Choice::kAuto);
  const Tool& f = set->tools[0];
  ASSERT_EQ(f.listed.size(), 2u);
  EXPECT_EQ(f.listed[0].types, std::vector<std::string>{"integer"});
  EXPECT_TRUE(f.listed[0].required);
  EXPECT_FALSE(f.listed[1].required);
  EXPECT_EQ(set->tools[1].parameters, R"({"properties":{},"additionalProperties":false,"type":"object"})");
  EXPECT_EQ((*Read(std::string(kTwo) + R"(,"tool_choice":"required")"))->choice, ToolSet::Choice::kRequired);
  const auto named = *Read(std::string(kTwo) + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(named->choice, ToolSet::Choice::kNamed);
  EXPECT_EQ(named->named, 1u);
  for (const std::string& none : {std::string(), std::string(R"("tools":null,"tool_choice":"auto")"),
                                  std::string(R"("tools":[])"), std::string(kTwo) + R"(,"tool_choice":"none")"}) {
    EXPECT_EQ(*Read(none), nullptr) << none;
  }
}

TEST(Tools, TypesOfParameters) {
  const auto set =
      *Read(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"properties":{
    "ref":{"$ref":"#/$defs/D"},"any":{},"union":{"anyOf":[{"type":"string"},{"type":"null"}]},"list":{"type":["integer","null"]},
    "enum":{"enum":["a","b"]},"loop":{"$ref":"#/$defs/L"},"far":{"$ref":"http://x"}},
    "$defs":{"D":{"type":"boolean"},"L":{"$ref":"#/$defs/L"}}}}}])");
  std::string shown;
  for (const Tool::Parameter& parameter : set->tools[0].listed) {
    shown += parameter.name + ":";
    for (const std::string& type : parameter.types) shown += " " + type;
    shown += "\n";
  }
  EXPECT_EQ(shown, "ref: boolean\nany:\nunion: string null\nlist: integer null\nenum: string\nloop:\nfar:\n");
  EXPECT_TRUE(set->strict());
}

// A body may contain millions of types.
TEST(Tools, SearchForTypesHasOneLimitForAllTools) {
  const test::TimeLimit limit("the work grows faster than the schemas");
  const auto types = [](const std::string& schema) {
    const auto set = *Read(
        R"("tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"p":)" + schema +
        R"(}}}},{"type":"function","function":{"name":"g","parameters":{"properties":{"p":{"type":"integer"}}}}}])");
    return std::pair(set->tools[0].listed[0].types, set->tools[1].listed[0].types);
  };
  const std::vector<std::string> any, integer = {"integer"};
  std::string names = "\"t\"";
  for (int i = 0; i < 300'000; ++i) names += ",\"t" + std::to_string(i) + "\"";
  EXPECT_EQ(types(R"({"type":[)" + names + "]}"), std::pair(any, integer)) << "no names of types";
  const std::string many = names + "," + names + "," + names + "," + names;
  EXPECT_EQ(types(R"({"enum":[)" + many + "]}"), std::pair(any, any)) << "one limit for all tools";
  // Each reference is searched among all definitions.
  std::string definitions, references;
  for (int i = 0; i < 16'000; ++i) {
    definitions += (i > 0 ? ",\"d" : "\"d") + std::to_string(i) + R"(":{"type":"string"})";
    references += (i > 0 ? "," : "") + std::string(R"({"$ref":"#/properties/p/$defs/d15999"})");
  }
  EXPECT_EQ(types(R"({"anyOf":[)" + references + R"(],"$defs":{)" + definitions + "}}"), std::pair(any, any));
}

TEST(Tools, FaultsAreNamedWithTheirPlace) {
  EXPECT_EQ(Error(R"("tools":{})"), "tools|tools: expected a list, got an object");
  EXPECT_EQ(ToolError("5"), "tools[1]|tools[1]: expected an object, got a number");
  EXPECT_EQ(ToolError("{}"), R"(tools[1].type|tools[1].type: missing; give "function")");
  EXPECT_EQ(ToolError(R"({"type":"web"})"), R"(tools[1].type|tools[1].type: "web" is not supported; give "function")");
  EXPECT_EQ(ToolError(R"({"type":"function"})"), "tools[1].function|tools[1].function: missing");
  const auto function = [](const std::string& fields) {
    return ToolError(R"({"type":"function","function":{)" + fields + "}}");
  };
  EXPECT_EQ(function(""), "tools[1].function.name|tools[1].function.name: missing");
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("\u00e9"), std::string(65, 'a')})
    EXPECT_NE(function("\"name\":\"" + bad + "\"").find("is no name of 1 to 64 letters, digits, _ and -"),
              std::string::npos)
        << bad;
  EXPECT_EQ(function(R"("name":"f")"),
            R"(tools[1].function.name|tools[1].function.name: "f" appears twice; give each name once)");
  EXPECT_EQ(function(R"("name":"g","description":5)"),
            "tools[1].function.description|tools[1].function.description: expected a string, got a number");
  EXPECT_EQ(function(R"("name":"g","strict":1)"),
            "tools[1].function.strict|tools[1].function.strict: expected true or false, got 1");
  EXPECT_EQ(function(R"("name":"g","parameters":[])"),
            "tools[1].function.parameters|tools[1].function.parameters: expected an object, got a list");
  EXPECT_EQ(function(R"("name":"g","parameters":{"type":"array"})"),
            R"(tools[1].function.parameters.type|tools[1].function.parameters.type: "array" is not "object")");
  EXPECT_EQ(function(R"("name":"g","strict":true,"parameters":{"type":"dict"})"),
            R"(tools[1].function.parameters.type|tools[1].function.parameters.type: "dict" is not "object")");
  EXPECT_EQ(function(R"("name":"g","parameters":{"type":"dict"})"), "none") << "another word for an object";
  std::string many = R"("tools":[)";
  for (int i = 0; i < 129; ++i) many += (i > 0 ? "," : "") + std::string("5");
  EXPECT_EQ(Error(many + "]"), "tools|tools: 129 of them are more than 128, the limit");
  const auto choice = [](const std::string& value) { return Error(std::string(kTwo) + ",\"tool_choice\":" + value); };
  EXPECT_NE(choice("\"often\"").find("tool_choice|tool_choice: \"often\" is none of"), std::string::npos);
  EXPECT_NE(choice("5").find("tool_choice|tool_choice: 5 is none of"), std::string::npos);
  EXPECT_EQ(choice(R"({"type":"allowed_tools"})"),
            R"(tool_choice.type|tool_choice.type: "allowed_tools" is not supported; give "function")");
  EXPECT_EQ(choice(R"({"type":"function"})"),
            "tool_choice.function.name|tool_choice.function.name: missing; name one of the request's tools");
  EXPECT_EQ(choice(R"({"type":"function","function":{"name":"h"}})"),
            R"(tool_choice.function.name|tool_choice.function.name: "h" is none of the request's tools)");
  EXPECT_EQ(Error(R"("tool_choice":"required")"), R"(tool_choice|tool_choice: "required" without tools; give tools)");
  EXPECT_EQ(Error(std::string(kTwo) + R"(,"parallel_tool_calls":1)"),
            "parallel_tool_calls|parallel_tool_calls: expected true or false, got 1");
}

RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "fake";
  limits.max_model_len = 4096;
  limits.vocab_size = 512;
  limits.default_max_tokens = 100;
  return limits;
}
std::string Variables(const std::string& fields, const RequestLimits& limits = Limits()) {
  const auto parsed = ParseChatRequest("{" + fields + "}", limits);
  return parsed.ok() ? parsed->template_variables : parsed.status().param() + "|" + parsed.status().message();
}

TEST(Tools, AreInTheTemplatesVariables) {
  const std::string user = R"("messages":[{"role":"user","content":"c"}])";
  EXPECT_EQ(Variables(user + R"(,"tools":[{"type":"function","function":{"name":"f"}}])"),
            "{" + user + R"(,"tools":[{"type":"function","function":{"name":"f"}}],"add_generation_prompt":true})");
  EXPECT_EQ(Variables(user + R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")"),
            "{" + user + R"(,"add_generation_prompt":true})");
  EXPECT_EQ(
      Variables(user + R"(,"reasoning_effort":"low")"),
      "{" + user + R"(,"add_generation_prompt":true,"reasoning_effort":"low","enable_thinking":true,"thinking":true})");
  EXPECT_EQ(Variables(user + R"(,"reasoning_effort":"none","chat_template_kwargs":{"thinking":1})"),
            "{" + user + R"(,"add_generation_prompt":true,"enable_thinking":false,"thinking":1})");
  EXPECT_EQ(Variables(user + R"(,"reasoning_effort":"huge")"),
            "reasoning_effort|reasoning_effort: 'huge' is none of none, minimal, low, medium, high, xhigh, max");
}

TEST(Tools, ArgumentsOfTheHistoryFitTheTemplate) {
  const auto calls = [](const std::string& arguments, const RequestLimits& limits = Limits()) {
    const std::string made = Variables(
        R"("messages":[{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":)" +
            arguments + "}}]}]",
        limits);
    const size_t at = made.find("\"arguments\":");
    return at == std::string::npos ? made : made.substr(at + 12, made.find("}}]}],\"add") - at - 12);
  };
  EXPECT_EQ(calls(R"("{\"a\": 1}")"), R"({"a":1})");
  EXPECT_EQ(calls(R"({"a": 1})"), R"({"a":1})");
  EXPECT_EQ(calls("\"\""), "{}");
  RequestLimits as_text = Limits();
  as_text.style.plain_history.arguments_as_text = true;
  EXPECT_EQ(calls(R"({"a": 1})", as_text), R"("{\"a\":1}")");
  const std::string place = "messages[0].tool_calls[0].function.arguments";
  // The model's own text, which may have been cut off at its length limit.
  for (const char* text : {R"("{\"a\"")", R"("[]")", R"("{\"a\": 1, \"a\": 2}")"}) EXPECT_EQ(calls(text), text);
  EXPECT_EQ(calls(R"("{\"a\": [-9223372036854775808, 9223372036854775807]}")"),
            R"({"a":[-9223372036854775808,9223372036854775807]})");
  EXPECT_EQ(calls(R"("{\"a\": [18446744073709551615, -9223372036854775809], \"99999999999999999999\": 1e30}")"),
            R"({"a":[18446744073709551615,"-9223372036854775809"],"99999999999999999999":1e+30})");
  EXPECT_EQ(calls(R"({"a": 18446744073709551615})"), R"({"a":18446744073709551615})");
  EXPECT_EQ(calls("5"), place + "|" + place + ": expected a string of JSON or an object, got a number");
}

// 2^64 is a double and 2^64 + 1 is not; both are parsed to the same double.
TEST(Tools, LargeIntegersOfArgumentsThatAreAnObjectKeepTheirDigits) {
  const std::string given =
      R"({"a":18446744073709551616,"b":[1.8446744073709552e19,{"c":18446744073709551617}],"d":-9223372036854775809,"e":7})";
  const std::string kept =
      R"({"a":"18446744073709551616","b":[1.8446744073709552e+19,{"c":"18446744073709551617"}],"d":"-9223372036854775809","e":7})";
  const std::string before = R"("documents":[18446744073709551999,1],)";
  EXPECT_NE(
      Variables(
          before +
          R"("messages":[{"role":"assistant","x":18446744073709551618,"tool_calls":[{"function":{"name":"f","arguments":)" +
          given + "}}]}]")
          .find("\"arguments\":" + kept),
      std::string::npos);
  const auto parsed = ParseMessagesRequest(
      R"({"max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f","input":)" +
          given + R"(}]},{"role":"user","content":"u"}]})",
      Limits());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_NE(parsed->template_variables.find("\"arguments\":" + kept), std::string::npos) << parsed->template_variables;
  std::string many = "[0";
  for (int i = 0; i < 4096; ++i) many += ",99999999999999999999";
  const auto call = [&](const std::string& list) {
    return Variables(R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":)" +
                     list + "}}}]}]");
  };
  EXPECT_EQ(call(many + "]").find("e+"), std::string::npos);
  EXPECT_EQ(call(many + ",99999999999999999999]"),
            "messages|messages: more than 4096 integers of the body are beyond 64 bits, the limit; write those of "
            "calls, documents and chat_template_kwargs as strings");
}

// A client that joins a stream's chunks may have no type.
TEST(Tools, AnEarlierCallWithAnEmptyTypeIsAFunctionCall) {
  const std::string text = Variables(
      R"("messages":[{"role":"assistant","tool_calls":[{"type":"","function":{"name":"f","arguments":"{}"}}]}])");
  EXPECT_NE(text.find(R"("type":"function")"), std::string::npos) << text;
}

TEST(Tools, LargeIntegersThatATemplateShowsKeepTheirDigits) {
  const std::string text = Variables(
      R"("messages":[{"role":"user","content":"u"}],"documents":[{"id":12345678901234567890123,"n":[1,2e3]}],)"
      R"("chat_template_kwargs":{"a":{"b":[18446744073709551617]}},"priority":0)");
  EXPECT_NE(text.find(R"({"id":"12345678901234567890123","n":[1,2000.0]})"), std::string::npos) << text;
  EXPECT_NE(text.find(R"({"b":["18446744073709551617"]})"), std::string::npos) << text;
}

TEST(Tools, AreWrittenAsTextIfTheTemplateKnowsNoTools) {
  RequestLimits limits = Limits();
  limits.style.template_knows_tools = false;
  const std::string text = Variables(
      R"("messages":[{"role":"system","content":"S"},{"role":"assistant","content":"x","tool_calls":[{"id":"1","function":
      {"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"1","content":"R"}],)" +
          std::string(kTwo),
      limits);
  const Json made = Json::parse(text);
  EXPECT_FALSE(made.contains("tools"));
  ASSERT_EQ(made["messages"].size(), 3u);
  const std::string system = made["messages"][0]["content"];
  EXPECT_TRUE(system.starts_with("S\n\nYou can call these tools:\n{\"name\":\"f\",")) << system;
  EXPECT_EQ(made["messages"][1].dump(),
            R"({"role":"assistant","content":"x\n{\"name\": \"f\", \"arguments\": {\"a\":1}}"})");
  EXPECT_EQ(made["messages"][2].dump(), R"({"role":"user","content":"Result of f:\nR"})");
  limits.style.template_knows_system = false;
  const Json user =
      Json::parse(Variables(R"("messages":[{"role":"user","content":"U"}],)" + std::string(kTwo), limits));
  ASSERT_EQ(user["messages"].size(), 1u);
  EXPECT_TRUE(user["messages"][0]["content"].get<std::string>().ends_with("answer in words.\n\nU"));
}

std::string Rule(const std::string& form, const std::string& choice, const std::string& more = "") {
  FakeEngine engine;
  AnswerReading reading;
  reading.calls = FindToolFormat(form);
  reading.tools =
      *Read(R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g")" + more +
            "}}]," + choice);
  const auto rule = ToolRule(engine, reading);
  if (!rule.ok()) return rule.status().message();
  if (!rule->any()) return "any";
  EXPECT_EQ(rule->kind, OutputRule::Kind::kLark);
  return rule->text;
}

constexpr const char* kEmpty =
    R"(%json {"properties":{},"additionalProperties":false,"type":"object","x-guidance":{"whitespace_flexible":false,"item_separator":",[ ]?","key_separator":":[ ]?")";

TEST(ToolRule, RequiresTheCall) {
  const std::string top = "TEXT: /(.|\\n)*/\nSPACE: /[ \\n]{1,4}/\n";
  const std::string lenient = std::string(kEmpty) + ",\"lenient\":true}}\n";
  EXPECT_EQ(Rule("json", R"("tool_choice":{"type":"function","function":{"name":"g"}})"),
            top + "json_1: " + lenient + R"(tool_1: "{\"name\": \"g\", \"arguments\": " json_1 "}")" +
                "\ncall: tool_1\ncalls: call\nstart: calls\n");
  const std::string required = Rule("hermes", R"("tool_choice":"required")");
  EXPECT_NE(required.find("tool_0: \"<tool_call>\" \"\\n\" \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \" json_1 "
                          "\"}\" \"\\n\" \"</tool_call>\"\n"),
            std::string::npos)
      << required;
  EXPECT_NE(required.find("call: tool_0 | tool_1\ncalls: call (\"\\n\" call)*\nstart: calls\n"), std::string::npos)
      << required;
  const std::string one = Rule("hermes", R"("tool_choice":"required","parallel_tool_calls":false)");
  EXPECT_NE(one.find("calls: call\n"), std::string::npos) << one;
}

TEST(ToolRule, AllowsAnyTextUnlessAToolIsStrict) {
  EXPECT_EQ(Rule("hermes", R"("tool_choice":"auto")"), "any");
  const std::string rule = Rule("hermes", R"("tool_choice":"auto")", ",\"strict\":true");
  EXPECT_NE(rule.find("until_1[lazy]: TEXT \"<tool_call>\"\n"), std::string::npos) << rule;
  EXPECT_NE(rule.find("start: (until_1 calls)* TEXT\n"), std::string::npos) << rule;
  EXPECT_NE(rule.find("\"key_separator\":\":[ ]?\"}}\n"), std::string::npos) << "strict: " << rule;
}

TEST(ToolRule, IsWrittenForEveryFormat) {
  for (const ToolFormat& form : ToolFormats()) {
    for (const char* choice : {R"("tool_choice":"required")", R"("tool_choice":"auto")"}) {
      const std::string rule = Rule(std::string(form.name), choice, ",\"strict\":true");
      EXPECT_NE(rule.find("\nstart: "), std::string::npos) << form.name << rule;
      EXPECT_NE(rule.find("tool_1: "), std::string::npos) << form.name << rule;
    }
  }
}

// Free text must begin neither like a call nor like reasoning; the character class must contain their common bracket
// only once.
TEST(ToolRule, KnowsReasoningInBrackets) {
  FakeEngine engine;
  AnswerReading reading;
  reading.reasoning = FindReasoningFormat("mistral");
  reading.calls = FindToolFormat("json");
  reading.tools = *Read(R"("tools":[{"type":"function","function":{"name":"f","strict":true}}])");
  const auto rule = ToolRule(engine, reading);
  ASSERT_TRUE(rule.ok());
  EXPECT_NE(rule->text.find(R"(FREE: /[ \n]*[^{\[ \n](.|\n)*/)"), std::string::npos) << rule->text;
}

TEST(ToolRule, TimeIsLinearInTheSchemas) {
  const test::TimeLimit limit("the work grows faster than the schemas");
  const auto with = [](int properties, const std::string& type, const std::string& definition) {
    std::string schema = R"(,"strict":true,"parameters":{"$defs":{"d":")" + definition + R"("},"properties":{)";
    for (int i = 0; i < properties; ++i)
      schema += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"type":")" + type + "\"}";
    return Rule("glm45", R"("tool_choice":"required")", schema + "}}");
  };
  const std::string many = with(8'000, "string", "");
  EXPECT_NE(many.find("p7999"), std::string::npos) << many.substr(0, 1000);
  EXPECT_EQ(with(8'000, "integer", std::string(100'000, 'd')),
            "tools: their schemas make a grammar of more than 1048576 bytes, the limit; give fewer or smaller ones");
}

// From the body to the answer, through an engine.
class ToolChat : public testing::Test {
 protected:
  std::string Ask(bool stream, std::vector<std::string> pieces, const std::string& more = "") {
    RequestLimits limits = Limits();
    limits.style.calls = FindToolFormat("hermes");
    limits.style.reasoning = FindReasoningFormat("think");
    auto parsed = ParseChatRequest(R"({"messages":[{"role":"user","content":"c"}],"stream":)" +
                                       std::string(stream ? "true" : "false") + more + "," + tools_ + "}",
                                   limits);
    if (!parsed.ok()) return parsed.status().message();
    auto prepared = PrepareConversation(std::move(*parsed), engine_, limits);
    if (!prepared.ok()) return prepared.status().message();
    output_ = prepared->requests[0].output;
    Answer answer(engine_, std::move(prepared->shape), {"id", 5, "print"}, {"", "\n"});
    std::string chunks;
    for (size_t i = 0; i < pieces.size(); ++i) {
      TokenDelta delta;
      delta.text = pieces[i];
      delta.tokens = {'a'};
      if (i + 1 == pieces.size()) delta.finish = FinishReason::kStop;
      EXPECT_TRUE(answer.OnDelta(0, delta, &chunks).ok());
    }
    answer.OnDone(0, {}, &chunks);
    return stream ? chunks : std::move(answer).Complete();
  }
  FakeEngine engine_;
  OutputRule output_;
  std::string tools_ = kTwo;
};

const std::vector<std::string> kPieces = {
    "<th", "ink>Hm.</think>\n\n<tool_", "call>{\"name\": \"f\", \"argu", "ments\": {\"a\":", " 1}}</tool_call>", ""};

TEST_F(ToolChat, Whole) {
  const Json answer = Json::parse(Ask(false, kPieces));
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["reasoning_content"], "Hm.");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"].dump(), R"({"name":"f","arguments":"{\"a\": 1}"})");
  EXPECT_FALSE(output_.any());
}

TEST_F(ToolChat, Streamed) {
  std::string reasoning, arguments, name, finish;
  const std::string chunks = Ask(true, kPieces);
  for (size_t from = 0, to = 0; (to = chunks.find('\n', from)) != std::string::npos; from = to + 1) {
    const Json choice = Json::parse(chunks.substr(from, to - from))["choices"][0];
    const Json& delta = choice["delta"];
    reasoning += delta.value("reasoning_content", "");
    EXPECT_EQ(delta.value("content", ""), "");
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    if (!delta.contains("tool_calls")) continue;
    EXPECT_EQ(delta["tool_calls"][0]["index"], 0);
    name += delta["tool_calls"][0]["function"].value("name", "");
    arguments += delta["tool_calls"][0]["function"].value("arguments", "");
  }
  EXPECT_EQ(reasoning, "Hm.");
  EXPECT_EQ(name, "f");
  EXPECT_EQ(arguments, "{\"a\": 1}");
  EXPECT_EQ(finish, "tool_calls");
}

TEST_F(ToolChat, ARequiredCallHasARule) {
  Ask(false, kPieces, R"(,"tool_choice":"required")");
  EXPECT_EQ(output_.kind, OutputRule::Kind::kLark);
  EXPECT_NE(output_.text.find("start: ("), std::string::npos) << output_.text;
}

TEST_F(ToolChat, UnsupportedKeywordsAreLeftOutOfNonStrictTools) {
  const auto tools = [](const char* strict, const char* schema) {
    return std::string(R"("tools":[{"type":"function","function":{"name":"f","strict":)") + strict +
           R"(,"parameters":{"type":"object","properties":{"a":)" + schema +
           R"(,"b":{"type":"integer","pattern":"impossible"}},"required":["a"]}}}])";
  };
  const char* const kSchema = R"j({"type":"string","pattern":"^(?!impossible)"})j";
  tools_ = tools("false", kSchema);
  Ask(false, kPieces, R"(,"tool_choice":"required")");
  EXPECT_EQ(output_.text.find("impossible"), std::string::npos) << output_.text;
  EXPECT_NE(output_.text.find(R"("properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"])"),
            std::string::npos)
      << output_.text;
  tools_ = tools("false", R"({"enum":["impossible"]})");
  Ask(false, kPieces, R"(,"tool_choice":{"type":"function","function":{"name":"f"}})");
  EXPECT_NE(output_.text.find(R"("properties":{"a":{},"b":{}},"required":["a"])"), std::string::npos) << output_.text;
  tools_ = tools("true", kSchema);
  EXPECT_EQ(Ask(false, kPieces, R"(,"tool_choice":"required")"),
            "tools[0].function.parameters: 'impossible' is not supported");
}

TEST(Parsers, UnknownNamesAreRefused) {
  EXPECT_TRUE(CheckParserNames("auto", "none").ok());
  EXPECT_TRUE(CheckParserNames("granite4", "deepseek_r1").ok());
  const Status tool = CheckParserNames("other", "auto");
  EXPECT_EQ(tool.param(), "tool-call-parser");
  EXPECT_TRUE(
      tool.message().starts_with("--tool-call-parser: 'other' is unknown; give one of auto, none, hermes, granite4, "))
      << tool.message();
  EXPECT_EQ(CheckParserNames("auto", "x").param(), "reasoning-parser");
}

}  // namespace
}  // namespace tactus::api::tools_test
