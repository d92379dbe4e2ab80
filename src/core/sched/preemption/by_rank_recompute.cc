// TRAIL: a sequence short of memory takes it from the one that the order ranks lowest (with the most predicted output
// left). So may an arriving sequence of better rank, but only before the share --trail-c of the victim's predicted
// output is done: nearly finished work is not dropped. c = 0: none is preempted for an arriving sequence.
//
// Under an order without ranks this is youngest-recompute. Predictions are the order's (PredictionNote); under an order
// without predictions no sequence gives way to arriving ones.
#include "core/sched/choices.h"
#include "core/sched/predicted_length.h"
#include "core/sched/preemption/last_of_least_valued.h"

namespace tactus::core {
namespace {

constexpr Knob<double> kSpared{"trail-c",
                               0.8,
                               {.min = 0,
                                .max = 1,
                                .help = "preemption by-rank-recompute: a running sequence may give way to an arriving "
                                        "one before this share of its predicted output is done; 0: never"}};

// The authors' release has both of these, and c = 0.
constexpr Knob<int64_t> kMargin{"trail-margin",
                                0,
                                {.unit = "tokens",
                                 .min = 0,
                                 .max = 1 << 20,
                                 .help = "preemption by-rank-recompute: an arriving sequence must be better than the "
                                         "one that gives way to it by more than this"}};
constexpr Knob<int64_t> kMostPreemptions{
    "trail-most-preemptions",
    0,
    {.unit = "times",
     .min = 0,
     .max = 1 << 20,
     .help =
         "preemption by-rank-recompute: preemptions after which a sequence gives way to no arriving one; 0: no limit"}};

class ByRankRecompute final : public Preemption {
 public:
  explicit ByRankRecompute(const SchedulerLimits& limits)
      : c_(limits.policy[kSpared]),
        margin_(limits.policy[kMargin]),
        most_preemptions_(limits.policy[kMostPreemptions]),
        prediction_(limits.Note<PredictionNote>()) {}
  void Describe(ChoiceTraits* traits) const override {
    traits->can_preempt = true;
    traits->makes_room = c_ > 0;
  }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId) const override {
    return LastOfLeastValued(view.running_by_arrival, view, plan, order);
  }
  bool TakesTheLast() const override { return true; }
  bool GivesWay(const StepView& view, const Order& order, SlotId running, SlotId newcomer) const override {
    return MayGiveWay(view, running) && order.ranks() &&
           order.RankOf(view, newcomer) + margin_ < order.RankOf(view, running);
  }

 private:
  bool MayGiveWay(const StepView& view, SlotId slot) const {
    if (most_preemptions_ > 0 && view.seq.preemptions[slot] >= most_preemptions_) return false;
    const auto predicted = static_cast<double>(prediction_.At(view.notes, slot).output_tokens);
    return static_cast<double>(GeneratedTokens(view, slot)) < c_ * predicted;
  }

  const double c_;
  const int64_t margin_, most_preemptions_;
  const NoteColumn<PredictionNote> prediction_;
};

}  // namespace

constinit const KnobList kByRankKnobs{&kSpared, &kMargin, &kMostPreemptions};

std::unique_ptr<Preemption> MakeByRankRecompute(const SchedulerLimits& limits) {
  return std::make_unique<ByRankRecompute>(limits);
}

}  // namespace tactus::core
