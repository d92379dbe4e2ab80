// One step of a scheduler on a hand-made view: the test puts sequences into states, with real KV, and Plan returns the
// scheduler's plan. The notation of plans is LoggingExecutor's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/kv/kv_cache.h"
#include "core/loop/harness.h"
#include "core/sched/choices.h"
#include "core/sched/scheduler.h"
#include "core/sched/view_of.h"
#include "core/seq/sequence_table.h"

namespace tactus::testing {

using Plans = std::vector<std::string>;

// A preset on an engine over the fake executor, without cached prefixes: every plan follows from the lengths.
inline HarnessConfig PresetConfig(const std::string& preset, int64_t budget = 0) {
  HarnessConfig c;
  c.scheduler.preset = preset;
  c.scheduler.limits.token_budget = budget;
  c.prefix_caching = false;
  return c;
}

// Submits a request of `prompt` tokens that generates exactly `max_tokens`; `change` sets its other fields.
template <class Change>
RequestHandle AddRequest(Harness* h, int32_t prompt, int64_t max_tokens, Change change) {
  Request r = MakeRequest(Tokens(static_cast<uint64_t>(h->handles().size()) + 50, prompt), max_tokens);
  r.stop.ignore_eos = true;
  change(&r);
  return h->MustSubmit(std::move(r));
}
inline RequestHandle AddRequest(Harness* h, int32_t prompt, int64_t max_tokens) {
  return AddRequest(h, prompt, max_tokens, [](Request*) {});
}

class StepBed {
 public:
  // Reads the same fields as a Harness: scheduler, executor.max_in_flight (> 1: sequences may be chained), KV and
  // limits.
  explicit StepBed(const HarnessConfig& config, core::InjectedChoices injected = {})
      : table_(kCapacity), kv_(KvOf(config)), builder_(LimitsOf(config), &kv_) {
    core::SchedulerConfig sc = config.scheduler;
    sc.limits = LimitsOf(config);
    sc.limits.predictor = config.predictor;
    predictor_ = config.predictor;
    auto made = core::Scheduler::Create(sc, std::move(injected));
    EXPECT_TRUE(made.ok()) << made.status().message();
    scheduler_ = std::move(made).value();
    table_ = core::SequenceTable(kCapacity, scheduler_->notes().stride(), scheduler_->client_notes().stride());
    put_ = core::MakeChunkFits(sc.limits);
  }

  // Slots count up from 0 in the order of these calls. Each sequence may generate 32 tokens unless its spec has a
  // limit.
  SlotId Waiting(int32_t prompt, core::SequenceSpec spec = {}) {
    spec.prompt_tokens = prompt;
    if (spec.max_output_tokens == 0) spec.max_output_tokens = 32;
    const SlotId slot = table_.Add(spec, spec.arrival_ns);
    kv_.Bind(slot, nullptr);
    core::PredictionFeatures features;
    features.prompt_tokens = prompt;
    features.max_output_tokens = spec.max_output_tokens;
    if (predictor_ != nullptr) predictor_->Bind(slot, features);
    return slot;
  }
  // Holds KV for exactly its first `computed` positions.
  SlotId Prefilling(int32_t prompt, int32_t computed, const core::SequenceSpec& spec = {}) {
    const SlotId slot = Waiting(prompt, spec);
    StandAt(slot, computed);
    return slot;
  }
  // Has generated `generated` tokens, the last of which is not computed yet.
  SlotId Decoding(int32_t prompt, int32_t generated, const core::SequenceSpec& spec = {}) {
    return Prefilling(prompt, prompt + generated - 1, spec);
  }
  // Computes its positions up to `computed`; admits it if it waits.
  void StandAt(SlotId slot, int32_t computed) {
    while (table_.columns().computed_planned[slot] < computed) {
      const int32_t count = computed - table_.columns().computed_planned[slot];
      plan_.Clear();
      BeginPlenty();
      const core::AddResult added =
          table_.holds_kv(slot) ? builder_.AddRunning(slot, count, false) : builder_.Start(slot, *put_, count, false);
      ASSERT_EQ(added, core::AddResult::kAdded) << "slot " << slot << " cannot be computed that far: not enough KV";
      Apply();
    }
  }
  // Adds `tokens` drafts to be verified with the decode's next token; none of them will be right.
  void Draft(SlotId slot, int32_t tokens, core::DraftChance chance = core::kSureDraft) {
    table_.SetDrafts(slot, tokens, chance);
    drafts_ = true;
  }
  // All drafts are certain.
  void OnlyCertainDrafts() { guesses_ = false; }
  // The choices' note of a sequence; null: no choice notes a T.
  template <class T>
  T* Note(SlotId slot) {
    const auto column = scheduler_->notes().Find<T>();
    return column ? &column->At(table_.notes(), slot) : nullptr;
  }
  // Adds a sequence that has lost its KV and waits.
  SlotId Preempted(int32_t prompt, int32_t generated, const core::SequenceSpec& spec = {}) {
    const SlotId slot = Decoding(prompt, generated, spec);
    Lose(slot);
    return slot;
  }
  void Lose(SlotId slot) {
    kv_.Release(slot, -1);
    table_.Preempt(slot, now_ns_);
    table_.Compact();
  }
  // Ends the sequence: its KV is freed, and its slot may be used again.
  void End(SlotId slot) {
    kv_.End(slot, -1);
    table_.Finish(slot);
    table_.Compact();
    table_.Free(slot);
  }
  // Puts its next token into a step in flight: not plannable.
  void Fly(SlotId slot) {
    plan_.Clear();
    BeginPlenty();
    EXPECT_EQ(builder_.AddRunning(slot, 1, false), core::AddResult::kAdded);
    for (const StepItem& item : plan_.items) table_.PlanItem(item.slot, item.count, item.sample, step_, false);
    ++in_flight_;
  }
  // Adds a result of a past step, for choices that measure.
  void Ended(const core::StepRecord& record) { recent_.push_back(record); }

  // The scheduler's next plan; it is executed at once, without errors.
  std::string Plan(TimeNs now_ns = 0) {
    now_ns_ = now_ns;
    plan_.Clear();
    plan_.step = step_;
    view_ = View();
    scheduler_->Plan(view_, &builder_, &plan_);
    table_.ClearChanges();
    planned_ = plan_;
    Apply();
    return TextOf(planned_);
  }
  const StepPlan& planned() const { return planned_; }
  core::SequenceTable& table() { return table_; }
  core::KvCache& kv() { return kv_; }
  core::PlanBuilder& builder() { return builder_; }
  core::Scheduler& scheduler() { return *scheduler_; }

 private:
  static constexpr int32_t kCapacity = 128;
  static core::SchedulerLimits LimitsOf(const HarnessConfig& c) {
    core::SchedulerLimits limits = c.scheduler.limits;
    limits.max_num_seqs = c.max_num_seqs;
    limits.max_model_len = c.max_model_len;
    limits.slot_capacity = kCapacity;
    limits.blocks_total = c.num_blocks;
    limits.block_size = c.block_size;
    limits.swap_blocks = c.swap_blocks;
    return limits;
  }
  static core::KvCacheConfig KvOf(const HarnessConfig& c) {
    core::KvCacheConfig kv;
    kv.num_blocks = c.num_blocks;
    kv.block_size = c.block_size;
    kv.max_slots = kCapacity;
    kv.max_blocks_per_slot = (c.max_model_len + c.block_size - 1) / c.block_size;
    kv.prefix_caching = c.prefix_caching;
    kv.swap_blocks = c.swap_blocks;
    return kv;
  }

  core::StepView View() {
    core::StepView v = ViewOf(&table_, step_, now_ns_);
    v.recent = recent_;
    v.previous_prefill_tokens = planned_.prefill_tokens();
    v.has_drafts = drafts_;
    v.has_guesses = drafts_ && guesses_;
    v.steps_in_flight = in_flight_;
    return v;
  }
  // Begins a plan of the bed itself, with room for anything.
  void BeginPlenty() {
    view_ = View();
    builder_.Begin(view_, {1 << 20, 1 << 20}, {kCapacity, kCapacity}, &plan_);
  }
  void Apply() {
    for (const SlotId s : plan_.preempts) table_.Preempt(s, now_ns_, kv_.SwappedTokens(s));
    size_t start = 0;
    for (const StepItem& item : plan_.items) {
      if (start < plan_.starts.size() && plan_.starts[start].slot == item.slot) {
        table_.Admit(item.slot, item.first_position);
        ++start;
      }
      const int32_t sure = item.count - item.draft_tokens;
      table_.PlanItem(item.slot, sure, item.sample, step_, false);
      table_.CommitItem(item.slot, sure, item.sample ? 1 : 0);
    }
    if (!plan_.items.empty()) {
      std::vector<SlotId> recompute;
      kv_.StepEnded(step_, true, &recompute);
    }
    table_.Compact();
    ++step_;
  }

  core::SequenceTable table_;
  core::KvCache kv_;
  core::PlanBuilder builder_;
  std::unique_ptr<core::Scheduler> scheduler_;
  std::unique_ptr<core::Admission> put_;  // for the bed's own starts: reserves only the chunk
  core::LengthPredictor* predictor_ = nullptr;
  core::StepView view_;
  StepPlan plan_, planned_;
  std::vector<core::StepRecord> recent_;
  TimeNs now_ns_ = 0;
  StepId step_ = 0;
  int32_t in_flight_ = 0;
  bool drafts_ = false, guesses_ = true;
};

}  // namespace tactus::testing
