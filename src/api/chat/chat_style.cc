#include "api/chat/chat_style.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/fields/json.h"
#include "base/json.h"

namespace tactus::api {
namespace {

// A tool and a call of it, as a client may send them; the template's rendering of the call shows its format.
constexpr std::string_view kTool =
    R"({"type": "function", "function": {"name": "get_weather", "description": "Weather.",
  "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "City."},
                 "days": {"type": "integer", "description": "Days."}}, "required": ["city", "days"]}}})";
constexpr std::string_view kArguments = R"({"city": "Z\u00fcrich", "days": 3})";

bool Has(std::string_view text, std::string_view part) {
  return !part.empty() && text.find(part) != std::string_view::npos;
}

class TemplateProbe {
 public:
  explicit TemplateProbe(const Engine& engine) : engine_(engine), tool_(Json::parse(kTool)) {
    user_ = {{"role", "user"}, {"content", "Q"}};
    std::string error;
    const auto set = ReadTools(Json{{"tools", Json::array({tool_})}});
    if (set.ok()) tools_ = *set;
  }

  // Empty: the template fails.
  std::string Render(const Json& messages, bool with_tool, bool for_answer) const {
    Json variables = {{"messages", messages}, {"add_generation_prompt", for_answer}};
    if (with_tool) variables["tools"] = Json::array({tool_});
    auto text = engine_.ApplyChatTemplate(variables.dump());
    return text.ok() ? std::move(text).value() : std::string();
  }
  std::string Question(bool with_tool, bool for_answer) const {
    return Render(Json::array({user_}), with_tool, for_answer);
  }
  std::string System() const {
    return Render(Json::array({Json{{"role", "system"}, {"content", "S"}}, user_}), false, true);
  }
  std::string Call(const HistoryForm& form) const {
    const Json arguments = form.arguments_as_text ? Json(std::string(kArguments)) : Json::parse(kArguments);
    const Json call = {
        {"id", "abcdef123"}, {"type", "function"}, {"function", {{"name", "get_weather"}, {"arguments", arguments}}}};
    Json messages = Json::array({user_, Json{{"role", "assistant"}, {"tool_calls", Json::array({call})}}});
    FitHistory(form, nullptr, true, &messages);
    return Render(messages, true, false);
  }

  // Whether `text` contains the call in this format.
  bool Reads(const ToolFormat& form, std::string_view text) const {
    if (!form.bare && !form.section_begin.empty() && !Has(text, form.section_begin)) return false;
    AnswerText reader({.calls = &form, .tools = tools_}, "probe");
    std::vector<AnswerPart> parts;
    reader.Append(text, &parts);
    reader.Finish(&parts);
    std::string name, arguments;
    for (const AnswerPart& part : parts) {
      if (part.call > 0) return false;
      if (part.kind == AnswerPart::Kind::kCallBegin) name = part.name;
      if (part.kind == AnswerPart::Kind::kCallArguments) arguments += part.text;
    }
    const Result<Json> read = ParseJson(arguments);
    if (name != "get_weather" || !read.ok() || *read != Json::parse(kArguments)) return false;
    // Formats that parse the same text differ in what they write.
    if (form.either &&
        (text.find(form.head_end) != std::string_view::npos) != (form.body == ToolFormat::Body::kNamedJson))
      return false;
    if (form.body != ToolFormat::Body::kJson) return true;
    const size_t begin = form.section_begin.empty() ? text.find(form.call_begin) : text.find(form.section_begin);
    const size_t first = text.find_first_of("[{", begin == std::string_view::npos ? 0 : begin + 1);
    return form.listed == (first != std::string_view::npos && text[first] == '[');
  }

 private:
  const Engine& engine_;
  const Json tool_;
  Json user_;
  std::shared_ptr<const ToolSet> tools_;
};

std::string_view Behind(const std::string& before, const std::string& whole) {
  const auto [end, rest] = std::mismatch(before.begin(), before.end(), whole.begin(), whole.end());
  return std::string_view(whole).substr(static_cast<size_t>(rest - whole.begin()));
}

const ToolFormat* CallsOf(const TemplateProbe& probe, const std::string& source, const std::string& call) {
  if (!call.empty()) {
    const std::string asked = probe.Question(true, true), shown = probe.Question(true, false);
    for (const ToolFormat& form : ToolFormats()) {
      if (probe.Reads(form, Behind(asked, call)) || probe.Reads(form, Behind(shown, call))) return &form;
    }
  }
  // The template prints no call, or not the given one: look for the markers in its source.
  for (const ToolFormat& form : ToolFormats()) {
    const std::string_view marker = form.section_begin.empty() ? form.call_begin : form.section_begin;
    if (Has(source, form.told_by) || Has(source, marker)) return &form;
  }
  return FindToolFormat("json");
}

const ReasoningFormat* ReasoningOf(const std::string& source) {
  for (const ReasoningFormat& form : ReasoningFormats()) {
    const bool whole = form.answer_begin.empty() || (Has(source, form.answer_begin) && Has(source, form.answer_end));
    if (whole && Has(source, form.end) && (form.told_by.empty() || Has(source, form.told_by))) return &form;
  }
  return nullptr;
}

bool IsSpecial(const Engine& engine, std::string_view marker) {
  if (marker.empty()) return false;
  const std::vector<TokenId> tokens = engine.Tokenize(marker, false);
  return std::any_of(tokens.begin(), tokens.end(), [&](TokenId token) { return engine.IsSpecialToken(token); });
}

template <class Formats>
std::string FormatNames(const Formats& formats) {
  std::string names = "auto, none";
  for (const auto& form : formats) {
    names += fmt::format(", {}", form.name);
    for (const char c : form.names.empty() ? std::string() : fmt::format(" {}", form.names))
      names += c == ' ' ? std::string(", ") : std::string(1, c);
  }
  return names;
}

bool IsKnown(std::string_view name) {
  return name == "auto" || name == "none";
}

}  // namespace

std::string ToolFormatNames() {
  return FormatNames(ToolFormats());
}
std::string ReasoningFormatNames() {
  return FormatNames(ReasoningFormats());
}

Status CheckParserNames(std::string_view tool_parser, std::string_view reasoning_parser) {
  if (!IsKnown(tool_parser) && FindToolFormat(tool_parser) == nullptr) {
    return InvalidArgument(
        fmt::format("--tool-call-parser: '{}' is unknown; give one of {}", tool_parser, ToolFormatNames()),
        "tool-call-parser");
  }
  if (!IsKnown(reasoning_parser) && FindReasoningFormat(reasoning_parser) == nullptr) {
    return InvalidArgument(
        fmt::format("--reasoning-parser: '{}' is unknown; give one of {}", reasoning_parser, ReasoningFormatNames()),
        "reasoning-parser");
  }
  return Status();
}

ChatStyle ChatStyleOf(const Engine& engine, std::string_view tool_parser, std::string_view reasoning_parser) {
  ChatStyle style;
  const std::string& source = engine.model().chat_template;
  const TemplateProbe probe(engine);
  if (!source.empty()) {
    const std::string plain = probe.Question(false, true);
    style.tool_history = AskTemplate(engine, true);
    style.plain_history = AskTemplate(engine, false);
    // If the template does not show calls, its rendering of them means nothing.
    const std::string call = style.tool_history.shows_calls ? probe.Call(style.tool_history) : std::string();
    const std::string with_tool = probe.Question(true, true);
    const std::string named = "get_weather";
    style.template_knows_tools =
        with_tool.empty() ? plain.empty() && Has(source, "tools") : Has(with_tool, named) && with_tool != plain;
    style.template_knows_system = plain.empty() || !probe.System().empty();
    if (tool_parser == "auto")
      style.calls = style.template_knows_tools ? CallsOf(probe, source, call) : FindToolFormat("json");
    if (reasoning_parser == "auto" && !style.harmony()) style.reasoning = ReasoningOf(source);
  }
  if (!IsKnown(tool_parser)) style.calls = FindToolFormat(tool_parser);
  if (!IsKnown(reasoning_parser)) style.reasoning = FindReasoningFormat(reasoning_parser);
  if (style.reasoning != nullptr) {
    for (const std::string_view marker : {style.reasoning->begin, style.reasoning->end, style.reasoning->answer_begin})
      style.specials = style.specials || IsSpecial(engine, marker);
  }
  if (style.calls != nullptr) {
    for (const std::string_view marker : {style.calls->section_begin, style.calls->call_begin, style.calls->head_end})
      style.specials = style.specials || IsSpecial(engine, marker);
  }
  return style;
}

AnswerReading ReadingOf(const ChatStyle& style, std::shared_ptr<const ToolSet> tools, std::string_view prompt) {
  AnswerReading reading;
  reading.reasoning = style.reasoning;
  reading.calls = style.calls;
  reading.tools = std::move(tools);
  while (!prompt.empty() && (prompt.back() == '\n' || prompt.back() == ' ')) prompt.remove_suffix(1);
  reading.begins_in_reasoning = style.reasoning != nullptr && prompt.ends_with(style.reasoning->begin);
  reading.reasoning_is_over =
      style.reasoning != nullptr && !style.reasoning->end.empty() && prompt.ends_with(style.reasoning->end);
  return reading;
}

}  // namespace tactus::api
