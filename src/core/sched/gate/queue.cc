// Refuses by --max-queue only.
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class QueueGate final : public Gate {};

}  // namespace

std::unique_ptr<Gate> MakeQueueGate(const SchedulerLimits&) {
  return std::make_unique<QueueGate>();
}

}  // namespace tactus::core
