// Metrics of a result object by name: "p99(tbt)", "goodput", "attainment(chat)". They are read from the object's JSON
// (docs/reference/api.md, "Result"), so that live results and result files are read alike and every metric has one
// definition.
// Thread rule: immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "tactus/status.h"

namespace tactus::results {

enum class MetricUnit : uint8_t { kMilliseconds, kSeconds, kPerSecond, kShare, kPlain };

struct MetricInfo {
  const char* name;
  const char* path;      // of the value in the result's JSON: "/requests/rejected"
  const char* of_class;  // the same within an object of `classes`; null: not available by class
  bool summary;          // many values: the path leads to mean, p50, p90, p95, p99 and max
  MetricUnit unit;
  int sense;  // 1: more is better, -1: less is better, 0: neither
  const char* help;
};
std::span<const MetricInfo> Metrics();

class RunMetric {
 public:
  // kInvalidArgument: names the error and lists the metrics.
  static Result<RunMetric> Parse(std::string_view text);
  // From its parts: `part` is a quantile's name, "mean" or "max", empty for a metric with one value; `of_class` empty:
  // all requests. Errors as in Parse.
  static Result<RunMetric> Of(std::string_view part, std::string_view name, std::string_view of_class);

  // Separated by commas, except the comma within p99(ttft, CLASS). Errors as in Parse.
  static Result<std::vector<RunMetric>> ParseList(std::string_view text);
  // Every metric over all requests, with every part.
  static std::vector<RunMetric> All();

  // In the unit of info(). Absent: the run has no value.
  std::optional<double> Value(const Json& result) const;
  std::string Name() const;  // in the form that Parse reads
  const MetricInfo& info() const { return *info_; }

 private:
  RunMetric(const MetricInfo* info, std::string part, std::string of_class)
      : info_(info), part_(std::move(part)), class_(std::move(of_class)) {}
  const MetricInfo* info_;
  std::string part_, class_;
};

bool IsSummaryPart(std::string_view word);  // p50, p90, p95, p99, mean, max
// "203 ms", "0.987", "3.2/s".
std::string MetricText(double value, MetricUnit unit);
std::string MetricNames();  // for messages: "ttft, tbt, ... (as p99(...)); goodput, ..."

}  // namespace tactus::results
