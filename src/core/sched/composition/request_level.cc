// FasterTransformer (Sarathi-Serve, Algorithm 1): a batch is admitted only when nothing runs; its prompts are computed
// together, then it decodes until all its requests have finished.
//
// With --pad the step reports the padding that the original computes: prompts are padded to the longest of the batch,
// and a finished sequence remains an inactive row until the last one has finished (Orca, OSDI 2022, section 2).
// Step-time models count it. Executors with ragged batches need not compute it, and none of ours does.
#include <algorithm>

#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

constexpr Knob<bool> kPad{"pad",
                          false,
                          {.help = "composition request-level: a batch costs what its longest sequence costs, times "
                                   "its size, until it has ended"},
                          "computes every sequence of a batch up to the longest, and no choice here has such batches"};

struct BatchNote {
  int32_t sequences;  // size of the batch that it was admitted in
};

class RequestLevel final : public Composition {
 public:
  explicit RequestLevel(const SchedulerLimits& limits) : pad_(limits.policy[kPad]), batch_(limits.Note<BatchNote>()) {}
  void Describe(ChoiceTraits*) const override {}
  void Compose(StepContext& step) override {
    if (step.view.running.empty()) {
      step.AdmitInOrder(true);
      const int32_t batch = step.plan.num_items();
      for (const StepItem& item : step.plan.items()) batch_.At(step.view.notes, item.slot).sequences = batch;
      if (pad_) Pad(step, 0);
      return;
    }
    step.RunPrefills(true);  // only prompts that a rolled-back step left half done
    step.RunDecodes();
    if (!pad_) return;
    // Sequences of the batch that no longer run have finished.
    const int32_t batch = batch_.At(step.view.notes, step.view.running.front()).sequences;
    Pad(step, std::max(0, batch - static_cast<int32_t>(step.view.running.size())));
  }

 private:
  // Pads every item, and a row for every inactive sequence, to the longest item.
  static void Pad(StepContext& step, int32_t inactive) {
    int64_t longest = 0, computed = 0;
    for (const StepItem& item : step.plan.items()) {
      longest = std::max<int64_t>(longest, item.count);
      computed += item.count;
    }
    step.plan.AddPadding(longest * (step.plan.num_items() + inactive) - computed);
  }

  const bool pad_;
  const NoteColumn<BatchNote> batch_;
};

}  // namespace

constinit const KnobList kRequestLevelKnobs{&kPad};

std::unique_ptr<Composition> MakeRequestLevel(const SchedulerLimits& limits) {
  return std::make_unique<RequestLevel>(limits);
}

}  // namespace tactus::core
