#include "core/sched/accelgen/slack.h"

#include <fmt/format.h>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

constexpr int64_t kPivotWithoutModel = 512;
constexpr int64_t kLargestPivot = 8192;

// The time of one prompt's chunk from position 0, alone.
DurationNs StepTimeOf(const StepTimeModel& model, int64_t tokens) {
  const ChunkShape chunk{0, static_cast<int32_t>(tokens)};
  StepShape shape;
  shape.chunks = {&chunk, 1};
  shape.logit_rows = 1;
  return std::max<DurationNs>(1, model.StepTimeNs(shape));
}

MissedRule MissedRuleOf(const std::string& name) {
  return name == "urgent" ? MissedRule::kUrgent : name == "first" ? MissedRule::kFirst : MissedRule::kBehind;
}

}  // namespace

constinit const KnobList kSlackKnobs{&kTtftObjective, &kTbtObjective, &kPivotTokens, &kMissedTurn, &kMissedRule};

Pivot FindPivot(const SchedulerLimits& limits) {
  const StepTimeModel* model = limits.StepTimes();
  const int64_t given = limits.policy[kPivotTokens];
  if (model == nullptr) {
    return given > 0 ? Pivot{given, 0, fmt::format("pivot {} (--accelgen-pivot), its time as measured", given)}
                     : Pivot{kPivotWithoutModel, 0,
                             fmt::format("pivot {} (no step-time model), its time as measured", kPivotWithoutModel)};
  }
  if (given > 0) return {given, StepTimeOf(*model, given), fmt::format("pivot {} (--accelgen-pivot)", given)};
  // At least 16 tokens apart: a tile of one token would mean thousands of predictions.
  const int64_t tile = std::max(16, model->tile_tokens());
  const int64_t most = std::clamp<int64_t>(limits.max_model_len / tile * tile, tile, kLargestPivot);
  double best = 0;
  for (int64_t tokens = tile; tokens <= most; tokens += tile) {
    best = std::max(best, static_cast<double>(tokens) / static_cast<double>(StepTimeOf(*model, tokens)));
  }
  for (int64_t tokens = tile; tokens <= most; tokens += tile) {
    const DurationNs step_ns = StepTimeOf(*model, tokens);
    if (static_cast<double>(tokens) / static_cast<double>(step_ns) >= 0.97 * best) {
      return {tokens, step_ns, fmt::format("pivot {} of the step-time model", tokens)};
    }
  }
  return {most, StepTimeOf(*model, most), fmt::format("pivot {} of the step-time model", most)};
}

SlackModel::SlackModel(const SchedulerLimits& limits)
    : default_ttft_ns_(limits.policy[kTtftObjective].ns),
      default_tbt_ns_(limits.policy[kTbtObjective].ns),
      predictor_(limits.predictor),
      has_model_(limits.StepTimes() != nullptr),
      missed_turn_(limits.policy[kMissedTurn]),
      missed_rule_(MissedRuleOf(limits.policy[kMissedRule])),
      pivot_(FindPivot(limits)),
      note_(limits.Note<SlackNote>()),
      shares_(limits),
      window_(limits.notes->Shared<LastWindow>()) {}

void SlackModel::ReadWindow(const StepView& view, StepId newest) const {
  StepWindow w;
  int64_t steps = 0, chunk_tokens = 0, chunks = 0, generated = 0, preemptions = 0;
  for (const StepRecord& r : view.recent) {
    if (!r.ok) continue;
    ++steps;
    const DurationNs took = std::max<DurationNs>(1, r.end_ns - r.start_ns);
    const int64_t tokens = int64_t{r.prefill_tokens} + r.decode_tokens;
    w.longest_step_ns = std::max(w.longest_step_ns, took);
    w.longest_preemption_ns = std::max(w.longest_preemption_ns, r.longest_preemption_ns);
    chunk_tokens += r.prefill_tokens;
    chunks += r.prefill_items;
    generated += r.decode_tokens;
    preemptions += r.preemptions;
    if (static_cast<double>(tokens) * static_cast<double>(w.fastest_ns) >
            static_cast<double>(w.fastest_tokens) * static_cast<double>(took) ||
        w.fastest_ns == 0) {
      w.fastest_tokens = tokens;
      w.fastest_ns = took;
    }
  }
  if (has_model_ && steps < 128) {
    w.longest_step_ns = std::max(w.longest_step_ns, pivot_.step_ns);
    chunk_tokens += pivot_.tokens;
    ++chunks;
  } else if (steps == 0) {
    w.longest_step_ns = default_tbt_ns_;
  }
  w.mean_chunk_tokens = chunks == 0 ? pivot_.tokens : std::max<int64_t>(1, chunk_tokens / chunks);
  w.preemption_per_token_ns =
      static_cast<DurationNs>(static_cast<double>(w.longest_preemption_ns) * static_cast<double>(preemptions) /
                              static_cast<double>(std::max<int64_t>(1, generated)));
  *window_ = {w, newest};
}

DurationNs SlackModel::PivotNs(const StepView& view) const {
  const StepWindow& w = Window(view);
  if (pivot_.step_ns > 0 || w.fastest_tokens == 0) return pivot_.step_ns;
  return std::max<DurationNs>(1, pivot_.tokens * w.fastest_ns / w.fastest_tokens);
}

DurationNs SlackModel::JctShareNs(const StepView& view, SlotId slot) const {
  DurationNs& share = note_.At(view.notes, slot).jct_share_ns;
  if (share != 0) return share;
  const StepWindow& w = Window(view);
  const int64_t output =
      predictor_ != nullptr ? predictor_->PredictOutputTokens(slot, 0) : view.seq.max_output_tokens[slot];
  const int64_t chunks = Chunks(view.seq.prompt_tokens[slot], w.mean_chunk_tokens);
  const DurationNs run_ns = chunks * w.longest_step_ns + output * (w.longest_step_ns + w.preemption_per_token_ns);
  share = (view.seq.slo[slot].jct_ns - run_ns) / std::max<int64_t>(1, chunks + output);
  if (share == 0) share = 1;  // 0 means: not computed yet
  return share;
}

TimeNs SlackModel::KeepByNs(const StepView& view, SlotId slot) const {
  if (IsDecode(view, slot) || missed_rule_ != MissedRule::kBehind) return kNever;
  if (view.seq.preemptions[slot] > 0) {
    const SlackNote& note = note_.At(view.notes, slot);
    return note.missed && !note.in_turn ? view.seq.arrival_ns[slot] - 1 : kNever;
  }
  DurationNs objective = PromptObjectiveNs(view, slot);
  if (const DurationNs jct = view.seq.slo[slot].jct_ns; jct > 0) {
    objective = objective > 0 ? std::min(objective, jct) : jct;
  }
  const DurationNs at_best_ns = pivot_.step_ns == 0 ? 0 : PromptTokensLeft(view, slot) * pivot_.step_ns / pivot_.tokens;
  return view.seq.queued_ns[slot] + objective - at_best_ns;
}

SlackModel::Deadlines SlackModel::WaitingDeadlines(const StepView& view, SlotId slot) const {
  Deadlines d;
  const TimeNs queued = view.seq.queued_ns[slot];
  const DurationNs prompt = PromptObjectiveNs(view, slot);
  if (prompt > 0) d.prompt_by_ns = queued + prompt;
  if (view.seq.slo[slot].jct_ns > 0) {
    d.job_by_ns = queued + JctShareNs(view, slot) + note_.At(view.notes, slot).carry_ns;
  }
  return d;
}

DurationNs SlackModel::JobSlackNs(const StepView& view, SlotId slot) const {
  const Slo& slo = view.seq.slo[slot];
  DurationNs slack = kNever;
  if (IsDecode(view, slot)) {
    if (slo.tbt_ns > 0) slack = slo.tbt_ns - WaitedNs(view, slot) - Window(view).longest_step_ns;
  } else if (const DurationNs objective = PromptObjectiveNs(view, slot); objective > 0) {
    slack = PromptSlackNs(view, slot, objective);
  }
  return std::min(slack, JctShareNs(view, slot) + note_.At(view.notes, slot).carry_ns - WaitedNs(view, slot));
}

DurationNs SlackModel::PromptOrJobAllowanceNs(const StepView& view, SlotId slot, DurationNs pivot_ns) const {
  const Slo& slo = view.seq.slo[slot];
  const bool job = slo.jct_ns > 0 && view.now_ns - view.seq.arrival_ns[slot] <= slo.jct_ns;
  DurationNs allowance = kNever;
  if (Missed(view, slot)) return allowance;
  if (IsDecode(view, slot)) {
    const bool missed = DecodeMissed(view, slot);
    if (slo.tbt_ns > 0 || !job) allowance = missed ? std::max(TbtNs(slo), default_tbt_ns_) : TbtNs(slo);
  } else if (const DurationNs objective = PromptObjectiveNs(view, slot); objective > 0) {
    const DurationNs left = objective - (view.now_ns - view.seq.queued_ns[slot]);
    const int64_t mean_chunk = Window(view).mean_chunk_tokens;
    const int64_t chunks = std::max<int64_t>(1, Chunks(PromptTokensLeft(view, slot), mean_chunk));
    if (left >= 0) allowance = std::max(left / chunks, pivot_ns);
  }
  if (job) {
    const DurationNs wait = JctShareNs(view, slot) + note_.At(view.notes, slot).carry_ns - WaitedNs(view, slot);
    allowance = std::min(allowance, std::max(wait + Window(view).longest_step_ns, pivot_ns));
  }
  return allowance;
}

}  // namespace tactus::core
