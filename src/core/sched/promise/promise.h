// Shared by the order, admission, composition and budget of the tactus preset: whether a sequence's promises (its
// objectives) can still be kept, and how long the step being planned may take for those that can. A scheduler has one
// PromiseModel, which its choices share (SchedulerLimits::Shared). Everything in it is a function of the view (its
// results, notes and clock) and of the limits.
//
// Standing, first to last:
//   turn         it was passed over for too long, and goes first until its answer ends; or it goes first for its
//                class's share, until its prompt is computed
//   kept         it has an objective that can still be met
//   broken       it has one that no longer can: a token came too late, or its prompt takes longer than the time left
//   best effort  it has no objective
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/sched/class_shares.h"
#include "core/sched/policy.h"

namespace tactus::core {

struct PromiseNote {
  TimeNs token_ns;       // planning time at which its latest token was first visible
  DurationNs answer_ns;  // with a JCT objective: predicted duration of its answer, computed at first use; 0: not yet
  int32_t expected;      // predicted tokens of its answer; 0: not predicted yet
  StepId left_out;       // 1 + the first of the consecutive steps that left it out while it ran; 0: none did
  StepId due_in;         // 1 + the step that must include it
  int32_t tokens_seen;   // generated tokens at the last update
  bool broken;           // one of its tokens came too late
  bool turn;
};

// State about all sequences; kept for client 0.
struct PromiseClock {
  // Predicted times of the last steps with prompts, a ring by step number. Kept here, since a replay has the answers of
  // the step-time model but not the loop's corrections of them (StepRecord::predicted_ns).
  static constexpr StepId kInFlight = 8;
  struct Predicted {
    StepId step;  // 1 + its number; 0: none
    DurationNs ns;
  };
  Predicted predicted[kInFlight];
  StepId last_promise;  // 1 + the last step that saw a sequence with an objective; 0: none did
  StepId turn_from;     // 1 + the step since which broken or best-effort requests wait and none of them has started; 0:
                        // none waits
  StepId seen;          // 1 + the newest step whose result was read
  double late;          // estimated P99.5 of measured / predicted - 1 of steps with prompts
  DurationNs ttft_ns;   // estimated P99 time to first token of sequences with objectives other than JCT; 0: none yet
  DurationNs base_ns;   // predicted time of the decodes that must run, without others, in the last sized step
  DurationNs step_ns;   // moving average of step times; 0: no step has ended
};

enum class Standing : uint8_t { kTurn, kKept, kBroken, kBestEffort };

class PromiseModel {
 public:
  explicit PromiseModel(const SchedulerLimits& limits);

  // When the first token (after a preemption: the next one) is due, and the latest time at which it can still be met.
  struct Due {
    TimeNs by_ns = kNever;
    TimeNs keep_by_ns = kNever;  // kNever: the due time is soft, it can only be late
  };
  // Precondition: the sequence has an objective and tokens to compute before its next one. Constant while it waits.
  Due DueOf(const StepView& view, SlotId slot) const;

  Standing StandingOf(const StepView& view, SlotId slot) const {
    return shares_.GoesFirst(view, slot) ? Standing::kTurn : OwnStandingOf(view, slot);
  }
  bool GoesFirstForShare(const StepView& view, SlotId slot) const { return shares_.GoesFirst(view, slot); }
  // Regardless of its class's share.
  Standing OwnStandingOf(const StepView& view, SlotId slot) const {
    const PromiseNote& note = note_.At(view.notes, slot);
    if (note.turn) return Standing::kTurn;
    const Slo& slo = view.seq.slo[slot];
    if (!slo.any()) return Standing::kBestEffort;
    if (note.broken || (slo.jct_ns > 0 && view.now_ns - view.seq.arrival_ns[slot] > slo.jct_ns))
      return Standing::kBroken;
    if (view.seq.state[slot] == SeqState::kDecode) return Standing::kKept;
    return view.now_ns > DueOf(view, slot).keep_by_ns ? Standing::kBroken : Standing::kKept;
  }

  // Whether a decode may sit this step out: it has no objective and is not among the longest left-out ones that must
  // run (PromiseNote::due_in): each runs in at least one of kLongestPause steps. Precondition: Update was called in
  // this plan.
  bool MayBeLeftOut(const StepView& view, SlotId slot) const {
    const PromiseNote& note = note_.At(view.notes, slot);
    return !view.seq.slo[slot].any() && !note.turn && note.due_in != view.step + 1;
  }

  // --- the step being planned, computed once per plan ---
  struct ViewKey {  // identifies the view that a Step was computed from
    StepId step = -1;
    TimeNs now_ns = -1;
    size_t running = 0, waiting = 0, changes = 0;
    int32_t in_flight = 0;
    bool operator==(const ViewKey&) const = default;
  };
  struct Step {
    ViewKey key;
    bool turn = false;               // a running sequence has its turn
    bool promises = false;           // a sequence had an objective in this or a recent step
    int32_t promised = 0;            // running decodes that may not be left out,
    int64_t promised_context = 0;    // ... the KV tokens that they read,
    int32_t best_effort = 0;         // ... and the number of other decodes
    DurationNs allowed_ns = kNever;  // time limit of the step, for the running sequences; kNever: no limit
    double token_ns = 0;             // time per prompt token in a step of that length; 0: no model
    int64_t free_tokens = 0;         // KV tokens free beside the running sequences,
    double kv_token_ns = 0;          // ... and time until those free one more, as they end; 0: unknown
  };
  const Step& Update(const StepView& view) {
    const ViewKey key{view.step,           view.now_ns,         view.running.size(),
                      view.waiting.size(), view.changes.size(), view.steps_in_flight};
    if (step_.key != key) Compute(view, key);
    return step_;
  }
  const StepTimeModel* model() const { return model_; }
  // Predicted time of a step of `decodes` over `decode_context` tokens in total, and one chunk behind `context`.
  DurationNs TimeOf(int64_t decodes, int64_t decode_context, int64_t chunk, int64_t context = 0) const;

  // Call once the plan is complete: records its predicted time.
  void OnPlanDone(const StepView& view, const StepPlan& plan);
  // A waiting sequence has an objective.
  void NotePromise(const StepView& view) {
    Clock(view).last_promise = view.step + 1;
    step_.promises = true;
  }
  PromiseClock& Clock(const StepView& view) const { return clock_.At(view.client_notes, 0); }
  PromiseNote& Note(const StepView& view, SlotId slot) const { return note_.At(view.notes, slot); }
  // Predicted tokens of its answer, more than it has generated; 0: no predictor.
  int32_t ExpectedTokens(const StepView& view, SlotId slot) const;
  int64_t turn_steps() const { return turn_steps_; }
  DurationNs usual_gap_ns() const { return usual_gap_ns_; }

 private:
  // The most predicted time of a step if gaps of `ns` are to be kept.
  DurationNs ShareOf(const StepView& view, DurationNs ns) const {
    return static_cast<DurationNs>(static_cast<double>(ns) * share_ / (1 + Clock(view).late));
  }
  void Compute(const StepView& view, const ViewKey& key);
  void Size(const StepView& view);
  void ChooseDue(const StepView& view);
  static void UpdateFirstToken(DurationNs ttft_ns, DurationNs* p99_ns);
  void UpdateToken(const StepView& view, SlotId slot) const;
  void ReadResults(const StepView& view) const;
  void ReadResult(const StepRecord& record, PromiseClock* clock) const;
  DurationNs GapNs(const StepView& view, SlotId slot, DurationNs base_ns) const;
  DurationNs AnswerNs(const StepView& view, SlotId slot) const;

  const StepTimeModel* const model_;
  const LengthPredictor* const predictor_;
  const int64_t turn_steps_;
  const DurationNs usual_gap_ns_;  // gap for sequences without a TBT objective
  double best_token_ns_ = 0;       // time per prompt token in the most efficient steps; 0: no model
  const int64_t kv_tokens_;
  const double share_;  // share of a gap that a step may take
  const NoteColumn<PromiseNote> note_;
  const NoteColumn<PromiseClock> clock_;
  const ClassShares shares_;
  Step step_;
  // Scratch.
  std::vector<DurationNs> gaps_;
  std::vector<ChunkShape> chunks_;
  std::vector<std::pair<StepId, SlotId>> left_out_;
};

inline constexpr Knob<int64_t> kPromiseTurn{
    "promise-turn",
    1024,
    {.unit = "steps",
     .min = 1,
     .max = 1 << 20,
     .help =
         "promise: steps in which no best-effort or late request starts, after which the oldest of these goes first"}};

// A decode that may be left out is in one of every kLongestPause steps.
inline constexpr int64_t kLongestPause = 64;

}  // namespace tactus::core
