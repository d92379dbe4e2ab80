// Slack: the time that a sequence can still wait before its next token is late (AccelGen, section 4.3), and its parts.
// Shared by all choices of the accelgen presets; each has its own SlackModel, and all return the same: everything is a
// function of the view (its results, notes and clock) and of the limits.
//
//   prompt   T_r = objective - T_w - N_ck * T_max,   N_ck = ceil(S_r / L_c)
//   decode   T_r = objective - T_w - T_max
//   JCT      T_r = (SLO_jct - T_e) / (N_ck + S_g), fixed on arrival, + what earlier steps left over - T_w
//            with T_e = N_ck * T_max + S_g * (T_max + P_max * P)
//
// A sequence with several objectives has the least of their slacks.
//
// Ours: a prompt has *missed* its objective once it can no longer be kept, objective - T_w < S_r * T_pf / S_pf: not
// even steps of the pivot size that compute nothing else would keep it. It goes behind all that can still be kept
// (waiting prompts in the order in which they missed, running ones by arrival), is not urgent, and does not limit the
// step's size. The first of them gets a turn once --accelgen-missed-turn steps have passed it over. Under
// --accelgen-missed urgent and first no prompt counts as missed: all go by T_r, and late ones are urgent (the paper's
// Algorithm 1, T_r <= T_max) or not.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "base/prefetch.h"
#include "core/sched/class_shares.h"
#include "core/sched/policy.h"

namespace tactus::core {

// Knobs of every choice that uses slack.
inline constexpr Knob<DurationText> kTtftObjective{
    "accelgen-ttft",
    {2'000'000'000},
    {.unit = "duration",
     .min = 1e6,
     .max = 1e15,
     .help = "slack: time to first token allowed to a request that states no objective"}};
inline constexpr Knob<DurationText> kTbtObjective{
    "accelgen-tbt",
    {187'500'000},
    {.unit = "duration",
     .min = 1e5,
     .max = 1e15,
     .help = "slack: time between tokens allowed to a request that states no objective; reading speed"}};
inline constexpr Knob<int64_t> kPivotTokens{
    "accelgen-pivot",
    0,
    {.unit = "tokens",
     .min = 0,
     .max = 1 << 20,
     .help = "step size at which throughput saturates; 0: from the step-time model, else 512"}};
inline constexpr Knob<int64_t> kMissedTurn{
    "accelgen-missed-turn",
    1024,
    {.unit = "steps",
     .min = 1,
     .max = 1 << 20,
     .help = "slack: steps that pass over the first prompt that can no longer be kept, then it goes first"}};

inline constexpr Knob<std::string> kMissedRule{
    "accelgen-missed",
    kAutoKnob,
    {.choices = "auto|behind|first|urgent",
     .help = "slack: a request that can no longer be kept goes behind all others (behind), or by its slack, not urgent "
             "(first) or urgent (urgent); auto: the preset's, else behind"}};

struct SlackNote {
  DurationNs jct_share_ns;  // what a JCT objective leaves each step to wait, as of its arrival; 0: not computed yet
  DurationNs carry_ns;      // over- or underuse of that by earlier steps
  TimeNs passed_over_ns;    // time since which it could have run but was left out; 0: it was not
  TimeNs token_ns;          // planning time at which its latest token was first visible
  StepId turn_from;         // 1 + the step since which it awaits its turn; 0: it does not
  int32_t tokens_seen;      // generated tokens at the last update
  bool missed;              // one of its tokens came too late for its objective
  bool in_turn;             // it started in its turn
};

// The last steps that succeeded (at most the view's 128). While there are fewer, and there is a step-time model, one
// step of the pivot size stands in for the missing ones.
struct StepWindow {
  DurationNs longest_step_ns = 0;          // T_max, > 0
  int64_t mean_chunk_tokens = 1;           // L_c, rounded down, >= 1
  DurationNs longest_preemption_ns = 0;    // P_max: from the loss of the KV to the next start
  DurationNs preemption_per_token_ns = 0;  // P_max * P, with P = preemptions / tokens generated
  int64_t fastest_tokens = 0;              // the step with the most tokens per second: its tokens,
  DurationNs fastest_ns = 0;               // ... and its time; 0: no step yet
};

// The step size at which throughput saturates (S_pf) and the time of such a step (T_pf).
struct Pivot {
  int64_t tokens = 0;
  DurationNs step_ns = 0;  // 0: unknown before steps have been measured
  std::string why;
};
// From the step-time model: the first multiple of the tile whose tokens per second are within 3 % of the best.
// --accelgen-pivot overrides it; without a model 512.
Pivot FindPivot(const SchedulerLimits& limits);

enum class MissedRule : uint8_t { kBehind, kFirst, kUrgent };

class SlackModel {
 public:
  explicit SlackModel(const SchedulerLimits& limits);

  const StepWindow& Window(const StepView& view) const {
    const size_t size = view.recent.size();
    const auto begin = static_cast<size_t>(view.recent_begin);
    const StepId newest = size == 0 ? -1 : view.recent[begin == 0 ? size - 1 : begin - 1].step;
    if (newest != window_->newest) ReadWindow(view, newest);
    return window_->window;
  }
  // Prefetches what the methods below read of a waiting sequence.
  void PrefetchSlot(const StepView& view, SlotId slot) const {
    Prefetch(&note_.At(view.notes, slot));
    view.seq.PrefetchRow(slot);
  }
  // T_r of any live sequence that is not yet in this step's plan. May write a JCT request's share into its note.
  DurationNs SlackNs(const StepView& view, SlotId slot) const {
    const Slo& slo = view.seq.slo[slot];
    if (slo.jct_ns > 0) return JobSlackNs(view, slot);
    const DurationNs longest_step_ns = Window(view).longest_step_ns;
    if (IsDecode(view, slot)) return TbtNs(slo) - WaitedNs(view, slot) - longest_step_ns;
    return PromptSlackNs(view, slot, PromptObjectiveNs(view, slot));
  }
  // Whether `a` goes before `b`: by slack, then by arrival.
  bool Before(const StepView& view, SlotId a, SlotId b) const {
    const DurationNs slack_a = SlackNs(view, a), slack_b = SlackNs(view, b);
    return slack_a != slack_b ? slack_a < slack_b : view.seq.arrival_order[a] < view.seq.arrival_order[b];
  }

  MissedRule missed_rule() const { return missed_rule_; }
  // Whether a prompt can no longer be kept. A preempted sequence can, since it only owes the next token of its answer,
  // unless it had missed an objective before.
  bool Missed(const StepView& view, SlotId slot) const {
    return !IsDecode(view, slot) && view.now_ns > KeepByNs(view, slot);
  }
  // The last time at which it has not missed; kNever: it cannot miss. Constant while a sequence waits. Without a
  // step-time model the time of a prompt is unknown: it has missed once its objective has passed.
  TimeNs KeepByNs(const StepView& view, SlotId slot) const;
  // Whether it goes behind all that can still be kept: it has missed, and does not go first for its class's share.
  bool StandsBehind(const StepView& view, SlotId slot) const {
    return Missed(view, slot) && !shares_.GoesFirst(view, slot);
  }
  // The slack by which sequences are ranked: kNever for those that go behind, kTurn for one that has its turn or goes
  // first for its class's share.
  DurationNs StandingNs(const StepView& view, SlotId slot) const {
    return StandingNs(view, slot, StandsBehind(view, slot));
  }
  DurationNs StandingNs(const StepView& view, SlotId slot, bool behind) const {  // `behind`: StandsBehind()
    if (shares_.GoesFirst(view, slot)) return kTurn;
    if (!behind) return SlackNs(view, slot);
    return HasTurn(view, slot) ? kTurn : kNever;
  }
  static constexpr DurationNs kTurn = std::numeric_limits<DurationNs>::min();
  // Whether it has missed an objective and does not have its turn: its KV is for those that can still be kept.
  bool GivesWay(const StepView& view, SlotId slot) const {
    if (note_.At(view.notes, slot).in_turn || HasTurn(view, slot) || shares_.GoesFirst(view, slot)) return false;
    return IsDecode(view, slot) ? DecodeMissed(view, slot) : Missed(view, slot);
  }
  // Whether `needy` may take the KV of `from`: a sequence that gives way loses it to any that does not; else the one
  // with more slack loses it.
  bool MayTakeFrom(const StepView& view, SlotId needy, SlotId from) const {
    const bool gives = GivesWay(view, from);
    return gives != GivesWay(view, needy) ? gives : Before(view, needy, from);
  }
  // Call for the first of those that have missed: its turn comes after missed_turn_ steps, unless it gets a share
  // before. No effect while another has its turn.
  void AwaitTurn(const StepView& view, SlotId slot) const {
    StepId& from = note_.At(view.notes, slot).turn_from;
    if (from == 0 && !AnotherInTurn(view, slot)) from = view.step + 1;
  }
  bool AnotherInTurn(const StepView& view, SlotId slot) const {
    return std::any_of(view.running.begin(), view.running.end(),
                       [&](SlotId other) { return other != slot && note_.At(view.notes, other).in_turn; });
  }
  bool HasTurn(const StepView& view, SlotId slot) const {
    const StepId from = note_.At(view.notes, slot).turn_from;
    return from != 0 && view.step + 1 - from >= missed_turn_;
  }

  // The parts of a waiting sequence's slack, for an index: T_r + now = the earlier of prompt_by_ns - N_ck * T_max and
  // job_by_ns (kNever: no such objective). Constant while it waits.
  struct Deadlines {
    TimeNs prompt_by_ns = kNever;
    TimeNs job_by_ns = kNever;
  };
  Deadlines WaitingDeadlines(const StepView& view, SlotId slot) const;
  static TimeNs LatestStart(const Deadlines& d, int64_t chunks, DurationNs longest_step_ns) {
    const TimeNs prompt = d.prompt_by_ns == kNever ? kNever : d.prompt_by_ns - chunks * longest_step_ns;
    return std::min(prompt, d.job_by_ns);
  }
  static int64_t Chunks(int64_t tokens, int64_t mean_chunk_tokens) {
    return (tokens + mean_chunk_tokens - 1) / mean_chunk_tokens;
  }

  // The sequence got a share of the step being planned: adds to its carry what a JCT request has waited less than its
  // share, or more, and clears its wait and its turn.
  void Took(const StepView& view, SlotId slot) const {
    SlackNote& note = note_.At(view.notes, slot);
    if (view.seq.slo[slot].jct_ns > 0) note.carry_ns += JctShareNs(view, slot) - WaitedNs(view, slot);
    note.passed_over_ns = 0;
    note.turn_from = 0;
  }
  // It starts in its turn: it keeps its KV to its end, like one that can be kept.
  void StartsInTurn(const StepView& view, SlotId slot) const { note_.At(view.notes, slot).in_turn = true; }
  // It could have run, but is left out.
  void PassedOver(const StepView& view, SlotId slot) const {
    TimeNs& since = note_.At(view.notes, slot).passed_over_ns;
    if (since == 0) since = view.now_ns;
  }

  // --- for the budget ---
  // The time that the next step may take for this sequence: its TBT objective (decode); what is left of its TTFT
  // objective per chunk (prompt); T_r + T_max (JCT). At least `pivot_ns` for a prompt or a JCT: a step below the pivot
  // only delays it. A missed objective sets no limit (kNever); a decode that has missed has the default TBT instead, or
  // its own if that is longer. Must be called once per step for every running sequence: it detects new tokens.
  DurationNs StepAllowanceNs(const StepView& view, SlotId slot, DurationNs pivot_ns) const {
    const Slo& slo = view.seq.slo[slot];
    if (!IsDecode(view, slot) || slo.jct_ns > 0) return PromptOrJobAllowanceNs(view, slot, pivot_ns);
    return DecodeMissed(view, slot) ? std::max(TbtNs(slo), default_tbt_ns_) : TbtNs(slo);
  }
  DurationNs TbtNs(const Slo& slo) const { return slo.tbt_ns > 0 ? slo.tbt_ns : default_tbt_ns_; }
  const Pivot& pivot() const { return pivot_; }
  // T_pf, and the time of a step of `tokens` in proportion to it; 0: not known yet.
  DurationNs PivotNs(const StepView& view) const;
  DurationNs FullStepNs(const StepView& view, int64_t tokens) const { return tokens * PivotNs(view) / pivot_.tokens; }

 private:
  // Shared by all models of a scheduler, so that the last steps are read once.
  struct LastWindow {
    StepWindow window;
    StepId newest = -2;  // newest step in `window`
  };
  void ReadWindow(const StepView& view, StepId newest) const;

  // The objective for the token after the prompt: TTFT, or TBT if it had tokens before (it was preempted). 0: it has
  // only a JCT.
  DurationNs PromptObjectiveNs(const StepView& view, SlotId slot) const {
    const Slo& slo = view.seq.slo[slot];
    const bool had_tokens = view.seq.known_committed[slot] > view.seq.prompt_tokens[slot];
    const DurationNs stated = had_tokens ? slo.tbt_ns : slo.ttft_ns;
    if (stated > 0) return stated;
    if (slo.jct_ns > 0) return 0;
    return had_tokens ? default_tbt_ns_ : default_ttft_ns_;
  }
  // A prompt waits for its first token from its queueing on, also between its chunks.
  DurationNs PromptSlackNs(const StepView& view, SlotId slot, DurationNs objective) const {
    const StepWindow& w = Window(view);
    return objective - (view.now_ns - view.seq.queued_ns[slot]) -
           Chunks(PromptTokensLeft(view, slot), w.mean_chunk_tokens) * w.longest_step_ns;
  }
  DurationNs WaitedNs(const StepView& view, SlotId slot) const {
    if (IsWaiting(view, slot)) return view.now_ns - view.seq.queued_ns[slot];
    const TimeNs since = note_.At(view.notes, slot).passed_over_ns;
    return since == 0 ? 0 : view.now_ns - since;
  }
  int64_t PromptTokensLeft(const StepView& view, SlotId slot) const {
    if (IsWaiting(view, slot)) return view.seq.known_committed[slot];
    return view.seq.goal_tokens[slot] - view.seq.computed_planned[slot];
  }
  static bool IsDecode(const StepView& view, SlotId slot) { return view.seq.state[slot] == SeqState::kDecode; }
  static bool IsWaiting(const StepView& view, SlotId slot) { return view.seq.state[slot] == SeqState::kWaiting; }

  DurationNs JobSlackNs(const StepView& view, SlotId slot) const;
  DurationNs JctShareNs(const StepView& view, SlotId slot) const;
  DurationNs PromptOrJobAllowanceNs(const StepView& view, SlotId slot, DurationNs pivot_ns) const;
  // Whether a decode has missed one of its objectives, its newest token included.
  bool DecodeMissed(const StepView& view, SlotId slot) const {
    if (missed_rule_ != MissedRule::kBehind) return false;
    SlackNote& note = note_.At(view.notes, slot);
    const int32_t generated = view.seq.known_committed[slot] - view.seq.prompt_tokens[slot];
    if (generated != note.tokens_seen) UpdateToken(view, slot, generated, &note);
    const DurationNs jct = view.seq.slo[slot].jct_ns;
    if (jct > 0 && view.now_ns - view.seq.arrival_ns[slot] > jct) note.missed = true;
    return note.missed;
  }
  static void UpdateToken(const StepView& view, SlotId slot, int32_t generated, SlackNote* note) {
    const bool first = note->tokens_seen == 0;
    const DurationNs stated = first ? view.seq.slo[slot].ttft_ns : view.seq.slo[slot].tbt_ns;
    const TimeNs since = first ? view.seq.arrival_ns[slot] : note->token_ns;
    if (stated > 0 && view.now_ns - since > stated) note->missed = true;
    note->tokens_seen = generated;
    note->token_ns = view.now_ns;
  }

  const DurationNs default_ttft_ns_, default_tbt_ns_;
  const LengthPredictor* const predictor_;
  const bool has_model_;
  const int64_t missed_turn_;
  const MissedRule missed_rule_;
  const Pivot pivot_;
  const NoteColumn<SlackNote> note_;
  const ClassShares shares_;
  const std::shared_ptr<LastWindow> window_;
};

}  // namespace tactus::core
