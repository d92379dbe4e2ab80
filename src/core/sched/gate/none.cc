// No limit but the memory of the step loop's tables.
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class NoGate final : public Gate {
 public:
  bool LimitsQueue() const override { return false; }
};

}  // namespace

std::unique_ptr<Gate> MakeNoGate(const SchedulerLimits&) {
  return std::make_unique<NoGate>();
}

}  // namespace tactus::core
