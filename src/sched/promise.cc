#include "sched/promise.h"

#include "sched/choices.h"
#include "sched/slack.h"

namespace tactus::sched {
namespace {

constexpr DurationNs kReadingSpeedNs = 187'500'000;  // per token: 240 words a minute
// To the first token, for who states something else only. It can be late, not missed.
constexpr DurationNs kUsualFirstTokenNs = 2'000'000'000;
// A sequence that states something leaves its mark for so many steps.
constexpr StepId kRemembered = 1024;
constexpr int64_t kRateTokens = 512;

}  // namespace

constinit const KnobList kPromiseKnobs{&kPromiseTurn};

PromiseModel::PromiseModel(const SchedulerLimits& limits)
    : model_(limits.step_time),
      predictor_(limits.predictor),
      turn_steps_(limits.policy[kPromiseTurn]),
      usual_gap_ns_(limits.tbt_slo_ns > 0 ? limits.tbt_slo_ns : kReadingSpeedNs),
      note_(limits.Note<PromiseNote>()),
      clock_(limits.ClientNote<PromiseClock>()),
      step_(limits.notes->Shared<Step>()) {
  if (model_ != nullptr) {
    const Pivot pivot = FindPivot(limits);
    best_token_ns_ = static_cast<double>(pivot.step_ns) / static_cast<double>(pivot.tokens);
  }
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

DurationNs PromiseModel::AnswerNs(const StepView& view, SlotId slot) const {
  DurationNs& answer_ns = note_.At(view.notes, slot).answer_ns;
  if (answer_ns != 0) return answer_ns;
  int64_t steps = 0;
  DurationNs took = 0;
  for (const StepRecord& r : view.recent) {
    if (!r.ok || r.decode_tokens == 0) continue;
    took += r.end_ns - r.start_ns;
    ++steps;
  }
  const DurationNs step_ns = steps > 0 ? took / steps : model_ != nullptr ? TimeOf(1, 1, 0) : 0;
  const int64_t output = predictor_ != nullptr ? predictor_->PredictOutputTokens(slot, 0) : 0;
  // Never more than half of its time: the prediction may be wrong.
  answer_ns = std::clamp<DurationNs>(output * step_ns, 1, view.seq.slo[slot].jct_ns / 2 + 1);
  return answer_ns;
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

void PromiseModel::SeeToken(const StepView& view, SlotId slot) const {
  PromiseNote& note = note_.At(view.notes, slot);
  const Slo& slo = view.seq.slo[slot];
  const int32_t generated = view.seq.known_committed[slot] - view.seq.prompt_tokens[slot];
  if (generated == note.tokens_seen) return;
  const bool first = note.tokens_seen == 0;
  const DurationNs stated = first ? slo.ttft_ns : slo.tbt_ns;
  const TimeNs since = first ? view.seq.arrival_ns[slot] : note.token_ns;
  if (stated > 0 && view.now_ns - since > stated) note.broken = true;
  note.tokens_seen = generated;
  note.token_ns = view.now_ns;
}

void PromiseModel::ChooseDue(const StepView& view) const {
  left_out_.clear();
  size_t best_effort = 0;
  for (const SlotId slot : view.running) {
    if (view.seq.state[slot] != SeqState::kDecode || view.seq.slo[slot].any()) continue;
    const PromiseNote& note = note_.At(view.notes, slot);
    if (note.turn) continue;
    ++best_effort;
    if (note.left_out != 0) left_out_.push_back({note.left_out, slot});
  }
  const auto turn = static_cast<size_t>(turn_steps_);
  const size_t due = std::min((best_effort + turn - 1) / turn, left_out_.size());
  std::partial_sort(left_out_.begin(), left_out_.begin() + static_cast<ptrdiff_t>(due), left_out_.end());
  for (size_t i = 0; i < due; ++i) note_.At(view.notes, left_out_[i].second).due_in = view.step + 1;
}

void PromiseModel::Look(const StepView& view) const {
  Step& s = *step_;
  s = {};
  s.step = view.step;
  s.now_ns = view.now_ns;
  s.promised_context = 0;
  gaps_.clear();
  bool states = false;
  ChooseDue(view);
  for (const SlotId slot : view.running) {
    const Slo& slo = view.seq.slo[slot];
    const bool stated = slo.any();
    states |= stated;
    if (view.seq.state[slot] != SeqState::kDecode) continue;
    if (stated) SeeToken(view, slot);
    const bool counts = view.seq.Plannable(slot) && view.seq.Pending(slot) > 0;
    if (!counts) continue;
    const int64_t context = view.seq.known_planned[slot];
    if (MayBeLeftOut(view, slot)) {
      ++s.best_effort;
      s.best_effort_context += context;
      continue;
    }
    ++s.promised;
    s.promised_context += context;
    if (slo.tbt_ns > 0 && StandingOf(view, slot) == Standing::kKept) gaps_.push_back(slo.tbt_ns);
    else gaps_.push_back(std::max(slo.tbt_ns, usual_gap_ns_));
  }
  for (const SequenceChange& change : view.changes) {
    if (change.kind == ChangeKind::kQueued) states |= view.seq.slo[change.slot].any();
  }
  PromiseClock& clock = Clock(view);
  if (states) clock.last_promise = view.step + 1;
  s.promises = clock.last_promise > 0 && view.step + 1 - clock.last_promise <= kRemembered;
  if (!s.promises || model_ == nullptr) return;
  // Those that not even the least step would keep ask for nothing.
  const DurationNs least_ns = TimeOf(s.promised, s.promised_context, least_tokens_);
  for (const DurationNs gap : gaps_) {
    if (gap >= least_ns) s.allowed_ns = std::min(s.allowed_ns, gap);
  }
  const DurationNs beside_ns = TimeOf(s.promised, s.promised_context, kRateTokens) - TimeOf(s.promised, s.promised_context, 0);
  const DurationNs base_ns = TimeOf(s.promised, s.promised_context, 0);
  const double slope = static_cast<double>(beside_ns) / static_cast<double>(kRateTokens);
  const DurationNs step_ns = std::min<DurationNs>(s.allowed_ns, base_ns + static_cast<DurationNs>(2048 * slope));
  const double tokens = std::max(32.0, static_cast<double>(step_ns - base_ns) / std::max(1e-9, slope));
  s.token_ns = std::max(best_token_ns_, static_cast<double>(std::max(step_ns, least_ns)) / tokens);
}

}  // namespace tactus::sched
