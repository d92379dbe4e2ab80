// FastServe's skip-join multi-level feedback queue (Wu et al., "Fast Distributed Inference Serving for Large Language
// Models", section 4.1): a sequence joins the highest queue whose quantum covers its prefill, sinks one queue with
// every quantum that it uses up, and is promoted to the highest one when it has waited for too long. The quantum
// doubles from queue to queue, the lowest has no end, and within a queue who arrived first goes first.
//
// Service is counted in output tokens, one per step. A prefill counts as so many of them as it takes decode steps'
// time: by the step-time model where there is one, else kPromptTokensPerDecode to one. docs/policies_fastserve.md gives
// the reasons.
//
// All state is in the note (written when a sequence enters the queue or is promoted) and in the sequence's output
// length, so that a queue needs no visit when a running sequence sinks.
#include <algorithm>
#include <vector>

#include "sched/choices.h"
#include "sched/order/sorted_queue.h"

namespace tactus::sched {
namespace {

constexpr int32_t kPromptTokensPerDecode = 128;

constexpr Knob<int64_t> kQueues{
    "mlfq-queues", 5, {.unit = "queues", .min = 1, .max = 16, .help = "order mlfq: number of queues"}};
constexpr Knob<int64_t> kQuantumTokens{
    "mlfq-quantum",
    16,
    {.unit = "tokens",
     .min = 1,
     .max = 1 << 14,
     .help = "order mlfq: output tokens until a sequence leaves the highest queue; twice as many in each queue below"}};
constexpr Knob<DurationText> kPromotion{
    "mlfq-promotion",
    {120'000'000'000},
    {.unit = "duration", .help = "order mlfq: a sequence that has waited for so long moves up to the highest queue"}};

struct MlfqNote {
  int32_t level;       // its queue, or kPromoted
  int32_t end_tokens;  // output length at which its quantum there ends; 0: it has never been queued
};
constexpr int32_t kPromoted = -1;  // while it waits, and runs after that

class Mlfq final : public KeyedOrder {
 public:
  explicit Mlfq(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity),
        step_time_(limits.step_time),
        lowest_(static_cast<int32_t>(limits.policy[kQueues]) - 1),
        quantum_(limits.policy[kQuantumTokens]),
        promote_after_ns_(limits.policy[kPromotion].ns),
        note_(limits.Note<MlfqNote>()) {
    waits_.reserve(2 * static_cast<size_t>(limits.slot_capacity));
  }
  bool ranks() const override { return true; }
  int64_t RankOf(const StepView& view, SlotId slot) const override { return QueueOf(view, slot); }
  void Rebuild(const StepView& view) override {
    KeyedOrder::Rebuild(view);
    waits_.clear();
    head_ = 0;
    for (const SlotId slot : view.waiting) waits_.push_back({view.seq.queued_ns[slot], slot});
    std::sort(waits_.begin(), waits_.end());
  }
  void Start(const StepView& view) override {
    for (; head_ < waits_.size() && view.now_ns - waits_[head_].since_ns >= promote_after_ns_; ++head_) {
      if (!Waits(view, waits_[head_])) continue;
      const SlotId slot = waits_[head_].slot;
      MlfqNote& note = note_.At(view.notes, slot);
      if (note.level == kPromoted) continue;
      Refile(view, slot, [&] {
        note.level = kPromoted;
        note.end_tokens = Output(view, slot) + Quantum(0);
      });
    }
    KeyedOrder::Start(view);
  }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    if (view.seq.state[slot] != SeqState::kWaiting) return;
    const Place place = PlaceOf(view, slot);
    MlfqNote& note = note_.At(view.notes, slot);
    note.level = place.level;
    note.end_tokens = place.end_tokens;
    if (waits_.size() == waits_.capacity()) {  // at most every second entry is of a sequence that still waits
      waits_.erase(waits_.begin(), waits_.begin() + static_cast<ptrdiff_t>(head_));
      head_ = 0;
      waits_.erase(std::remove_if(waits_.begin(), waits_.end(), [&](const Wait& w) { return !Waits(view, w); }),
                   waits_.end());
    }
    waits_.push_back({view.seq.queued_ns[slot], slot});
  }
  // Those that were promoted go before all others, in the order in which they had begun to wait.
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    const bool waiting = view.seq.state[slot] == SeqState::kWaiting;
    if (waiting && note_.At(view.notes, slot).level == kPromoted) {
      return {kPromoted, view.seq.queued_ns[slot], view.seq.arrival_order[slot]};
    }
    return {QueueOf(view, slot), 0, view.seq.arrival_order[slot]};
  }

 private:
  struct Place {
    int32_t level = 0;
    int32_t end_tokens = 0;  // output length at which the quantum is used up
  };
  struct Wait {
    TimeNs since_ns = 0;
    SlotId slot = kNoSlot;
    auto operator<=>(const Wait&) const = default;
  };

  static bool Waits(const StepView& view, const Wait& w) {  // else it is gone, or was queued again later
    return view.seq.state[w.slot] == SeqState::kWaiting && view.seq.queued_ns[w.slot] == w.since_ns;
  }
  int32_t Quantum(int32_t level) const { return static_cast<int32_t>(std::min<int64_t>(quantum_ << level, 1 << 30)); }
  static int32_t Output(const StepView& view, SlotId slot) {
    return view.seq.known_planned[slot] - view.seq.prompt_tokens[slot];
  }

  // Decode steps that take as long as the prompt's prefill.
  int64_t PrefillCost(int32_t prompt_tokens) const {
    if (step_time_ == nullptr) return (prompt_tokens + kPromptTokensPerDecode - 1) / kPromptTokensPerDecode;
    const ChunkShape prompt{0, prompt_tokens};
    StepShape prefill, decode;
    prefill.chunks = {&prompt, 1};
    prefill.logit_rows = decode.logit_rows = decode.decodes = 1;
    decode.decode_context_tokens = int64_t{prompt_tokens} + 1;
    const DurationNs one = std::max<DurationNs>(1, step_time_->StepTimeNs(decode));
    return (step_time_->StepTimeNs(prefill) + one - 1) / one;
  }
  Place Join(int32_t prompt_tokens) const {
    const int64_t cost = PrefillCost(prompt_tokens);
    int32_t level = 0;
    while (level < lowest_ && Quantum(level) < cost) ++level;
    return {level, static_cast<int32_t>(std::max<int64_t>(1, Quantum(level) - cost))};
  }
  Place PlaceOf(const StepView& view, SlotId slot) const {
    const MlfqNote& note = note_.At(view.notes, slot);
    Place place{std::max(0, note.level), note.end_tokens};
    if (place.end_tokens == 0) place = Join(view.seq.prompt_tokens[slot]);  // new
    const int32_t output = Output(view, slot);
    while (place.level < lowest_ && output >= place.end_tokens) place.end_tokens += Quantum(++place.level);
    return place;
  }
  int32_t QueueOf(const StepView& view, SlotId slot) const { return PlaceOf(view, slot).level; }

  const StepTimeModel* const step_time_;
  const int32_t lowest_;
  const int64_t quantum_;
  const DurationNs promote_after_ns_;
  const NoteColumn<MlfqNote> note_;
  std::vector<Wait> waits_;  // [head_, size): in the order in which they entered the queue, some long gone
  size_t head_ = 0;
};

}  // namespace

constinit const KnobList kMlfqKnobs{&kQueues, &kQuantumTokens, &kPromotion};

std::unique_ptr<Order> MakeMlfqOrder(const SchedulerLimits& limits) {
  return std::make_unique<Mlfq>(limits);
}

}  // namespace tactus::sched
