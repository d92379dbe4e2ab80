#include "results/obs/objective_metrics.h"

#include <optional>

namespace tactus::results {
namespace {

// Slack as a share of the objective: 1 nothing used, 0 all used, -1 missed by its own length.
const std::vector<double> kSlackBuckets = {-16, -8, -4, -2, -1, -0.5, -0.25, -0.1, 0, 0.1, 0.25, 0.5, 0.75, 0.9, 1};

int64_t StatedNs(const Slo& slo, Objective objective) {
  return objective == Objective::kTtft ? slo.ttft_ns : objective == Objective::kTbt ? slo.tbt_ns : slo.jct_ns;
}

// The request's measured time for an objective; absent: it ended before.
std::optional<DurationNs> TakenNs(const EndedRequest& r, Objective objective) {
  switch (objective) {
    case Objective::kTtft:
      return r.ttft_ns >= 0 ? std::optional(r.ttft_ns) : std::nullopt;
    case Objective::kTbt:
      return r.ok ? std::optional(r.longest_gap_ns) : std::nullopt;
    case Objective::kJct:
      break;
  }
  return r.ok ? std::optional(r.done_ns - r.arrival_ns) : std::nullopt;
}

}  // namespace

ObjectiveMetrics::OfObjective::OfObjective() : slack(kSlackBuckets) {}

ObjectiveMetrics::OfClass& ObjectiveMetrics::ClassOf(std::string_view name) {
  const auto found = classes_.find(name);
  if (found != classes_.end()) return found->second;
  if (classes_.size() >= kMostClasses) name = "other";
  return classes_[std::string(name)];
}

void ObjectiveMetrics::Ended(const EndedRequest& r, const std::array<Miss, kNumObjectives>& misses,
                             std::string_view failed) {
  if (!r.slo.any()) return;
  OfClass& c = ClassOf(r.slo_class);
  c.all += {1, KeptSlo(r) ? 1 : 0};
  for (size_t i = 0; i < kNumObjectives; ++i) {
    const auto objective = static_cast<Objective>(i);
    const DurationNs stated_ns = StatedNs(r.slo, objective);
    if (stated_ns <= 0) continue;
    OfObjective& o = c.objectives[i];
    ++o.stated;
    if (const auto taken_ns = TakenNs(r, objective))
      o.slack.Observe(static_cast<double>(stated_ns - *taken_ns) / static_cast<double>(stated_ns));
    const std::string_view cause = misses[i].missed ? CauseName(misses[i].cause) : failed;
    if (cause.empty()) continue;
    ++o.misses.try_emplace(std::string(cause)).first->second;
  }
}

void ObjectiveMetrics::Refused(const Slo& slo, std::string_view slo_class) {
  EndedRequest nothing;
  nothing.slo = slo;
  nothing.slo_class = slo_class;
  Ended(nothing, {}, "refused");
}

void ObjectiveMetrics::AppendTo(PrometheusText* text) const {
  PrometheusText& t = *text;
  t.Family("tactus_slo_goodput_requests_total", PrometheusText::Type::kCounter,
           "Requests that met all their objectives.");
  for (const auto& [name, c] : classes_) t.Sample(static_cast<double>(c.all.kept), {{"class", name}});
  t.Family("tactus_slo_attainment", PrometheusText::Type::kGauge,
           "Share of requests with objectives that met all of them.");
  for (const auto& [name, c] : classes_) t.Sample(c.all.attainment().value_or(0), {{"class", name}});
  t.Family("tactus_slo_slack_ratio", PrometheusText::Type::kHistogram,
           "(objective - measured time) / objective; negative: missed. The sum may decrease.");
  for (const auto& [name, c] : classes_) {
    for (size_t i = 0; i < kNumObjectives; ++i) {
      if (c.objectives[i].stated == 0) continue;
      t.Sample(c.objectives[i].slack, {{"class", name}, {"objective", ObjectiveName(static_cast<Objective>(i))}});
    }
  }
  t.Family("tactus_slo_misses_total", PrometheusText::Type::kCounter,
           "Missed objectives by the main cause of the delay.");
  for (const auto& [name, c] : classes_) {
    for (size_t i = 0; i < kNumObjectives; ++i) {
      for (const auto& [cause, count] : c.objectives[i].misses) {
        t.Sample(static_cast<double>(count),
                 {{"class", name}, {"objective", ObjectiveName(static_cast<Objective>(i))}, {"cause", cause}});
      }
    }
  }
}

}  // namespace tactus::results
