// The sequence with the most slack loses its KV and is recomputed (AccelGen, Alg. 1); never one with less slack than
// the one that gains. Ours: before all these, the last to arrive among those that have missed an objective: they lose
// nothing by it, and take no KV from those that can still be kept. Slack changes while sequences wait, so two of them
// could take the KV from each other forever. Ours: each admission yields at least a token. Once preempted, a sequence
// neither takes KV nor loses it until it has a new token. A prompt that is already late takes no KV from others, which
// still have an objective to keep (--accelgen-late-takes no).
#include "core/sched/accelgen/slack.h"
#include "core/sched/choices.h"
#include "core/sched/plan.h"

namespace tactus::core {
namespace {

constexpr Knob<std::string> kLateTakes{
    "accelgen-late-takes",
    kAutoKnob,
    {.choices = "auto|no|yes",
     .help = "most-slack-recompute: whether a prompt that is late takes KV from sequences with more slack; auto: the "
             "preset's, else no"}};

// Whether it was preempted and has no new token since it started again.
bool OwesAToken(const StepView& view, SlotId slot) {
  return view.seq.preemptions[slot] > 0 && view.seq.state[slot] != SeqState::kDecode;
}

class MostSlackRecompute final : public Preemption {
 public:
  explicit MostSlackRecompute(const SchedulerLimits& limits)
      : slack_(limits), late_takes_(limits.policy[kLateTakes] == "yes") {}
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = true; }

  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order&, SlotId needy) const override {
    const bool late = !late_takes_ && view.seq.state[needy] != SeqState::kDecode && slack_.SlackNs(view, needy) < 0;
    const bool from_those_that_give_way = late || OwesAToken(view, needy);
    SlotId victim = kNoSlot;
    for (const SlotId slot : view.running_by_arrival) {
      if (slot == needy || plan.Touched(slot) || OwesAToken(view, slot) || !slack_.MayTakeFrom(view, needy, slot))
        continue;
      if (from_those_that_give_way && !slack_.GivesWay(view, slot)) continue;
      if (victim == kNoSlot || Rather(view, slot, victim)) victim = slot;
    }
    return victim;
  }

 private:
  // Those that give way first, then idle ones: a sequence in flight must sit a step out before its KV is free.
  bool Rather(const StepView& view, SlotId a, SlotId b) const {
    const bool gives_a = slack_.GivesWay(view, a), gives_b = slack_.GivesWay(view, b);
    if (gives_a != gives_b) return gives_a;
    const bool idle_a = view.seq.flight[a] == FlightState::kIdle, idle_b = view.seq.flight[b] == FlightState::kIdle;
    if (idle_a != idle_b) return idle_a;
    return gives_a ? view.seq.arrival_order[a] > view.seq.arrival_order[b] : slack_.Before(view, b, a);
  }

  const SlackModel slack_;
  const bool late_takes_;
};

}  // namespace

constinit const KnobList kMostSlackKnobs{&kTtftObjective, &kTbtObjective, &kPivotTokens,
                                         &kMissedTurn,    &kMissedRule,   &kLateTakes};

std::unique_ptr<Preemption> MakeMostSlackRecompute(const SchedulerLimits& limits) {
  return std::make_unique<MostSlackRecompute>(limits);
}

}  // namespace tactus::core
