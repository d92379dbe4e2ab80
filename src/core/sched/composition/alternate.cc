// Chunked prefills without hybrid steps (Sarathi-Serve, Table 4, "chunked-prefills-only"): a step of prompt chunks,
// then a step of decodes; if one of the two would be empty, the other.
#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

class Alternate final : public Composition {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }
  void Compose(StepContext& step) override {
    const bool decodes_first = step.view.previous_prefill_tokens > 0;
    if (decodes_first) step.RunDecodes();
    if (step.plan.empty()) {
      step.RunPrefills(false);
      step.AdmitInOrder(false);
    }
    if (!decodes_first && step.plan.empty()) step.RunDecodes();
  }
};

}  // namespace

std::unique_ptr<Composition> MakeAlternate(const SchedulerLimits&) {
  return std::make_unique<Alternate>();
}

}  // namespace tactus::core
