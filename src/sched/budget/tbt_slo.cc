// The budget that keeps --tbt-slo, made anew for every step: the largest multiple of the tile whose predicted step
// takes no longer than the objective, with the decodes and contexts that this step has and the chunks that come next
// (half-done prompts by arrival, then the queue, each behind what it has computed or finds cached). Ours: Sarathi-Serve
// chooses one size from one profile (budget profile).
//
// - Never more than --token-budget, or kMostTokens where the objective alone is given. With pipeline stages those are
//   shared by the steps in flight (but never less than the preset's size): a prompt computed in fewer, longer steps
//   leaves the stages idle behind the shorter ones between them.
// - Never less than the decodes and kLeastPromptTokens: prompts go on even where decodes alone miss the objective. So a
//   prompt of p tokens at the head of the queue is computed in at most p / kLeastPromptTokens steps that have room
//   beside their decodes.
// - A step without prompts has no size to choose, and asks nothing of the model.
//
// Left to the program (--tbt-slo auto) the objective is reading speed, or kShare times what the step's decodes alone
// take where that is more: on a slow machine, or beside many streams, prompts then have half of the time, and a stream
// is at most twice as slow as without them. It only makes steps smaller than the preset's size, and a --token-budget
// goes before it.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sched/budget/tbt_objective.h"
#include "sched/choices.h"
#include "sched/plan.h"

namespace tactus::sched {
namespace {

constexpr DurationNs kReadingSpeedNs = 187'500'000;  // per token: 240 words a minute
constexpr DurationNs kShare = 2;
constexpr int64_t kMostTokens = 2048;  // as the papers' relaxed objectives
constexpr int64_t kLeastPromptTokens = 32;
constexpr size_t kMostChunks = 64;  // of prompts that are looked at

class TbtSloBudget final : public Budget {
 public:
  TbtSloBudget(const SchedulerLimits& limits, int64_t most)
      : model_(*limits.step_time),
        automatic_(limits.tbt_slo_ns == kAutoDuration),
        share_(ShareOfObjective(limits)),
        objective_ns_(automatic_ ? kReadingSpeedNs : limits.tbt_slo_ns),
        allowed_ns_(ShareOf(objective_ns_)),
        granule_(GranuleOf(model_)),
        most_(most),
        most_decodes_((limits.max_num_seqs + limits.pipeline_steps - 1) / limits.pipeline_steps) {
    prompts_.reserve(kMostChunks);
    chunks_.reserve(kMostChunks);
  }

  void Describe(ChoiceTraits* traits) const override {
    traits->max_tokens = most_;
    traits->max_prefill_tokens = std::min(most_, kLeastPromptTokens);  // that no step denies
    traits->wants_step_time = true;
  }

  StepBudget Next(const StepView&) override { return {most_, most_}; }
  StepBudget NextFor(const StepView& view, Order* order, const PlanBuilder& builder) override {
    const int64_t tokens = Largest(view, order, builder);
    return {tokens, tokens};
  }

  std::string Why() const override {
    return fmt::format(
        "every step the largest of at most {} tokens that is predicted to keep {:.1f} ms between tokens{}{}", most_,
        static_cast<double>(objective_ns_) * 1e-6, share_ < 1 ? fmt::format(" x {} for the pipeline", share_) : "",
        automatic_ ? ", or twice what its decodes take (reading speed; --tbt-slo none: off)" : " (--tbt-slo)");
  }

 private:
  int64_t Largest(const StepView& view, Order* order, const PlanBuilder& builder) {
    if (view.num_prefilling == 0 && view.waiting.empty()) return most_;
    SeeDecodes(view);
    SeePrompts(view, order, builder);
    const int64_t least = std::min(most_, RoundUp(shape_.decodes + kLeastPromptTokens));
    const int64_t top = std::min(most_, shape_.decodes + prompt_tokens_);
    const int64_t if_all_fits = prompts_.size() < kMostChunks ? most_ : std::max(top, least);
    if (top <= least) return if_all_fits;
    const DurationNs whole = TimeOf(top);
    DurationNs allowed = allowed_ns_;
    if (whole > allowed && automatic_ && shape_.decodes > 0)
      allowed = std::max(allowed, ShareOf(kShare * TimeOf(shape_.decodes)));
    if (whole <= allowed) return if_all_fits;
    // Step times never fall with more tokens: the last multiple that keeps the objective, by bisection.
    int64_t low = least / granule_, high = (top + granule_ - 1) / granule_;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (TimeOf(middle * granule_) <= allowed ? low : high) = middle;
    }
    return std::max(low * granule_, least);
  }

  int64_t RoundUp(int64_t tokens) const { return (tokens + granule_ - 1) / granule_ * granule_; }

  void SeeDecodes(const StepView& view) {
    shape_ = {};
    for (const SlotId slot : view.running_by_arrival) {
      if (view.seq.state[slot] != SeqState::kDecode || !view.seq.Plannable(slot) || view.seq.Pending(slot) == 0)
        continue;
      if (shape_.decodes == most_decodes_) return;
      ++shape_.decodes;
      shape_.decode_context_tokens += view.seq.known_planned[slot];
    }
  }

  // Those that a step of the largest size has room for. One that could not start for want of memory is still counted: a
  // budget may be left over.
  void SeePrompts(const StepView& view, Order* order, const PlanBuilder& builder) {
    prompts_.clear();
    prompt_tokens_ = 0;
    const auto room = [this] { return shape_.decodes + prompt_tokens_ < most_ && prompts_.size() < kMostChunks; };
    const auto see = [this](int32_t context, int32_t tokens) {
      if (tokens <= 0) return;
      prompts_.push_back({context, tokens});
      prompt_tokens_ += tokens;
    };
    for (size_t i = 0; view.num_prefilling > 0 && i < view.running_by_arrival.size() && room(); ++i) {
      const SlotId slot = view.running_by_arrival[i];
      if (view.seq.state[slot] != SeqState::kPrefill || !view.seq.Plannable(slot)) continue;
      see(view.seq.computed_planned[slot], view.seq.Pending(slot));
    }
    if (view.waiting.empty() || !room()) return;
    order->Start(view);
    for (SlotId slot = order->Next(); slot != kNoSlot && room(); slot = order->Next()) {
      const int32_t cached = builder.CachedTokens(view, slot);
      see(cached, view.seq.known_committed[slot] - cached);
    }
  }

  DurationNs ShareOf(DurationNs ns) const { return static_cast<DurationNs>(static_cast<double>(ns) * share_); }

  // Of a step of so many tokens: all decodes, and the prompts in order.
  DurationNs TimeOf(int64_t tokens) {
    chunks_.clear();
    StepShape shape = shape_;
    shape.logit_rows = shape.decodes;
    int64_t left = tokens - shape.decodes;
    for (const ChunkShape& prompt : prompts_) {
      if (left <= 0) break;
      const auto taken = static_cast<int32_t>(std::min<int64_t>(left, prompt.tokens));
      chunks_.push_back({prompt.context_tokens, taken});
      shape.logit_rows += taken == prompt.tokens ? 1 : 0;
      left -= taken;
    }
    shape.chunks = chunks_;
    return model_.StepTimeNs(shape);
  }

  const StepTimeModel& model_;
  const bool automatic_;
  const double share_;
  const DurationNs objective_ns_, allowed_ns_;
  const int64_t granule_, most_, most_decodes_;
  // Of the step that is being sized.
  StepShape shape_;                  // its decodes
  std::vector<ChunkShape> prompts_;  // `tokens`: all that is left of each
  int64_t prompt_tokens_ = 0;        // their sum
  std::vector<ChunkShape> chunks_;
};

}  // namespace

constinit const KnobList kTbtSloKnobs{&kHeadroom};

std::unique_ptr<Budget> MakeTbtSloBudget(const SchedulerLimits& limits) {
  const bool automatic = limits.tbt_slo_ns == kAutoDuration;
  if (limits.token_budget > 0 && limits.tbt_slo_ns <= 0)
    return MakeFixedBudgetOf(limits.token_budget, "--token-budget");
  const int64_t usual = limits.default_token_budget;
  if (limits.tbt_slo_ns == 0) return MakeFixedBudgetOf(usual, "no --tbt-slo, so the default");
  const int64_t by_objective = automatic ? usual : std::max(usual, kMostTokens / limits.pipeline_steps);
  const int64_t most = limits.token_budget > 0 ? limits.token_budget : by_objective;
  if (limits.step_time == nullptr) {
    return MakeFixedBudgetOf(std::min(usual, most),
                             fmt::format("{}; --tbt-slo has no step times of this machine to go by ('tactus profile' "
                                         "measures them)",
                                         most < usual ? "--token-budget" : "the default"),
                             most);
  }
  return std::make_unique<TbtSloBudget>(limits, most);
}

}  // namespace tactus::sched
