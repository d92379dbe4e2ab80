#include "results/obs/run_condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/printable.h"

namespace tactus::results {
namespace {

constexpr size_t kMostConditionBytes = 4096;

bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

class Parser {
 public:
  Parser(std::string_view text, std::span<const NamedCondition> named) : text_(text), named_(named) {}

  Status Run(std::vector<RunCondition::Clause>* out) {
    if (text_.size() > kMostConditionBytes)
      return InvalidArgument(
          fmt::format("a condition of {} bytes; the limit is {}", text_.size(), kMostConditionBytes));
    while (true) {
      TACTUS_RETURN_IF_ERROR(ReadClause(out));
      Blanks();
      if (at_ == text_.size()) return Status();
      const size_t begin = at_;
      if (Word() != "and") return Wrong(begin, "join clauses by 'and'");
    }
  }

 private:
  // Positions count from 1.
  Status Wrong(size_t begin, const std::string& what) const {
    const std::string there =
        begin >= text_.size() ? "its end" : fmt::format("'{}'", Printable(std::string(text_.substr(begin, 20))));
    return InvalidArgument(
        fmt::format("'{}', position {}, at {}: {}", Printable(std::string(text_)), begin + 1, there, what));
  }

  void Blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }
  std::string_view Word() {
    Blanks();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordByte(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  bool Take(std::string_view token) {
    Blanks();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  Status ReadClause(std::vector<RunCondition::Clause>* out) {
    Blanks();
    const size_t begin = at_;
    const std::string_view word = Word();
    if (word.empty()) return Wrong(begin, "expected a clause such as p99(tbt)<=100ms");
    for (const NamedCondition& n : named_) {
      if (n.name == word) return Parser(n.text, {}).Run(out);
    }
    std::string_view inside;
    if (Take("(")) {
      const size_t close = text_.find(')', at_);
      if (close == std::string_view::npos) return Wrong(at_, "the ')' is missing");
      inside = text_.substr(at_, close - at_);
      at_ = close + 1;
    }
    const auto metric =
        inside.empty() ? RunMetric::Of("", word, "") : RunMetric::Parse(text_.substr(begin, at_ - begin));
    if (!metric.ok()) {
      std::string names;
      for (const NamedCondition& n : named_) names += (names.empty() ? "" : ", ") + n.name;
      return Wrong(begin, metric.status().message() + (names.empty() ? "" : "; whole conditions: " + names));
    }
    const auto comparison = ReadComparison();
    if (!comparison) return Wrong(at_, "expected a comparison: <=, <, >=, > or ==");
    double limit = 0;
    TACTUS_RETURN_IF_ERROR(ReadLimit(metric->info(), &limit));
    out->push_back({*metric, *comparison, limit, std::string(text_.substr(begin, at_ - begin))});
    return Status();
  }

  std::optional<RunCondition::Comparison> ReadComparison() {
    using enum RunCondition::Comparison;
    static constexpr std::pair<std::string_view, RunCondition::Comparison> kTexts[] = {
        {"<=", kLessEqual}, {">=", kGreaterEqual}, {"==", kEqual}, {"<", kLess}, {">", kGreater}};
    for (const auto& [token, comparison] : kTexts) {
      if (Take(token)) return comparison;
    }
    return std::nullopt;
  }

  Status ReadLimit(const MetricInfo& metric, double* out) {
    Blanks();
    const size_t begin = at_;
    double number = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (error != std::errc() || !std::isfinite(number) || number < 0)
      return Wrong(begin, "expected a number of at least 0");
    at_ = static_cast<size_t>(end - text_.data());
    const size_t unit_begin = at_;
    while (at_ < text_.size() && (IsWordByte(text_[at_]) || text_[at_] == '%')) ++at_;
    const std::string_view unit = text_.substr(unit_begin, at_ - unit_begin);
    const auto factor = Factor(metric, unit, number);
    if (!factor) return Wrong(unit_begin, fmt::format("{} {}", metric.name, UnitsOf(metric.unit)));
    *out = number * *factor;
    return Status();
  }

  // The factor from the given unit to the metric's.
  static std::optional<double> Factor(const MetricInfo& metric, std::string_view unit, double number) {
    static constexpr std::pair<std::string_view, double> kSeconds[] = {
        {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}};
    switch (metric.unit) {
      case MetricUnit::kMilliseconds:
      case MetricUnit::kSeconds:
        for (const auto& [name, seconds] : kSeconds) {
          if (unit == name) return seconds * (metric.unit == MetricUnit::kMilliseconds ? 1e3 : 1);
        }
        return number == 0 && unit.empty() ? std::optional(1.0) : std::nullopt;
      case MetricUnit::kShare:
        if (unit == "%") return 0.01;
        return unit.empty() && number <= 1 ? std::optional(1.0) : std::nullopt;
      case MetricUnit::kPerSecond:
      case MetricUnit::kPlain:
        break;
    }
    return unit.empty() ? std::optional(1.0) : std::nullopt;
  }

  static const char* UnitsOf(MetricUnit unit) {
    switch (unit) {
      case MetricUnit::kMilliseconds:
      case MetricUnit::kSeconds:
        return "is a time: give it a unit, ns, us, ms, s or m";
      case MetricUnit::kShare:
        return "is a share: a number from 0 to 1, or a percentage such as 99%";
      case MetricUnit::kPerSecond:
        return "is a rate per second and takes no unit";
      case MetricUnit::kPlain:
        break;
    }
    return "takes no unit";
  }

  const std::string_view text_;
  const std::span<const NamedCondition> named_;
  size_t at_ = 0;
};

bool Holds(double value, RunCondition::Comparison comparison, double limit) {
  switch (comparison) {
    case RunCondition::Comparison::kLess:
      return value < limit;
    case RunCondition::Comparison::kLessEqual:
      return value <= limit;
    case RunCondition::Comparison::kEqual:
      return value == limit;
    case RunCondition::Comparison::kGreaterEqual:
      return value >= limit;
    case RunCondition::Comparison::kGreater:
      break;
  }
  return value > limit;
}

}  // namespace

Result<RunCondition> RunCondition::Parse(std::string_view text, std::span<const NamedCondition> named) {
  RunCondition condition;
  TACTUS_RETURN_IF_ERROR(Parser(text, named).Run(&condition.clauses_));
  return condition;
}

std::vector<RunCondition::Verdict> RunCondition::Check(const Json& result) const {
  std::vector<Verdict> verdicts;
  for (const Clause& c : clauses_) {
    const auto value = c.metric.Value(result);
    verdicts.push_back({value && Holds(*value, c.comparison, c.limit), value});
  }
  return verdicts;
}

std::string RunCondition::Text() const {
  std::string text;
  for (const Clause& c : clauses_) text += (text.empty() ? "" : " and ") + c.text;
  return text;
}

std::string VerdictText(const RunCondition::Clause& clause, const RunCondition::Verdict& verdict) {
  return fmt::format(
      "{}: {}", clause.text,
      verdict.value ? "it was " + MetricText(*verdict.value, clause.metric.info().unit) : "the run has no value");
}

}  // namespace tactus::results
