// What a request takes at a server that does nothing else, for objectives that are multiples of it: measured with a few
// requests, one after the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/bench/load_generator.h"
#include "sim/slo_mix.h"

namespace tactus::cli {

// Of one prompt length.
struct AlonePoint {
  int64_t prompt_tokens = 0;
  double ttft_ns = 0, gap_ns = 0;
};

// Between points a straight line; below the first as the first, beyond the last as the line through the last two.
// Precondition: at least one point, prompts ascending. Every answer is at least 1 ns.
Slo AloneAt(const std::vector<AlonePoint>& points, const sim::WorkloadRequest& request);

// Requests with the workload's shortest, middle and longest prompt, each twice, of which the faster counts. Those that
// the server does not answer say nothing; an error where it answers none. kCancelled once `keep_going` says no.
Result<std::vector<AlonePoint>> MeasureAlone(const LoadOptions& options,
                                             const std::vector<sim::WorkloadRequest>& workload, Clock& clock,
                                             const std::function<bool()>& keep_going);

// "17 tokens: 12.0 ms to the first token, then 5.1 ms each; ..."
std::string AloneText(const std::vector<AlonePoint>& points);

}  // namespace tactus::cli
