#include "results/obs/run_metric.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/printable.h"

namespace tactus::results {
namespace {

constexpr auto kMs = MetricUnit::kMilliseconds;
constexpr MetricInfo kMetrics[] = {
    {"ttft", "/ttft_ms", "/ttft_ms", true, kMs, -1, "arrival to first token"},
    {"normalized_ttft", "/normalized_ttft_ms", nullptr, true, kMs, -1, "arrival to first token, per prompt token"},
    {"tbt", "/tbt_ms", "/tbt_ms", true, kMs, -1, "between two tokens of a stream, every gap"},
    {"tpot", "/tpot_ms", "/tpot_ms", true, kMs, -1, "first token to last, per token after the first"},
    {"e2e", "/e2e_ms", "/e2e_ms", true, kMs, -1, "arrival to last token"},
    {"delay", "/scheduling_delay_ms", nullptr, true, kMs, -1, "arrival to the first step that contains the request"},
    {"step", "/step_ms", nullptr, true, kMs, 0, "duration of a step"},
    {"bubble", "/bubbles/per_request_ms", nullptr, true, kMs, -1, "idle time of stages before a request's steps"},
    {"attainment", "/slo_attainment", "/slo_attainment", false, MetricUnit::kShare, 1,
     "share of requests that met all their objectives"},
    {"ttft_attainment", "/ttft_attainment", "/ttft_attainment", false, MetricUnit::kShare, 1,
     "share that met the TTFT objective"},
    {"tbt_attainment", "/tbt_attainment", "/tbt_attainment", false, MetricUnit::kShare, 1,
     "share that met the gap objective"},
    {"jct_attainment", "/jct_attainment", "/jct_attainment", false, MetricUnit::kShare, 1,
     "share that met the total objective"},
    {"step_attainment", "/step_attainment", "/step_attainment", false, MetricUnit::kShare, 1,
     "share of gaps within the gap objective"},
    {"goodput", "/goodput", nullptr, false, MetricUnit::kPerSecond, 1, "requests/s that met all their objectives"},
    {"throughput", "/request_throughput", nullptr, false, MetricUnit::kPerSecond, 1, "requests/s"},
    {"input_throughput", "/input_token_throughput", nullptr, false, MetricUnit::kPerSecond, 1, "prompt tokens/s"},
    {"output_throughput", "/output_token_throughput", nullptr, false, MetricUnit::kPerSecond, 1, "output tokens/s"},
    {"duration", "/duration_s", nullptr, false, MetricUnit::kSeconds, -1, "first arrival to last end"},
    {"completed", "/requests/completed", "/completed", false, MetricUnit::kPlain, 1, "requests"},
    {"failed", "/requests/failed", "/failed", false, MetricUnit::kPlain, -1, "requests"},
    {"rejected", "/requests/rejected", "/rejected", false, MetricUnit::kPlain, -1, "requests"},
    {"preemptions", "/preemptions", nullptr, false, MetricUnit::kPlain, -1, "preemptions of running sequences"},
    {"recomputed_tokens", "/recomputed_tokens", nullptr, false, MetricUnit::kPlain, -1, "after preemptions"},
    {"steps", "/steps", nullptr, false, MetricUnit::kPlain, 0, "steps of all replicas"},
    {"mean_batch", "/mean_batch", nullptr, false, MetricUnit::kPlain, 0, "sequences per step"},
    {"budget_utilization", "/budget_utilization", nullptr, false, MetricUnit::kShare, 0,
     "used share of the token budget"},
    {"kv_utilization", "/kv_utilization", nullptr, false, MetricUnit::kShare, 0, "used share of the KV blocks"},
    {"prefix_sharing", "/prefix_sharing", nullptr, false, MetricUnit::kShare, 1, "prompt tokens found in the cache"},
    {"mfu", "/mfu", nullptr, false, MetricUnit::kShare, 1, "arithmetic as a share of the devices' peak"},
    {"mbu", "/mbu", nullptr, false, MetricUnit::kShare, 1, "memory traffic as a share of the devices' peak"},
    {"cost", "/cost_per_million_tokens", nullptr, false, MetricUnit::kPlain, -1,
     "cost per million tokens, prompts and answers (--device-hour-price)"},
    {"output_cost", "/cost_per_million_output_tokens", nullptr, false, MetricUnit::kPlain, -1,
     "cost per million output tokens"},
};
constexpr std::string_view kParts[] = {"mean", "p50", "p90", "p95", "p99", "max"};

std::string Names(bool summary) {
  std::string names;
  for (const MetricInfo& m : kMetrics) {
    if (m.summary == summary) names += fmt::format("{}{}", names.empty() ? "" : ", ", m.name);
  }
  return names;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::span<const MetricInfo> Metrics() {
  return kMetrics;
}

bool IsSummaryPart(std::string_view word) {
  return std::find(std::begin(kParts), std::end(kParts), word) != std::end(kParts);
}

std::string MetricNames() {
  return fmt::format("mean, p50, p90, p95, p99 or max of ({}), and {}", Names(true), Names(false));
}

Result<RunMetric> RunMetric::Of(std::string_view part, std::string_view name, std::string_view of_class) {
  const auto* const info =
      std::find_if(std::begin(kMetrics), std::end(kMetrics), [name](const MetricInfo& m) { return m.name == name; });
  if (info == std::end(kMetrics)) {
    return InvalidArgument(
        fmt::format("'{}' is not a metric; the metrics are {}", Printable(std::string(name)), MetricNames()));
  }
  if (info->summary && part.empty())
    return InvalidArgument(fmt::format("'{0}' has many values: use p99({0}), or mean, p50, p90, p95, max", name));
  if (!info->summary && !part.empty())
    return InvalidArgument(fmt::format("'{0}' is a single value: use {0}, not {1}({0})", name, part));
  if (!of_class.empty() && info->of_class == nullptr)
    return InvalidArgument(fmt::format("'{}' has no values by class: leave '{}' out", name, of_class));
  return RunMetric(info, std::string(part), std::string(of_class));
}

Result<RunMetric> RunMetric::Parse(std::string_view text) {
  text = Trim(text);
  const size_t open = text.find('(');
  if (open == std::string_view::npos) return Of("", text, "");
  if (text.back() != ')') return InvalidArgument(fmt::format("'{}' has no ')'", Printable(std::string(text))));
  const std::string_view head = Trim(text.substr(0, open));
  const std::string_view inside = Trim(text.substr(open + 1, text.size() - open - 2));
  if (!IsSummaryPart(head)) return Of("", head, inside);
  const size_t comma = inside.find(',');
  return Of(head, Trim(inside.substr(0, comma)),
            comma == std::string_view::npos ? std::string_view() : Trim(inside.substr(comma + 1)));
}

Result<std::vector<RunMetric>> RunMetric::ParseList(std::string_view text) {
  std::vector<RunMetric> metrics;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] != ',' || depth > 0)) {
      depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
      continue;
    }
    TACTUS_ASSIGN_OR_RETURN(RunMetric metric, Parse(text.substr(begin, i - begin)));
    metrics.push_back(std::move(metric));
    begin = i + 1;
  }
  return metrics;
}

std::vector<RunMetric> RunMetric::All() {
  std::vector<RunMetric> all;
  for (const MetricInfo& info : kMetrics) {
    if (!info.summary) {
      all.push_back(RunMetric(&info, "", ""));
      continue;
    }
    for (const std::string_view part : kParts) all.push_back(RunMetric(&info, std::string(part), ""));
  }
  return all;
}

std::optional<double> RunMetric::Value(const Json& result) const {
  const Json* of = &result;
  std::string path = info_->path;
  if (!class_.empty()) {
    const auto classes = result.find("classes");
    if (classes == result.end() || !classes->is_object() || !classes->contains(class_)) return std::nullopt;
    of = &(*classes)[class_];
    path = info_->of_class;
  }
  if (!part_.empty()) path += "/" + part_;
  const Json::json_pointer at(path);
  if (!of->contains(at) || !(*of)[at].is_number()) return std::nullopt;
  return (*of)[at].get<double>();
}

std::string RunMetric::Name() const {
  if (part_.empty()) return class_.empty() ? std::string(info_->name) : fmt::format("{}({})", info_->name, class_);
  return class_.empty() ? fmt::format("{}({})", part_, info_->name)
                        : fmt::format("{}({}, {})", part_, info_->name, class_);
}

std::string MetricText(double value, MetricUnit unit) {
  switch (unit) {
    case MetricUnit::kMilliseconds:
      return value >= 1000 ? fmt::format("{:.0f} ms", value) : fmt::format("{:.4g} ms", value);  // one unit for all
    case MetricUnit::kSeconds:
      return fmt::format("{:.4g} s", value);
    case MetricUnit::kPerSecond:
      return fmt::format("{:.4g}/s", value);
    case MetricUnit::kShare:
    case MetricUnit::kPlain:
      break;
  }
  return fmt::format("{:.6g}", value);
}

}  // namespace tactus::results
