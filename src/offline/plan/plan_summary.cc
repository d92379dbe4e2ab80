#include "offline/plan/plan_summary.h"

#include <algorithm>

#include "offline/plan/sharing.h"
#include "offline/plan/start_order.h"

namespace tactus::offline {

PlanSummary Summarize(const Plan& plan, const OverlapFit& overlap, int64_t kv_tokens) {
  PlanSummary summary;
  summary.requests = plan.size();
  const Sharing optimal = OptimalSharing(plan);
  const Sharing planned = SharingOf(plan, StartOrder(plan), kv_tokens);
  summary.prompt_tokens = optimal.prompt_tokens;
  for (int32_t i = 0; i < plan.size(); ++i) summary.output_tokens += plan.OutputAt(i);
  const double shared_compute_s = plan.totals().compute_s;
  summary.compute_s = shared_compute_s + optimal.saved_s;
  summary.memory_s = plan.totals().memory_s;
  summary.optimal_sharing = optimal.ratio();
  summary.planned_sharing = planned.ratio();
  summary.density = plan.totals().density();
  summary.planned_compute_s = summary.compute_s - planned.saved_s;
  summary.bound_s = std::max(shared_compute_s, summary.memory_s);
  summary.practical_bound_s = overlap.Together(shared_compute_s, summary.memory_s);
  summary.sequential_s = shared_compute_s + summary.memory_s;
  return summary;
}

PlanFigures FiguresOf(const PlanSummary& summary, bool rated, double work_share, double run_s) {
  PlanFigures figures;
  figures.requests = summary.requests;
  figures.optimal_sharing = summary.optimal_sharing;
  figures.planned_sharing = summary.planned_sharing;
  figures.density = summary.density;
  if (!rated) return figures;
  figures.bound_s = summary.bound_s;
  figures.practical_bound_s = summary.practical_bound_s;
  if (run_s <= 0 || work_share <= 0) return figures;
  figures.share_of_bound = summary.bound_s * work_share / run_s;
  figures.share_of_practical_bound = summary.practical_bound_s * work_share / run_s;
  return figures;
}

}  // namespace tactus::offline
