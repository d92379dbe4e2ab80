#include "sched/speculation.h"

#include <algorithm>
#include <limits>

#include "base/step_shape.h"

namespace tactus::sched {
namespace {

constexpr double kCostMargin = 1.25;
// Least worth of a guess, tried one after the other: the best of many sequences are taken first, of whichever they are.
constexpr double kLeastWorth[] = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.14, 0.1, 0.07, 0.05};
constexpr double kLeastWithoutModel = 0.5;
constexpr int64_t kTokensWithoutModel = 16;

}  // namespace

Speculation::Speculation(const SchedulerLimits& limits) : step_time_(limits.step_time) {
  candidates_.reserve(static_cast<size_t>(limits.max_num_seqs));
  chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
}

double Speculation::TakeWorth(double least, int64_t most_tokens) {
  double worth = 0;
  for (Candidate& c : candidates_) {
    c.taken = 0;
    for (double one = c.chance; c.taken < c.most && most_tokens > 0 && (one >= least || c.chance == 1);
         one *= c.chance) {
      ++c.taken;
      --most_tokens;
      worth += one;
    }
  }
  return worth;
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

void Speculation::Complete(PlanBuilder* plan) {
  const StepView& view = plan->view();
  if (!view.has_drafts || plan->tokens_left() <= 0) return;
  candidates_.clear();
  for (int32_t i = 0; i < plan->num_items(); ++i) {
    const int32_t drafts = plan->DraftsOf(i);
    if (drafts == 0) continue;
    const DraftChance chance = view.seq.draft_chance[plan->items()[static_cast<size_t>(i)].slot];
    candidates_.push_back({.item = i, .most = drafts, .chance = chance / static_cast<double>(kSureDraft)});
  }
  if (candidates_.empty()) return;
  const StepPlan& step = plan->step();
  const int64_t room = plan->tokens_left();
  if (step_time_ == nullptr) {
    TakeWorth(std::numeric_limits<double>::infinity(), room);  // what is sure
    int64_t sure = 0;
    for (const Candidate& c : candidates_) sure += c.taken;
    const int64_t few = std::max<int64_t>(sure, std::min(room, kTokensWithoutModel - step.num_tokens));
    TakeWorth(kLeastWithoutModel, few);
    for (Candidate& c : candidates_) c.best = c.taken;
  } else {
    const auto tokens = static_cast<double>(step.num_tokens);
    double worth = tokens + TakeWorth(std::numeric_limits<double>::infinity(), room);
    const double base_ns = TimeWith(step);
    double best_rate = worth / base_ns;
    for (Candidate& c : candidates_) c.best = c.taken;
    for (const double least : kLeastWorth) {
      worth = tokens + TakeWorth(least, room);
      const double time_ns = TimeWith(step);
      const double rate = worth / (base_ns + kCostMargin * std::max(0.0, time_ns - base_ns));
      if (rate <= best_rate) continue;
      best_rate = rate;
      for (Candidate& c : candidates_) c.best = c.taken;
    }
  }
  for (const Candidate& c : candidates_) {
    if (c.best > 0) plan->TakeDrafts(c.item, c.best);
  }
}

}  // namespace tactus::sched
