#include "language/grammar/rule_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/json.h"
#include "language/grammar/grammar_engine.h"
#include "language/grammar/schema_text.h"

namespace tactus::language {
namespace {

constexpr size_t kMostChars = 600;  // of a message; it may quote a regex

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view Trimmed(std::string_view text) {
  const auto blank = [](char c) { return static_cast<unsigned char>(c) <= ' '; };
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  return text;
}

std::string Cut(std::string_view text) {
  return text.size() <= kMostChars ? std::string(text)
                                   : json_text::ReplaceInvalidUtf8(text.substr(0, kMostChars)) + "...";
}

// The text between the two, if both occur in this order.
std::optional<std::string_view> Between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t begin = text.find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + before.size());
  const size_t end = text.find(after);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(0, end);
}

// The library's regex errors contain a picture; its last line has the reason, the carets below the pattern the place:
//   regex parse error:
//       (?=a)b
//       ^^^
//   error: look-around is not supported
// The place refers to the form passed to the library, so it is left out where that was `changed`.
std::string RegexError(std::string_view said, bool changed) {
  constexpr size_t kMargin = 4;
  size_t column = 0;
  std::string reason;
  for (const std::string_view line : Lines(said.substr(said.find("regex parse error:")))) {
    const size_t caret = line.find_first_not_of(' ');
    if (column == 0 && caret != std::string_view::npos && line[caret] == '^') column = caret - kMargin + 1;
    if (line.starts_with("error: ")) reason = line.substr(7);
  }
  if (reason.empty()) return "it cannot be read";
  return column == 0 || changed ? reason : fmt::format("{} (at character {})", reason, column);
}

// A Lark grammar's errors: "at 2(5): reason", and a picture of the place. A regex rule is line 1 of our grammar.
std::string GrammarError(std::string_view said, bool is_regex, bool changed) {
  if (said.starts_with("at ")) said.remove_prefix(3);
  std::string place;
  const size_t open = said.find('('), close = said.find("): ");
  if (open < close && close != std::string_view::npos && said.find_first_not_of("0123456789") == open) {
    if (!is_regex)
      place = fmt::format("line {}, column {}: ", said.substr(0, open), said.substr(open + 1, close - open - 1));
    said.remove_prefix(close + 3);
  }
  std::string text(Trimmed(said.substr(0, said.find('\n'))));
  if (said.find("regex parse error:") != std::string_view::npos) {
    const auto regex = Between(said, "invalid regex ", " (in regex)");
    text = RegexError(said, changed);
    if (!is_regex && regex) text = fmt::format("regex {}: {}", *regex, text);
  } else if (said.find("lookarounds not supported yet") != std::string_view::npos) {
    text = "anchors within a regex and word boundaries are not supported";
  }
  return place + text;
}

// A keyword of a schema, and its place.
struct Fault {
  std::string keyword;
  std::optional<Json> value;  // distinguishes it among several
  std::string text;
};

// Translates the library's messages for unsupported schemas (its parser/src/json).
Fault SchemaFault(std::string_view said, const Json& schema) {
  if (const auto keys = Between(said, "Unimplemented keys: [\"", "\"")) {
    return {std::string(*keys), {}, fmt::format("'{}' is not supported", *keys)};
  }
  if (said.starts_with("oneOf constraints are not supported")) {
    return {"oneOf", {}, "'oneOf' is supported only where its alternatives plainly exclude each other; 'anyOf' may do"};
  }
  if (said.starts_with("Unknown format: ")) {
    const std::string format(Trimmed(said.substr(16)));
    return {"format", Json(format), fmt::format("'format': '{}' is not supported", format)};
  }
  if (said.starts_with("Invalid type: ")) {
    const std::string type(Trimmed(said.substr(14)));
    return {"type", Json(type), fmt::format("'type': '{}' is not a type", type)};
  }
  if (const auto uri = Between(said, "Resource '", "'")) {
    return {"$ref", Json(std::string(*uri)),
            fmt::format("'$ref': '{}' is another document; put definitions into '$defs' of this one", *uri)};
  }
  if (const auto pointer = Between(said, "Pointer '", "' does not exist")) {
    return {"$ref", Json(fmt::format("#{}", *pointer)), fmt::format("'$ref': there is no '#{}'", *pointer)};
  }
  if (said.find("regex parse error:") != std::string_view::npos) {
    const std::vector<std::string_view> lines = Lines(said);
    const auto head = std::find_if(lines.begin(), lines.end(),
                                   [](std::string_view line) { return line.find("regex parse error:") != line.npos; });
    const std::string handed_over(head + 1 < lines.end() ? Trimmed(head[1]) : "");
    const std::string pattern = PatternHandedOverAs(schema, handed_over);
    return {"pattern", Json(pattern), fmt::format("'pattern': {}", RegexError(said, pattern != handed_over))};
  }
  if (said.find("lookarounds not supported yet") != std::string_view::npos) {
    return {"pattern", {}, "'pattern': anchors within it and word boundaries are not supported"};
  }
  if (said.starts_with("Unable to determine if regex is empty")) {
    return {"pattern", {}, "'pattern': with the other constraints on the string it is too complex"};
  }
  if (said.starts_with("Regex is empty")) {
    return {"", {}, "no string can match it: its 'pattern', 'format', lengths, 'enum' and 'const' exclude each other"};
  }
  if (said.starts_with("Failed to generate regex for integer range")) {
    return {"minimum", {}, "'minimum' and 'maximum': no integer of 64 bits lies between them"};
  }
  if (said.starts_with("min/maxProperties only supported")) {
    return {said.find("minProperties") != std::string_view::npos ? "minProperties" : "",
            {},
            "'minProperties' and 'maxProperties' are supported only where all 'properties' are required"};
  }
  if (said.find("are not disjoint") != std::string_view::npos || said.find("disjoint") != std::string_view::npos) {
    return {"patternProperties", {}, fmt::format("'patternProperties': {}", said)};
  }
  // Other messages contain the keyword, in quotes or as the first word.
  if (const auto quoted = Between(said, "'", "'")) return {std::string(*quoted), {}, std::string(said)};
  const std::string first(said.substr(0, said.find(' ')));
  return {first, {}, std::string(said)};
}

}  // namespace

Status RuleError(OutputRule::Kind kind, std::string_view said, const Json* schema, bool changed) {
  const char* name = RuleName(kind);
  if (said.starts_with("panic: ")) {
    return InvalidArgument(fmt::format("{}: the grammar library fails on this rule ({}); write it in another way", name,
                                       Cut(said.substr(7, std::min(said.find('\n'), said.size()) - 7))));
  }
  for (const std::string_view noise : {"\n<non-verbose/>", "\n<state>"}) said = said.substr(0, said.find(noise));
  said = Trimmed(said);
  if (said == "NoExtensionBias") return InvalidArgument(fmt::format("{}: no answer can match it", name));
  for (const char* limit :
       {"precomputation failed", "fuel", "Too many items", "too large", "Too many states", "too many expressions"}) {
    if (said.find(limit) != std::string_view::npos) {
      return InvalidArgument(fmt::format("{}: it is too complex; make it simpler", name));
    }
  }
  if (schema == nullptr) {
    const bool is_regex = kind == OutputRule::Kind::kRegex;
    return InvalidArgument(fmt::format("{}: {}", name, Cut(GrammarError(said, is_regex, changed))));
  }
  const std::string_view whole = said;
  said = Trimmed(said.substr(0, said.find("\n  while processing")));
  if (said.starts_with("Unsatisfiable schema: ")) said.remove_prefix(22);
  Fault fault = SchemaFault(said, *schema);
  std::replace(fault.text.begin(), fault.text.end(), '\n', ' ');
  std::string place = FindKeyword(*schema, fault.keyword, fault.value ? &*fault.value : nullptr);
  if (const size_t at = whole.rfind("while processing "); place.empty() && at != std::string_view::npos) {
    place = whole.substr(at + 17);
  }
  return InvalidArgument(fmt::format("{}: {}{}", name, Cut(fault.text), place.empty() ? "" : ", at " + place));
}

}  // namespace tactus::language
