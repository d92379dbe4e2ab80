#include "grammar/rule_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "grammar/exact_schema.h"
#include "grammar/grammar_engine.h"
#include "grammar/regex_text.h"
#include "grammar/schema_check.h"
#include "grammar/schema_text.h"

namespace tactus::grammar {
namespace {

// On one string: the work of intersecting regexes doubles and more with each, and llguidance counts it only in between.
constexpr int kMostPatterns = 8;

Status CheckOneSchema(const Json& schema, const char* kind, StopToken stop) {
  if (const Status fault = CheckSchema(schema); !fault.ok())
    return InvalidArgument(fmt::format("{}: {}", kind, fault.message()));
  const int patterns = MostPatterns(schema, stop);
  if (stop.stopped()) return Status(StatusCode::kCancelled, "stopped");
  if (patterns < 0) {
    return InvalidArgument(
        fmt::format("{}: 'allOf' and '$ref' bring so many schemas together that the patterns and formats on one string "
                    "cannot be counted within {} steps, the limit; refer to fewer, or more directly",
                    kind, kMostCountingSteps));
  }
  if (patterns > kMostPatterns) {
    return InvalidArgument(
        fmt::format("{}: {} patterns and formats bear on one string, through 'allOf' and '$ref'; the limit is {}", kind,
                    patterns, kMostPatterns));
  }
  return Status();
}

// Where the string or expression that begins at `at` ends.
size_t EndOfLiteral(std::string_view lark, size_t at) {
  const char quote = lark[at];
  for (++at; at < lark.size() && lark[at] != quote && lark[at] != '\n'; ++at) {
    if (lark[at] == '\\') ++at;
  }
  return std::min(at, lark.size());
}

}  // namespace

int MostIntersected(std::string_view lark) {
  int most = 0, count = 1;
  bool line_begins = true;
  for (size_t at = 0; at < lark.size(); ++at) {
    const char c = lark[at];
    if (line_begins && (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_')) count = 1;  // a definition
    line_begins = c == '\n';
    if (c == '/' && at + 1 < lark.size() && lark[at + 1] == '/') {  // a comment
      at = std::min(lark.find('\n', at), lark.size()) - 1;
    } else if (c == '"' || c == '/') {
      at = EndOfLiteral(lark, at);
      line_begins = at < lark.size() && lark[at] == '\n';
    } else if (c == '&') {
      most = std::max(most, ++count);
    }
  }
  return most;
}

Result<std::shared_ptr<const RuleSource>> RuleSource::Of(const OutputRule& rule, StopToken stop) {
  auto source = std::make_shared<RuleSource>();
  source->kind = rule.kind;
  source->text = rule.kind == OutputRule::Kind::kRegex ? AsciiClasses(rule.text) : rule.text;
  source->changed = source->text != rule.text;
  if (rule.kind == OutputRule::Kind::kJsonObject) source->schema = Json{{"type", "object"}};
  if (rule.kind == OutputRule::Kind::kJsonSchema) {
    auto parsed = ParseSchema(rule.text, stop);
    if (!parsed.ok()) return InvalidArgument(fmt::format("json_schema: {}", parsed.status().message()));
    source->schema = std::move(parsed).value();
  }
  if (source->schema) {
    source->text = SchemaText(*source->schema);
    TACTUS_ASSIGN_OR_RETURN(const Json handed_over, json_text::ParseJson(source->text));
    auto exact = ExactGrammar(handed_over, stop);
    if (!exact.ok()) return InvalidArgument(fmt::format("json_schema: {}", exact.status().message()));
    source->as_lark = exact->has_value();
    if (source->as_lark) source->text = std::move(**exact);
  } else if (rule.kind == OutputRule::Kind::kLark) {
    auto exact = WithExactNumbers(std::move(source->text), &source->inner, stop);
    if (!exact.ok()) return InvalidArgument(fmt::format("lark: {}", exact.status().message()));
    source->text = std::move(*exact);
  }
  if (source->text.find('\0') != std::string::npos) {
    return InvalidArgument(fmt::format("{}: a zero byte in the text", RuleName(rule.kind)));
  }
  return std::shared_ptr<const RuleSource>(std::move(source));
}

Status RuleSource::Check(StopToken stop) const {
  if (schema) return CheckOneSchema(*schema, "json_schema", stop);
  for (const Json& one : inner) TACTUS_RETURN_IF_ERROR(CheckOneSchema(one, "lark: %json", stop));
  if (kind != OutputRule::Kind::kLark) return Status();
  if (const int count = MostIntersected(text); count > kMostPatterns) {
    return InvalidArgument(fmt::format("lark: {} expressions are intersected ('&') in one definition; the limit is {}",
                                       count, kMostPatterns));
  }
  return Status();
}

const char* RuleSource::handed_over_as() const {
  return RuleName(as_lark ? OutputRule::Kind::kLark : schema ? OutputRule::Kind::kJsonSchema : kind);
}

}  // namespace tactus::grammar
