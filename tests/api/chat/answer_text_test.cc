// Parts of an answer's text, in every format of the table. Every single cut, every character alone, and random cuts
// give the same parts.
#include "api/chat/answer_text.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <random>

#include "api/chat/answer_writer.h"

namespace tactus::api {
namespace {

constexpr const char* kTools = R"({"tools": [
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
     "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}, "factor": {"type": "number"},
     "tags": {"type": "array"}, "more": {"type": ["object", "null"]}, "any": {}}}}},
  {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]})";

std::shared_ptr<const ToolSet> Tools() {
  static const auto set = ReadTools(Json::parse(kTools));
  return *set;
}

// One part per line: "R:" reasoning, "T:" text, "C:name" and "A:arguments".
std::string Shown(const std::vector<AnswerPart>& parts) {
  std::string out;
  int32_t calls = 0;
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        out += "T:" + part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        out += "R:" + part.text;
        break;
      case AnswerPart::Kind::kCallBegin:
        EXPECT_EQ(part.call, calls++);
        EXPECT_FALSE(part.id.empty());
        out += "C:" + part.name;
        break;
      case AnswerPart::Kind::kCallArguments:
        EXPECT_EQ(part.call, calls - 1);
        out += "A:" + part.text;
        break;
    }
    out += '\n';
  }
  return out;
}

std::vector<AnswerPart> Read(const AnswerReading& reading, const std::vector<std::string>& pieces) {
  AnswerText text(reading, "seed");
  std::vector<AnswerPart> all, told;
  for (const std::string& piece : pieces) {
    told.clear();
    text.Append(piece, &told);
    for (const AnswerPart& part : told) AppendPart(part, &all);
  }
  told.clear();
  text.Finish(&told);
  for (const AnswerPart& part : told) AppendPart(part, &all);
  EXPECT_EQ(text.called(), Called(all));
  EXPECT_EQ(text.called() && !text.broken(), CallsToRun(all, "a stop string"));
  return all;
}

// The offsets of all characters, and the end.
std::vector<size_t> Places(const std::string& text) {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0u) != 0x80u) places.push_back(i);
  }
  places.push_back(text.size());
  return places;
}

std::vector<std::string> CutAt(const std::string& text, const std::vector<size_t>& places) {
  std::vector<std::string> pieces;
  size_t from = 0;
  for (const size_t place : places) {
    pieces.push_back(text.substr(from, place - from));
    from = place;
  }
  pieces.push_back(text.substr(from));
  return pieces;
}

void ExpectInEveryCut(const AnswerReading& reading, const std::string& text, const std::string& expected) {
  const std::vector<AnswerPart> whole = Read(reading, {text});
  ASSERT_EQ(Shown(whole), expected) << "of " << text;
  const std::vector<size_t> places = Places(text);
  for (const size_t place : places)
    ASSERT_EQ(Shown(Read(reading, CutAt(text, {place}))), expected) << "cut at " << place << " of " << text;
  ASSERT_EQ(Shown(Read(reading, CutAt(text, places))), expected) << "in single characters: " << text;
  std::mt19937 random(static_cast<unsigned>(text.size()));
  for (int round = 0; round < 20; ++round) {
    std::vector<size_t> some;
    for (const size_t place : places) {
      if (random() % 3 == 0) some.push_back(place);
    }
    ASSERT_EQ(Shown(Read(reading, CutAt(text, some))), expected) << text;
  }
}

struct WrittenCase {
  const char* text;
  const char* parts;
};

void ExpectAll(const char* form, const char* reasoning, std::initializer_list<WrittenCase> cases) {
  AnswerReading reading;
  reading.calls = FindToolFormat(form);
  ASSERT_NE(reading.calls, nullptr) << form;
  reading.reasoning = reasoning == nullptr ? nullptr : FindReasoningFormat(reasoning);
  reading.tools = Tools();
  for (const WrittenCase& c : cases) ExpectInEveryCut(reading, c.text, c.parts);
}

TEST(AnswerText, Hermes) {
  ExpectAll(
      "hermes", "think",
      {
          {"", ""},
          {"Hello\n", "T:Hello\n\n"},
          {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Z\u00fcrich\", \"days\": "
           "3}}\n</tool_call>",
           "C:weather\nA:{\"city\": \"Z\u00fcrich\", \"days\": 3}\n"},
          {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", "
           "\"arguments\": {\"a\": 1}}\n</tool_call>\n",
           "C:weather\nA:{}\nC:add\nA:{\"a\": 1}\n"},
          {"Let me see.\n\n<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>\n\nDone.",
           "T:Let me see.\nC:add\nA:{\"a\":1}\nT:Done.\n"},
          {"<think>\nHm.\n\nSo.\n</think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
           "R:Hm.\n\nSo.\nC:add\nA:{}\n"},
          {"<think>cut off ", "R:cut off \n"},
          // Escapes, nested brackets, raw newlines in strings, the end marker in a string.
          {"<tool_call>{\"name\": \"add\", \"arguments\": {\"s\": \"a\\\"}\\n{[ \u00e9\", \"t\": [[{}], "
           "\"</tool_call>\"]}}"
           "</tool_call>",
           "C:add\nA:{\"s\": \"a\\\"}\\n{[ \u00e9\", \"t\": [[{}], \"</tool_call>\"]}\n"},
          {"<tool_call>{\"name\": \"add\", \"arguments\": {\"s\": \"a\nb\t\"}}</tool_call>",
           "C:add\nA:{\"s\": \"a\\nb\\t\"}\n"},
          // The name last, arguments as a string, no arguments.
          {"<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"add\"}</tool_call>", "C:add\nA:{\"a\": 1}\n"},
          {"<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "C:add\nA:{\"a\": 1}\n"},
          {"<tool_call>{\"name\": \"add\", \"arguments\": \"no\"}</tool_call>", "C:add\nA:\"no\"\n"},
          {"<tool_call>{\"name\": \"add\"}</tool_call>", "C:add\nA:{}\n"},
          {"<tool_call>{\"name\": \"add\", \"arguments\": null}</tool_call>", "C:add\nA:{}\n"},
          {"<tool_call>{\"id\": 17, \"function\": {\"name\": \"add\", \"parameters\": {\"a\": 2}}}</tool_call>",
           "C:add\nA:{\"a\": 2}\n"},
          // A missing end marker.
          {"<tool_call>{\"name\": \"add\", \"arguments\": {}}\n<tool_call>{\"name\": \"add\", \"arguments\": {}}",
           "C:add\nA:{}\nC:add\nA:{}\n"},
          {"<tool_call>{\"name\": \"add\", \"arguments\": {}} and so", "C:add\nA:{}\nT:and so\n"},
          // Cut off.
          {"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 12", "C:add\nA:{\"a\": 12\n"},
          {"<tool_call>\n{\"name\": \"ad", "T:<tool_call>\n{\"name\": \"ad\n"},
          {"Hi <tool_c", "T:Hi <tool_c\n"},
          {"<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool", "C:add\nA:{}\n"},
          // Text that only looks like a marker.
          {"a <tool> b </tool_call> <tool_call", "T:a <tool> b </tool_call> <tool_call\n"},
          {"<<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>", "T:<\nC:add\nA:{}\n"},
          {"Say <think> aloud</think>.", "T:Say <think> aloud</think>.\n"},
          // Malformed calls: text, or the call up to the error.
          {"<tool_call>oops</tool_call>", "T:<tool_call>oops</tool_call>\n"},
          {"<tool_call>\n{\"name\": 5, \"arguments\": {}}\n</tool_call>",
           "T:<tool_call>\n{\"name\": 5, \"arguments\": {}}\n</tool_call>\n"},
          {"<tool_call>\n{}\n</tool_call>", "T:<tool_call>\n{}\n</tool_call>\n"},
          {"<tool_call></tool_call>x", "T:<tool_call></tool_call>x\n"},
          {"<tool_call><tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>", "T:<tool_call>\nC:add\nA:{}\n"},
          {"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1,, \"b\": 2}}</tool_call>",
           "C:add\nA:{\"a\": 1,\nT:, \"b\": 2}}</tool_call>\n"},
          {"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": tru}}</tool_call>",
           "C:add\nA:{\"a\": tru\nT:}}</tool_call>\n"},
      });
}

TEST(AnswerText, BareJson) {
  for (const char* form : {"llama3_json", "json"}) {
    ExpectAll(
        form, nullptr,
        {
            {"{\"name\": \"weather\", \"parameters\": {\"city\": \"Z\u00fcrich\"}}",
             "C:weather\nA:{\"city\": \"Z\u00fcrich\"}\n"},
            {" {\"type\": \"function\", \"name\": \"add\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": "
             "{\"a\": 1}}",
             "C:add\nA:{}\nC:add\nA:{\"a\": 1}\n"},
            {"[{\"name\": \"add\", \"arguments\": {}}, {\"name\": \"add\", \"arguments\": {\"a\": 1}}]\n",
             "C:add\nA:{}\nC:add\nA:{\"a\": 1}\n"},
            {"{\"city\": \"Bern\"}", "T:{\"city\": \"Bern\"}\n"},
            {"{\"name\": \"Bern\", \"arguments\": {}}", "T:{\"name\": \"Bern\", \"arguments\": {}}\n"},
            {"[1, 2]", "T:[1, 2]\n"},
            {"{", "T:{\n"},
            {"  [", "T:  [\n"},
            {"See {\"name\": \"add\", \"arguments\": {}}", "T:See {\"name\": \"add\", \"arguments\": {}}\n"},
            {"{\"name\": \"add\", \"arguments\": {}} Done; so", "C:add\nA:{}\nT:Done; so\n"},
        });
  }
  ExpectAll("llama3_json", nullptr,
            {{"<|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "C:add\nA:{\"a\": 1}\n"}});
}

TEST(AnswerText, Pythonic) {
  ExpectAll("pythonic", nullptr,
            {
                {"[weather(city='Z\u00fcrich', days=3)]", "C:weather\nA:{\"city\": \"Z\u00fcrich\", \"days\": 3}\n"},
                {"[weather(), add(a=1)]\n", "C:weather\nA:{}\nC:add\nA:{\"a\": 1}\n"},
                {"[add(a=[1, (2,), {'k': None, \"l\": True, 3: False}], b=\"q\\\"\\'\\n\\x41\\u00e9\\U0001F600\\d\", "
                 "c=-.5, d=+1_000, e=1.,)]",
                 "C:add\nA:{\"a\": [1, [2], {\"k\": null, \"l\": true, \"3\": false}], \"b\": "
                 "\"q\\\"'\\n\\u0041\\u00e9\\ud83d\\ude00\\\\d\", \"c\": -0.5, \"d\": 1000, \"e\": 1.0}\n"},
                {"[add(a='x\"y\n')]", "C:add\nA:{\"a\": \"x\\\"y\\n\"}\n"},
                {"[unknown(a=1)]", "T:[unknown(a=1)]\n"},
                {"[1, 2]", "T:[1, 2]\n"},
                {"[add(1)]", "C:add\nA:{\nT:1)]\n"},
                {"[add(x)]", "C:add\nA:{\nT:x)]\n"},
                {"[add(a=1", "C:add\nA:{\"a\": \n"},
                {"[add", "T:[add\n"},
                {"Text [add(a=1)]", "T:Text [add(a=1)]\n"},
            });
  ExpectAll("lfm2", nullptr,
            {{"<|tool_call_start|>[weather(city='B'), add(a=1)]<|tool_call_end|>Well.",
              "C:weather\nA:{\"city\": \"B\"}\nC:add\nA:{\"a\": 1}\nT:Well.\n"},
             {"[add(a=1)]", "T:[add(a=1)]\n"}});
  ExpectAll(
      "llama4_pythonic", nullptr,
      {{"<|python_start|>[add(a=1)]<|python_end|>", "C:add\nA:{\"a\": 1}\n"}, {"[add(a=1)]", "C:add\nA:{\"a\": 1}\n"}});
  ExpectAll("olmo3", nullptr,
            {{"<function_calls>\nadd(a=1)\nweather(city=\"B\")\n</function_calls>",
              "C:add\nA:{\"a\": 1}\nC:weather\nA:{\"city\": \"B\"}\n"}});
}

TEST(AnswerText, Mistral) {
  for (const char* form : {"mistral", "mistral_args"}) {
    ExpectAll(
        form, "mistral",
        {
            {"[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"abcdef123\"}, {\"name\": \"add\", "
             "\"arguments\": {}}]",
             "C:add\nA:{\"a\": 1}\nC:add\nA:{}\n"},
            {"[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]weather[CALL_ID]abcdef123[ARGS]{\"city\": \"B\"}",
             "C:add\nA:{\"a\": 1}\nC:weather\nA:{\"city\": \"B\"}\n"},
            {"[TOOL_CALLS] add{\"a\": 1}", "C:add\nA:{\"a\": 1}\n"},
            {"[THINK]Hm.[/THINK]Words [TOOL_CALLS]add[ARGS]{}", "R:Hm.\nT:Words\nC:add\nA:{}\n"},
            {"[TOOL_X", "T:[TOOL_X\n"},
            {"[TOOL_CALLS][]", "T:[TOOL_CALLS][]\n"},
            {"[TOOL_CALLS]not a name{}", "T:[TOOL_CALLS]not a name{}\n"},
        });
  }
  AnswerReading reading;
  reading.calls = FindToolFormat("mistral");
  reading.tools = Tools();
  EXPECT_EQ(Read(reading, {"[TOOL_CALLS]add{}"})[0].id.size(), 9u);
}

TEST(AnswerText, ParametersBetweenMarkers) {
  ExpectAll(
      "qwen3_coder", "think",
      {
          {"<tool_call>\n<function=weather>\n<parameter=city>\nZ\u00fcrich\n</parameter>\n<parameter=days>\n3\n</"
           "parameter>\n"
           "</function>\n</tool_call>",
           "C:weather\nA:{\"city\": \"Z\u00fcrich\", \"days\": 3}\n"},
          {"<tool_call>\n<function=add>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</"
           "parameter>"
           "\n</function>\n</tool_call>",
           "C:add\nA:{}\nC:add\nA:{\"a\": 1}\n"},
          // Without the outer marker, as these models write it.
          {"So:\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\nEnd.",
           "T:So:\nC:add\nA:{\"a\": 1}\nT:End.\n"},
          // Text keeps its lines and markup; values have their schema's types.
          {"<tool_call><function=weather><parameter=city>\n\n<a>\"x\\\n</parameters>\n\n</"
           "parameter><parameter=exact>True"
           "</parameter><parameter=factor>-1.5e3</parameter><parameter=tags>['a', {'b': None}]</parameter>"
           "<parameter=more>null</parameter><parameter=any>[1, 2]</parameter><parameter=other>007</parameter>"
           "</function></tool_call>",
           "C:weather\nA:{\"city\": \"\\n<a>\\\"x\\\\\\n</parameters>\\n\", \"exact\": true, \"factor\": -1.5e3, "
           "\"tags\": [\"a\", {\"b\": null}], \"more\": null, \"any\": [1, 2], \"other\": \"007\"}\n"},
          // A value that does not fit its type stays text.
          {"<tool_call><function=weather><parameter=days>three</parameter><parameter=more>[1]</parameter></function>"
           "</tool_call>",
           "C:weather\nA:{\"days\": \"three\", \"more\": \"[1]\"}\n"},
          {"<tool_call>\n<function=weather>\n<parameter=city>\nBe", "C:weather\nA:{\"city\": \"Be\n"},
          {"<tool_call>\n<function=weather>\n<parameter=days>\n12", "C:weather\n"},
          {"<tool_call>\n<function=we", "T:<tool_call>\n<function=we\n"},
          {"<tool_call>\n{\"name\": \"add\"}", "T:<tool_call>\n{\"name\": \"add\"}\n"},
          {"<tool_call>\n</tool_call>", "T:<tool_call>\n</tool_call>\n"},
          {"<tool_call><function=add>oops</function>", "C:add\nT:oops</function>\n"},
      });
  ExpectAll(
      "seed_oss", "seed_oss",
      {{"<seed:think>T</seed:think><seed:tool_call>\n<function=weather>\n<parameter=city>B</parameter>\n</function>\n"
        "</seed:tool_call>",
        "R:T\nC:weather\nA:{\"city\": \"B\"}\n"}});
  ExpectAll("glm45", "think",
            {{"<think></think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>B</arg_value>\n<arg_key>days"
              "</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>add</tool_call>",
              "C:weather\nA:{\"city\": \"B\", \"days\": 3}\nC:add\nA:{}\n"},
             {"<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", "C:add\nA:{\"a\": 1}\n"},
             {"<tool_call>{\"name\": 1}<", "T:<tool_call>{\"name\": 1}<\n"}});
  ExpectAll("minimax_m2", "think",
            {{"<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">B</parameter>\n<parameter "
              "name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"add\">\n</invoke>\n</minimax:tool_call>",
              "C:weather\nA:{\"city\": \"B\", \"days\": 3}\nC:add\nA:{}\n"}});
  ExpectAll(
      "minicpm5", nullptr,
      {{"<function name=\"weather\"><param name=\"city\">B</param></function>\n<function name=\"add\"></function>",
        "C:weather\nA:{\"city\": \"B\"}\nC:add\nA:{}\n"}});
  ExpectAll("deepseek_v32", "think",
            {{"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
              "string=\"true\">3"
              "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"other\" "
              "string=\"false\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
              "</｜DSML｜function_calls>",
              "C:weather\nA:{\"city\": \"3\", \"other\": [1]}\n"},
             {"<｜DSM", "T:<｜DSM\n"}});
}

TEST(AnswerText, NameThenJson) {
  ExpectAll(
      "deepseek_v3", "think",
      {{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"B\"}\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "C:weather\nA:{\"city\": \"B\"}\nC:add\nA:{}\n"},
       {"<｜tool｜> <", "T:<｜tool｜> <\n"}});
  ExpectAll("deepseek_v31", "think",
            {{"Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"B\"}<｜tool▁call▁end｜>"
              "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
              "T:Ok.\nC:weather\nA:{\"city\": \"B\"}\nC:add\nA:{}\n"},
             {"<｜tool▁calls▁begin｜>x", "T:<｜tool▁calls▁begin｜>x\n"}});
  ExpectAll(
      "kimi_k2", "think",
      {{"<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": "
        "\"B\"}<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        "C:weather\nA:{\"city\": \"B\"}\nC:add\nA:{}\n"}});
  ExpectAll("functionary_v3.1", nullptr,
            {{"<function=weather>{\"city\": \"B\"}</function><function=add></function>",
              "C:weather\nA:{\"city\": \"B\"}\nC:add\nA:{}\n"},
             {"<function=weather>{\"city\": B}</function>", "C:weather\nA:{\"city\": \nT:B}</function>\n"}});
  ExpectAll("solar_open", "solar_open",
            {{"<|think|>T<|end|><|begin|>assistant<|content|>C<|tool_calls|><|tool_call:begin|>id1<|tool_call:name|>add"
              "<|tool_call:args|>{\"a\": 1}<|tool_call:end|>",
              "R:T\nT:C\nC:add\nA:{\"a\": 1}\n"}});
}

TEST(AnswerText, ListsOfObjects) {
  ExpectAll("jamba", nullptr,
            {{"<tool_calls>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"add\"}]</tool_calls>",
              "C:add\nA:{\"a\": 1}\nC:add\nA:{}\n"}});
  ExpectAll(
      "minimax", "think",
      {{"<tool_calls>\n{\"name\": \"add\", \"arguments\": {}}\n{\"name\": \"add\", \"arguments\": {}}\n</tool_calls>",
        "C:add\nA:{}\nC:add\nA:{}\n"}});
  ExpectAll("granite", "granite",
            {{"<think>T</think><response>Yes.</response>", "R:T\nT:Yes.\n"},
             {"<|tool_call|>[{\"name\": \"add\", \"arguments\": {}}]", "C:add\nA:{}\n"}});
  ExpectAll(
      "cohere_command", "cohere_command",
      {{"<|START_THINKING|>T<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"add\", "
        "\"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
        "R:T\nC:add\nA:{\"a\": 1}\n"},
       {"<|START_RESPONSE|>Hi.<|END_RESPONSE|>", "T:Hi.\n"}});
  ExpectAll("nemotron_nano_v2", "think",
            {{"<TOOLCALL>[{\"name\": \"add\", \"arguments\": {}}]</TOOLCALL>", "C:add\nA:{}\n"}});
  ExpectAll("phi4_mini_json", nullptr, {{"functools[{\"name\": \"add\", \"arguments\": {}}]", "C:add\nA:{}\n"}});
  ExpectAll("apertus", nullptr,
            {{"<|tools_prefix|>[{\"weather\": {\"city\": \"B\"}}, {\"add\": {\"a\": 1}}]<|tools_suffix|>",
              "C:weather\nA:{\"city\": \"B\"}\nC:add\nA:{\"a\": 1}\n"}});
  ExpectAll(
      "internlm", nullptr,
      {{"Ok<|action_start|><|plugin|>\n{\"name\": \"add\", \"parameters\": {}}<|action_end|>", "T:Ok\nC:add\nA:{}\n"}});
  ExpectAll("gigachat3", nullptr, {{"<|function_call|>{\"name\": \"add\", \"arguments\": {}}", "C:add\nA:{}\n"}});
}

TEST(AnswerText, Harmony) {
  const std::initializer_list<WrittenCase> without_calls = {
      {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", "R:Hm.\nT:Yes.\n"},
      {"<|channel|>final<|message|>Yes.<|return|>", "T:Yes.\n"},
      {"Just words.", "T:Just words.\n"},
      {"to be", "T:to be\n"},
      {"<|channel|>commentary<|message|>I look.<|end|>", "T:I look.\n"},
      {"<|channel|>analysis<|message|>cut ", "R:cut \n"},
      {"<|channel|>ana", "T:<|channel|>ana\n"},
  };
  ExpectAll("openai", nullptr, without_calls);
  ExpectAll(
      "openai", nullptr,
      {{"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
        "<|constrain|>json<|message|>{\"city\": \"Z\u00fcrich\"}<|call|>",
        "R:Hm.\nC:weather\nA:{\"city\": \"Z\u00fcrich\"}\n"},
       {" to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}", "C:add\nA:{\"a\": 1}\n"},
       {"<|channel|>commentary to=functions.add<|message|>", "C:add\nA:{}\n"},  // ended by a stop id
       {"<|channel|>commentary to=functions.add<|message|><|call|>", "C:add\nA:{}\n"},
       {"<|channel|>commentary to=functions.add<|message|>{\"a\": x}", "C:add\nA:{\"a\": \nT:x}\n"},
       {"<|channel|>commentary to=functions.add<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>Ok",
        "C:add\nA:{}\nT:Ok\n"}});
  AnswerReading reading;
  reading.calls = FindToolFormat("openai");
  for (const WrittenCase& c : without_calls) ExpectInEveryCut(reading, c.text, c.parts);  // the same without tools
}

TEST(AnswerText, ReasoningOpenedByThePromptIsRecognised) {
  AnswerReading reading;
  reading.reasoning = FindReasoningFormat("think");
  reading.begins_in_reasoning = true;
  for (const WrittenCase& c :
       {WrittenCase{"Hm.\n\nSo\n</think>\n\nYes. ", "R:Hm.\n\nSo\nT:Yes. \n"}, WrittenCase{"</think>Yes", "T:Yes\n"},
        WrittenCase{"Hm </thin", "R:Hm </thin\n"}, WrittenCase{"", ""}, WrittenCase{"\n\n", ""}}) {
    ExpectInEveryCut(reading, c.text, c.parts);
  }
}

TEST(AnswerText, WithoutToolsCallsStayText) {
  AnswerReading reading;
  reading.calls = FindToolFormat("hermes");
  const std::string call = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>\n";
  ExpectInEveryCut(reading, call, "T:" + call + "\n");
}

TEST(AnswerText, TheHeadOfARequiredCallIsNotText) {
  for (const char* form : {"hermes", "llama3_json", "mistral", "pythonic"}) {
    AnswerReading reading;
    reading.calls = FindToolFormat(form);
    auto tools = std::make_shared<ToolSet>(*Tools());
    tools->choice = ToolSet::Choice::kRequired;
    reading.tools = tools;
    const std::string call = form == std::string("hermes")        ? "<tool_call>\n{\"name\": \"weather"
                             : form == std::string("llama3_json") ? "{\"name\": \"weather"
                             : form == std::string("mistral")     ? "[TOOL_CALLS][{\"name\": \"weather"
                                                                  : "[weather";
    for (size_t length = 1; length <= call.size(); ++length) ExpectInEveryCut(reading, call.substr(0, length), "");
  }
}

// A key or name beyond the length limit: the text after it begins with a whole character, at every offset of the limit.
TEST(AnswerText, ATooLongHeadLeavesWholeCharacters) {
  for (const char* form : {"hermes", "qwen3_coder"}) {
    AnswerReading reading;
    reading.calls = FindToolFormat(form);
    reading.tools = Tools();
    for (size_t shift = 0; shift < 3; ++shift) {
      std::string text = std::string(form) == "hermes" ? R"(<tool_call>{"name": "add", ")"
                                                       : "<tool_call>\n<function=add>\n<parameter=";
      text += std::string(shift, 'k');
      for (int i = 0; i < 200; ++i) text += "\u65E5";
      for (const AnswerPart& part : Read(reading, {text}))
        ASSERT_EQ(ReplaceInvalidUtf8(part.text), part.text) << form << ", shifted by " << shift;
    }
  }
}

TEST(AnswerText, IdsFollowFromTheSeed) {
  AnswerReading reading;
  reading.calls = FindToolFormat("hermes");
  reading.tools = Tools();
  const auto ids = [&](const std::string& seed) {
    AnswerText text(reading, seed);
    std::vector<AnswerPart> parts;
    for (int i = 0; i < 2; ++i) text.Append("<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>", &parts);
    return std::pair(parts[0].id, parts[2].id);
  };
  EXPECT_EQ(ids("a"), ids("a"));
  EXPECT_NE(ids("a"), ids("b"));
  EXPECT_NE(ids("a").first, ids("a").second);
  EXPECT_EQ(ids("a").first.substr(0, 5), "call_");
  EXPECT_EQ(ids("a").first.size(), 25u);
}

TEST(AnswerText, EveryFormatHasAUniqueName) {
  for (const ToolFormat& form : ToolFormats()) EXPECT_EQ(FindToolFormat(form.name), &form) << form.name;
  for (const ReasoningFormat& form : ReasoningFormats()) EXPECT_EQ(FindReasoningFormat(form.name), &form) << form.name;
  EXPECT_EQ(FindToolFormat("granite4"), FindToolFormat("hermes"));
  EXPECT_EQ(FindReasoningFormat("deepseek_r1"), FindReasoningFormat("think"));
  EXPECT_EQ(FindToolFormat("unknown"), nullptr);
  EXPECT_EQ(FindToolFormat(""), nullptr);
}

}  // namespace
}  // namespace tactus::api
