// Sizes a step by its predicted time: its decodes with their contexts, and the chunks that come next (half-done prompts
// by arrival, then the queue, each behind its computed or cached positions).
#pragma once

#include <algorithm>
#include <vector>

#include "core/sched/budget/tbt_objective.h"
#include "core/sched/plan.h"
#include "core/sched/policy.h"

namespace tactus::core {

class StepSizer {
 public:
  static constexpr int64_t kLeastPromptTokens = 32;  // in every step, beside any decodes

  // Steps of at most `most` tokens.
  StepSizer(const SchedulerLimits& limits, int64_t most)
      : model_(*limits.StepTimes()),
        granule_(GranuleOf(model_)),
        most_(most),
        most_decodes_((limits.max_num_seqs + limits.pipeline_steps - 1) / limits.pipeline_steps) {
    prompts_.reserve(kMostChunks);
    half_done_.reserve(static_cast<size_t>(limits.max_num_seqs));
    chunks_.reserve(kMostChunks);
  }

  int64_t most() const { return most_; }
  int64_t decodes() const { return shape_.decodes; }
  int64_t prompt_tokens() const { return prompt_tokens_; }

  // Tokens to compute of the collected prompts that have not started.
  int64_t waiting_tokens() const { return waiting_tokens_; }

  // Counts the decodes of the step for which `counts` returns true.
  template <class Counts>
  void CountDecodes(const StepView& view, Counts counts) {
    shape_ = {};
    for (const SlotId slot : view.running_by_arrival) {
      if (view.seq.state[slot] != SeqState::kDecode || !view.seq.Plannable(slot) || view.seq.Pending(slot) == 0)
        continue;
      if (!counts(slot)) continue;
      if (shape_.decodes == most_decodes_) return;
      ++shape_.decodes;
      shape_.decode_context_tokens += view.seq.known_planned[slot];
    }
  }

  // Collects the prompts that the largest step has room for. One that could not start for lack of memory is still
  // counted: the step may then be smaller than its budget. `merge`: started prompts are merged with waiting ones in the
  // order's order; else they come first, by arrival.
  void CollectPrompts(const StepView& view, Order* order, const PlanBuilder& builder, bool merge) {
    prompts_.clear();
    prompt_tokens_ = waiting_tokens_ = 0;
    const auto room = [this] { return shape_.decodes + prompt_tokens_ < most_ && prompts_.size() < kMostChunks; };
    const auto see = [this](int32_t context, int32_t tokens) {
      if (tokens <= 0) return;
      prompts_.push_back({context, tokens});
      prompt_tokens_ += tokens;
    };
    half_done_.clear();
    for (size_t i = 0; view.num_prefilling > 0 && i < view.running_by_arrival.size(); ++i) {
      const SlotId slot = view.running_by_arrival[i];
      if (view.seq.state[slot] == SeqState::kPrefill && view.seq.Plannable(slot)) half_done_.push_back(slot);
    }
    if (merge) {
      std::sort(half_done_.begin(), half_done_.end(), [&](SlotId a, SlotId b) { return order->Before(view, a, b); });
    }
    size_t begun = 0;
    const auto see_begun = [&] {
      const SlotId slot = half_done_[begun++];
      see(view.seq.computed_planned[slot], view.seq.Pending(slot));
    };
    while (!merge && room() && begun < half_done_.size()) see_begun();
    if (view.waiting.empty() && !merge) return;
    if (!room()) return;
    if (!view.waiting.empty()) order->Start(view);
    SlotId next = view.waiting.empty() ? kNoSlot : order->Next();
    while (room() && (begun < half_done_.size() || next != kNoSlot)) {
      if (begun < half_done_.size() && (next == kNoSlot || order->Before(view, half_done_[begun], next))) {
        see_begun();
        continue;
      }
      const int32_t cached = builder.CachedTokens(view, next);
      waiting_tokens_ += view.seq.known_committed[next] - cached;
      see(cached, view.seq.known_committed[next] - cached);
      next = order->Next();
    }
  }

  // The size of the largest step within `allowed_for(t)`, where t is the time of a step with all these prompts.
  template <class Allowed>
  int64_t Largest(Allowed allowed_for) {
    const int64_t least = std::min(most_, RoundUp(shape_.decodes + kLeastPromptTokens));
    const int64_t top = std::min(most_, shape_.decodes + prompt_tokens_);
    const int64_t if_all_fits = prompts_.size() < kMostChunks ? most_ : std::max(top, least);
    if (top <= least) return if_all_fits;
    const DurationNs whole = TimeOf(top);
    const DurationNs allowed = allowed_for(whole);
    if (whole <= allowed) return if_all_fits;
    // Step times never fall with more tokens: bisect for the last multiple that keeps the objective.
    int64_t low = least / granule_, high = (top + granule_ - 1) / granule_;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (TimeOf(middle * granule_) <= allowed ? low : high) = middle;
    }
    return std::max(low * granule_, least);
  }

  // The smallest of eight steps up to `tokens` whose prompts advance at least (1 - `loss`) times as fast, in tokens per
  // second, as in a step of `tokens`.
  int64_t SmallestAsFast(int64_t tokens, double loss) {
    const int64_t least = std::min(most_, RoundUp(shape_.decodes + kLeastPromptTokens));
    const int64_t full = std::min(tokens, shape_.decodes + prompt_tokens_);
    if (full <= least) return tokens;
    const double enough = PromptRate(full) * (1 - loss);
    for (int64_t eighths = 1; eighths < 8; ++eighths) {
      const int64_t size = RoundUp(std::max(full * eighths / 8, least));
      if (size < full && PromptRate(size) >= enough) return size;
    }
    return tokens;
  }

  // Predicted time of a step of `tokens`: all decodes, then the prompts in order.
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

 private:
  static constexpr size_t kMostChunks = 64;  // limit of collected prompts

  double PromptRate(int64_t tokens) {  // in tokens per ns
    return static_cast<double>(tokens - shape_.decodes) / static_cast<double>(std::max<DurationNs>(1, TimeOf(tokens)));
  }
  int64_t RoundUp(int64_t tokens) const { return (tokens + granule_ - 1) / granule_ * granule_; }

  const StepTimeModel& model_;
  const int64_t granule_, most_, most_decodes_;
  // The step being sized.
  StepShape shape_;                  // its decodes
  std::vector<ChunkShape> prompts_;  // `tokens`: what is left of each
  int64_t prompt_tokens_ = 0;        // their sum
  int64_t waiting_tokens_ = 0;       // the part of it in prompts that have not started
  std::vector<ChunkShape> chunks_;
  std::vector<SlotId> half_done_;
};

}  // namespace tactus::core
