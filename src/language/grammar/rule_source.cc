#include "language/grammar/rule_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <utility>
#include <vector>

#include "language/grammar/exact_schema.h"
#include "language/grammar/grammar_engine.h"
#include "language/grammar/regex_text.h"
#include "language/grammar/schema_check.h"
#include "language/grammar/schema_text.h"

namespace tactus::language {
namespace {

// per string: the work of intersecting regexes at least doubles with each, and llguidance's limits apply only in
// between
constexpr int kMostPatterns = 8;

// A wrong rule, or a cancelled wait.
Status FaultOf(const char* kind, const Status& status) {
  if (status.code() == StatusCode::kCancelled) return status;
  return InvalidArgument(fmt::format("{}: {}", kind, status.message()));
}

Status CheckOneSchema(const Json& schema, const char* kind, StopToken stop) {
  if (const Status fault = CheckSchema(schema); !fault.ok())
    return InvalidArgument(fmt::format("{}: {}", kind, fault.message()));
  const int patterns = MostPatterns(schema, stop);
  if (stop.stopped()) return Status(StatusCode::kCancelled, "stopped");
  if (patterns < 0) {
    return InvalidArgument(
        fmt::format("{}: 'allOf' and '$ref' bring too many schemas together: the patterns and formats on one string "
                    "cannot be counted within {} steps, the limit; refer to fewer, or more directly",
                    kind, kMostCountingSteps));
  }
  if (patterns > kMostPatterns) {
    return InvalidArgument(
        fmt::format("{}: {} patterns and formats apply to one string, through 'allOf' and '$ref'; the limit is {}",
                    kind, patterns, kMostPatterns));
  }
  return Status();
}

// The definitions of a grammar in Lark's notation, as far as needed to count intersections and counts. May be wrong for
// an invalid grammar, which the library then refuses.
class LarkText {
 public:
  explicit LarkText(std::string_view lark) : text_(lark) {
    while (at_ < text_.size()) Step();
    EndLine();
    for (Definition& definition : definitions_) FindUses(&definition);
  }

  // The first count that the library cannot read: it holds them as 31 bits. Empty: none.
  const std::string& count_beyond() const { return count_beyond_; }

  int Most() {
    int most = 0;
    for (size_t i = 0; i < definitions_.size(); ++i) most = std::max(most, CountOf(i));
    return most;
  }

 private:
  static constexpr int kMany = 1000, kUnknown = -1, kBegun = -2;
  struct Line {
    int ands = 0;
    std::vector<std::string_view> names;
  };
  struct Use {
    size_t definition;
    int times;
  };
  struct Definition {
    Line body;
    std::vector<Use> uses;  // other definitions in its body, each once
    int count = kUnknown;   // number of expressions intersected in it
  };

  // --- Reading ---
  // A line may begin a definition: then a ':' follows its first name.
  void Step() {
    const char c = text_[at_];
    const std::string_view rest = text_.substr(at_);
    if (c == '\n') {
      EndLine();
      ++at_;
    } else if (c == '#' || rest.starts_with("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '"' || c == '/') {
      SkipLiteral(c);
      const std::string_view literal = rest.substr(0, rest.size() - (text_.size() - at_));
      if (c == '/' && count_beyond_.empty()) count_beyond_ = CountBeyond(literal, /*maximums=*/true);
    } else if (c == '{' || c == '~') {
      ++at_;
      SkipCount(c);
    } else if (c == '<' && SkipSpecial()) {
    } else if (rest.starts_with("%json") || rest.starts_with("%regex") || rest.starts_with("%llguidance")) {
      SkipObject();
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
      size_t end = at_ + 1;
      while (end < text_.size() &&
             (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_' || text_[end] == '-')) {
        ++end;
      }
      line_.names.push_back(text_.substr(at_, end - at_));
      at_ = end;
    } else if (rest.starts_with("::")) {
      at_ += 2;
    } else if (c == ':') {
      if (!line_.names.empty()) {
        // Defining a name again adds to its body.
        current_ = by_name_.try_emplace(line_.names[0], definitions_.size()).first->second;
        if (current_ == definitions_.size()) definitions_.emplace_back();
      }
      line_ = {};
      ++at_;
    } else {
      line_.ands += c == '&';
      ++at_;
    }
  }
  // {n,m}, and ~ n..m.
  void SkipCount(char c) {
    const size_t end =
        std::min(text_.find_first_not_of(c == '{' ? "0123456789, \t" : "0123456789. \t", at_), text_.size());
    std::string digits;
    for (size_t i = at_; i <= end && count_beyond_.empty(); ++i) {
      if (i < end && std::isdigit(static_cast<unsigned char>(text_[i])) != 0) {
        digits += text_[i];
        continue;
      }
      if (IsBeyondMost(digits)) count_beyond_ = digits;
      digits.clear();
    }
    at_ = end;
  }
  void EndLine() {
    if (definitions_.empty()) definitions_.emplace_back();
    Line& body = definitions_[current_].body;
    body.ands += line_.ands;
    body.names.insert(body.names.end(), line_.names.begin(), line_.names.end());
    line_ = {};
  }
  // An expression may span several lines, a string may not.
  void SkipLiteral(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote && (quote == '/' || text_[at_] != '\n'); ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    at_ = std::min(text_.size(), at_ + (at_ < text_.size() && text_[at_] == quote));
  }
  bool SkipSpecial() {
    const size_t end = text_.find_first_of("<> \t\r\n", at_ + 1);
    if (end == std::string_view::npos || text_[end] != '>' || end == at_ + 1) return false;
    at_ = end + 1;
    return true;
  }
  void SkipObject() {
    at_ = std::min(text_.find_first_not_of("abcdefghijklmnopqrstuvwxyz", at_ + 1), text_.size());
    const size_t begin = text_.find_first_not_of(" \t\r\n", at_);
    if (begin == std::string_view::npos || text_[begin] != '{') return;
    int depth = 0;
    for (at_ = begin; at_ < text_.size();) {
      if (text_[at_] == '"') {
        SkipLiteral('"');
        continue;
      }
      depth += (text_[at_] == '{') - (text_[at_] == '}');
      ++at_;
      if (depth == 0) return;
    }
  }

  // --- Counting ---
  // Counts a definition with the names in it: where it is intersected, they are as well. Without recursion, since
  // chains of names may be as long as the text.
  int CountOf(size_t first) {
    std::vector<size_t> open = {first};
    while (!open.empty()) {
      Definition& definition = definitions_[open.back()];
      if (definition.count >= 0) {
        open.pop_back();
      } else if (definition.count == kUnknown) {
        definition.count = kBegun;
        for (const Use& use : definition.uses) {
          if (definitions_[use.definition].count == kUnknown) open.push_back(use.definition);
        }
      } else {
        int64_t sum = definition.body.ands > 0 ? definition.body.ands + 1 : 0;
        int most = 0;
        for (const Use& use : definition.uses) {
          const int count = std::max(0, definitions_[use.definition].count);  // a cycle adds nothing
          most = std::max(most, count);
          if (count > 0) sum = std::min<int64_t>(kMany, sum + int64_t{use.times} * (count - 1));
        }
        definition.count = definition.body.ands > 0 ? static_cast<int>(sum) : most;
        open.pop_back();
      }
    }
    return definitions_[first].count;
  }
  void FindUses(Definition* definition) {
    std::vector<size_t> used;
    for (const std::string_view name : definition->body.names) {
      if (const auto found = by_name_.find(name); found != by_name_.end()) used.push_back(found->second);
    }
    std::sort(used.begin(), used.end());
    for (const size_t one : used) {
      if (definition->uses.empty() || definition->uses.back().definition != one) definition->uses.push_back({one, 0});
      ++definition->uses.back().times;
    }
  }

  const std::string_view text_;
  std::string count_beyond_;
  size_t at_ = 0;
  Line line_;  // the current line so far
  std::vector<Definition> definitions_;
  size_t current_ = 0;  // the definition that receives the lines
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace

int MostIntersected(std::string_view lark) {
  return LarkText(lark).Most();
}

Result<std::shared_ptr<const RuleSource>> RuleSource::Of(const OutputRule& rule, StopToken stop) {
  auto source = std::make_shared<RuleSource>();
  source->kind = rule.kind;
  source->text = rule.kind == OutputRule::Kind::kRegex ? AsciiClasses(rule.text) : rule.text;
  source->changed = source->text != rule.text;
  if (rule.kind == OutputRule::Kind::kJsonObject) source->schema = Json{{"type", "object"}};
  if (rule.kind == OutputRule::Kind::kJsonSchema) {
    auto parsed = ParseSchema(rule.text, stop);
    if (!parsed.ok()) return FaultOf("json_schema", parsed.status());
    source->schema = std::move(parsed).value();
  }
  if (source->schema) {
    source->text = SchemaText(*source->schema);
    TACTUS_ASSIGN_OR_RETURN(const Json handed_over, json_text::ParseJson(source->text));
    auto exact = ExactGrammar(handed_over, stop);
    if (!exact.ok()) return FaultOf("json_schema", exact.status());
    source->as_lark = exact->has_value();
    if (source->as_lark) source->text = std::move(**exact);
  } else if (rule.kind == OutputRule::Kind::kLark) {
    auto exact = WithExactNumbers(std::move(source->text), &source->inner, stop);
    if (!exact.ok()) return FaultOf("lark", exact.status());
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
  if (kind == OutputRule::Kind::kRegex) {
    const std::string beyond = CountBeyond(text);
    return beyond.empty() ? Status() : InvalidArgument(fmt::format("regex: {} {}", beyond, BeyondMost()));
  }
  if (kind != OutputRule::Kind::kLark) return Status();
  LarkText lark(text);
  if (!lark.count_beyond().empty()) {
    return InvalidArgument(
        fmt::format("lark: the count {} is beyond {}, the limit; give a smaller one, or leave the maximum out: {{n,}}",
                    lark.count_beyond(), kMostCount));
  }
  if (const int count = lark.Most(); count > kMostPatterns) {
    return InvalidArgument(fmt::format(
        "lark: {} expressions are intersected ('&') in one definition and those that it names; the limit is "
        "{}; intersect fewer",
        count, kMostPatterns));
  }
  return Status();
}

const char* RuleSource::handed_over_as() const {
  return RuleName(as_lark ? OutputRule::Kind::kLark : schema ? OutputRule::Kind::kJsonSchema : kind);
}

}  // namespace tactus::language
