// Sequences with objectives first, then best effort in the time that is left of the step. In this order:
//
// 1. Decodes of all sequences with objectives: none of them ever sits a step out.
// 2. Prompts whose objectives can be kept, started or not, in the order's order.
// 3. Best-effort decodes, oldest first, as far as the step's time allows. One that is left out keeps its KV, and is
// back within kLongestPause steps, as part of 1.
// 4. All other prompts; best-effort ones only while they leave the step short enough for the next arrival.
//
// While no sequence has an objective, a step is that of stall-free.
#include <algorithm>
#include <optional>
#include <vector>

#include "core/sched/choices.h"
#include "core/sched/context.h"
#include "core/sched/newcomers.h"
#include "core/sched/promise/promise.h"

namespace tactus::core {
namespace {

// Least prompt tokens in a step that has nothing else.
constexpr int32_t kLeastAlone = 32;
constexpr double kWait = 1.0 / 20, kMostSlowdown = 1.0 / 3;
constexpr size_t kBacklog = 64;  // more waiting requests than this are a backlog

class PromiseFill final : public Composition {
 public:
  explicit PromiseFill(const SchedulerLimits& limits) : model_(limits.Shared<PromiseModel>()) {
    half_done_.reserve(static_cast<size_t>(limits.max_num_seqs));
    best_effort_.reserve(static_cast<size_t>(limits.max_num_seqs));
    chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
  }
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }

  void Compose(StepContext& step) override {
    const PromiseModel::Step& now = model_->Update(step.view);
    if (!now.promises) {
      step.RunDecodes();
      step.RunPrefills(false);
      step.AdmitInOrder(false);
      return;
    }
    best_effort_.clear();
    for (const SlotId slot : step.RunningByArrival()) {
      if (!step.IsDecode(slot)) continue;
      if (!model_->MayBeLeftOut(step.view, slot)) {
        RunOne(step, slot);
      } else if (step.view.seq.Plannable(slot)) {
        best_effort_.push_back(slot);
      }
    }
    OpenPrompts(step);
    RunPrompts(step, Standing::kKept);
    LimitBestEffort(step, now);
    RunBestEffort(step);
    RunPrompts(step, Standing::kBestEffort);
    model_->OnPlanDone(step.view, step.plan.step());
  }

 private:
  void RunOne(StepContext& step, SlotId slot) {
    if (step.plan.AddDecode(slot) || step.Run(slot) == AddResult::kAdded) model_->Note(step.view, slot).left_out = 0;
  }

  // --- prompts, started or waiting, merged ---
  void OpenPrompts(StepContext& step) {
    half_done_.clear();
    next_half_done_ = 0;
    if (step.view.num_prefilling > 0) {
      for (const SlotId slot : step.view.running_by_arrival) {
        if (!step.IsDecode(slot)) half_done_.push_back(slot);
      }
      std::sort(half_done_.begin(), half_done_.end(),
                [&step](SlotId a, SlotId b) { return step.order.Before(step.view, a, b); });
    }
    next_waiting_ = kNoSlot;
    if (step.view.waiting.empty() || step.plan.has_preempted()) return;
    waiting_.emplace(step.view, &step.order, step.plan, true);
    next_waiting_ = waiting_->Next();
  }

  // Runs prompts of standings up to `until`.
  void RunPrompts(StepContext& step, Standing until) {
    while (step.plan.prefill_left() > 0) {
      const bool half_done = next_half_done_ < half_done_.size();
      if (!half_done && next_waiting_ == kNoSlot) return;
      const bool begun = half_done && (next_waiting_ == kNoSlot ||
                                       step.order.Before(step.view, half_done_[next_half_done_], next_waiting_));
      const SlotId slot = begun ? half_done_[next_half_done_] : next_waiting_;
      const Standing standing = model_->StandingOf(step.view, slot);
      if (standing > until) return;
      int32_t limit = kNoLimit;
      if (standing > Standing::kKept) {
        limit = RoomFor(step, slot, standing == Standing::kBroken ? allowed_ns_ : limit_ns_);
        if (limit <= 0) return;
      }
      if (begun) {
        ++next_half_done_;
        step.Run(slot, limit);
      } else if (step.plan.has_preempted() || step.Admit(slot, limit) != AddResult::kAdded) {
        next_waiting_ = kNoSlot;
      } else {
        next_waiting_ = waiting_->Next();
      }
    }
  }

  // --- best effort in the remaining time ---
  void ReadPlan(const StepContext& step) {
    chunks_.clear();
    shape_ = {};
    for (const StepItem& item : step.plan.items()) {
      if (step.IsDecode(item.slot)) {
        ++shape_.decodes;
        shape_.decode_context_tokens += item.first_position + 1;
      } else {
        chunks_.push_back({item.first_position, item.count});
      }
      shape_.logit_rows += item.sample ? 1 : 0;
    }
  }
  DurationNs Time(int64_t more_decodes, int64_t more_context, int32_t chunk, int32_t context) {
    if (chunk > 0) chunks_.push_back({context, chunk});
    StepShape shape = shape_;
    shape.chunks = chunks_;
    shape.decodes += more_decodes;
    shape.decode_context_tokens += more_context;
    shape.logit_rows += more_decodes;
    const DurationNs ns = model_->model()->StepTimeNs(shape);
    if (chunk > 0) chunks_.pop_back();
    return ns;
  }

  // Limits the step's time for broken prompts (allowed_ns_) and for best effort (limit_ns_). Best effort delays the
  // next arrival with an objective, and slows the streams beside it. So it adds nothing to a step whose prompts wait
  // for a first token. Else it adds at most kWait of the P99 time to first token; with a backlog, which has work for
  // every step, at most kMostSlowdown of the step's own time.
  void LimitBestEffort(const StepContext& step, const PromiseModel::Step& now) {
    allowed_ns_ = limit_ns_ = kNever;
    if (model_->model() == nullptr) return;
    ReadPlan(step);
    allowed_ns_ = limit_ns_ = now.allowed_ns;
    const DurationNs ttft_ns = model_->Clock(step.view).ttft_ns;
    if (ttft_ns == 0) return;
    const DurationNs own_ns = step.plan.empty() ? Time(1, 1, 0, 0) : Time(0, 0, 0, 0);
    auto more_ns = chunks_.empty() ? kWait * static_cast<double>(ttft_ns) : 0;
    if (now.promised > 0 && step.view.waiting.size() > kBacklog)
      more_ns = std::min(more_ns, kMostSlowdown * static_cast<double>(own_ns));
    limit_ns_ = std::min(limit_ns_, own_ns + static_cast<DurationNs>(more_ns));
  }

  void RunBestEffort(StepContext& step) {
    if (best_effort_.empty()) return;
    size_t fit = best_effort_.size();
    if (limit_ns_ != kNever) {
      ReadPlan(step);
      const auto time_of = [&](size_t n) {
        int64_t context = 0;
        for (size_t i = 0; i < n; ++i) context += step.view.seq.known_planned[best_effort_[i]];
        return Time(static_cast<int64_t>(n), context, 0, 0);
      };
      if (time_of(fit) > limit_ns_) {
        size_t low = 0, high = fit;
        while (high - low > 1) {
          const size_t middle = low + (high - low) / 2;
          (time_of(middle) <= limit_ns_ ? low : high) = middle;
        }
        fit = step.plan.empty() ? std::max<size_t>(low, 1) : low;
      }
    }
    for (size_t i = 0; i < best_effort_.size(); ++i) {
      if (i < fit) {
        if (!step.plan.Touched(best_effort_[i])) RunOne(step, best_effort_[i]);
      } else if (StepId& since = model_->Note(step.view, best_effort_[i]).left_out; since == 0) {
        since = step.view.step + 1;
      }
    }
  }

  // The most tokens of the prompt with which the step takes no longer than `until_ns`.
  int32_t RoomFor(const StepContext& step, SlotId slot, DurationNs until_ns) {
    if (until_ns == kNever) return kNoLimit;
    ReadPlan(step);
    const bool waits = step.view.seq.state[slot] == SeqState::kWaiting;
    const int32_t context = waits ? step.plan.CachedTokens(step.view, slot) : step.view.seq.computed_planned[slot];
    const int32_t all = waits ? step.view.seq.known_committed[slot] - context : step.view.seq.Pending(slot);
    const auto most = static_cast<int32_t>(std::min<int64_t>(all, step.plan.prefill_left()));
    if (Time(0, 0, most, context) <= until_ns) return most;
    int32_t low = 0, high = most;
    while (high - low > 16) {
      const int32_t middle = low + (high - low) / 2;
      (Time(0, 0, middle, context) <= until_ns ? low : high) = middle;
    }
    return step.plan.empty() ? std::max(low, std::min(most, kLeastAlone)) : low;
  }

  const std::shared_ptr<PromiseModel> model_;
  DurationNs allowed_ns_ = kNever, limit_ns_ = kNever;
  std::vector<SlotId> half_done_, best_effort_;
  size_t next_half_done_ = 0;
  std::optional<Newcomers> waiting_;
  SlotId next_waiting_ = kNoSlot;
  // The plan so far.
  StepShape shape_;
  std::vector<ChunkShape> chunks_;
};

}  // namespace

std::unique_ptr<Composition> MakePromiseFill(const SchedulerLimits& limits) {
  return std::make_unique<PromiseFill>(limits);
}

}  // namespace tactus::core
