// vLLM as in Sarathi-Serve's Algorithm 2: if any prompt can start, the step computes only prompts, whole ones;
// otherwise only decodes. Decodes stall while prompts arrive.
#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

class PrefillFirst final : public Composition {
 public:
  void Describe(ChoiceTraits*) const override {}
  void Compose(StepContext& step) override {
    step.RunPrefills(true);  // only prompts that a failed or rolled-back step left half done
    step.AdmitInOrder(true);
    if (step.plan.empty()) step.RunDecodes();
  }
};

}  // namespace

std::unique_ptr<Composition> MakePrefillFirst(const SchedulerLimits&) {
  return std::make_unique<PrefillFirst>();
}

}  // namespace tactus::core
