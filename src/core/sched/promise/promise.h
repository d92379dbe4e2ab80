// What a sequence was promised (its objectives), whether that can still be kept, and what the step that is being
// planned may take for the sake of those that can: shared by the order, the composition and the budget of the tactus
// preset. Each has its own model, all answer alike: everything is a function of the view (its results, notes and clock)
// and of the limits.
//
// Standing, first to last:
//   turn         it has been passed over for too long, and goes first until its answer ends; or it goes first for its
//                class's share, until its prompt is computed
//   kept         it states an objective that can still be met
//   broken       it states one that no longer can: a token came too late, or its prompt takes longer than is left
//   best effort  it states nothing
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/sched/class_shares.h"
#include "core/sched/policy.h"

namespace tactus::core {

struct PromiseNote {
  TimeNs token_ns;       // when its latest token was seen
  DurationNs answer_ns;  // of a job: what its answer was expected to take when it came; 0: not worked out yet
  int32_t expected;      // tokens of its answer, as predicted; 0: not asked yet
  StepId left_out;       // one beyond the first step in a row that went without it though it runs; 0: none did
  StepId due_in;         // one beyond the step that must not go without it
  int32_t tokens_seen;   // of those that it generated
  bool broken;           // one of its tokens came too late
  bool turn;
};

// What concerns all; kept for client 0.
struct PromiseClock {
  // Of the last steps with prompts, by their number: what they were predicted to take. Noted here, because a replay has
  // the answers of the step-time model and not what the loop made of them (StepRecord::predicted_ns).
  static constexpr StepId kInFlight = 8;
  struct Predicted {
    StepId step;  // one beyond it; 0: none
    DurationNs ns;
  };
  Predicted predicted[kInFlight];
  StepId last_promise;  // one beyond the last step that saw a sequence that states something; 0: none did
  StepId turn_from;     // one beyond the step since which nobody who only waits has begun; 0: nobody waits
  StepId seen;          // one beyond the newest result that was read
  double late;          // about the P99.5 of how much longer steps with prompts take than predicted, as a share
  DurationNs
      ttft_ns;  // about the P99 of what those that state something waited for their first token; 0: none has had it
  DurationNs base_ns;  // of the decodes that were promised something alone, in the last step that had a size
  DurationNs step_ns;  // what steps take, the last ones counting most; 0: none has ended
};

enum class Standing : uint8_t { kTurn, kKept, kBroken, kBestEffort };

class PromiseModel {
 public:
  explicit PromiseModel(const SchedulerLimits& limits);

  // When the first token (after a preemption: the next) is due, and the last moment at which it can be met.
  struct Due {
    TimeNs by_ns = kNever;
    TimeNs keep_by_ns = kNever;  // kNever: it cannot be missed, only be late
  };
  // Precondition: the sequence states an objective and has tokens to compute before its next one. Constant while it
  // waits.
  Due DueOf(const StepView& view, SlotId slot) const;

  Standing StandingOf(const StepView& view, SlotId slot) const {
    return shares_.GoesFirst(view, slot) ? Standing::kTurn : OwnStandingOf(view, slot);
  }
  bool GoesFirstForShare(const StepView& view, SlotId slot) const { return shares_.GoesFirst(view, slot); }
  // Without regard to its class's share.
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

  // Whether a decode may sit this step out: it states nothing, and it is not among those that have for longest, of whom
  // so many are in every step that each is in one of kLongestPause. See has been asked in this plan.
  bool MayBeLeftOut(const StepView& view, SlotId slot) const {
    const PromiseNote& note = note_.At(view.notes, slot);
    return !view.seq.slo[slot].any() && !note.turn && note.due_in != view.step + 1;
  }

  // --- the step that is being planned, worked out once for all who ask ---
  struct Seen {  // of the view that it was worked out from
    StepId step = -1;
    TimeNs now_ns = -1;
    size_t running = 0, waiting = 0, changes = 0;
    int32_t in_flight = 0;
    bool operator==(const Seen&) const = default;
  };
  struct Step {
    Seen seen;
    bool turn = false;             // one that runs has its turn
    bool promises = false;         // now or a short while ago somebody stated something
    int32_t promised = 0;          // running decodes that state something or have their turn,
    int64_t promised_context = 0;  // ... the KV that they read,
    int32_t best_effort = 0;       // ... and the others
    DurationNs allowed_ns =
        kNever;               // what a step may take for the sake of those that run; kNever: none states anything
    double token_ns = 0;      // of a prompt token in a step that takes so long; 0: no model
    int64_t free_tokens = 0;  // that the KV has room for beside what runs,
    double kv_token_ns = 0;   // ... and how long it takes until what runs gives back a token's worth, by its end
  };
  const Step& See(const StepView& view) const {
    const Seen seen{view.step,           view.now_ns,         view.running.size(),
                    view.waiting.size(), view.changes.size(), view.steps_in_flight};
    if (step_->seen != seen) Look(view, seen);
    return *step_;
  }
  const StepTimeModel* model() const { return model_; }
  // Time of a step of so many decodes over so much context, and one chunk behind `context`.
  DurationNs TimeOf(int64_t decodes, int64_t decode_context, int64_t chunk, int64_t context = 0) const;

  // What has been put into the step that is being planned is all.
  void SeePlan(const StepView& view, const StepPlan& plan) const;
  // Somebody who waits states something.
  void SeePromise(const StepView& view) const {
    Clock(view).last_promise = view.step + 1;
    step_->promises = true;
  }
  PromiseClock& Clock(const StepView& view) const { return clock_.At(view.client_notes, 0); }
  PromiseNote& Note(const StepView& view, SlotId slot) const { return note_.At(view.notes, slot); }
  // Tokens of its answer, more than it has; 0: nobody predicts any.
  int32_t ExpectedTokens(const StepView& view, SlotId slot) const;
  int64_t turn_steps() const { return turn_steps_; }
  DurationNs usual_gap_ns() const { return usual_gap_ns_; }

 private:
  // What of a gap a step may be predicted to take.
  DurationNs ShareOf(const StepView& view, DurationNs ns) const {
    return static_cast<DurationNs>(static_cast<double>(ns) * share_ / (1 + Clock(view).late));
  }
  void Look(const StepView& view, const Seen& seen) const;
  void Size(const StepView& view) const;
  void ChooseDue(const StepView& view) const;
  static void SeeFirstToken(DurationNs ttft_ns, DurationNs* p99_ns);
  void SeeToken(const StepView& view, SlotId slot) const;
  void SeeResults(const StepView& view) const;
  void SeeResult(const StepRecord& record, PromiseClock* clock) const;
  DurationNs GapNs(const StepView& view, SlotId slot, DurationNs base_ns) const;
  DurationNs AnswerNs(const StepView& view, SlotId slot) const;

  const StepTimeModel* const model_;
  const LengthPredictor* const predictor_;
  const int64_t turn_steps_;
  const DurationNs usual_gap_ns_;  // between tokens for who states no TBT
  double best_token_ns_ = 0;       // of a prompt token in the steps that compute most per second; 0: no model
  const int64_t kv_tokens_;
  const double share_;  // of a gap that a step may take
  const NoteColumn<PromiseNote> note_;
  const NoteColumn<PromiseClock> clock_;
  const ClassShares shares_;
  const std::shared_ptr<Step> step_;
  mutable std::vector<DurationNs> gaps_;
  mutable std::vector<ChunkShape> chunks_;
  mutable std::vector<std::pair<StepId, SlotId>> left_out_;
};

inline constexpr Knob<int64_t> kPromiseTurn{
    "promise-turn",
    1024,
    {.unit = "steps",
     .min = 1,
     .max = 1 << 20,
     .help = "promise: so many steps go by in which nobody who only waits begins, then the oldest of them goes first"}};

// A decode that may be left out is in one of so many steps.
inline constexpr int64_t kLongestPause = 64;

}  // namespace tactus::core
