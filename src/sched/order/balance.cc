// NanoFlow-Balance: as blend, but by the density of each request alone. It blends as well and ignores prefixes, which
// come together by luck.
#include <bit>
#include <cstdint>

#include "sched/choices.h"
#include "sched/order/dual_scan_order.h"

namespace tactus::sched {
namespace {

class BalanceOrder final : public DualScanOrder {
 public:
  using DualScanOrder::DualScanOrder;

 protected:
  // The densest first. Bits of floats that are not negative compare as they do.
  int64_t FromLeft(const PlannedPlace& place) const override {
    return -int64_t{std::bit_cast<uint32_t>(place.density)};
  }
};

}  // namespace

std::unique_ptr<Order> MakeBalanceOrder(const SchedulerLimits& limits) {
  return std::make_unique<BalanceOrder>(limits);
}

}  // namespace tactus::sched
