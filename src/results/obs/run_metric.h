// Figures of a result object by name: "p99(tbt)", "goodput", "attainment(chat)". They are read off the object's JSON
// (docs/api.md, "Result"), so that a run and a file of one are read alike and every figure keeps its one definition.
//
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
  const char* of_class;  // the same in an object of `classes`; null: not known by class
  bool summary;          // of many values: the path leads to mean, p50, p90, p95, p99 and max
  MetricUnit unit;
  int sense;  // 1: more is better, -1: less is, 0: neither
  const char* help;
};
std::span<const MetricInfo> Metrics();

class RunMetric {
 public:
  // kInvalidArgument: names what is wrong and lists what there is.
  static Result<RunMetric> Parse(std::string_view text);
  // From its parts: `part` is a quantile's name or "mean" or "max", empty where the metric has one value;
  // `of_class` empty: of all requests. As Parse.
  static Result<RunMetric> Of(std::string_view part, std::string_view name, std::string_view of_class);

  // By comma; those of p99(ttft, CLASS) do not part it. As Parse.
  static Result<std::vector<RunMetric>> ParseList(std::string_view text);
  // Every metric of all requests, with every part.
  static std::vector<RunMetric> All();

  // In the unit of info(). Absent: not known of this run.
  std::optional<double> Value(const Json& result) const;
  std::string Name() const;  // as Parse takes it
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
