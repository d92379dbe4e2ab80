#include "results/obs/kept_series.h"

#include <fmt/format.h>

#include "base/json.h"

namespace tactus::results {
namespace {

double Seconds(TimeNs ns) {
  return static_cast<double>(ns) * 1e-9;
}

void AddSummary(const char* name, const Summary& s, Json* row) {
  for (const auto& [part, value] : {std::pair{"p50", s.p50}, {"p99", s.p99}, {"max", s.max}})
    (*row)[fmt::format("{}_{}_ms", name, part)] = s.known ? Json(value) : Json(nullptr);
}

std::string Known(const Summary& s, double value) {
  return s.known ? fmt::format("{:.1f}", value) : "-";
}

}  // namespace

void KeptSeries::Add(const RunInterval& interval) {
  if (rows_.size() < kMostRows) {
    rows_.push_back(interval);
  } else {
    ++left_out_;
  }
}

Json KeptSeries::ToJson() const {
  Json rows = Json::array();
  for (const RunInterval& i : rows_) {
    Json row = {{"from_s", Seconds(i.from_ns)},    {"arrived", i.arrived},
                {"completed", i.completed},        {"failed", i.failed},
                {"rejected", i.rejected},          {"in_flight", i.in_flight},
                {"output_tokens", i.output_tokens}};
    AddSummary("ttft", i.ttft_ms, &row);
    AddSummary("gap", i.gap_ms, &row);
    rows.push_back(std::move(row));
  }
  return {{"interval_s", Seconds(interval_ns_)}, {"rows", std::move(rows)}, {"left_out", left_out_}};
}

std::string KeptSeries::Table() const {
  std::string text = fmt::format("{:>12} {:>8} {:>9} {:>7} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
                                 "from (s)", "arrived", "completed", "failed", "rejected", "in flight", "tokens/s",
                                 "TTFT P50", "P99", "gap P50", "P99", "max (ms)");
  for (const RunInterval& i : rows_) {
    text += fmt::format("{:>12.3f} {:>8} {:>9} {:>7} {:>9} {:>9} {:>10.1f} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
                        Seconds(i.from_ns), i.arrived, i.completed, i.failed, i.rejected, i.in_flight,
                        static_cast<double>(i.output_tokens) / Seconds(interval_ns_), Known(i.ttft_ms, i.ttft_ms.p50),
                        Known(i.ttft_ms, i.ttft_ms.p99), Known(i.gap_ms, i.gap_ms.p50), Known(i.gap_ms, i.gap_ms.p99),
                        Known(i.gap_ms, i.gap_ms.max));
  }
  if (left_out_ > 0) text += fmt::format("and {} more: use a longer interval, or a run file (--run-out)\n", left_out_);
  return text;
}

}  // namespace tactus::results
