#include "serve/calls/timeline_facts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace tactus::serve {
namespace {

bool Computes(Cause cause) {
  return cause == Cause::kPrefill || cause == Cause::kRecompute || cause == Cause::kDecode;
}

}  // namespace

void AddTimeline(const RequestTimeline& timeline, http::RequestFacts* facts) {
  facts->finish = FinishReasonName(timeline.finish);
  facts->preemptions = timeline.preemptions;
  std::array<int64_t, kNumCauses> total_ns{};
  for (const SequenceTimeline& s : timeline.sequences) {
    if (s.ttft_ns >= 0 && (facts->ttft_ns < 0 || s.ttft_ns < facts->ttft_ns)) facts->ttft_ns = s.ttft_ns;
    facts->longest_gap_ns = std::max(facts->longest_gap_ns, s.longest_gap_ns);
    const auto first = std::find_if(s.segments.begin(), s.segments.end(),
                                    [](const TimelineSegment& segment) { return Computes(segment.cause); });
    if (first != s.segments.end() && (facts->queue_ns < 0 || first->from_ns < facts->queue_ns))
      facts->queue_ns = first->from_ns;
    for (size_t c = 0; c < kNumCauses; ++c) total_ns[c] += s.total_ns[c];
  }
  const auto most = std::max_element(total_ns.begin(), total_ns.end());
  if (*most > 0) facts->cause = CauseName(static_cast<Cause>(most - total_ns.begin()));
  // The cause of the worst miss says more than the largest part of the time.
  int64_t worst_ns = -1;
  for (size_t i = 0; i < kNumObjectives; ++i) {
    const Miss& miss = timeline.misses[i];
    if (!miss.missed) continue;
    facts->missed += (facts->missed.empty() ? "" : ",") + std::string(ObjectiveName(static_cast<Objective>(i)));
    if (miss.cost_ns <= worst_ns) continue;
    worst_ns = miss.cost_ns;
    facts->cause = CauseName(miss.cause);
  }
}

}  // namespace tactus::serve
