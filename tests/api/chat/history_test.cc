// Every answer of the server is valid history: each kind of answer, whole and streamed, in every API, is sent back and
// rendered by chat templates with different requirements. TACTUS_TEMPLATES names a folder of further templates
// (tools/check_templates.py, which fetches published ones).
#include "api/chat/history.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "api/apis.h"
#include "api/chat/answer_text.h"
#include "api/chat/conversation.h"
#include "language/text/chat_template.h"
#include "serve/fake_engine.h"

namespace tactus::api::history_test {
namespace {

using Kind = AnswerPart::Kind;
using Parts = std::vector<AnswerPart>;

struct Source {
  std::string name, text;
};
void PrintTo(const Source& source, std::ostream* out) {
  *out << source.name;
}

// --- Templates: each behaves like some published ones ---

const char* const kTurn =
    "{% if add_generation_prompt %}<|assistant|>{% endif %}{% if tools %}{{ tools|tojson }}{% endif %}";
const char* const kCalls =
    R"({% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}</tool_call>{% endfor %})";

Source Made(const char* name, const std::string& message) {
  return {name, "{% for m in messages %}<|" + std::string("{{ m.role }}|>") + message + "\n{% endfor %}" + kTurn};
}

std::vector<Source> SmallTemplates() {
  const std::string calls = kCalls, content = "{{ m.content }}";
  const std::string checks_turns =
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' or (m.role == 'assistant' and not "
      "m.tool_calls) %}{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% "
      "endif %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}";
  std::vector<Source> all = {
      Made("LooksIntoContent",
           "{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1] "
           "}}{% else %}{{ m.content }}{% endif %}" +
               calls),
      Made("PrintsContent", content + calls),
      Made("JoinsContent", "{{ '>' + m.content + '<' }}" + calls),
      Made("IteratesOverContent",
           "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% "
           "endfor %}{% endif %}" +
               calls),
      Made("TakesContentsFirstCharacter", "{{ m['content'][0] if m['content']|length > 0 else '' }}" + content + calls),
      Made("WritesContentAsJson", "{{ m.content|tojson }}" + calls),
      Made("NeedsNullBesideCalls",
           "{% if m.role == 'assistant' and m.content is not none %}{{ m.content }}{% elif m.role == 'assistant' %}" +
               calls + "{% else %}{{ m.content }}{% endif %}"),
      Made("NeedsNoContentBesideCalls",
           "{% if 'content' in m %}{% if m.tool_calls %}{{ raise_exception('content and "
           "calls') }}{% endif %}{{ m.content }}{% endif %}" +
               calls),
      Made("OpensASectionForContent",
           "{% if m.content is defined and m.content is not none %}<say>{{ m.content }}</say>{% endif %}" + calls),
      Made("TakesOneCall",
           "{% if m.tool_calls %}{% if m.tool_calls|length != 1 %}{{ raise_exception('single tool-calls') "
           "}}{% endif %}{% endif %}" +
               content + calls),
      Made(
          "ShowsTheFirstCall",
          content +
              R"({% if m.tool_calls %}{% set c = m.tool_calls[0] %}{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments|tojson }}}{% endif %})"),
      Made("IteratesOverArguments", content + "{% for c in m.tool_calls or [] %}<function={{ c.function.name }}>{% for "
                                              "k, v in c.function.arguments|items "
                                              "%}<parameter={{ k }}>{{ v if v is string else v|tojson }}</parameter>{% "
                                              "endfor %}</function>{% endfor %}"),
      Made("LooksUpArguments",
           content +
               "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k in c.function.arguments %} {{ k }}={{ "
               "c.function.arguments[k]|tojson }}{% endfor %};{% endfor %}"),
      Made("JoinsArguments", content + "{% for c in m.tool_calls or [] %}{{ '<function=' + c.function.name + '>' + "
                                       "c.function.arguments + '</function>' }}{% endfor %}"),
      Made("JoinsTheType", content + "{% for c in m.tool_calls or [] %}{{ c.type + ':' + c.id }}{% endfor %}" + calls),
      Made("WantsShortIds",
           content +
               "{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}{{ raise_exception('length 9') }}{% endif "
               "%}{% endfor %}" +
               calls +
               "{% if m.role == 'tool' and m.tool_call_id|length != 9 %}{{ raise_exception('length 9') }}{% endif %}"),
      Made("WantsNamedResults", "{% if m.role == 'tool' %}{{ m.name + ': ' }}{% endif %}" + content + calls),
      Made("WantsContentOrCalls",
           "{% if not m.content and not m.tool_calls %}{{ raise_exception('content or calls') }}{% endif "
           "%}{{ m.content }}" +
               calls),
      Made("WantsMoreThanSpace",
           "{% if not (m.content or '')|trim and not m.tool_calls %}{{ raise_exception('content or calls') "
           "}}{% endif %}{{ m.content }}" +
               calls),
      Made("WantsWordsOrThought",
           "{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('not both') }}{% endif "
           "%}{{ m.content }}{% if m.thinking is defined %}<think>{{ m.thinking }}</think>{% endif %}" +
               calls),
      Made("WantsNoWordsBesideCalls",
           "{% if m.tool_calls and m.content %}{{ raise_exception('not both') }}{% endif %}{{ m.content }}" + calls),
      Made("RefusesReasoning",
           "{% if m.reasoning_content is defined %}{{ raise_exception('what is this') }}{% endif %}" + content + calls),
      Made("TestsWhetherCallsAreDefined",
           "{% if 'tool_calls' in m %}{{ m.tool_calls[0].function.name }}{% endif %}" + content + calls),
      Made("ShowsNoCalls", content),
      Made("RefusesCalls",
           "{% if m.tool_calls is defined %}{{ raise_exception('no calls here') }}{% endif %}" + content),
      Made("RefusesCallsAndResults",
           "{% if m.role == 'tool' or m.tool_calls is defined %}{{ raise_exception('no calls here') }}{% endif "
           "%}" +
               content),
      {"KnowsNoTools",
       "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}{% if add_generation_prompt "
       "%}<|assistant|>{% endif %}"},
      {"KnowsNoToolsAndAlternates",
       checks_turns + "{% for m in messages %}{% if m.role == 'system' or m.role == 'tool' %}{{ raise_exception('no') "
                      "}}{% endif %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"},
      {"Alternates", checks_turns + Made("", content + calls).text},
      {"AlternatesAndWantsContent",
       checks_turns + Made("",
                           "{% if not m.content and not m.tool_calls %}{{ raise_exception('content or "
                           "calls') }}{% endif %}{{ m.content }}" +
                               calls)
                          .text},
      {"RefusesTools", "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + Made("", content).text},
  };
  // Complete small templates from issues about the tool loop.
  all.push_back(
      {"llama31_calls",
       R"({% for m in messages %}{% if 'tool_calls' in m %}{% if not m.tool_calls|length == 1 %}{{ raise_exception("This model only supports single tool-calls at once!") }}{% endif %}<|im_start|>{{ m.role }} {"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}<|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}{% if tools %}{{ tools | tojson }}{% endif %})"});
  all.push_back({"qwen3_like", R"({% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %})"});
  all.push_back({"think_rc", R"({% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content is defined and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>
{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %})"});
  for (const char* opens : {"", "<think>\n"}) {
    all.push_back({opens[0] == 0 ? "think_field" : "think_open", R"({% for m in messages %}<|im_start|>{{ m.role }}
{% if m.thinking is defined %}<think>{{ m.thinking }}</think>{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
)" + std::string(opens) + "{% endif %}"});
  }
  return all;
}

std::vector<Source> Templates() {
  std::vector<Source> all = SmallTemplates();
  const char* const folder = std::getenv("TACTUS_TEMPLATES");
  if (folder == nullptr) return all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::string name = "file_" + entry.path().stem().string();
    std::replace_if(
        name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
    all.push_back({name, std::string(std::istreambuf_iterator<char>(file), {})});
  }
  std::sort(all.begin() + static_cast<ptrdiff_t>(SmallTemplates().size()), all.end(),
            [](const Source& a, const Source& b) { return a.name < b.name; });
  return all;
}

// --- Answers ---

struct Given {
  std::string name;
  Parts parts;
};

Parts Call(int32_t index, const std::string& arguments) {
  Parts parts = {
      {.kind = Kind::kCallBegin, .name = "look_up", .id = "call_00ab" + std::to_string(index), .call = index}};
  if (!arguments.empty()) parts.push_back({.kind = Kind::kCallArguments, .text = arguments, .call = index});
  return parts;
}
Parts operator+(Parts a, const Parts& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Given> Answers() {
  const Parts text = {{Kind::kText, "Zsaid."}}, thought = {{Kind::kReasoning, "Zthought."}};
  const Parts call = Call(0, R"({"city": "Zcity"})"), second = Call(1, R"({"city": "Zsecond"})");
  std::vector<Given> answers = {{"nothing", {}},
                                {"text", text},
                                {"reasoning", thought},
                                {"reasoning, text", thought + text},
                                {"text, reasoning, text", text + thought + text},
                                {"call", call},
                                {"text, call", text + call},
                                {"call, text", call + text},
                                {"text, call, text", text + call + text},
                                {"reasoning, call", thought + call},
                                {"reasoning, text, call", thought + text + call},
                                {"text, reasoning, call", text + thought + call},
                                {"two calls", call + second},
                                {"reasoning, text, two calls", thought + text + call + second},
                                {"call, text, call", call + text + second},
                                {"call, cut call", call + Call(1, R"({"city": "Zsec)")}};
  // Arguments that a model may write, also cut off at its length limit.
  for (const char* arguments :
       {"", "{", R"({"city": )", R"({"city": "Zcity)", R"({"city": "Zcity"}})", R"(["Zcity", 2])", R"("Zcity")", "3",
        "null", "true", "Zcity", R"({"city": "Zcity", "city": 2})",
        R"({"city": {"Zcity": [1, 2.5, null, true, {"b": []}]}, "x": null})",
        R"({"city": "Zcity", "big": 12345678901234567890, "more": 123456789012345678901234567890})",
        "{\"city\": \"Zcity \\\"quoted\\\" <b> \xC3\xA9 \xF0\x9F\x98\x80 \\n\"}", "{}"}) {
    answers.push_back({std::string("arguments ") + arguments, Call(0, arguments)});
    answers.push_back({std::string("text, arguments ") + arguments, text + Call(0, arguments)});
  }
  return answers;
}

// --- Answers as clients send them back ---

class History : public testing::TestWithParam<Source> {
 protected:
  void SetUp() override {
    auto compiled = language::ChatTemplate::Compile(GetParam().text, 1753362793);
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    template_ = std::move(compiled).value();
    engine_.on_template = [this](const std::string& variables_json) -> Result<std::string> {
      Json variables = Json::parse(variables_json);
      variables["bos_token"] = "<s>";
      variables["eos_token"] = "</s>";
      return template_->Render(variables);
    };
    engine_.mutable_model().chat_template = GetParam().text;
    limits_ = LimitsOf(engine_, 100);
    takes_none_ = Render({{"messages", {Words("user", "Zquestion")}}}).ok();
    if (!takes_none_) {  // variables that one published template needs
      more_ = {{"functions", "[]"}, {"datetime", "2025-07-24"}};
      takes_none_ = Render({{"messages", {Words("user", "Zquestion")}}}).ok();
      if (!takes_none_) more_ = nullptr;
    }
    takes_tools_ = Render({{"messages", {Words("user", "Zquestion")}}, {"tools", Tools(kChatApi)}}).ok();
    ASSERT_TRUE(takes_none_ || takes_tools_) << "renders no question";
    const auto plain =
        Render({{"messages", {Words("user", "Zquestion"), Words("assistant", "A"), Words("user", "Zquestion")}},
                {"tools", takes_tools_ ? Tools(kChatApi) : Json()}});
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    nones_ = Nones(*plain);
    const Json turn =
        Whole(kChatApi, Parts{{Kind::kText, "A"}} + Call(0, "{}"), FinishReason::kStop)["choices"][0]["message"];
    Json history = Json::array({Words("user", "Zquestion"), turn});
    for (const Json& result : Behind(kChatApi, {"call_00ab0"}, false)) history.push_back(result);
    const auto called = Render(Body(kChatApi, history, takes_tools_));
    ASSERT_TRUE(called.ok()) << called.status().message();
    nones_of_call_ = Nones(*called) - nones_;
  }

  static Json Words(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }
  static Json Tools(const Api& api) {
    const Json schema = {{"type", "object"},
                         {"properties", {{"city", {{"type", "string"}, {"description", "City"}}}}},
                         {"required", {"city"}}};
    if (&api == &kMessagesApi)
      return Json::array({{{"name", "look_up"}, {"description", "d"}, {"input_schema", schema}}});
    Json function = {{"name", "look_up"}, {"description", "d"}, {"parameters", schema}};
    if (&api == &kChatApi) return Json::array({{{"type", "function"}, {"function", function}}});
    function["type"] = "function";
    return Json::array({function});
  }
  // A body of the API, rendered.
  Result<std::string> Render(Json body, const Api& api = kChatApi) {
    if (!more_.is_null()) body["chat_template_kwargs"] = more_;
    TACTUS_ASSIGN_OR_RETURN(const ParsedRequest parsed, api.parse(body.dump(), limits_, {}));
    return engine_.ApplyChatTemplate(parsed.template_variables, {});
  }

  // The number of null values that a template prints. The question has none.
  static int64_t Nones(const std::string& text) {
    int64_t count = 0;
    for (const std::string_view none : {"None", "null", "ndefined"}) {
      for (size_t at = text.find(none); at != text.npos; at = text.find(none, at + 1)) ++count;
    }
    return count;
  }

  AnswerShape Shape(bool stream) const {
    AnswerShape shape;
    shape.chat = true;
    shape.stream = stream;
    return shape;
  }
  Json Whole(const Api& api, const Parts& parts, FinishReason finish) {
    ChoiceText choice;
    for (const AnswerPart& part : parts) AppendPart(part, &choice.parts);
    choice.finish = finish;
    return Json::parse(api.writer(engine_, Shape(false), {"id", 1, "f"})->Whole({choice}, {}, {}));
  }
  std::vector<Json> Streamed(const Api& api, const Parts& parts, FinishReason finish) {
    const auto writer = api.writer(engine_, Shape(true), {"id", 1, "f"});
    const std::vector<std::vector<TokenLogprob>> no_logprobs;
    std::string out;
    writer->AppendBegin(&out, 0, nullptr, {});
    for (const AnswerPart& part : parts)
      writer->AppendDelta(&out, 0, {.parts = {part}, .logprobs = no_logprobs, .called = Called(parts)}, {});
    writer->AppendDelta(&out, 0, {.parts = {}, .logprobs = no_logprobs, .finish = finish, .called = Called(parts)}, {});
    writer->AppendLast(&out, {}, {});
    std::vector<Json> events;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("data: {")) events.push_back(Json::parse(line.substr(6)));
    }
    return events;
  }

  // The assistant's turn in messages or items of the API, as its client sends it back.
  std::vector<Json> TurnsOf(const Api& api, const Parts& parts, FinishReason finish) {
    const Json whole = Whole(api, parts, finish);
    const std::vector<Json> events = Streamed(api, parts, finish);
    if (&api == &kResponsesApi) return {whole["output"], events.back()["response"]["output"]};
    if (&api == &kMessagesApi) {
      Json content = Json::array();
      for (const Json& event : events) {
        if (event["type"] == "content_block_start") content.push_back(event["content_block"]);
        if (event["type"] != "content_block_delta") continue;
        const Json& delta = event["delta"];
        for (const char* member : {"text", "thinking"}) {
          if (delta.contains(member))
            content.back()[member] = content.back()[member].get<std::string>() + delta[member].get<std::string>();
        }
        if (delta.contains("partial_json")) {
          content.back()["_json"] = content.back().value("_json", "") + delta["partial_json"].get<std::string>();
          const Json input = Json::parse(content.back()["_json"].get<std::string>(), nullptr, false);
          content.back()["input"] = input.is_object() ? input : Json::object();
        }
      }
      for (Json& block : content) block.erase("_json");
      return {Json::array({{{"role", "assistant"}, {"content", whole["content"]}}}),
              Json::array({{{"role", "assistant"}, {"content", content}}})};
    }
    Json sum = {{"role", "assistant"}, {"content", ""}};
    for (const Json& event : events) {
      for (const Json& choice : event["choices"]) {
        const Json& delta = choice["delta"];
        for (const char* member : {"content", "reasoning_content"}) {
          if (delta.contains(member) && delta[member].is_string())
            sum[member] = sum.value(member, "") + delta[member].get<std::string>();
        }
        for (const Json& call : delta.value("tool_calls", Json::array())) {
          Json& calls = sum["tool_calls"];
          if (call.contains("id"))
            calls.push_back(call);
          else
            calls.back()["function"]["arguments"] = calls.back()["function"]["arguments"].get<std::string>() +
                                                    call["function"]["arguments"].get<std::string>();
        }
      }
    }
    const Json& message = whole["choices"][0]["message"];
    // As model_dump() of OpenAI's client library writes it.
    Json dumped = message;
    for (const char* none :
         {"refusal", "annotations", "audio", "function_call", "tool_calls", "reasoning_content", "name"}) {
      if (!dumped.contains(none)) dumped[none] = nullptr;
    }
    Json bare = message;  // and as a client without reasoning writes it
    bare.erase("reasoning_content");
    return {Json::array({message}), Json::array({sum}), Json::array({dumped}), Json::array({bare})};
  }

  static std::vector<std::string> IdsOf(const Parts& parts) {
    std::vector<std::string> ids;
    for (const AnswerPart& part : parts) {
      if (part.kind == Kind::kCallBegin) ids.push_back(part.id);
    }
    return ids;
  }

  // Messages that may follow in the client's next request: results, user text, or both.
  static Json Behind(const Api& api, const std::vector<std::string>& ids, bool words) {
    Json next = Json::array();
    if (&api == &kMessagesApi) {
      Json content = Json::array();
      for (const std::string& id : ids)
        content.push_back({{"type", "tool_result"}, {"tool_use_id", id}, {"content", "Zresult"}});
      if (words) content.push_back({{"type", "text"}, {"text", "Zagain"}});
      next.push_back({{"role", "user"}, {"content", content}});
      return next;
    }
    for (const std::string& id : ids) {
      if (&api == &kResponsesApi)
        next.push_back({{"type", "function_call_output"}, {"call_id", id}, {"output", "Zresult"}});
      else
        next.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", "Zresult"}});
    }
    if (words) next.push_back(Words("user", "Zagain"));
    return next;
  }

  static Json Body(const Api& api, const Json& history, bool tools) {
    Json body = {{&api == &kResponsesApi ? "input" : "messages", history}};
    if (&api == &kMessagesApi) body["max_tokens"] = 1;
    if (tools) body["tools"] = Tools(api);
    return body;
  }

  void Check(const Api& api, const Json& turn, const Parts& parts, const std::string& name) {
    const std::vector<std::string> ids = IdsOf(parts);
    for (const bool words : {false, true}) {
      if (ids.empty() && !words) continue;
      for (const bool tools : {false, true}) {
        if (tools ? !takes_tools_ : !takes_none_) continue;
        Json history = Json::array({Words("user", "Zquestion")});
        for (const Json& part : turn) history.push_back(part);
        for (const Json& part : Behind(api, ids, words)) history.push_back(part);
        const Json body = Body(api, history, tools);
        const auto text = Render(body, api);
        const std::string where =
            name + " in " + std::string(api.path) + (words ? ", words" : "") + (tools ? ", tools" : "");
        if (!text.ok()) {
          ADD_FAILURE() << where << ": " << text.status().message() << "\n  " << body.dump();
          continue;
        }
        std::vector<std::string> shown = {"Zquestion"};
        if (words) shown.push_back("Zagain");
        if (!ids.empty()) shown.push_back("Zresult");
        if (ids.empty() && !TextOf(parts).empty()) shown.push_back("Zsaid");
        if (!ids.empty()) shown.push_back("look_up");
        const std::string sent = turn.dump();
        for (const char* argument : {"Zcity", "Zsec", "12345678901234567890"}) {
          if (sent.find(argument) != sent.npos) shown.emplace_back(argument);
        }
        for (const std::string& word : shown)
          EXPECT_TRUE(text->find(word) != text->npos) << where << " does not show " << word << ":\n  " << *text;
        const bool nulls = !ids.empty() && ArgumentsOf(parts, 0).find("null") != std::string::npos;
        const int64_t own = nones_ + static_cast<int64_t>(ids.size()) * nones_of_call_;
        EXPECT_LE(Nones(*text), nulls ? INT64_MAX : own) << where << " shows a null value:\n  " << *text;
      }
    }
  }

  FakeEngine engine_;
  std::unique_ptr<language::ChatTemplate> template_;
  RequestLimits limits_;
  bool takes_none_ = false, takes_tools_ = false;  // questions without tools, with them
  Json more_;                                      // chat_template_kwargs of all
  int64_t nones_ = 0, nones_of_call_ = 0;          // null values that the template itself prints
};

TEST_P(History, EveryAnswerMayBeSentBack) {
  for (const Given& answer : Answers()) {
    for (const Api* api : {&kChatApi, &kResponsesApi, &kMessagesApi}) {
      const bool cut =
          answer.name.find("cut") != std::string::npos || answer.name.find("arguments") != std::string::npos;
      std::vector<Json> turns = TurnsOf(*api, answer.parts, cut ? FinishReason::kLength : FinishReason::kStop);
      std::sort(turns.begin(), turns.end());
      turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
      for (const Json& turn : turns) Check(*api, turn, answer.parts, answer.name);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(History, RefusalsMayBeSentBack) {
  const Parts text = {{Kind::kText, "Zsaid."}};
  for (
      const char* message :
      {R"({"role": "assistant", "content": null, "refusal": "Zsaid."})",
       R"({"role": "assistant", "content": [{"type": "refusal", "refusal": "Zsaid."}]})",
       R"({"role": "assistant", "content": [{"type": "text", "text": "I"}, {"type": "refusal", "refusal": "Zsaid."}]})",
       R"({"role": "assistant", "content": "", "refusal": "Zsaid.", "tool_calls": [], "audio": {}, "function_call": {}})"})
    Check(kChatApi, Json::array({Json::parse(message)}), text, message);
  for (const char* item : {R"({"type": "message", "role": "assistant", "id": "m", "status": "completed",
            "content": [{"type": "refusal", "refusal": "Zsaid."}]})",
                           R"({"role": "assistant", "content": "Zsaid."})"})
    Check(kResponsesApi, Json::array({Json::parse(item)}), text, item);
  Check(kMessagesApi,
        Json::array({Json::parse(R"({"role": "assistant", "content": [{"type": "text", "text": "Zsaid."}]})")}), text,
        "text");
}

TEST_P(History, AnAssistantTurnMayBeEmpty) {
  for (const char* message :
       {R"({"role": "assistant"})", R"({"role": "assistant", "content": null})",
        R"({"role": "assistant", "content": []})",
        R"({"role": "assistant", "content": null, "tool_calls": null, "function_call": null, "refusal": null})",
        R"({"role": "assistant", "content": null, "tool_calls": [], "reasoning_content": null, "annotations": []})",
        R"({"role": "assistant", "content": "", "reasoning": "", "thinking": null, "name": null})"})
    Check(kChatApi, Json::array({Json::parse(message)}), {}, message);
  for (const char* item : {R"({"role": "assistant", "content": null})", R"({"role": "assistant", "content": []})",
                           R"({"type": "reasoning", "summary": [], "content": null})",
                           R"({"type": "reasoning", "summary": [], "content": []})",
                           R"({"type": "reasoning", "summary": [], "encrypted_content": "x"})"})
    Check(kResponsesApi, Json::array({Json::parse(item)}), {}, item);
  for (const char* content :
       {"null", "[]", R"("")", R"([{"type": "redacted_thinking", "data": "x"}])",
        R"([{"type": "thinking", "thinking": "", "signature": ""}])", R"([{"type": "text", "text": ""}])"})
    Check(kMessagesApi, Json::array({Json{{"role", "assistant"}, {"content", Json::parse(content)}}}), {}, content);
}

INSTANTIATE_TEST_SUITE_P(Templates, History, testing::ValuesIn(Templates()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace tactus::api::history_test
