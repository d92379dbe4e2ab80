#include "batch/start_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include "sched/dual_scanner.h"

namespace tactus::batch {

std::vector<int32_t> StartOrder(const Plan& plan, int64_t kv_tokens) {
  std::vector<int32_t> order(static_cast<size_t>(plan.size()));
  if (!plan.from_both_ends()) {
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  struct Running {
    int64_t ends_at;  // step
    int32_t position;
    bool operator>(const Running& other) const {
      return ends_at != other.ends_at ? ends_at > other.ends_at : position > other.position;
    }
  };
  const std::vector<PlannedPlace> places = plan.Places();
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  sched::DualScanner scanner;
  int64_t now = 0, held = 0;
  int32_t left = 0, right = plan.size() - 1;
  const auto place = [&](int32_t position) -> const PlannedPlace& { return places[static_cast<size_t>(position)]; };
  const auto own = [&](int32_t position) { return place(position).kv_tokens - plan.SharedWithPrevious(position); };
  for (int32_t& next : order) {
    // Chosen anew whenever something ends: who waits for much room does not keep the other end from what it is due.
    for (;;) {
      next = scanner.Next(place(left), place(right)) == sched::ScanSide::kLeft ? left : right;
      if (running.empty() || held + own(next) <= kv_tokens) break;
      const Running ended = running.top();
      now = ended.ends_at;
      held -= own(ended.position);
      scanner.Release(place(ended.position));
      running.pop();
    }
    next == left ? ++left : --right;
    held += own(next);
    scanner.Hold(place(next));
    running.push({now + plan.OutputAt(next), next});
  }
  return order;
}

}  // namespace tactus::batch
