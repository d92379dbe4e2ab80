#include "core/sched/speculation.h"

#include <algorithm>
#include <bit>

#include "base/step_shape.h"

namespace tactus::core {
namespace {

constexpr double kCostMargin = 1.5;
constexpr double kKeep = 1.0 / 16;           // weight of a step in Measured
constexpr int64_t kLeastMeasured = 8;        // steps before Measured is used
constexpr int64_t kGuessedStepsInARow = 32;  // steps, then one takes no drafts
constexpr int64_t kGuessedAtFirst = 4;       // the same until enough steps without drafts are measured
// A step of at most kFewTokens tries drafts that are likelier right than not, whatever is predicted: at first, and now
// and then.
constexpr int64_t kFewTokens = 4, kTried = 2, kPlainInARow = 64;
constexpr int32_t kGuessesInARow = 4;  // tried together: they may pay where one alone would not
constexpr double kForget = 1.0 / 512;  // decay of the measured cost of drafts, per step that took none because of it
constexpr double kLeastWithoutModel = 0.5;
constexpr int64_t kTokensWithoutModel = 16;

// Whether the time of a step with `guesses` drafts is predicted: all up to eight, four per doubling beyond.
bool Asked(int64_t guesses) {
  return guesses <= 8 || guesses % static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(guesses)) / 4) == 0;
}

// The chance p at which `guesses` drafts are worth `worth` tokens: p + p^2 + ... = worth. Above 1: not even certain
// ones.
double ChanceOf(double worth, int32_t guesses) {
  if (guesses == 1 || worth >= guesses) return worth;
  double low = 0, high = 1;
  for (int i = 0; i < 12; ++i) {
    const double p = (low + high) / 2;
    double sum = 0;
    for (int32_t g = 0; g < guesses; ++g) sum = (sum + 1) * p;
    (sum < worth ? low : high) = p;
  }
  return high;
}

}  // namespace

Speculation::Speculation(const SchedulerLimits& limits) : step_time_(limits.step_time) {
  candidates_.reserve(static_cast<size_t>(limits.max_num_seqs));
  heap_.reserve(static_cast<size_t>(limits.max_num_seqs));
  chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
}

// A step delayed by something else counts at most twice the usual ratio.
void Speculation::Measured::Add(double measured_over_predicted) {
  const double value = steps == 0 ? measured_over_predicted : std::clamp(measured_over_predicted, ratio / 2, ratio * 2);
  ratio += (value - ratio) * std::max(kKeep, 1.0 / static_cast<double>(++steps));
}

// Adds the results of predicted steps that have ended since.
void Speculation::Learn(const StepView& view) {
  if (view.recent.empty()) return;
  const auto size = static_cast<int64_t>(view.recent.size());
  const auto newest_at = static_cast<size_t>((view.recent_begin + size - 1) % size);
  const StepId newest = view.recent[newest_at].step;
  for (Prediction& p : predictions_) {
    if (p.step < 0 || p.step > newest) continue;
    const int64_t back = newest - p.step;
    if (back < size) {
      const StepRecord& r = view.recent[static_cast<size_t>((static_cast<int64_t>(newest_at) - back + size) % size)];
      if (r.ok && r.step == p.step)
        (p.guessed ? guessed_ : plain_).Add(static_cast<double>(r.end_ns - r.start_ns) / p.ns);
    }
    p.step = -1;
  }
}

double Speculation::GuessedOverPlain() const {
  if (plain_.steps < kLeastMeasured || guessed_.steps < kLeastMeasured || plain_.ratio <= 0) return 1;
  return guessed_.ratio / plain_.ratio;
}

int64_t Speculation::FindCandidates(const PlanBuilder& plan) {
  candidates_.clear();
  heap_.clear();
  int64_t sure = 0;
  for (int32_t i = 0; i < plan.num_items(); ++i) {
    const int32_t drafts = plan.DraftsOf(i);
    if (drafts == 0) continue;
    const DraftChance chance = plan.view().seq.draft_chance[plan.items()[static_cast<size_t>(i)].slot];
    Candidate& c = candidates_.emplace_back(Candidate{.item = i, .most = drafts});
    c.chance = c.next = chance / static_cast<double>(kSureDraft);
    if (chance == kSureDraft) {
      c.taken = static_cast<int32_t>(std::min<int64_t>(drafts, plan.tokens_left() - sure));
      sure += c.taken;
    } else {
      heap_.push_back(static_cast<int32_t>(candidates_.size()) - 1);
    }
  }
  std::make_heap(heap_.begin(), heap_.end(), ByWorth{candidates_});
  Keep();
  return sure;
}

double Speculation::TakeNext() {
  if (heap_.empty()) return 0;
  std::pop_heap(heap_.begin(), heap_.end(), ByWorth{candidates_});
  Candidate& c = candidates_[static_cast<size_t>(heap_.back())];
  const double worth = c.next;
  c.next *= c.chance;
  if (++c.taken == c.most) {
    heap_.pop_back();
  } else {
    std::push_heap(heap_.begin(), heap_.end(), ByWorth{candidates_});
  }
  return worth;
}

void Speculation::Keep() {
  for (Candidate& c : candidates_) c.best = c.taken;
}

double Speculation::TimeWith(const StepPlan& plan) {
  StepShape shape = ShapeOf(plan, &chunks_);
  for (const Candidate& c : candidates_) {
    if (c.taken == 0) continue;
    const StepItem& item = plan.items[static_cast<size_t>(c.item)];
    chunks_.push_back({item.first_position, item.count + c.taken});
    --shape.decodes;
    shape.decode_context_tokens -= item.first_position + item.count;
    shape.logit_rows += c.taken;
  }
  shape.chunks = chunks_;
  return static_cast<double>(std::max<DurationNs>(1, step_time_->StepTimeNs(shape)));
}

void Speculation::TakeByTime(const StepView& view, const StepPlan& plan, int64_t sure, int64_t most) {
  Learn(view);
  auto worth = static_cast<double>(plan.num_tokens + sure);
  const double base_ns = TimeWith(plan), correction = GuessedOverPlain();
  Prediction prediction{plan.step, base_ns, false};
  double best_rate = worth / base_ns;
  const bool compares = guessed_since_plain_ >= (plain_.steps < kLeastMeasured ? kGuessedAtFirst : kGuessedStepsInARow);
  if (compares) most = 0;
  for (int64_t taken = 1; taken <= most; ++taken) {
    const double one = TakeNext();
    worth += one;
    if (one == 0) break;
    if (!Asked(taken) && taken < most && !heap_.empty()) continue;
    const double time_ns = TimeWith(plan);
    const double more_ns = std::max(0.0, time_ns * correction - base_ns);
    const double rate = worth / (base_ns + kCostMargin * more_ns);
    if (rate <= best_rate) continue;
    best_rate = rate;
    prediction = {plan.step, time_ns, true};
    Keep();
  }
  if (!plan.prompt_items.empty() || sure > 0) return;
  const bool tries = guessed_.steps < kLeastMeasured || plain_since_guessed_ >= kPlainInARow;
  if (!prediction.guessed && !compares && tries && plan.num_tokens <= kFewTokens) {
    for (Candidate& c : candidates_) {
      c.taken = c.chance < kLeastWithoutModel ? 0 : static_cast<int32_t>(std::min<int64_t>({c.most, kTried, most}));
      most -= c.taken;
      prediction.guessed = prediction.guessed || c.taken > 0;
    }
    if (prediction.guessed) prediction.ns = TimeWith(plan);
    Keep();
  }
  plain_since_guessed_ = prediction.guessed ? 0 : plain_since_guessed_ + 1;
  if (!prediction.guessed && !compares) guessed_.ratio += (plain_.ratio - guessed_.ratio) * kForget;
  guessed_since_plain_ = prediction.guessed ? guessed_since_plain_ + 1 : 0;
  predictions_[static_cast<size_t>(plan.step) % predictions_.size()] = prediction;
}

double Speculation::LeastChance(const StepPlan& plan, int64_t left) {
  if (step_time_ == nullptr || plan.num_decodes == 0 || plan.num_tokens <= kFewTokens) return 0;
  const auto context = static_cast<int32_t>(plan.decode_context_tokens / plan.num_decodes);
  StepShape shape = ShapeOf(plan, &chunks_);
  const auto time_ns = [&] { return static_cast<double>(std::max<DurationNs>(1, step_time_->StepTimeNs(shape))); };
  const double base_ns = time_ns();
  chunks_.push_back({context - 1, 1});
  --shape.decodes;
  shape.decode_context_tokens -= context;
  const int64_t logit_rows = shape.logit_rows;
  double least = 2;
  for (const int32_t guesses : {1, kGuessesInARow}) {
    if (guesses > left) break;
    chunks_.back().tokens = 1 + guesses;
    shape.chunks = chunks_;
    shape.logit_rows = logit_rows + guesses;
    const double more_ns = std::max(0.0, time_ns() * GuessedOverPlain() - base_ns);
    least = std::min(least, ChanceOf(static_cast<double>(plan.num_tokens) * kCostMargin * more_ns / base_ns, guesses));
  }
  return least;
}

void Speculation::Complete(PlanBuilder* plan) {
  if (!plan->view().has_drafts) return;
  if (plan->view().has_guesses) plan->SetLeastChance(LeastChance(plan->step(), plan->tokens_left()));
  if (plan->tokens_left() <= 0) return;
  const int64_t sure = FindCandidates(*plan);
  if (candidates_.empty()) return;
  const StepPlan& step = plan->step();
  const int64_t room = plan->tokens_left() - sure;
  if (step_time_ != nullptr) {
    if (!heap_.empty()) TakeByTime(plan->view(), step, sure, room);
  } else {
    for (int64_t few = std::min(room, kTokensWithoutModel - step.num_tokens - sure); few > 0; --few) {
      if (TakeNext() < kLeastWithoutModel) break;
      Keep();
    }
  }
  for (const Candidate& c : candidates_) {
    if (c.best > 0) plan->TakeDrafts(c.item, c.best);
  }
}

}  // namespace tactus::core
