// TRAIL: a sequence short of memory takes it from the sequence that the order values least (the one with the most
// predicted output left), and so may a newly arrived one that the order values more, but only before the share
// --trail-c of the victim's predicted output is done: what is nearly finished is not thrown away. c = 0: none is
// preempted for a newcomer.
//
// Under an order that ranks none this is youngest-recompute. Predictions are the order's (PredictionNote); an
// order that makes none protects all from newcomers.
#include "sched/choices.h"
#include "sched/predicted_length.h"
#include "sched/preemption/last_of_least_valued.h"

namespace tactus::sched {
namespace {

constexpr Knob<double> kSpared{"trail-c",
                               0.8,
                               {.min = 0,
                                .max = 1,
                                .help = "preemption by-rank-recompute: a running sequence may give way to an arriving "
                                        "one before this share of its predicted output is done; 0: never"}};

class ByRankRecompute final : public Preemption {
 public:
  explicit ByRankRecompute(const SchedulerLimits& limits)
      : c_(limits.policy[kSpared]), prediction_(limits.Note<PredictionNote>()) {}
  void Describe(ChoiceTraits* traits) const override {
    traits->can_preempt = true;
    traits->makes_room = c_ > 0;
  }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId) const override {
    return LastOfLeastValued(view.running_by_arrival, view, plan, order);
  }
  bool GivesWay(const StepView& view, const Order& order, SlotId running, SlotId newcomer) const override {
    return MayGiveWay(view, running) && order.Outranks(view, newcomer, running);
  }

 private:
  bool MayGiveWay(const StepView& view, SlotId slot) const {
    const auto predicted = static_cast<double>(prediction_.At(view.notes, slot).output_tokens);
    return static_cast<double>(GeneratedTokens(view, slot)) < c_ * predicted;
  }

  const double c_;
  const NoteColumn<PredictionNote> prediction_;
};

}  // namespace

constinit const KnobList kByRankKnobs{&kSpared};

std::unique_ptr<Preemption> MakeByRankRecompute(const SchedulerLimits& limits) {
  return std::make_unique<ByRankRecompute>(limits);
}

}  // namespace tactus::sched
