// Predicts when the first token of an arriving request would come, and refuses at once a request with a TTFT objective
// that it is predicted to miss: its client can go elsewhere in time, and it takes nothing from those that can be kept.
//
// The prediction simulates the next steps on lengths alone: the partly done prompts, then the queue in its order up to
// the new request, in chunks of what the next step's budget leaves beside the decodes, each step as long as the
// step-time model predicts. A prompt starts when it has a place and its blocks; both are freed as running sequences
// reach their predicted lengths. Completed prompts become decodes. The remaining time of the steps in flight is known.
// The rest is multiplied by the error of the last predictions, near their worst (StepView::first_token_margin), which
// also covers what the simulation omits: requests that arrive later and go first, blocks that a step shares, another
// composition of steps.
//
// Bounds: at most kMostAhead prompts and kMostSteps steps are simulated; the rest takes as long as the simulated part,
// in proportion to its tokens. A preempted request is not checked again. Without a step-time model nothing is
// predicted, and no request is refused.
#include <algorithm>
#include <vector>

#include "base/step_shape.h"
#include "core/sched/choices.h"
#include "core/sched/plan.h"
#include "core/sched/predicted_length.h"

namespace tactus::core {
namespace {

constexpr size_t kMostAhead = 512;
constexpr int64_t kMostSteps = 512;
constexpr int64_t kLeastShare = 16;  // of a step, for prompts: budgets grow with the decodes beside them
constexpr DurationNs kLeastRetryNs = kSecond;

struct GateAccount {  // of client 0: the last steps, a ring by step number
  static constexpr StepId kSteps = 8;
  struct Planned {
    StepId step;  // 1 + its number; 0: none
    TimeNs at_ns;
    DurationNs predicted_ns;
  };
  Planned planned[kSteps];
};
struct GateNote {
  int32_t uncached_tokens;  // of its prompt, on arrival
};

class PredictGate final : public Gate {
 public:
  explicit PredictGate(const SchedulerLimits& limits)
      : model_(limits.StepTimes()),
        predictor_(limits.predictor),
        block_size_(limits.block_size),
        pipeline_steps_(limits.pipeline_steps),
        account_(limits.ClientNote<GateAccount>()),
        note_(limits.Note<GateNote>()) {
    prompts_.reserve(kMostAhead + 1 + static_cast<size_t>(limits.max_num_seqs));
    ends_.reserve(static_cast<size_t>(limits.max_num_seqs) + prompts_.capacity());
    chunks_.reserve(prompts_.capacity());
  }

  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  bool Asks() const override { return true; }

  GateAnswer Ask(const StepView& view, SlotId arrived, const GateContext& context) override {
    const SequenceColumns& seq = view.seq;
    note_.At(view.notes, arrived).uncached_tokens =
        seq.known_committed[arrived] - context.plan.CachedTokens(view, arrived);
    GateAnswer answer;
    if (model_ == nullptr) return answer;
    const DurationNs in_flight_ns = InFlightNs(view);
    answer.fixed_ns = view.now_ns - seq.arrival_ns[arrived] + in_flight_ns;
    CollectPrompts(view, arrived, context);
    answer.by_model_ns = Play(context);
    // An accepted request is promised its first token, so the prediction includes its own error. On an idle engine a
    // trial costs nothing, and corrects the prediction.
    const bool idle = answer.by_model_ns > 0 && prompts_.size() == 1 && view.running.empty();
    const double error = idle ? view.first_token_correction : view.first_token_margin;
    const auto predicted_ns =
        answer.fixed_ns + static_cast<DurationNs>(static_cast<double>(answer.by_model_ns) * error);
    const DurationNs objective_ns = seq.slo[arrived].ttft_ns;
    answer.refused = objective_ns > 0 && predicted_ns > objective_ns;
    if (answer.refused) answer.retry_after_ns = std::max(kLeastRetryNs, predicted_ns - objective_ns);
    return answer;
  }

  void Planned(const StepView& view, const StepPlan& plan) override {
    if (plan.items.empty() || model_ == nullptr) return;
    account_.At(view.client_notes, 0).planned[view.step % GateAccount::kSteps] = {
        view.step + 1, view.now_ns, model_->StepTimeNs(ShapeOf(plan, &chunks_))};
  }

 private:
  // Predicted remaining time of the steps in flight. With pipeline stages they overlap: each ends one stage after the
  // one before.
  DurationNs InFlightNs(const StepView& view) const {
    const GateAccount& account = account_.At(view.client_notes, 0);
    TimeNs end_ns = 0;
    for (StepId step = view.step - view.steps_in_flight; step < view.step; ++step) {
      const GateAccount::Planned& planned = account.planned[step % GateAccount::kSteps];
      if (planned.step != step + 1) continue;
      const DurationNs alone_ns = planned.predicted_ns;
      end_ns = std::max(planned.at_ns + alone_ns, end_ns + alone_ns / pipeline_steps_);
    }
    return std::max<DurationNs>(0, end_ns - view.now_ns);
  }

  struct Prompt {
    int64_t context = 0, tokens = 0;  // computed or cached; left to compute
    int64_t output_tokens = 0;        // expected
    int64_t blocks = 0;               // taken at its start, or held
    int64_t keep_free = 0;            // blocks that must stay free then, unless nothing else runs
    bool starts = false;
  };
  // A sequence that will have all its tokens after `step` steps.
  struct End {
    int64_t step = 0;
    int64_t blocks = 0;                                                   // freed then
    int64_t context = 0;                                                  // its length
    bool operator<(const End& other) const { return step > other.step; }  // heap with the first end on top
  };

  // Collects the prompts up to the new request, and what runs.
  void CollectPrompts(const StepView& view, SlotId arrived, const GateContext& context) {
    const SequenceColumns& seq = view.seq;
    prompts_.clear();
    ends_.clear();
    decodes_ = decode_context_ = beyond_ = 0;
    places_ = context.max_running - static_cast<int32_t>(view.running.size());
    blocks_ = context.plan.blocks_available();
    for (const SlotId slot : view.running_by_arrival) {
      const int64_t output = PredictOutput(*predictor_, view, slot, 0);
      if (seq.state[slot] == SeqState::kPrefill) {
        prompts_.push_back({seq.computed_planned[slot], seq.Pending(slot), output - GeneratedTokens(view, slot),
                            context.plan.BlocksOf(slot), 0, false});
        continue;
      }
      ++decodes_;
      decode_context_ += seq.known_planned[slot];
      ends_.push_back({std::max<int64_t>(1, output - GeneratedTokens(view, slot)), context.plan.BlocksOf(slot),
                       seq.known_planned[slot]});
    }
    std::make_heap(ends_.begin(), ends_.end());
    context.order.Start(view);
    size_t seen = 0;
    SlotId slot = context.order.Next();
    for (; slot != kNoSlot && slot != arrived && seen < kMostAhead; slot = context.order.Next(), ++seen)
      AddPrompt(view, slot, context.admission);
    if (seen == kMostAhead) beyond_ = static_cast<int64_t>(view.waiting.size() - seen);
    AddPrompt(view, arrived, context.admission);
    behind_ = 0;
    for (; seen < kMostAhead && behind_ < context.budget.tokens; ++seen) {
      if (slot = context.order.Next(); slot == kNoSlot) break;
      behind_ += view.seq.known_committed[slot];
    }
  }
  void AddPrompt(const StepView& view, SlotId slot, const Admission& admission) {
    const int64_t known = view.seq.known_committed[slot];
    const int64_t noted = note_.At(view.notes, slot).uncached_tokens;
    // A preempted sequence recomputes all of it, as far as is known here.
    int64_t left = noted > 0 && view.seq.preemptions[slot] == 0 ? std::min(noted, known) : known;
    const KvDemand demand = admission.Demand(view, slot, view.seq.known_committed[slot]);
    const int64_t tokens = std::max<int64_t>(demand.reserve_tokens, known);
    int64_t blocks = (tokens + block_size_ - 1) / block_size_;
    if (view.seq.fork_from[slot] != kNoSlot) {  // shares all of its prompt but the last token
      const int64_t shared = view.seq.prompt_tokens[slot] - 1;
      left = known - shared;
      blocks -= shared / block_size_;
    }
    prompts_.push_back({known - left, left, PredictOutput(*predictor_, view, slot, 0) - GeneratedTokens(view, slot),
                        blocks, demand.keep_free_blocks, true});
  }

  // Time until the last of prompts_ has its first token.
  DurationNs Play(const GateContext& context) {
    DurationNs time_ns = 0;
    int64_t step = 0, all = 0, done = 0;
    for (const Prompt& prompt : prompts_) all += prompt.tokens;
    size_t head = 0;  // first prompt that is not done; those before `started` have their KV
    size_t started = 0;
    while (started < prompts_.size() && !prompts_[started].starts) ++started;
    for (int64_t played = 0; head < prompts_.size() && played < kMostSteps; ++played) {
      Release(step);
      done += Compose(context, head, &started);
      if (chunks_.empty()) {
        if (ends_.empty()) break;  // nothing runs and nothing can start: not for the gate to resolve
        const int64_t steps = std::max<int64_t>(1, ends_.front().step - step);
        time_ns += steps * TimeOf(0);
        step += steps;
        continue;
      }
      int64_t ended = 0;
      for (size_t i = head; i < started && prompts_[i].tokens == 0; ++i) ++ended;
      time_ns += TimeOf(ended);
      ++step;
      for (; ended > 0; --ended, ++head) Decode(prompts_[head], step);
    }
    const double left = static_cast<double>(all - done) +
                        static_cast<double>(beyond_) * static_cast<double>(all) / static_cast<double>(prompts_.size());
    if (left > 0 && done > 0)
      time_ns += static_cast<DurationNs>(static_cast<double>(time_ns) * left / static_cast<double>(done));
    return time_ns;
  }

  // Frees the blocks and places of sequences that have ended by `step`.
  void Release(int64_t step) {
    while (!ends_.empty() && ends_.front().step <= step) {
      std::pop_heap(ends_.begin(), ends_.end());
      const End end = ends_.back();
      ends_.pop_back();
      --decodes_;
      decode_context_ -= end.context;
      blocks_ += end.blocks;
      ++places_;
    }
  }

  // Puts the chunks of the next step into chunks_. Returns their tokens, without those behind the new request.
  int64_t Compose(const GateContext& context, size_t head, size_t* started) {
    chunks_.clear();
    const int64_t room = std::max(context.budget.tokens / kLeastShare, context.budget.tokens - decodes_);
    const int64_t budget = std::max<int64_t>(1, std::min(context.budget.prefill_tokens, room));
    int64_t taken = 0;
    for (size_t i = head; i < prompts_.size() && taken < budget; ++i) {
      Prompt& prompt = prompts_[i];
      if (i >= *started) {
        const bool alone = decodes_ + static_cast<int64_t>(i - head) == 0;
        if (places_ <= 0 || (prompt.blocks + prompt.keep_free > blocks_ && !alone)) break;
        --places_;
        blocks_ -= prompt.blocks;
        *started = i + 1;
      }
      const int64_t tokens = std::min(prompt.tokens, budget - taken);
      chunks_.push_back({static_cast<int32_t>(prompt.context), static_cast<int32_t>(tokens)});
      prompt.context += tokens;
      prompt.tokens -= tokens;
      taken += tokens;
    }
    // Requests behind the new one fill the step that its prompt ends in, if they can start.
    if (const int64_t rest = std::min(behind_, budget - taken);
        rest > 0 && prompts_.back().tokens == 0 && places_ > 0 &&
        (blocks_ - prompts_.back().keep_free) * block_size_ >= rest) {
      chunks_.push_back({0, static_cast<int32_t>(rest)});
    }
    return taken;
  }

  void Decode(const Prompt& prompt, int64_t step) {
    ++decodes_;
    decode_context_ += prompt.context + 1;
    ends_.push_back({step + std::max<int64_t>(1, prompt.output_tokens - 1), prompt.blocks, prompt.context + 1});
    std::push_heap(ends_.begin(), ends_.end());
  }

  // Predicted time of a step of chunks_ and all decodes, in which `ended` prompts end.
  DurationNs TimeOf(int64_t ended) const {
    StepShape shape;
    shape.chunks = chunks_;
    shape.decodes = decodes_;
    shape.decode_context_tokens = decode_context_;
    shape.logit_rows = decodes_ + ended;
    return model_->StepTimeNs(shape);
  }

  const StepTimeModel* const model_;
  const LengthPredictor* const predictor_;
  const int64_t block_size_;
  const int32_t pipeline_steps_;
  const NoteColumn<GateAccount> account_;
  const NoteColumn<GateNote> note_;
  // The current prediction.
  std::vector<Prompt> prompts_;
  std::vector<End> ends_;
  std::vector<ChunkShape> chunks_;
  int64_t decodes_ = 0, decode_context_ = 0, blocks_ = 0, beyond_ = 0, behind_ = 0;
  int32_t places_ = 0;
};

}  // namespace

std::unique_ptr<Gate> MakePredictGate(const SchedulerLimits& limits) {
  return std::make_unique<PredictGate>(limits);
}

}  // namespace tactus::core
