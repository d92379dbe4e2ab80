#include "sched/speculation.h"

#include <algorithm>
#include <bit>

#include "base/step_shape.h"

namespace tactus::sched {
namespace {

constexpr double kCostMargin = 1.25;
constexpr double kLeastWithoutModel = 0.5;
constexpr int64_t kTokensWithoutModel = 16;

// Whether a step with so many guesses is asked for its time: all up to eight, four of each doubling beyond.
bool Asked(int64_t guesses) {
  return guesses <= 8 || guesses % static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(guesses)) / 4) == 0;
}

}  // namespace

Speculation::Speculation(const SchedulerLimits& limits) : step_time_(limits.step_time) {
  candidates_.reserve(static_cast<size_t>(limits.max_num_seqs));
  heap_.reserve(static_cast<size_t>(limits.max_num_seqs));
  chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
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

void Speculation::TakeByTime(const StepPlan& plan, int64_t sure, int64_t most) {
  auto worth = static_cast<double>(plan.num_tokens + sure);
  const double base_ns = TimeWith(plan);
  double best_rate = worth / base_ns;
  for (int64_t taken = 1; taken <= most; ++taken) {
    const double one = TakeNext();
    worth += one;
    if (one == 0) return;
    if (!Asked(taken) && taken < most && !heap_.empty()) continue;
    const double more_ns = std::max(0.0, TimeWith(plan) - base_ns);
    const double rate = worth / (base_ns + kCostMargin * more_ns);
    if (rate <= best_rate) continue;
    best_rate = rate;
    Keep();
  }
}

void Speculation::Complete(PlanBuilder* plan) {
  if (!plan->view().has_drafts || plan->tokens_left() <= 0) return;
  const int64_t sure = FindCandidates(*plan);
  if (candidates_.empty()) return;
  const StepPlan& step = plan->step();
  const int64_t room = plan->tokens_left() - sure;
  if (step_time_ != nullptr) {
    if (!heap_.empty()) TakeByTime(step, sure, room);
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

}  // namespace tactus::sched
