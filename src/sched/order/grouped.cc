// PiA: sequences of about the same predicted output length next to each other, so that a batch of them ends together.
// The group (a bin of --pia-bin tokens) that holds the oldest goes first, within a group first come, first served,
// those that were preempted before. So the oldest is in the next batch: none starves. The prediction
// serves grouping only.
#include <algorithm>

#include "sched/choices.h"
#include "sched/order/bucketed.h"
#include "sched/predicted_length.h"

namespace tactus::sched {
namespace {

constexpr Knob<int64_t> kBinTokens{
    "pia-bin",
    50,
    {.unit = "tokens",
     .min = 1,
     .max = 1 << 20,
     .help = "order grouped: predicted outputs in the same bin of this width share a batch"}};

constexpr int64_t kPreemptedFirst = int64_t{1} << 62;
constexpr int64_t kMaxGroups = 1 << 16;  // the longest outputs share the last one

class GroupedOrder final : public BucketedOrder {
 public:
  explicit GroupedOrder(const SchedulerLimits& limits)
      : BucketedOrder(limits.slot_capacity,
                      static_cast<int32_t>(std::min(limits.max_model_len / limits.policy[kBinTokens] + 1, kMaxGroups))),
        predictor_(limits.predictor),
        bin_(limits.policy[kBinTokens]),
        prediction_(limits.Note<PredictionNote>()) {
    heap_.reserve(filled().capacity());
  }
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  int64_t Group(const StepView& view, SlotId slot) const override { return BucketOf(view, slot); }

  void Start(const StepView&) override {
    heap_.assign(filled().begin(), filled().end());
    std::make_heap(heap_.begin(), heap_.end(), [this](int32_t a, int32_t b) { return Later(a, b); });
    next_ = kNoSlot;
  }
  SlotId Next() override {
    if (next_ == kNoSlot) {
      if (heap_.empty()) return kNoSlot;
      std::pop_heap(heap_.begin(), heap_.end(), [this](int32_t a, int32_t b) { return Later(a, b); });
      next_ = lists().Head(heap_.back());
      heap_.pop_back();
    }
    const SlotId slot = next_;
    next_ = lists().Next(slot);
    return slot;
  }
  // Of running sequences there are no groups to speak of: age decides.
  bool Before(const StepView& view, SlotId a, SlotId b) const override { return KeyOf(view, a) < KeyOf(view, b); }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    prediction_.At(view.notes, slot).output_tokens = PredictOutput(*predictor_, view, slot, 0);
  }
  int32_t BucketOf(const StepView& view, SlotId slot) const override {
    return static_cast<int32_t>(std::min((prediction_.At(view.notes, slot).output_tokens - 1) / bin_, kMaxGroups - 1));
  }
  int64_t KeyOf(const StepView& view, SlotId slot) const override {
    return view.seq.arrival_order[slot] - (view.seq.preemptions[slot] > 0 ? kPreemptedFirst : 0);
  }

 private:
  bool Later(int32_t a, int32_t b) const { return lists().KeyOf(lists().Head(a)) > lists().KeyOf(lists().Head(b)); }

  const LengthPredictor* const predictor_;
  const int64_t bin_;
  const NoteColumn<PredictionNote> prediction_;
  std::vector<int32_t> heap_;  // groups not walked yet, by the age of their oldest
  SlotId next_ = kNoSlot;      // within the group that is being walked
};

}  // namespace

constinit const KnobList kGroupedKnobs{&kBinTokens};

std::unique_ptr<Order> MakeGroupedOrder(const SchedulerLimits& limits) {
  return std::make_unique<GroupedOrder>(limits);
}

}  // namespace tactus::sched
