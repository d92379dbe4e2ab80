// BlendServe: from both ends of the job's plan, which lies sorted by density without tearing shared prefixes apart
// (docs/batch.md), so that what runs is together as dense as the job.
#include "sched/choices.h"
#include "sched/order/dual_scan_order.h"

namespace tactus::sched {
namespace {

class BlendOrder final : public DualScanOrder {
 public:
  using DualScanOrder::DualScanOrder;

 protected:
  int64_t FromLeft(const PlannedPlace& place) const override { return place.position; }
};

}  // namespace

std::unique_ptr<Order> MakeBlendOrder(const SchedulerLimits& limits) {
  return std::make_unique<BlendOrder>(limits);
}

}  // namespace tactus::sched
