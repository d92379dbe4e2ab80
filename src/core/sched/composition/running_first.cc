// Today's vLLM (V1): running sequences in order of admission, decodes and partly done prompts alike, then the queue.
#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

class RunningFirst final : public Composition {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }
  void Compose(StepContext& step) override {
    for (const SlotId slot : step.RunningByAdmission()) {
      if (step.plan.tokens_left() <= 0) return;
      step.Run(slot);
    }
    step.AdmitInOrder(false);
  }
};

}  // namespace

std::unique_ptr<Composition> MakeRunningFirst(const SchedulerLimits&) {
  return std::make_unique<RunningFirst>();
}

}  // namespace tactus::core
