#include "batch/start_order.h"

#include <numeric>

namespace tactus::batch {

StartBalance::StartBalance(const Plan& plan) : ignores_prefixes_(plan.order() == PlanOrder::kBalance) {
  double compute_s = 0;  // density_ is 0 yet
  for (int32_t i = 0; i < plan.size(); ++i) compute_s += SecondsOf(plan, i);
  if (plan.totals().memory_s > 0) density_ = compute_s / plan.totals().memory_s;
}

double StartBalance::SecondsOf(const Plan& plan, int32_t position) const {
  const double compute_s = ignores_prefixes_
                               ? plan.cost().ComputeSeconds(plan.PromptAt(position), plan.OutputAt(position))
                               : plan.ComputeSecondsAt(position);
  return compute_s - density_ * plan.MemorySecondsAt(position);
}

std::vector<int32_t> StartOrder(const Plan& plan, const StartBalance& balance, double ahead_s) {
  std::vector<int32_t> order(static_cast<size_t>(plan.size()));
  if (plan.order() != PlanOrder::kBlend && plan.order() != PlanOrder::kBalance) {
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  int32_t left = 0, right = plan.size() - 1;
  for (int32_t& next : order) {
    const double left_s = balance.SecondsOf(plan, left), right_s = balance.SecondsOf(plan, right);
    // Of the two sums, ahead + left and ahead + right, the one that is nearer to 0, the left end being the denser one.
    const bool from_left = ahead_s + (left_s + right_s) / 2 <= 0;
    ahead_s += from_left ? left_s : right_s;
    next = from_left ? left++ : right--;
  }
  return order;
}

}  // namespace tactus::batch
