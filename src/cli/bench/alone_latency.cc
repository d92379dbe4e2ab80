#include "cli/bench/alone_latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tactus::cli {
namespace {

constexpr int64_t kAnswerTokens = 16;  // enough gaps for a mean
constexpr int kTries = 2;

double At(const std::vector<AlonePoint>& points, double AlonePoint::* value, double tokens) {
  const auto x = [&points](size_t i) { return static_cast<double>(points[i].prompt_tokens); };
  if (points.size() == 1 || tokens <= x(0)) return points[0].*value;
  size_t i = 1;
  while (i + 1 < points.size() && tokens > x(i)) ++i;
  const double share = (tokens - x(i - 1)) / (x(i) - x(i - 1));
  return points[i - 1].*value + share * (points[i].*value - points[i - 1].*value);
}

std::vector<int64_t> Prompts(const std::vector<sim::WorkloadRequest>& workload) {
  std::vector<int64_t> all;
  for (const sim::WorkloadRequest& r : workload) all.push_back(r.prompt_tokens);
  std::sort(all.begin(), all.end());
  std::vector<int64_t> some = {all.front(), all[all.size() / 2], all.back()};
  some.erase(std::unique(some.begin(), some.end()), some.end());
  return some;
}

}  // namespace

Slo AloneAt(const std::vector<AlonePoint>& points, const sim::WorkloadRequest& r) {
  const auto prompt = static_cast<double>(r.prompt_tokens), more = static_cast<double>(r.output_tokens - 1);
  const double ttft = std::max(1.0, At(points, &AlonePoint::ttft_ns, prompt));
  const double middle_gap = std::max(1.0, At(points, &AlonePoint::gap_ns, prompt + more / 2));
  const double last_gap = std::max(1.0, At(points, &AlonePoint::gap_ns, prompt + more));
  return {std::llround(ttft), std::llround(last_gap), std::llround(ttft + more * middle_gap)};
}

Result<std::vector<AlonePoint>> MeasureAlone(const LoadOptions& options,
                                             const std::vector<sim::WorkloadRequest>& workload, Clock& clock,
                                             const std::function<bool()>& keep_going) {
  LoadOptions alone = options;
  alone.concurrency = 1;
  alone.warmup = 0;
  alone.ignore_eos = true;
  alone.send_slo = false;
  alone.seed = ~options.seed;  // a different seed, so that the prefix cache cannot help the workload's requests
  std::vector<sim::WorkloadRequest> probes;
  const std::vector<int64_t> prompts = Prompts(workload);
  for (const int64_t prompt : prompts) {
    for (int i = 0; i < kTries; ++i) {
      sim::WorkloadRequest r;
      r.index = static_cast<int64_t>(probes.size());
      r.prompt_tokens = prompt;
      r.output_tokens = kAnswerTokens;
      probes.push_back(r);
    }
  }
  TACTUS_ASSIGN_OR_RETURN(const LoadResult result,
                          RunLoad(alone, probes, clock, [&](const LoadProgress&) { return keep_going(); }));
  if (result.interrupted)
    return Status(StatusCode::kCancelled, "interrupted while measuring latencies of single requests");
  std::vector<AlonePoint> points;
  for (size_t i = 0; i < result.records.size(); ++i) {
    const RequestRecord& r = result.records[i];
    if (r.outcome != RequestRecord::Outcome::kCompleted || r.first_token_ns == 0) continue;
    const auto ttft = static_cast<double>(r.first_token_ns - r.due_ns);
    const double gap = r.gaps_ns.empty() ? 0
                                         : static_cast<double>(r.last_token_ns - r.first_token_ns) /
                                               static_cast<double>(r.gaps_ns.size());
    if (points.empty() || points.back().prompt_tokens != probes[i].prompt_tokens) {
      points.push_back({probes[i].prompt_tokens, ttft, gap});
    } else {
      points.back().ttft_ns = std::min(points.back().ttft_ns, ttft);
      points.back().gap_ns = std::min(points.back().gap_ns, gap);
    }
  }
  if (!points.empty()) return points;
  return Internal(
      fmt::format("--slo-mix has multiples (Nx) of the latency of a request alone, but all {} requests that measure it "
                  "failed: {}. Give durations instead",
                  probes.size(),
                  ReasonsText(result.failures.empty() ? result.rejections : result.failures, "without an answer",
                              static_cast<int64_t>(probes.size()))));
}

std::string AloneText(const std::vector<AlonePoint>& points) {
  std::string text;
  for (const AlonePoint& p : points) {
    text += fmt::format("{}{} prompt tokens: {:.1f} ms to the first token, then {:.2f} ms each",
                        text.empty() ? "" : "; ", p.prompt_tokens, p.ttft_ns * 1e-6, p.gap_ns * 1e-6);
  }
  return text;
}

}  // namespace tactus::cli
