#include "offline/plan/plan_order.h"

#include <array>

namespace tactus::offline {
namespace {

// In the order of PlanOrder.
constexpr std::array<const char*, 6> kNames{"fcfs", "dfs", "random", "balance", "blend", "blend-dual-scan"};

}  // namespace

std::optional<PlanOrder> FindPlanOrder(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<PlanOrder>(i);
  }
  return std::nullopt;
}

const char* NameOf(PlanOrder order) {
  return kNames[static_cast<size_t>(order)];
}

std::string PlanOrderNames() {
  std::string names;
  for (const char* name : kNames) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace tactus::offline
