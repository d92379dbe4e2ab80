// Latency of a request alone on an idle server, for objectives that are multiples of it: measured with a few requests,
// one after another.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/bench/load_generator.h"
#include "sim/workload/slo_mix.h"

namespace tactus::cli {

// Measured latency at one prompt length.
struct AlonePoint {
  int64_t prompt_tokens = 0;
  double ttft_ns = 0, gap_ns = 0;
};

// Linear between points; constant below the first; beyond the last, the line through the last two points. Precondition:
// at least one point, prompts ascending. Every answer is at least 1 ns.
Slo AloneAt(const std::vector<AlonePoint>& points, const sim::WorkloadRequest& request);

// Sends requests with the workload's shortest, middle and longest prompt, each twice, and keeps the faster one. Failed
// requests are ignored; an error if all fail. kCancelled if `keep_going` returns false.
Result<std::vector<AlonePoint>> MeasureAlone(const LoadOptions& options,
                                             const std::vector<sim::WorkloadRequest>& workload, Clock& clock,
                                             const std::function<bool()>& keep_going);

// "17 tokens: 12.0 ms to the first token, then 5.1 ms each; ..."
std::string AloneText(const std::vector<AlonePoint>& points);

}  // namespace tactus::cli
