// Response Length Perception (PiA), as its authors' code plans: the oldest --pia-window requests of the queue are one
// window, which is cut into batches of similar predicted output, shorter ones first. The next window is taken when all
// of this one have started. So a request is passed over only by requests of its window.
//
// With --pia-variable-batches the batches are the bins of --pia-bin predicted tokens, rounded up: 16 times --pia-batch
// sequences of the shortest bin, half as many of each longer one, down to --pia-batch. The rest of a bin that would
// make less than half a batch joins the next bin. Without, the sorted window is cut every --pia-batch.
//
// With --pia-collect-failed a batch has a limit on its output, its bin's upper end. Composition length-grouped stops
// sequences that reach it; they form separate batches without a limit, after the rest of their window.
#include <algorithm>

#include "core/sched/choices.h"
#include "core/sched/length_groups.h"
#include "core/sched/order/sorted_queue.h"
#include "core/sched/predicted_length.h"

namespace tactus::core {
namespace {

constexpr Knob<int64_t> kBinTokens{"pia-bin",
                                   50,
                                   {.unit = "tokens",
                                    .min = 1,
                                    .max = 1 << 20,
                                    .help = "order grouped: predicted outputs in the same bin of this width, rounded "
                                            "up, share a batch"}};
constexpr Knob<int64_t> kGroupWindow{
    "pia-window",
    256,
    {.unit = "requests",
     .min = 1,
     .max = 1 << 16,
     .help = "order grouped: number of the queue's oldest requests that are sorted into batches, ahead of later ones"}};
constexpr Knob<int64_t> kBatch{
    "pia-batch",
    16,
    {.unit = "sequences",
     .min = 1,
     .max = 1 << 12,
     .help = "order grouped: size of a batch; with --pia-variable-batches that of long outputs"}};
constexpr Knob<bool> kVariableBatches{
    "pia-variable-batches", true, {.help = "order grouped: larger batches of shorter outputs"}};
constexpr Knob<bool> kCollectFailed{"pia-collect-failed",
                                    true,
                                    {.help = "order grouped: a batch stops sequences that outlive their prediction; "
                                             "they are recomputed after their window"}};

constexpr int64_t kOutsideGroup = int64_t{1} << 40;  // behind all batches
constexpr int64_t kLargestBatch = 16;                // times --pia-batch: for the shortest bin

class GroupedOrder final : public KeyedOrder {
 public:
  explicit GroupedOrder(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity),
        predictor_(limits.predictor),
        bin_(limits.policy[kBinTokens]),
        window_(limits.policy[kGroupWindow]),
        batch_(limits.policy[kBatch]),
        variable_(limits.policy[kVariableBatches]),
        collect_(limits.policy[kCollectFailed]),
        prediction_(limits.Note<PredictionNote>()),
        group_(limits.Note<GroupNote>()) {
    taken_.reserve(static_cast<size_t>(limits.slot_capacity));
  }
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  int64_t Group(const StepView& view, SlotId slot) const override { return group_.At(view.notes, slot).batch; }

  void Start(const StepView& view) override {
    KeyedOrder::Start(view);
    taken_.clear();
    SlotId slot = Next();
    if (slot != kNoSlot && Group(view, slot) == 0) {
      const bool failed = Failed(view, slot);
      const size_t most = static_cast<size_t>(failed ? kOutsideGroup : window_);
      for (; slot != kNoSlot && Failed(view, slot) == failed && taken_.size() < most; slot = Next()) {
        taken_.push_back(slot);
      }
      for (const SlotId taken : taken_) Remove(taken);
      failed ? CutEvery(view, batch_, false) : Arrange(view);
      // Last to first: each goes before all entries of the queue.
      for (auto it = taken_.rbegin(); it != taken_.rend(); ++it) Insert(KeyOf(view, *it), *it);
    }
    KeyedOrder::Start(view);
  }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    int64_t& predicted = prediction_.At(view.notes, slot).output_tokens;
    if (predicted == 0) predicted = PredictOutput(*predictor_, view, slot, 0);
  }
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    const int64_t batch = Group(view, slot);
    // Failed sequences go before all that are in no window yet.
    return {batch > 0 ? batch : kOutsideGroup, 0, view.seq.arrival_order[slot]};
  }

 private:
  bool Failed(const StepView& view, SlotId slot) const { return group_.At(view.notes, slot).failed != 0; }
  int64_t Predicted(const StepView& view, SlotId slot) const { return prediction_.At(view.notes, slot).output_tokens; }
  int64_t BinOf(const StepView& view, SlotId slot) const { return (Predicted(view, slot) + bin_ - 1) / bin_; }
  int64_t SizeOf(int64_t bin) const { return std::max(batch_, bin > 32 ? 0 : (kLargestBatch * batch_) >> (bin - 1)); }

  // Cuts taken_ into batches, in the order in which they will run.
  void Arrange(const StepView& view) {
    std::sort(taken_.begin(), taken_.end(), [&](SlotId a, SlotId b) {
      const int64_t first = Predicted(view, a), second = Predicted(view, b);
      return first != second ? first < second : view.seq.arrival_order[a] < view.seq.arrival_order[b];
    });
    variable_ ? CutByBin(view) : CutEvery(view, batch_, collect_);
  }
  void CutEvery(const StepView& view, int64_t size, bool limited) {
    for (size_t begin = 0; begin < taken_.size(); begin += static_cast<size_t>(size)) {
      const size_t end = std::min(taken_.size(), begin + static_cast<size_t>(size));
      Put(view, begin, end, limited ? Predicted(view, taken_[end - 1]) : 0);
    }
    SortByKey(view);
  }
  void CutByBin(const StepView& view) {
    // Sorted by prediction, each bin is a range; sequences that join a longer bin stay at its front.
    size_t begin = 0, end = 0;
    while (begin < taken_.size()) {
      // The last range: all before `begin` have a batch, [begin, end) joins this bin.
      const int64_t bin = BinOf(view, taken_[std::max(begin, end)]);
      while (end < taken_.size() && BinOf(view, taken_[end]) <= bin) ++end;
      const auto size = static_cast<size_t>(SizeOf(bin));
      const size_t least = std::max(size / 2, static_cast<size_t>(batch_));
      while (begin < end) {
        const size_t stop = std::min(end, begin + size);
        if (end < taken_.size() && stop - begin < least) break;
        Put(view, begin, stop, collect_ ? bin * bin_ : 0);
        begin = stop;
      }
    }
    SortByKey(view);
  }
  void Put(const StepView& view, size_t begin, size_t end, int64_t limit) {
    ++batches_;
    for (size_t i = begin; i < end; ++i) {
      group_.At(view.notes, taken_[i]) = {batches_, static_cast<int32_t>(std::min<int64_t>(limit, 1 << 30)), 0};
    }
  }
  void SortByKey(const StepView& view) {
    batches_ = 0;
    std::sort(taken_.begin(), taken_.end(), [&](SlotId a, SlotId b) { return KeyOf(view, a) < KeyOf(view, b); });
  }

  const LengthPredictor* const predictor_;
  const int64_t bin_, window_, batch_;
  const bool variable_, collect_;
  const NoteColumn<PredictionNote> prediction_;
  const NoteColumn<GroupNote> group_;
  std::vector<SlotId> taken_;  // while a window is formed
  int32_t batches_ = 0;
};

}  // namespace

constinit const KnobList kGroupedKnobs{&kBinTokens, &kGroupWindow, &kBatch, &kVariableBatches, &kCollectFailed};

std::unique_ptr<Order> MakeGroupedOrder(const SchedulerLimits& limits) {
  return std::make_unique<GroupedOrder>(limits);
}

}  // namespace tactus::core
