// What was promised first, in time; best effort in what time is left of the step. In this order:
//
// 1. The decodes of all who state something: none of them ever sits a step out.
// 2. Prompts that can still be kept, begun or not, in the order's order.
// 3. Decodes of those that state nothing, oldest first, as far as the step's time allows. One that is left out keeps its
//    KV; after --promise-turn steps in a row it is in the next one, as in 1.
// 4. All other prompts; those that state nothing only as far as they leave the step short enough for whoever comes next.
//
// As long as nobody states anything a step is that of stall-free.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "sched/choices.h"
#include "sched/context.h"
#include "sched/promise.h"

namespace tactus::sched {
namespace {

class PromiseFill final : public Composition {
 public:
  explicit PromiseFill(const SchedulerLimits& limits) : model_(limits) {
    half_done_.reserve(static_cast<size_t>(limits.max_num_seqs));
    best_effort_.reserve(static_cast<size_t>(limits.max_num_seqs));
    chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
    if (const char* e = std::getenv("FILL")) share_ = std::atof(e);
  }
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }

  void Compose(StepContext& step) override {
    const PromiseModel::Step& now = model_.See(step.view);
    if (!now.promises) {
      step.RunDecodes();
      step.RunPrefills(false);
      step.AdmitInOrder(false);
      return;
    }
    best_effort_.clear();
    for (const SlotId slot : step.RunningByArrival()) {
      if (!step.IsDecode(slot)) continue;
      if (model_.MayBeLeftOut(step.view, slot)) {
        best_effort_.push_back(slot);
      } else {
        RunOne(step, slot);
      }
    }
    OpenPrompts(step);
    RunPrompts(step, Standing::kKept);
    RunBestEffort(step, now);
    RunPrompts(step, Standing::kBestEffort);
    if (std::getenv("DBG") && model_.model()) {
      int st[2][4]={}; for (SlotId q: step.view.waiting) ++st[0][int(model_.StandingOf(step.view,q))]; for (SlotId q: step.view.running) ++st[1][int(model_.StandingOf(step.view,q))]; fprintf(stderr, "w %d %d %d %d r %d %d %d %d free %ld kvtok %.3f tok %.4f avail %ld now %.2f | ", st[0][0],st[0][1],st[0][2],st[0][3],st[1][0],st[1][1],st[1][2],st[1][3], long(now.free_tokens), now.kv_token_ns*1e-6, now.token_ns*1e-6, long(step.plan.blocks_available()), step.view.now_ns*1e-9);
      ReadPlan(step);
      fprintf(stderr, "step %ld promised %d be %zu ran %d allowed %.2f budget %ld took %.2f chunks %zu chunk %ld tokleft %ld\n", long(step.view.step), now.promised, best_effort_.size(), int(shape_.decodes), now.allowed_ns * 1e-6, long(step.plan.budget_tokens()), Time(0,0,0,0)*1e-6, chunks_.size(), chunks_.empty()?0l:long(chunks_[0].tokens), long(step.plan.prefill_left()));
    }
  }

 private:
  void RunOne(StepContext& step, SlotId slot) {
    if (!step.plan.AddDecode(slot)) step.Run(slot);
    model_.Note(step.view, slot).left_out = 0;
  }

  // --- prompts, begun or waiting, merged ---
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
    step.order.Start(step.view);
    next_waiting_ = step.order.Next();
  }

  // Up to those of a standing.
  void RunPrompts(StepContext& step, Standing until) {
    while (step.plan.prefill_left() > 0) {
      const bool half_done = next_half_done_ < half_done_.size();
      if (!half_done && next_waiting_ == kNoSlot) return;
      const bool begun =
          half_done &&
          (next_waiting_ == kNoSlot || step.order.Before(step.view, half_done_[next_half_done_], next_waiting_));
      const SlotId slot = begun ? half_done_[next_half_done_] : next_waiting_;
      const Standing standing = model_.StandingOf(step.view, slot);
      if (standing > until) return;
      int32_t limit = kNoLimit;
      if (standing == Standing::kBestEffort) {
        limit = RoomForBestEffort(step, slot);
        if (limit <= 0) return;
      }
      if (begun) {
        ++next_half_done_;
        step.Run(slot, limit);
      } else if (step.plan.has_preempted() || step.Admit(slot, limit) != AddResult::kAdded) {
        next_waiting_ = kNoSlot;
      } else {
        next_waiting_ = step.order.Next();
      }
    }
  }

  // --- best effort in the time that is left ---
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
    const DurationNs ns = model_.model()->StepTimeNs(shape);
    if (chunk > 0) chunks_.pop_back();
    return ns;
  }

  void RunBestEffort(StepContext& step, const PromiseModel::Step& now) {
    if (best_effort_.empty()) return;
    size_t fit = best_effort_.size();
    if (model_.model() != nullptr && now.allowed_ns != kNever) {
      ReadPlan(step);
      const auto time_of = [&](size_t n) {
        int64_t context = 0;
        for (size_t i = 0; i < n; ++i) context += step.view.seq.known_planned[best_effort_[i]];
        return Time(static_cast<int64_t>(n), context, 0, 0);
      };
      if (time_of(fit) > now.allowed_ns) {
        size_t low = 0, high = fit;
        while (high - low > 1) {
          const size_t middle = low + (high - low) / 2;
          (time_of(middle) <= now.allowed_ns ? low : high) = middle;
        }
        fit = low;
      }
    }
    for (size_t i = 0; i < best_effort_.size(); ++i) {
      if (i < fit) {
        if (!step.plan.Touched(best_effort_[i])) RunOne(step, best_effort_[i]);
      } else if (StepId& since = model_.Note(step.view, best_effort_[i]).left_out; since == 0) {
        since = step.view.step + 1;
      }
    }
  }

  int32_t RoomForBestEffort(const StepContext& step, SlotId slot) {
    if (model_.model() == nullptr) return kNoLimit;
    const PromiseModel::Step& now = model_.See(step.view);
    const DurationNs allowed = static_cast<DurationNs>(
        share_ * static_cast<double>(std::min(now.allowed_ns, model_.usual_gap_ns())));
    ReadPlan(step);
    const bool waits = step.view.seq.state[slot] == SeqState::kWaiting;
    const int32_t context = waits ? step.plan.CachedTokens(step.view, slot) : step.view.seq.computed_planned[slot];
    const int32_t all = waits ? step.view.seq.known_committed[slot] - context : step.view.seq.Pending(slot);
    auto high = static_cast<int32_t>(std::min<int64_t>(all, step.plan.prefill_left()));
    if (Time(0, 0, high, context) <= allowed) return high;
    int32_t low = 0;
    while (high - low > 16) {
      const int32_t middle = low + (high - low) / 2;
      (Time(0, 0, middle, context) <= allowed ? low : high) = middle;
    }
    return low;
  }

  const PromiseModel model_;
  double share_ = 0.5;
  std::vector<SlotId> half_done_, best_effort_;
  size_t next_half_done_ = 0;
  SlotId next_waiting_ = kNoSlot;
  // Of the plan so far.
  StepShape shape_;
  std::vector<ChunkShape> chunks_;
};

}  // namespace

std::unique_ptr<Composition> MakePromiseFill(const SchedulerLimits& limits) {
  return std::make_unique<PromiseFill>(limits);
}

}  // namespace tactus::sched
