// PiA: request-level batches (a batch starts when the last one has finished) of sequences in one group of the order,
// which are expected to end at about the same time. A sequence that reaches the output limit of its batch is stopped:
// it loses its KV and is queued as failed (GroupNote). Its output is kept and computed again with its prompt. Under an
// order without groups this is request-level batching.
#include "core/sched/choices.h"
#include "core/sched/context.h"
#include "core/sched/length_groups.h"

namespace tactus::core {
namespace {

class LengthGrouped final : public Composition {
 public:
  explicit LengthGrouped(const SchedulerLimits& limits) : group_(limits.Note<GroupNote>()) {}
  void Describe(ChoiceTraits*) const override {}
  void Compose(StepContext& step) override {
    if (!step.view.running.empty()) {
      StopFailed(step);
      step.RunPrefills(true);  // only prompts that a failed or rolled-back step left half done
      step.RunDecodes();
      return;
    }
    step.order.Start(step.view);
    const SlotId first = step.order.Next();
    for (SlotId slot = first; slot != kNoSlot; slot = step.order.Next()) {
      if (step.order.Group(step.view, slot) != step.order.Group(step.view, first)) return;
      if (step.Admit(slot, kNoLimit, true) != AddResult::kAdded) return;
    }
  }

 private:
  void StopFailed(StepContext& step) const {
    const SequenceColumns& seq = step.view.seq;
    for (const SlotId slot : step.view.running) {
      GroupNote& note = group_.At(step.view.notes, slot);
      const int32_t generated = seq.known_planned[slot] - seq.prompt_tokens[slot];
      if (note.output_limit == 0 || generated < note.output_limit || generated >= seq.max_output_tokens[slot]) continue;
      if (step.plan.MakeRoom(slot, PreemptMode::kRecompute) == PreemptResult::kFreed) note = {0, 0, 1};
    }
  }

  const NoteColumn<GroupNote> group_;
};

}  // namespace

std::unique_ptr<Composition> MakeLengthGrouped(const SchedulerLimits& limits) {
  return std::make_unique<LengthGrouped>(limits);
}

}  // namespace tactus::core
