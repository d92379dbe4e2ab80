// Orca's iteration-level batching: whole prompts join the ongoing decodes.
#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

class WholePromptHybrid final : public Composition {
 public:
  void Describe(ChoiceTraits*) const override {}
  void Compose(StepContext& step) override {
    step.RunDecodes();
    step.RunPrefills(true);
    step.AdmitInOrder(true);
  }
};

}  // namespace

std::unique_ptr<Composition> MakeWholePromptHybrid(const SchedulerLimits&) {
  return std::make_unique<WholePromptHybrid>();
}

}  // namespace tactus::core
