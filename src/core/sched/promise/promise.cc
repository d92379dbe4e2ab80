#include "core/sched/promise/promise.h"

#include "base/step_shape.h"
#include "core/sched/accelgen/slack.h"
#include "core/sched/budget/tbt_objective.h"
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

// Due time of the first token of sequences that have other objectives only; soft.
constexpr DurationNs kUsualFirstTokenNs = 2'000'000'000;
// Steps for which a sequence with an objective is remembered.
constexpr StepId kRemembered = 1024;
constexpr double kMostLate = 0.5;
// A sequence with a JCT objective can catch up in later steps: it never limits a step to less than this multiple of the
// decodes' time, which leaves prompts as much time as decodes.
constexpr DurationNs kShare = 2;
constexpr int64_t kLeastTokens = 32, kRateTokens = 512, kMostStepTokens = 2048;

}  // namespace

constinit const KnobList kPromiseKnobs{&kPromiseTurn};

PromiseModel::PromiseModel(const SchedulerLimits& limits)
    : model_(limits.StepTimes()),
      predictor_(limits.predictor),
      turn_steps_(limits.policy[kPromiseTurn]),
      usual_gap_ns_(limits.tbt_slo_ns > 0 ? limits.tbt_slo_ns : kReadingSpeedNs),
      kv_tokens_(limits.blocks_total * limits.block_size),
      // Between pipeline stages a step also waits for earlier steps, which may be as long: a short step, a long step of
      // others and its own long step make a gap of 2 - 1 / stages long steps.
      share_(static_cast<double>(limits.pipeline_steps) / (2.0 * limits.pipeline_steps - 1)),
      note_(limits.Note<PromiseNote>()),
      clock_(limits.ClientNote<PromiseClock>()),
      shares_(limits) {
  if (model_ != nullptr) {
    const Pivot pivot = FindPivot(limits);
    best_token_ns_ = static_cast<double>(pivot.step_ns) / static_cast<double>(pivot.tokens);
  }
  chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
  gaps_.reserve(static_cast<size_t>(limits.max_num_seqs));
  left_out_.reserve(static_cast<size_t>(limits.max_num_seqs));
}

PromiseModel::Due PromiseModel::DueOf(const StepView& view, SlotId slot) const {
  const SequenceColumns& seq = view.seq;
  const Slo& slo = seq.slo[slot];
  const PromiseNote& note = note_.At(view.notes, slot);
  const bool answered = seq.known_committed[slot] > seq.prompt_tokens[slot];
  const TimeNs arrival = seq.arrival_ns[slot];
  Due due;
  if (!answered && slo.ttft_ns > 0) due.by_ns = arrival + slo.ttft_ns;
  if (answered && slo.tbt_ns > 0) due.by_ns = (note.token_ns > 0 ? note.token_ns : arrival) + slo.tbt_ns;
  if (slo.jct_ns > 0) due.by_ns = std::min(due.by_ns, arrival + slo.jct_ns - AnswerNs(view, slot));
  if (due.by_ns == kNever) {
    due.by_ns = answered ? arrival : arrival + kUsualFirstTokenNs;
    return due;
  }
  const int32_t computed = seq.state[slot] == SeqState::kWaiting ? 0 : seq.computed_planned[slot];
  const int64_t tokens = seq.known_committed[slot] - computed;
  due.keep_by_ns = due.by_ns - static_cast<DurationNs>(static_cast<double>(tokens) * best_token_ns_);
  return due;
}

int32_t PromiseModel::ExpectedTokens(const StepView& view, SlotId slot) const {
  if (predictor_ == nullptr) return 0;
  PromiseNote& note = note_.At(view.notes, slot);
  const int32_t generated = view.seq.known_committed[slot] - view.seq.prompt_tokens[slot];
  if (note.expected == 0) note.expected = predictor_->PredictOutputTokens(slot, 0);
  while (note.expected <= generated) note.expected *= 2;
  return std::min(note.expected, view.seq.max_output_tokens[slot]);
}

DurationNs PromiseModel::AnswerNs(const StepView& view, SlotId slot) const {
  DurationNs& answer_ns = note_.At(view.notes, slot).answer_ns;
  if (answer_ns != 0) return answer_ns;
  DurationNs step_ns = Clock(view).step_ns;
  if (step_ns == 0 && model_ != nullptr) step_ns = TimeOf(1, 1, 0);
  // At most half of its time: the prediction may be wrong.
  answer_ns = std::clamp<DurationNs>(ExpectedTokens(view, slot) * step_ns, 1, view.seq.slo[slot].jct_ns / 2 + 1);
  return answer_ns;
}

// The longest gap between tokens that keeps the objectives of a running sequence; kNever: it has no limit.
DurationNs PromiseModel::GapNs(const StepView& view, SlotId slot, DurationNs base_ns) const {
  const Slo& slo = view.seq.slo[slot];
  DurationNs gap = slo.tbt_ns > 0 ? slo.tbt_ns : kNever;
  if (slo.jct_ns > 0) {
    const int32_t generated = view.seq.known_committed[slot] - view.seq.prompt_tokens[slot];
    const int64_t left = std::max(1, ExpectedTokens(view, slot) - generated);
    const DurationNs need = (view.seq.arrival_ns[slot] + slo.jct_ns - view.now_ns) / left;
    gap = std::min(gap, std::max(need, kShare * base_ns));
  }
  return gap;
}

void PromiseModel::ReadResults(const StepView& view) const {
  PromiseClock& clock = Clock(view);
  const size_t size = view.recent.size();
  const auto from_newest = [&](size_t back) -> const StepRecord& {
    return view.recent[(static_cast<size_t>(view.recent_begin) + size - 1 - back) % size];
  };
  size_t unread = 0;
  while (unread < size && from_newest(unread).step >= clock.seen) ++unread;
  while (unread > 0) ReadResult(from_newest(--unread), &clock);
}

void PromiseModel::ReadResult(const StepRecord& record, PromiseClock* clock) const {
  clock->seen = record.step + 1;
  if (!record.ok) return;
  const DurationNs took = record.end_ns - record.start_ns;
  clock->step_ns += clock->step_ns == 0 ? took : (took - clock->step_ns) / 32;
  const PromiseClock::Predicted& predicted = clock->predicted[record.step % PromiseClock::kInFlight];
  if (predicted.step != record.step + 1) return;
  const double late = static_cast<double>(took) / static_cast<double>(predicted.ns) - 1;
  // Tracks P99.5: one step in 200 is slower, since an answer is kept only if all of its steps are in time.
  clock->late += (late > clock->late ? 0.995 : -0.005) / 8;
  clock->late = std::clamp(clock->late, 0.0, kMostLate);
}

void PromiseModel::OnPlanDone(const StepView& view, const StepPlan& plan) {
  // With pipeline stages a step's time includes waits for other steps.
  if (model_ == nullptr || share_ < 1 || plan.prompt_items.empty()) return;
  const DurationNs ns = std::max<DurationNs>(1, model_->StepTimeNs(ShapeOf(plan, &chunks_)));
  Clock(view).predicted[view.step % PromiseClock::kInFlight] = {view.step + 1, ns};
}

DurationNs PromiseModel::TimeOf(int64_t decodes, int64_t decode_context, int64_t chunk, int64_t context) const {
  const ChunkShape shape_of_chunk{static_cast<int32_t>(context), static_cast<int32_t>(chunk)};
  StepShape shape;
  if (chunk > 0) shape.chunks = {&shape_of_chunk, 1};
  shape.decodes = decodes;
  shape.decode_context_tokens = decode_context;
  shape.logit_rows = decodes + (chunk > 0 ? 1 : 0);
  return model_->StepTimeNs(shape);
}

// Tracks P99: an answer above the estimate raises it by as much as 99 below lower it.
void PromiseModel::UpdateFirstToken(DurationNs ttft_ns, DurationNs* p99_ns) {
  if (*p99_ns == 0) *p99_ns = ttft_ns;
  const double change = ttft_ns > *p99_ns ? 0.99 : -0.01;
  *p99_ns = static_cast<DurationNs>(static_cast<double>(*p99_ns) * (1 + change / 4));
}

void PromiseModel::UpdateToken(const StepView& view, SlotId slot) const {
  PromiseNote& note = note_.At(view.notes, slot);
  const Slo& slo = view.seq.slo[slot];
  const int32_t generated = view.seq.known_committed[slot] - view.seq.prompt_tokens[slot];
  if (generated == note.tokens_seen) return;
  const bool first = note.tokens_seen == 0;
  const DurationNs stated = first ? slo.ttft_ns : slo.tbt_ns;
  const TimeNs since = first ? view.seq.arrival_ns[slot] : note.token_ns;
  if (stated > 0 && view.now_ns - since > stated) note.broken = true;
  if (first && slo.jct_ns == 0) UpdateFirstToken(view.now_ns - since, &Clock(view).ttft_ns);
  note.tokens_seen = generated;
  note.token_ns = view.now_ns;
}

void PromiseModel::ChooseDue(const StepView& view) {
  left_out_.clear();
  size_t best_effort = 0;
  for (const SlotId slot : view.running) {
    if (view.seq.state[slot] != SeqState::kDecode || view.seq.slo[slot].any() || !view.seq.Plannable(slot)) continue;
    const PromiseNote& note = note_.At(view.notes, slot);
    if (note.turn) continue;
    ++best_effort;
    if (note.left_out != 0) left_out_.push_back({note.left_out, slot});
  }
  constexpr size_t kPause = kLongestPause;
  const size_t due = std::min((best_effort + kPause - 1) / kPause, left_out_.size());
  std::partial_sort(left_out_.begin(), left_out_.begin() + static_cast<ptrdiff_t>(due), left_out_.end());
  for (size_t i = 0; i < due; ++i) note_.At(view.notes, left_out_[i].second).due_in = view.step + 1;
}

void PromiseModel::Compute(const StepView& view, const ViewKey& key) {
  Step s;
  s.key = key;
  gaps_.clear();
  DurationNs least_ns = kNever;  // least gap of sequences whose objectives are soft or already broken
  bool states = false;
  int64_t held = 0;
  double given_back = 0;  // KV tokens freed per step, less those added
  ReadResults(view);
  ChooseDue(view);
  for (const SlotId slot : view.running) {
    const Slo& slo = view.seq.slo[slot];
    const bool stated = slo.any();
    states |= stated;
    const int32_t known = view.seq.known_planned[slot];
    held += known;
    s.turn |= note_.At(view.notes, slot).turn;
    if (view.seq.state[slot] != SeqState::kDecode) continue;
    if (stated) UpdateToken(view, slot);
    if (predictor_ != nullptr) {
      const int32_t expected = ExpectedTokens(view, slot);
      const int32_t left = std::max(expected - (known - view.seq.prompt_tokens[slot]), expected / 2);
      given_back += static_cast<double>(known) / std::max(1, left) - 1;
    }
    const bool may_be_left_out = MayBeLeftOut(view, slot);
    if (!may_be_left_out) {
      const bool kept = stated && StandingOf(view, slot) == Standing::kKept;
      const DurationNs gap = kept ? GapNs(view, slot, Clock(view).base_ns) : kNever;
      if (gap != kNever) gaps_.push_back(gap);
      if (gap == kNever) least_ns = std::min(least_ns, std::max(slo.tbt_ns, usual_gap_ns_));
    }
    if (!view.seq.Plannable(slot) || view.seq.Pending(slot) <= 0) continue;
    if (may_be_left_out) {
      ++s.best_effort;
    } else {
      ++s.promised;
      s.promised_context += known;
    }
  }
  for (const SequenceChange& change : view.changes) {
    if (change.kind == ChangeKind::kQueued) states |= view.seq.slo[change.slot].any();
  }
  PromiseClock& clock = Clock(view);
  if (states) clock.last_promise = view.step + 1;
  s.promises = clock.last_promise > 0 && view.step + 1 - clock.last_promise <= kRemembered;
  if (least_ns != kNever) s.allowed_ns = ShareOf(view, least_ns);
  s.free_tokens = std::max<int64_t>(0, kv_tokens_ - held);
  if (given_back > 0) s.kv_token_ns = static_cast<double>(clock.step_ns) / given_back;
  step_ = s;
  if (s.promises && model_ != nullptr) Size(view);
}

void PromiseModel::Size(const StepView& view) {
  Step& s = step_;
  const DurationNs base_ns = TimeOf(s.promised, s.promised_context, 0);
  Clock(view).base_ns = base_ns;
  const DurationNs least_ns = TimeOf(s.promised, s.promised_context, kLeastTokens);
  const DurationNs beside_ns = TimeOf(s.promised, s.promised_context, kRateTokens) - base_ns;
  const double slope = std::max(1e-9, static_cast<double>(beside_ns) / static_cast<double>(kRateTokens));
  // Gaps that even the smallest step misses are ignored; of the others the shortest decides.
  for (const DurationNs of_gap : gaps_) {
    const DurationNs gap = ShareOf(view, of_gap);
    if (gap >= least_ns) s.allowed_ns = std::min(s.allowed_ns, gap);
  }
  const DurationNs step_ns =
      std::max(least_ns, std::min(s.allowed_ns, base_ns + static_cast<DurationNs>(kMostStepTokens * slope)));
  const double tokens = std::max<double>(kLeastTokens, static_cast<double>(step_ns - base_ns) / slope);
  s.token_ns = std::max(best_token_ns_, static_cast<double>(step_ns) / tokens);
}

}  // namespace tactus::core
