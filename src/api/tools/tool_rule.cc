#include "api/tools/tool_rule.h"
#include "api/fields/json.h"
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/tools/json_spacing.h"

namespace tactus::api {
namespace {

using Body = ToolFormat::Body;

constexpr size_t kMaxToolRuleBytes = size_t{1} << 20;

const ToolFormat kNoForm;
const ToolSet kNoTools;

bool HasCalls(const AnswerReading& reading) {
  return reading.calls != nullptr && reading.tools != nullptr;
}

// Writes the grammar. Functions return expressions: text for the right side of a rule; empty: nothing.
class RuleWriter {
 public:
  RuleWriter(const Engine& engine, const AnswerReading& reading, const OutputRule& format)
      : engine_(engine),
        reading_(reading),
        format_(format),
        form_(HasCalls(reading) ? *reading.calls : kNoForm),
        tools_(HasCalls(reading) ? *reading.tools : kNoTools) {}

  Result<OutputRule> Write() {
    for (const Tool& tool : tools_.tools) {
      JsonLimits limits;
      limits.max_keys += 2;  // ReadTools may have added these
      TACTUS_ASSIGN_OR_RETURN(Json schema, ParseJson(tool.parameters, limits));
      schemas_.push_back(std::move(schema));
    }
    if (format_.any()) {
      TACTUS_RETURN_IF_ERROR(WriteFormat());
    }
    const std::string start = form_.body == Body::kHarmony ? Harmony() : Start();
    Rule("start", start);
    if (TooLong()) {
      return InvalidArgument(
          fmt::format(
              "tools: their schemas make a grammar of more than {} bytes, the limit; give fewer or smaller ones",
              kMaxToolRuleBytes),
          "tools");
    }
    return OutputRule{OutputRule::Kind::kLark, "TEXT: /(.|\\n)*/\nSPACE: /[ \\n]{1,4}/\n" + rules_};
  }

 private:
  bool required() const { return tools_.choice != ToolSet::Choice::kAuto; }
  bool several() const { return tools_.parallel && tools_.choice != ToolSet::Choice::kNamed; }

  // If true, nothing more is written: each parameter may include all definitions.
  bool TooLong() const { return rules_.size() > kMaxToolRuleBytes; }
  void Rule(const std::string& name, const std::string& body) {
    if (!TooLong()) rules_ += name + ": " + body + "\n";
  }
  std::string NewName(const char* what) { return fmt::format("{}_{}", what, ++names_); }

  // Literal text, with its special tokens by their ids.
  std::string Text(std::string_view text) {
    if (text.empty()) return {};
    std::string out;
    size_t at = 0;
    for (const TokenId token : engine_.Tokenize(text, false)) {
      if (!engine_.IsSpecialToken(token)) continue;
      const std::string bytes = engine_.TokenBytes(token);
      const size_t found = bytes.empty() ? std::string_view::npos : text.find(bytes, at);
      if (found == std::string_view::npos) continue;
      if (found > at) out += Quoted(text.substr(at, found - at)) + " ";
      out += fmt::format("<[{}]> ", token);
      at = found + bytes.size();
    }
    if (at < text.size()) out += Quoted(text.substr(at));
    return out;
  }
  bool BeginsSpecial(std::string_view text) { return Text(text).starts_with('<'); }
  // Any text up to and including `marker`.
  std::string Until(std::string_view marker) {
    if (BeginsSpecial(marker)) return "TEXT " + Text(marker);
    const std::string name = NewName("until");
    Rule(name + "[lazy]", "TEXT " + Text(marker));
    return name;
  }

  std::string_view FirstMarker() const { return form_.section_begin.empty() ? form_.call_begin : form_.section_begin; }
  // Literal text, without the first marker at its beginning if a rule has already written that.
  std::string FromFirst(std::string_view text) {
    if (behind_first_ && text.starts_with(FirstMarker())) text.remove_prefix(FirstMarker().size());
    return Text(text);
  }

  // --- JSON ---
  std::string Schema(Json schema, bool strict) {
    if (TooLong()) return {};
    if (!schema.is_object()) schema = Json::object();  // `true` allows anything
    schema["x-guidance"] = Json::parse(strict ? kJsonSpacing : kJsonSpacingLenient);
    const std::string name = NewName("json");
    Rule(name, "%json " + schema.dump());
    return name;
  }
  const Json& SchemaOf(const Tool& tool) const { return schemas_[static_cast<size_t>(&tool - tools_.tools.data())]; }
  std::string Arguments(const Tool& tool) { return Schema(SchemaOf(tool), tool.strict); }
  // The schema of a parameter, by its position in the tool's list, without a search.
  const Json& PropertyOf(const Tool& tool, const Tool::Parameter& parameter) const {
    const auto& properties = SchemaOf(tool).at("properties").get_ref<const Json::object_t&>();
    return properties.begin()[&parameter - tool.listed.data()].second;
  }
  // The schema of one property, with the definitions that it may refer to.
  std::string Property(const Tool& tool, const Tool::Parameter& parameter) {
    if (TooLong()) return {};
    const Json& schema = SchemaOf(tool);
    Json alone = PropertyOf(tool, parameter);
    for (const char* definitions : {"$defs", "definitions"}) {
      const auto found = schema.find(definitions);
      if (found != schema.end() && alone.is_object() && !alone.contains(definitions)) alone[definitions] = *found;
    }
    return Schema(std::move(alone), tool.strict);
  }
  // The allowed strings of a text parameter; empty: any.
  std::vector<std::string> Choices(const Tool& tool, const Tool::Parameter& parameter) {
    std::vector<std::string> choices;
    const Json& property = PropertyOf(tool, parameter);
    const auto values = property.is_object() ? property.find("enum") : property.end();
    if (!property.is_object() || values == property.end() || !values->is_array()) return choices;
    for (const Json& value : *values) {
      if (!value.is_string()) return {};
      choices.push_back(value.get<std::string>());
    }
    return choices;
  }

  Status WriteFormat() {
    if (format_.kind == OutputRule::Kind::kLark) {
      Rule("format", "%lark {\n" + format_.text + "\n}");  // it has its own rule names
      return Status();
    }
    Json schema = {{"type", "object"}};
    if (format_.kind == OutputRule::Kind::kJsonSchema) {
      TACTUS_ASSIGN_OR_RETURN(schema, ParseJson(format_.text));
    }
    Rule("format", Schema(std::move(schema), true));
    return Status();
  }

  // --- One call ---
  std::string Call(const Tool& tool) {
    switch (form_.body) {
      case Body::kJson: {
        const std::string object = Object(tool);
        if (form_.listed || form_.bare || form_.call_begin.empty()) return object;
        return FromFirst(form_.call_begin) + " " + Text(form_.after_begin) + " " + object + " " +
               Text(form_.before_end) + " " + Text(form_.call_end);
      }
      case Body::kNamedJson:
        return Head(tool) + " " + Arguments(tool) + " " + Text(form_.call_end);
      case Body::kParameters:
        return Head(tool) + " " + Text(form_.line) + " " + Parameters(tool) + " " + Text(form_.call_end);
      case Body::kPythonic:
        return Quoted(tool.name + "(") + " " + Keywords(tool) + " \")\"";
      case Body::kHarmony:
        return Text("commentary to=functions." + tool.name + " <|constrain|>json<|message|>") + " " + Arguments(tool);
    }
    return {};
  }
  std::string Object(const Tool& tool) {
    const std::string name = Quoted(tool.name);
    if (format_.any()) {
      // The same lexemes as in a schema: a longer one would exclude an answer of the format that begins alike.
      const std::string colon = " /:[ ]?/ ", comma = " /,[ ]?/ ";
      const std::string named = form_.name_is_key ? Quoted(name)
                                                  : Quoted(Quoted(form_.name_key)) + colon + Quoted(name) + comma +
                                                        Quoted(Quoted(form_.arguments_key));
      return "\"{\" " + named + colon + Arguments(tool) + " \"}\"";
    }
    const std::string head = form_.name_is_key
                                 ? fmt::format("{{{}: ", name)
                                 : fmt::format("{{\"{}\": {}, \"{}\": ", form_.name_key, name, form_.arguments_key);
    return Quoted(head) + " " + Arguments(tool) + " \"}\"";
  }
  std::string Head(const Tool& tool) {
    std::string text(form_.call_begin);
    text += form_.head_before;
    text += tool.name;
    text += form_.head_after;
    text += form_.head_end;
    return FromFirst(text);
  }
  static bool IsText(const Tool::Parameter& parameter) {
    return parameter.types.size() == 1 && parameter.types[0] == "string";
  }
  std::string Parameters(const Tool& tool) {
    std::string out;
    for (const Tool::Parameter& parameter : tool.listed) {
      if (TooLong()) break;
      const bool text = IsText(parameter);
      std::string head(form_.key_begin);
      head += parameter.name;
      if (form_.typed_keys) head += text ? "\" string=\"true" : "\" string=\"false";
      head += form_.key_end;
      if (!form_.value_begin.empty()) head += form_.line;
      head += form_.value_begin;
      if (form_.value_on_own_lines) head += '\n';
      const std::string end = (form_.value_on_own_lines ? "\n" : "") + std::string(form_.value_end);
      std::string value;
      if (!text) {
        value = Property(tool, parameter) + " " + Text(end);
      } else if (const auto choices = Choices(tool, parameter); !choices.empty()) {
        value = "(" + Alternatives(choices) + ") " + Text(end);
      } else {
        value = Until(end);
      }
      const std::string name = NewName("parameter");
      Rule(name, Text(head) + " " + value + " " + Text(form_.line));
      out += name + (parameter.required ? " " : "? ");
    }
    return out;
  }
  static std::string Alternatives(const std::vector<std::string>& texts) {
    std::string out;
    for (const std::string& text : texts) out += (out.empty() ? "" : " | ") + Quoted(text);
    return out;
  }

  // --- Python literals ---
  std::string Keywords(const Tool& tool) {
    std::string required, optional;
    for (const Tool::Parameter& parameter : tool.listed) {
      if (TooLong()) break;
      const std::string name = NewName("keyword");
      Rule(name, Quoted(parameter.name + "=") + " " + Literal(tool, parameter));
      if (parameter.required)
        required += (required.empty() ? "" : " \", \" ") + name;
      else
        optional += (optional.empty() ? "" : " | ") + name;
    }
    if (optional.empty()) return required;
    if (required.empty()) return fmt::format("(({0}) (\", \" ({0}))*)?", optional);
    return fmt::format("{} (\", \" ({}))*", required, optional);
  }
  std::string Literal(const Tool& tool, const Tool::Parameter& parameter) {
    std::string out;
    for (const std::string& type : parameter.types) {
      if (!out.empty()) out += " | ";
      if (type == "string") {
        const auto choices = Choices(tool, parameter);
        std::vector<std::string> quoted;
        for (const std::string& choice : choices) quoted.push_back(Quoted(choice));
        out += choices.empty() ? "literal_string" : Alternatives(quoted);
      } else if (type == "integer" || type == "number") {
        out += Schema(Json{{"type", type}}, true);
      } else if (type == "boolean") {
        out += "\"True\" | \"False\"";
      } else if (type == "null") {
        out += "\"None\"";
      } else {
        out += "literal";
      }
    }
    if (!literals_) {
      literals_ = true;
      Rule("literal_string", Schema(Json{{"type", "string"}}, true));
      Rule("literal", "literal_string | " + Schema(Json{{"type", "number"}}, true) +
                          " | \"True\" | \"False\" | \"None\" | \"[\" (literal (\", \" literal)*)? \"]\" | \"{\" "
                          "(literal_string \": \" literal (\", \" literal_string \": \" literal)*)? \"}\"");
    }
    return "(" + (out.empty() ? "literal" : out) + ")";
  }

  // --- All of them ---
  std::string AnyCall() {
    std::string out;
    for (size_t i = 0; i < tools_.tools.size(); ++i) {
      if (tools_.choice == ToolSet::Choice::kNamed && i != tools_.named) continue;
      if (TooLong()) break;
      const std::string name = fmt::format("tool_{}", i);
      Rule(name, Call(tools_.tools[i]));
      out += (out.empty() ? "" : " | ") + name;
    }
    Rule("call", out);
    return "call";
  }
  std::string Calls() {
    const std::string call = AnyCall();
    std::string one = call;
    if (form_.one_a_section)
      one = FromFirst(std::string(form_.section_begin) + std::string(form_.after_begin)) + " call " +
            Text(std::string(form_.before_end) + std::string(form_.section_end));
    const std::string between = form_.between.empty() ? "" : Text(form_.between) + " ";
    // If each call has the marker, the rule that searches for the marker repeats.
    const bool repeats = behind_first_ && !form_.listed && (form_.section_begin.empty() || form_.one_a_section);
    std::string all = several() && !repeats ? fmt::format("{} ({}{})*", one, between, one) : one;
    if (form_.listed) all = "\"[\" " + all + " \"]\"";
    if (form_.listed && form_.body == Body::kJson && !form_.call_begin.empty() && !form_.bare)
      all = FromFirst(form_.call_begin) + " " + all;
    const bool marked = !form_.section_begin.empty() && !form_.one_a_section && !form_.bare;
    if (marked) {
      const bool in_section = !form_.listed && (form_.body != Body::kJson || form_.call_begin.empty());
      const std::string_view after = in_section ? form_.after_begin : "", before = in_section ? form_.before_end : "";
      all = FromFirst(std::string(form_.section_begin) + std::string(after)) + " " + all + " " +
            Text(std::string(before) + std::string(form_.section_end));
    }
    Rule("calls", all);
    return "calls";
  }
  std::string Reasoning() {
    if (reading_.reasoning == nullptr || reading_.reasoning_is_over) return {};
    const std::string rest = Until(reading_.reasoning->end) + " SPACE?";
    if (reading_.begins_in_reasoning) return rest + " ";
    return fmt::format("({} {})? ", Text(reading_.reasoning->begin), rest);
  }
  std::string Start() {
    if (tools_.tools.empty()) return Reasoning() + "format";
    if (required()) return Reasoning() + Calls();
    if (format_.any()) return Reasoning() + "(format | " + Calls() + ")";
    if (form_.bare) {
      // Free text must not begin like reasoning either, because a call may follow that.
      const bool thinks = reading_.reasoning != nullptr && !reading_.begins_in_reasoning;
      std::string_view begin = thinks ? reading_.reasoning->begin.substr(0, 1) : "";
      if (begin == "[") begin = {};  // already excluded
      Rule("FREE", fmt::format("/[ \\n]*[^{{\\[ \\n{}](.|\\n)*/", begin));
      return Reasoning() + "(FREE | " + Calls() + ")?";
    }
    // Any text, but the beginning of a call must continue as a call.
    const std::string_view first = FirstMarker();
    const char* times = several() ? "*" : "?";
    if (BeginsSpecial(first)) return Reasoning() + fmt::format("TEXT ({} TEXT){}", Calls(), times);
    // The marker is plain text: a lazy lexeme searches for it, and a call follows it.
    const std::string marker = Until(first);
    behind_first_ = true;
    return Reasoning() + fmt::format("({} {}){} TEXT", marker, Calls(), times);
  }

  std::string Harmony() {
    const std::string call = AnyCall();
    const std::string next = Text("<|end|><|start|>assistant<|channel|>");
    const std::string thought = Text("analysis<|message|>") + " TEXT";
    const std::string channel = Text("<|channel|>");
    if (required()) return fmt::format("{} ({} {})? {}", channel, thought, next, call);
    const std::string answer = format_.any() ? "format" : "TEXT";
    const std::string said = Text("final<|message|>") + " " + answer + " | " + Text("commentary<|message|>") + " TEXT";
    Rule("message", thought + " | " + said + " | " + call);
    return fmt::format("{} message ({} message)*", channel, next);
  }

  const Engine& engine_;
  const AnswerReading& reading_;
  const OutputRule& format_;
  const ToolFormat& form_;
  const ToolSet& tools_;
  std::vector<Json> schemas_;  // of the tools
  std::string rules_;
  int names_ = 0;
  bool literals_ = false;
  bool behind_first_ = false;  // an earlier rule has written the first marker
};

}  // namespace

OutputRule LooseRule(std::string_view parameters) {
  JsonLimits limits;
  limits.max_keys += 2;  // ReadTools may have added these
  auto schema = ParseJson(parameters, limits);
  Json object = schema.ok() ? std::move(schema).value() : Json::object();
  object["x-guidance"] = Json::parse(kJsonSpacingLenient);
  return {OutputRule::Kind::kLark, "start: json\njson: %json " + object.dump() + "\n"};
}

Result<OutputRule> ToolRule(const Engine& engine, const AnswerReading& reading, const OutputRule& format) {
  const bool calls = HasCalls(reading) && (reading.tools->choice != ToolSet::Choice::kAuto || reading.tools->strict());
  if (!calls && !format.any()) return OutputRule();
  return RuleWriter(engine, reading, format).Write();
}

}  // namespace tactus::api
