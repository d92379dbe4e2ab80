#include "offline/plan/start_order.h"

#include <algorithm>
#include <numeric>

namespace tactus::offline {

StartBalance::StartBalance(const Plan& plan) : ignores_prefixes_(plan.order() == PlanOrder::kBalance) {
  double compute_s = 0;  // density_ is still 0 here
  for (int32_t i = 0; i < plan.size(); ++i) compute_s += SecondsOf(plan, i);
  if (plan.totals().memory_s > 0) density_ = compute_s / plan.totals().memory_s;
}

double StartBalance::SecondsOf(const Plan& plan, int32_t position) const {
  const double compute_s = ignores_prefixes_
                               ? plan.cost().ComputeSeconds(plan.PromptAt(position), plan.OutputAt(position))
                               : plan.ComputeSecondsAt(position);
  return compute_s - density_ * plan.MemorySecondsAt(position);
}

namespace {

// The answers that have not started, the longest first, and the time until all of them end on the device's sequences.
class LongestFirst {
 public:
  LongestFirst(const Plan& plan, double sequences)
      : plan_(plan), sequences_(sequences), by_length_(static_cast<size_t>(plan.size())), rank_(by_length_.size()) {
    std::iota(by_length_.begin(), by_length_.end(), 0);
    std::stable_sort(by_length_.begin(), by_length_.end(),
                     [&](int32_t a, int32_t b) { return plan.OutputAt(a) > plan.OutputAt(b); });
    for (size_t i = 0; i < by_length_.size(); ++i) rank_[static_cast<size_t>(by_length_[i])] = i;
    for (int32_t i = 0; i < plan.size(); ++i) left_tokens_ += plan.OutputAt(i);
  }

  // A position that must start now, or -1. If there are many, they are the bulk of the job anyway and turns balance
  // them.
  int32_t Due(const std::vector<bool>& begun) {
    if (sequences_ <= 0) return -1;
    for (; due_end_ < by_length_.size(); ++due_end_) {
      const int32_t next = by_length_[due_end_];
      if (plan_.OutputAt(next) * sequences_ < left_tokens_) break;
      due_ += !begun[static_cast<size_t>(next)];
    }
    if (due_ == 0 || static_cast<double>(due_) > kMostEarly * sequences_) return -1;
    while (begun[static_cast<size_t>(by_length_[at_])]) ++at_;
    return by_length_[at_];
  }
  void Begin(int32_t position) {
    left_tokens_ -= plan_.OutputAt(position);
    due_ -= rank_[static_cast<size_t>(position)] < due_end_;
  }

 private:
  static constexpr double kMostEarly = 0.25;  // of the sequences

  const Plan& plan_;
  const double sequences_;
  std::vector<int32_t> by_length_;  // positions
  std::vector<size_t> rank_;        // of positions
  size_t at_ = 0, due_end_ = 0;     // first not begun; all before due_end_ are or were due
  int64_t due_ = 0;                 // due and not begun
  double left_tokens_ = 0;
};

}  // namespace

std::vector<int32_t> StartOrder(const Plan& plan, const StartBalance& balance, double ahead_s, double sequences) {
  std::vector<int32_t> order(static_cast<size_t>(plan.size()));
  if (!StartsFromBothEnds(plan.order())) {
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  LongestFirst longest(plan, sequences);
  std::vector<bool> begun(order.size());
  int32_t left = 0, right = plan.size() - 1;
  for (int32_t& next : order) {
    while (left < right && begun[static_cast<size_t>(left)]) ++left;
    while (left < right && begun[static_cast<size_t>(right)]) --right;
    if (const int32_t due = longest.Due(begun); due >= 0) {
      next = due;
      ahead_s += balance.SecondsOf(plan, due);
      begun[static_cast<size_t>(due)] = true;
      longest.Begin(due);
      continue;
    }
    const double left_s = balance.SecondsOf(plan, left), right_s = balance.SecondsOf(plan, right);
    // Choose the sum closer to 0 of ahead + left and ahead + right; the left end is the denser one.
    const bool from_left = ahead_s + (left_s + right_s) / 2 <= 0;
    ahead_s += from_left ? left_s : right_s;
    next = from_left ? left++ : right--;
    begun[static_cast<size_t>(next)] = true;
    longest.Begin(next);
  }
  return order;
}

}  // namespace tactus::offline
