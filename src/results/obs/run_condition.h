// A condition on a run, such as 'p99(tbt)<=100ms and p50(delay)<=2s and rejected==0'. Clauses are joined by "and"; each
// compares a metric of the result (run_metric.h) with a number and its unit: ns, us, ms, s or m for times, % or none
// for shares, none for the rest. A named condition is an abbreviation for its clauses.
// Thread rule: immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "results/obs/run_metric.h"

namespace tactus::results {

struct NamedCondition {
  std::string name;  // letters, digits, - and _
  std::string text;
};

class RunCondition {
 public:
  enum class Comparison : uint8_t { kLess, kLessEqual, kEqual, kGreaterEqual, kGreater };
  struct Clause {
    RunMetric metric;
    Comparison comparison;
    double limit;      // in the metric's unit
    std::string text;  // as given
  };
  // The outcome of a clause for a run. No value (unknown): not held.
  struct Verdict {
    bool held = false;
    std::optional<double> value;
  };

  // kInvalidArgument: names the position (from 1), the text there and what was expected.
  static Result<RunCondition> Parse(std::string_view text, std::span<const NamedCondition> named = {});

  // One verdict per clause, in order.
  std::vector<Verdict> Check(const Json& result) const;
  std::span<const Clause> clauses() const { return clauses_; }
  std::string Text() const;  // with named conditions expanded

 private:
  std::vector<Clause> clauses_;
};

// "p99(tbt)<=100ms: it was 163 ms".
std::string VerdictText(const RunCondition::Clause& clause, const RunCondition::Verdict& verdict);

}  // namespace tactus::results
