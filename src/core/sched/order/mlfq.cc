// FastServe's skip-join multi-level feedback queue (Wu et al., "Fast Distributed Inference Serving for Large Language
// Models", section 4.1), as in its authors' code. A queue has a quantum of service time, twice that of the queue above;
// there is no lowest one. A sequence joins the back of the highest queue whose quantum covers its prefill (by the
// step-time model; without one, the first queue). When it has used up its quantum it goes to the front of the queue
// below; until then it keeps its place. Every --mlfq-promotion-steps steps, sequences without service for
// --mlfq-promotion are promoted to the front of the first queue. docs/concepts/policies_fastserve.md lists the
// differences.
//
// A step counts as service from its planning until the sequence is next planned or found idle.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/sched/choices.h"
#include "core/sched/order/promoting.h"

namespace tactus::core {
namespace {

constexpr Knob<DurationText> kQuantum{
    "mlfq-quantum",
    {10'000'000},
    {.unit = "duration",
     .help = "order mlfq: service time until a sequence leaves the first queue; twice as long in each queue below"}};
constexpr Knob<DurationText> kPromotion{
    "mlfq-promotion",
    {3'000'000'000},
    {.unit = "duration",
     .help = "order mlfq: time without service after which a sequence goes to the front of the first queue"}};
constexpr Knob<int64_t> kPromotionSteps{
    "mlfq-promotion-steps",
    1000,
    {.unit = "steps", .min = 1, .max = 1 << 30, .help = "order mlfq: steps between searches for sequences to promote"}};

struct MlfqNote {
  bool known;       // it has joined a queue
  bool promoted;    // and not served since
  bool computing;   // in a step whose time is not yet counted
  int32_t level;    // its queue
  int64_t place;    // place in it, ascending: negative if it went to the front
  TimeNs since_ns;  // when it arrived or was last planned
  DurationNs service_ns;
};

constexpr int32_t kLowest = 30;  // its quantum is practically unlimited
constexpr int64_t kPerLevel = int64_t{1} << 48;
constexpr int64_t kPromotedLevel = std::numeric_limits<int64_t>::min();

class Mlfq final : public PromotingOrder {
 public:
  explicit Mlfq(const SchedulerLimits& limits)
      : PromotingOrder(limits.slot_capacity),
        step_time_(limits.StepTimes()),
        quantum_ns_(std::max<DurationNs>(1, limits.policy[kQuantum].ns)),
        promotion_ns_(limits.policy[kPromotion].ns),
        promotion_steps_(limits.policy[kPromotionSteps]),
        note_(limits.Note<MlfqNote>()),
        listed_(static_cast<size_t>(limits.slot_capacity), 0) {
    computing_.reserve(listed_.size());
  }
  int64_t RankOf(const StepView& view, SlotId slot) const override {
    const MlfqNote& note = note_.At(view.notes, slot);
    return note.promoted ? kPromotedLevel + note.since_ns : note.level * kPerLevel + note.place;
  }
  void Apply(const StepView& view) override {
    PromotingOrder::Apply(view);
    CountService(view);
    PromoteTheUnserved(view);
  }
  void Rebuild(const StepView& view) override {
    PromotingOrder::Rebuild(view);
    computing_.clear();
    listed_.assign(listed_.size(), 0);
    for (const SlotId slot : view.running) {
      if (note_.At(view.notes, slot).computing) List(slot);
    }
    CountService(view);
    PromoteTheUnserved(view);
  }
  void Planned(const StepView& view, std::span<const StepItem> items) override {
    PromotingOrder::Planned(view, items);
    for (const StepItem& item : items) {
      MlfqNote& note = note_.At(view.notes, item.slot);
      if (note.computing) Count(view, item.slot);
      if (note.promoted) {
        NoteReranked(item.slot);
        note.level = 0;
        note.place = -view.step;
        note.service_ns = 0;
      }
      note.promoted = false;
      note.computing = true;
      note.since_ns = view.now_ns;
      List(item.slot);
    }
  }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    MlfqNote& note = note_.At(view.notes, slot);
    if (note.known) return;
    note.known = true;
    note.level = LevelFor(view.seq.prompt_tokens[slot]);
    note.place = view.step;
    note.since_ns = view.now_ns;
  }
  void OnAdmitted(const StepView& view, SlotId slot) override {
    if (note_.At(view.notes, slot).computing) List(slot);
  }
  int64_t SinceOf(const StepView& view, SlotId slot) const override { return note_.At(view.notes, slot).since_ns; }
  bool IsPromoted(const StepView& view, SlotId slot) const override { return note_.At(view.notes, slot).promoted; }

 private:
  DurationNs QuantumOf(int32_t level) const {
    return quantum_ns_ > (std::numeric_limits<DurationNs>::max() >> level) ? std::numeric_limits<DurationNs>::max()
                                                                           : quantum_ns_ << level;
  }
  int32_t LevelFor(int32_t prompt_tokens) const {
    if (step_time_ == nullptr) return 0;
    const ChunkShape prompt{0, prompt_tokens};
    StepShape prefill;
    prefill.chunks = {&prompt, 1};
    prefill.logit_rows = 1;
    const DurationNs prefill_ns = step_time_->StepTimeNs(prefill);
    int32_t level = 0;
    while (level < kLowest && QuantumOf(level) < prefill_ns) ++level;
    return level;
  }
  // Counts the sequence's last step; moves it down a queue if that ends its quantum.
  void Count(const StepView& view, SlotId slot) {
    MlfqNote& note = note_.At(view.notes, slot);
    note.computing = false;
    note.service_ns += view.now_ns - note.since_ns;
    if (note.service_ns <= QuantumOf(note.level) || note.level == kLowest) return;
    ++note.level;
    note.place = -view.step;
    note.service_ns = 0;
    NoteReranked(slot);
  }
  void List(SlotId slot) {
    if (listed_[static_cast<size_t>(slot)] != 0) return;
    listed_[static_cast<size_t>(slot)] = 1;
    computing_.push_back(slot);
  }
  // Counts the service of running sequences that are no longer in a step. A preempted one is counted when it is next
  // planned.
  void CountService(const StepView& view) {
    size_t kept = 0;
    for (const SlotId slot : computing_) {
      const bool counts = view.seq.HoldsKv(slot) && note_.At(view.notes, slot).computing;
      if (counts && view.seq.flight[slot] != FlightState::kIdle) {
        computing_[kept++] = slot;
        continue;
      }
      listed_[static_cast<size_t>(slot)] = 0;
      if (counts) Count(view, slot);
    }
    computing_.resize(kept);
  }
  void PromoteTheUnserved(const StepView& view) {
    if (view.step % promotion_steps_ != 0) return;
    const TimeNs until_ns = view.now_ns - promotion_ns_;
    ForUnservedSince(until_ns, [&](SlotId slot) { note_.At(view.notes, slot).promoted = true; });
    for (const SlotId slot : view.running) {
      MlfqNote& note = note_.At(view.notes, slot);
      if (note.promoted || note.since_ns > until_ns) continue;
      note.promoted = true;
      NoteReranked(slot);
    }
  }

  const StepTimeModel* const step_time_;
  const DurationNs quantum_ns_;
  const DurationNs promotion_ns_;
  const int64_t promotion_steps_;
  const NoteColumn<MlfqNote> note_;
  // Sequences of the last steps, including all running ones with MlfqNote::computing.
  std::vector<SlotId> computing_;
  std::vector<uint8_t> listed_;  // [capacity] bool: it is in computing_
};

}  // namespace

constinit const KnobList kMlfqKnobs{&kQuantum, &kPromotion, &kPromotionSteps};

std::unique_ptr<Order> MakeMlfqOrder(const SchedulerLimits& limits) {
  return std::make_unique<Mlfq>(limits);
}

}  // namespace tactus::core
