// FasterTransformer (Sarathi-Serve, Algorithm 1): a batch is admitted only when nothing runs, its prompts are computed
// together, then it decodes until every request of it has finished.
#include "sched/choices.h"
#include "sched/context.h"

namespace tactus::sched {
namespace {

class RequestLevel final : public Composition {
 public:
  void Describe(ChoiceTraits*) const override {}
  void Compose(StepContext& step) override {
    if (step.view.running.empty()) {
      step.AdmitInOrder(true);
      return;
    }
    step.RunPrefills(true);   // only what a rolled-back step left half done
    step.RunDecodes();
  }
};

}  // namespace

std::unique_ptr<Composition> MakeRequestLevel(const SchedulerLimits&) { return std::make_unique<RequestLevel>(); }

}  // namespace tactus::sched
