#include "cli/serving_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tactus::cli {
namespace {

using Json = nlohmann::ordered_json;

Json Summary(std::vector<double> values) {
  if (values.empty()) return nullptr;  // not known is null, never 0
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (double v : values) sum += v;
  auto quantile = [&](double q) {
    const double rank = q * static_cast<double>(values.size() - 1);
    const auto low = static_cast<size_t>(rank);
    const size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (rank - static_cast<double>(low)) * (values[high] - values[low]);
  };
  return {{"mean", sum / static_cast<double>(values.size())},
          {"p50", quantile(0.5)},
          {"p90", quantile(0.9)},
          {"p95", quantile(0.95)},
          {"p99", quantile(0.99)},
          {"max", values.back()}};
}

double Ms(DurationNs ns) {
  return static_cast<double>(ns) * 1e-6;
}

bool KeptSlo(const RequestRecord& r, const Slo& slo) {
  if (slo.ttft_ns > 0 && (r.first_token_ns == 0 || r.first_token_ns - r.due_ns > slo.ttft_ns)) return false;
  if (slo.jct_ns > 0 && r.done_ns - r.due_ns > slo.jct_ns) return false;
  if (slo.tbt_ns > 0) {
    for (DurationNs gap : r.gaps_ns)
      if (gap > slo.tbt_ns) return false;
  }
  return true;
}

}  // namespace

Json ReportJson(const ReportInput& input) {
  int64_t completed = 0, failed = 0, rejected = 0, in_tokens = 0, out_tokens = 0, cached = 0, kept = 0;
  std::vector<double> ttft, normalized, tbt, tpot, e2e;
  TimeNs first_sent = kNever, last_sent = 0;
  for (const RequestRecord& r : input.records) {
    if (r.sent_ns > 0) {
      first_sent = std::min(first_sent, r.sent_ns);
      last_sent = std::max(last_sent, r.sent_ns);
    }
    failed += r.outcome == RequestRecord::Outcome::kFailed;
    rejected += r.outcome == RequestRecord::Outcome::kRejected;
    if (r.outcome != RequestRecord::Outcome::kCompleted) continue;
    ++completed;
    in_tokens += r.prompt_tokens;
    out_tokens += r.output_tokens;
    cached += r.cached_tokens;
    kept += KeptSlo(r, input.slo);
    // Latencies count from the time the workload wanted the request sent: a client that falls behind hides nothing.
    e2e.push_back(Ms(r.done_ns - r.due_ns));
    if (r.first_token_ns == 0) continue;
    ttft.push_back(Ms(r.first_token_ns - r.due_ns));
    if (r.prompt_tokens > 0) normalized.push_back(ttft.back() / static_cast<double>(r.prompt_tokens));
    if (r.output_tokens > 1)
      tpot.push_back(Ms(r.last_token_ns - r.first_token_ns) / static_cast<double>(r.output_tokens - 1));
    for (DurationNs gap : r.gaps_ns) tbt.push_back(Ms(gap));
  }
  const double seconds = static_cast<double>(input.duration_ns) * 1e-9;
  auto per_second = [&](int64_t n) -> Json {
    return seconds > 0 ? Json(static_cast<double>(n) / seconds) : Json(nullptr);
  };
  const bool has_slo = input.slo.ttft_ns > 0 || input.slo.tbt_ns > 0 || input.slo.jct_ns > 0;
  const int64_t ended = completed + failed + rejected;
  Json out;
  out["duration_s"] = seconds;
  out["requests"] = {{"completed", completed}, {"failed", failed}, {"rejected", rejected}};
  out["request_throughput"] = per_second(completed);
  out["input_token_throughput"] = per_second(in_tokens);
  out["output_token_throughput"] = per_second(out_tokens);
  out["goodput"] = has_slo ? per_second(kept) : Json(nullptr);
  out["slo_attainment"] =
      has_slo && ended > 0 ? Json(static_cast<double>(kept) / static_cast<double>(ended)) : Json(nullptr);
  out["preemptions"] = nullptr;  // not seen from outside
  out["recomputed_tokens"] = nullptr;
  out["ttft_ms"] = Summary(std::move(ttft));
  out["normalized_ttft_ms"] = Summary(std::move(normalized));
  out["tbt_ms"] = Summary(std::move(tbt));
  out["tpot_ms"] = Summary(std::move(tpot));
  out["e2e_ms"] = Summary(std::move(e2e));
  out["scheduling_delay_ms"] = nullptr;
  out["cached_prompt_tokens"] = cached;
  out["request_rate_asked"] = input.rate_asked_per_s > 0 ? Json(input.rate_asked_per_s) : Json(nullptr);
  const int64_t sent = static_cast<int64_t>(
      std::count_if(input.records.begin(), input.records.end(), [](const RequestRecord& r) { return r.sent_ns > 0; }));
  const double span = static_cast<double>(last_sent - first_sent) * 1e-9;
  out["request_rate_achieved"] = sent > 1 && span > 0 ? Json(static_cast<double>(sent - 1) / span) : Json(nullptr);
  out["concurrency"] = input.concurrency > 0 ? Json(input.concurrency) : Json(nullptr);
  return out;
}

std::string ReportTable(const Json& report) {
  auto number = [](const Json& v, const char* format) {
    return v.is_number() ? fmt::format(fmt::runtime(format), v.get<double>()) : std::string("-");
  };
  std::string out;
  const Json& requests = report.at("requests");
  out += fmt::format("Requests: {} completed, {} failed, {} rejected in {} s\n",
                     requests.at("completed").get<int64_t>(), requests.at("failed").get<int64_t>(),
                     requests.at("rejected").get<int64_t>(), number(report.at("duration_s"), "{:.2f}"));
  out +=
      fmt::format("Request rate asked / achieved: {} / {} per s\n", number(report.at("request_rate_asked"), "{:.3f}"),
                  number(report.at("request_rate_achieved"), "{:.3f}"));
  out += fmt::format(
      "Throughput: {} requests/s, {} input tokens/s, {} output tokens/s; goodput {} requests/s, attainment {}\n",
      number(report.at("request_throughput"), "{:.3f}"), number(report.at("input_token_throughput"), "{:.1f}"),
      number(report.at("output_token_throughput"), "{:.1f}"), number(report.at("goodput"), "{:.3f}"),
      number(report.at("slo_attainment"), "{:.3f}"));
  out +=
      fmt::format("\n{:<22}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "", "mean", "median", "P90", "P95", "P99", "max");
  const std::pair<const char*, const char*> rows[] = {{"TTFT (ms)", "ttft_ms"},
                                                      {"TPOT (ms)", "tpot_ms"},
                                                      {"ITL, every gap (ms)", "tbt_ms"},
                                                      {"E2EL (ms)", "e2e_ms"},
                                                      {"TTFT / prompt token", "normalized_ttft_ms"}};
  for (const auto& [title, key] : rows) {
    out += fmt::format("{:<22}", title);
    const Json& row = report.at(key);
    for (const char* column : {"mean", "p50", "p90", "p95", "p99", "max"}) {
      out += fmt::format("{:>11}", row.is_object() ? number(row.at(column), "{:.2f}") : "-");
    }
    out += "\n";
  }
  return out;
}

}  // namespace tactus::cli
