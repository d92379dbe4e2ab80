#include "core/loop/sequence_line.h"

#include <algorithm>

namespace tactus::core {
namespace {

bool Computes(Cause cause) {
  return cause == Cause::kPrefill || cause == Cause::kDecode;
}

Cause Longest(const std::array<DurationNs, kNumCauses>& spent_ns) {
  return static_cast<Cause>(std::max_element(spent_ns.begin(), spent_ns.end()) - spent_ns.begin());
}

}  // namespace

void SequenceLine::Account(Cause cause, TimeNs until_ns, StepId step) {
  if (until_ns <= since_ns) return;
  total_ns[static_cast<size_t>(cause)] += until_ns - since_ns;
  // With several steps in flight, `step` may be before steps that are already counted.
  const auto steps = static_cast<int32_t>(std::max<StepId>(0, step - since_step));
  since_ns = until_ns;
  since_step += steps;
  if (num_segments > 0 && segments[num_segments - 1].cause == cause) {
    segments[num_segments - 1].until_ns = until_ns;
    segments[num_segments - 1].steps += steps;
    return;
  }
  if (num_segments == segments.size()) Compact();
  segments[num_segments++] = {until_ns, steps, cause, false};
}

// Merges pairs of segments that are together shorter than an eighth of the whole time, so at least a quarter of the
// segments are free afterwards.
void SequenceLine::Compact() {
  const DurationNs short_ns = std::max<DurationNs>(1, (segments[num_segments - 1].until_ns - arrival_ns) / 8);
  TimeNs from_ns = arrival_ns;
  uint32_t kept = 0;
  for (uint32_t i = 0; i + 1 < num_segments; i += 2) {
    const LineSegment a = segments[i], b = segments[i + 1];
    if (b.until_ns - from_ns > short_ns) {
      segments[kept++] = a;
      segments[kept++] = b;
    } else {
      const bool first_is_longer = a.until_ns - from_ns >= b.until_ns - a.until_ns;
      segments[kept++] = {b.until_ns, a.steps + b.steps, first_is_longer ? a.cause : b.cause,
                          a.mixed || b.mixed || a.cause != b.cause};
    }
    from_ns = b.until_ns;
  }
  num_segments = kept;
}

std::array<DurationNs, kNumCauses> SequenceLine::Within(TimeNs from_ns, TimeNs to_ns) const {
  std::array<DurationNs, kNumCauses> spent_ns{};
  TimeNs begin_ns = arrival_ns;
  for (uint32_t i = 0; i < num_segments; ++i) {
    const LineSegment& s = segments[i];
    const DurationNs both_ns = std::min(to_ns, s.until_ns) - std::max(from_ns, begin_ns);
    if (both_ns > 0) spent_ns[static_cast<size_t>(s.cause)] += both_ns;
    begin_ns = s.until_ns;
  }
  return spent_ns;
}

SequenceTimeline SequenceLine::Show() const {
  SequenceTimeline shown;
  shown.choice = choice;
  shown.finish = finish;
  shown.completion_tokens = generated;
  if (first_token_ns >= 0) shown.ttft_ns = first_token_ns - arrival_ns;
  shown.end_ns = since_ns - arrival_ns;
  if (generated > 1) {
    shown.longest_gap_ns = longest_gap_ns;
    shown.longest_gap_end_ns = longest_gap_end_ns - arrival_ns;
    shown.longest_gap_cause = Longest(Within(longest_gap_end_ns - longest_gap_ns, longest_gap_end_ns));
  }
  int64_t from_ns = 0;
  for (uint32_t i = 0; i < num_segments; ++i) {
    const LineSegment& s = segments[i];
    shown.segments.push_back({s.cause, s.mixed, from_ns, s.until_ns - arrival_ns, s.steps});
    from_ns = s.until_ns - arrival_ns;
  }
  shown.total_ns = total_ns;
  shown.prefill_beside_others_ns = beside_others_ns;
  return shown;
}

Miss MissOf(const std::array<DurationNs, kNumCauses>& spent_ns, DurationNs objective_ns) {
  DurationNs all_ns = 0, computing_ns = 0;
  for (size_t c = 0; c < kNumCauses; ++c) {
    all_ns += spent_ns[c];
    if (Computes(static_cast<Cause>(c))) computing_ns += spent_ns[c];
  }
  Miss miss;
  const DurationNs late_ns = all_ns - objective_ns;
  if (late_ns <= 0) return miss;
  miss.missed = true;
  for (size_t c = 0; c < kNumCauses; ++c) {
    const auto cause = static_cast<Cause>(c);
    const DurationNs cost_ns = Computes(cause)
                                   ? std::min(spent_ns[c], std::max<DurationNs>(0, computing_ns - objective_ns))
                                   : std::min(spent_ns[c], late_ns);
    if (cost_ns <= miss.cost_ns) continue;
    miss.cause = cause;
    miss.cost_ns = cost_ns;
  }
  return miss;
}

std::array<Miss, kNumObjectives> RequestLine::Misses() const {
  std::array<Miss, kNumObjectives> misses;
  if (!slo.any()) return misses;
  // The earliest first token, the longest gap and the latest end of all choices count.
  const SequenceLine *earliest = nullptr, *gapped = nullptr, *latest = nullptr;
  for (const SequenceLine* s = first; s != nullptr; s = s->next) {
    if (s->first_token_ns >= 0 && (earliest == nullptr || s->first_token_ns < earliest->first_token_ns)) earliest = s;
    if (s->generated > 1 && (gapped == nullptr || s->longest_gap_ns > gapped->longest_gap_ns)) gapped = s;
    if (latest == nullptr || s->since_ns > latest->since_ns) latest = s;
  }
  if (latest == nullptr) return misses;
  if (slo.ttft_ns > 0) {
    const SequenceLine* s = earliest != nullptr ? earliest : latest;
    const TimeNs until_ns = earliest != nullptr ? s->first_token_ns : s->since_ns;
    misses[static_cast<size_t>(Objective::kTtft)] = MissOf(s->Within(arrival_ns, until_ns), slo.ttft_ns);
  }
  if (slo.tbt_ns > 0 && gapped != nullptr) {
    const TimeNs end_ns = gapped->longest_gap_end_ns;
    misses[static_cast<size_t>(Objective::kTbt)] =
        MissOf(gapped->Within(end_ns - gapped->longest_gap_ns, end_ns), slo.tbt_ns);
  }
  if (slo.jct_ns > 0) misses[static_cast<size_t>(Objective::kJct)] = MissOf(latest->total_ns, slo.jct_ns);
  return misses;
}

}  // namespace tactus::core
