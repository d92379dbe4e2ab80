// Sarathi-Serve, Algorithm 3: all decodes, then partly done prompts, then new requests, each chunk cut to what is left
// of the token budget. No decode ever waits for a prompt.
#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

class StallFree final : public Composition {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }
  void Compose(StepContext& step) override {
    step.RunDecodes();
    step.RunPrefills(false);
    step.AdmitInOrder(false);
  }
};

}  // namespace

std::unique_ptr<Composition> MakeStallFree(const SchedulerLimits&) {
  return std::make_unique<StallFree>();
}

}  // namespace tactus::core
