#include "core/loop/step_plan.h"

#include <algorithm>

#include "base/check.h"

namespace tactus::core {
namespace {

// The item's fields in one number, in nearly disjoint bits.
inline uint64_t WhatOf(const StepItem& item) {
  return static_cast<uint64_t>(item.slot) << 40 ^ static_cast<uint64_t>(item.first_position) << 20 ^
         static_cast<uint64_t>(item.count) << 2 ^ static_cast<uint64_t>(item.sample) << 1 ^
         static_cast<uint64_t>(item.input == InputSource::kChained) ^ static_cast<uint64_t>(item.logit_rows) << 56;
}

// Hash of the plan's decisions; without token ids and sampling, which are no decisions.
uint64_t HashOf(const StepPlan& plan) {
  // Four independent chains, because a single one would wait for each multiplication.
  const auto step = static_cast<uint64_t>(plan.step);
  uint64_t chains[4] = {step, step + 1, step + 2, step + 3};
  const StepItem* item = plan.items.data();
  size_t left = plan.items.size();
  for (; left >= 4; left -= 4, item += 4) {
#pragma GCC unroll 4
    for (size_t c = 0; c < 4; ++c) chains[c] = MixHash(chains[c], WhatOf(item[c]));
  }
  for (size_t c = 0; c < left; ++c) chains[c] = MixHash(chains[c], WhatOf(item[c]));
  uint64_t h = plan.items.size();
  for (const uint64_t chain : chains) h = MixHash(h, chain);
  for (const SequenceStart& start : plan.starts) h = MixHash(h, static_cast<uint64_t>(start.slot));
  for (const SlotId s : plan.preempts) h = MixHash(h, static_cast<uint64_t>(s));
  for (const auto* swaps : {&plan.swap_outs, &plan.swap_ins}) {
    if (!swaps->empty()) h = MixHash(h, swaps->size());
    for (const SwapCopy& copy : *swaps) {
      h = MixHash(h, static_cast<uint64_t>(copy.block) << 32 ^ static_cast<uint64_t>(copy.host_block));
      h = MixHash(h, static_cast<uint64_t>(copy.tokens));
    }
  }
  for (const BlockCopy& copy : plan.copies) {
    h = MixHash(h, static_cast<uint64_t>(copy.from) << 32 ^ static_cast<uint64_t>(copy.to));
    h = MixHash(h, static_cast<uint64_t>(copy.tokens));
  }
  for (const TableUpdate& update : plan.table_updates) {
    h = MixHash(h, static_cast<uint64_t>(update.slot) << 32 ^ static_cast<uint64_t>(update.first_index));
  }
  for (const BlockId block : plan.table_blocks) h = MixHash(h, static_cast<uint64_t>(block));
  return h;
}

}  // namespace

Planning::Planning(const LoopContext& context, PlanBuilder* builder, StepsInFlight* steps, LiveRequests* live,
                   PassEvents* events)
    : config_(context.config),
      parts_(context.parts),
      traits_(context.traits),
      builder_(*builder),
      steps_(*steps),
      live_(*live),
      events_(*events) {
  if (config_.shared_prefixes) {
    prefixes_.emplace(*parts_.kv, context.parts.scheduler->config().limits.max_num_seqs);
  }
}

double Planning::kv_utilization() const {
  const StepId steps = steps_.next_step();
  return steps > 0 ? kv_use_sum_ / static_cast<double>(steps * parts_.kv->blocks_total()) : 0;
}

StepView Planning::View() {
  SequenceTable& table = live_.sequences();
  StepView view;
  view.step = steps_.next_step();
  view.now_ns = events_.now_ns();
  view.seq = table.columns();
  view.notes = table.notes();
  view.client_notes = table.client_notes();
  view.waiting = table.waiting();
  view.running = table.running();
  view.running_by_arrival = table.running_by_arrival();
  view.changes = table.changes();
  view.recent = steps_.recent();
  view.recent_begin = steps_.recent_begin();
  view.num_prefilling = table.num_prefilling();
  view.previous_prefill_tokens = previous_prefill_tokens_;
  view.steps_in_flight = steps_.count();
  view.first_token_correction = live_.first_token_ratio().factor();
  view.first_token_margin = std::max(live_.first_token_ratio().high(), view.first_token_correction);
  view.has_drafts = parts_.drafts != nullptr;
  view.has_guesses = config_.guesses;
  return view;
}

void Planning::AskScheduler(StepPlan* plan) {
  const StepView view = View();
  const bool timed = parts_.stopwatch != nullptr && view.step % parts_.stopwatch_every == 0;
  const TimeNs begin = timed ? parts_.stopwatch->NowNs() : 0;
  live_.timelines().PlanBegins(view.changes);
  parts_.scheduler->Plan(view, &builder_, plan);
  if (timed) events_.Decided(parts_.stopwatch->NowNs() - begin);
  live_.sequences().ClearChanges();
  TellTap();
}

void Planning::TellTap() {
  if (parts_.tap == nullptr) return;
  if (parts_.step_times == nullptr) {
    parts_.tap->SchedulerAsked({});
  } else {
    parts_.tap->SchedulerAsked(parts_.step_times->answers());
    parts_.step_times->Clear();
  }
}

bool Planning::AskGate() {
  constexpr int kMostQuestions = 64;  // per pass, so that running sequences do not wait for long
  int asked = 0;
  while (asked < kMostQuestions) {
    live_.sequences().Compact();
    const SlotId arrived = live_.NextArrived();
    if (arrived == kNoSlot) return asked > 0;
    const StepView view = View();
    live_.timelines().PlanBegins(view.changes);
    const GateAnswer answer = parts_.scheduler->AskGate(view, builder_, arrived);
    live_.sequences().ClearChanges();
    TellTap();
    live_.Answered(arrived, answer);
    ++asked;
  }
  return true;
}

bool Planning::PlanAndSubmit(bool paused) {
  SequenceTable& table = live_.sequences();
  table.Compact();
  if (table.running().empty() && table.waiting().empty()) return false;
  InFlight& f = steps_.Next();
  StepPlan& plan = f.plan;
  plan.Clear();
  plan.step = steps_.next_step();
  plan.planned_ns = events_.now_ns();
  AskScheduler(&plan);
  if (plan.items.empty() && plan.preempts.empty()) {
    // With nothing in flight nothing can change: the policy would never plan a step again.
    TACTUS_CHECK_MSG(!steps_.empty() || paused, "an empty plan with " + std::to_string(table.waiting().size()) +
                                                    " waiting and " + std::to_string(table.running().size()) +
                                                    " running sequences under " + parts_.scheduler->Describe());
    live_.timelines().Planned(builder_, table.waiting().size());
    return false;
  }
  Apply(&f);
  live_.timelines().Planned(builder_, table.waiting().size());
  if (plan.items.empty()) {  // memory was freed for the next plan, which also gets this plan's copies
    carried_swap_outs_.insert(carried_swap_outs_.end(), plan.swap_outs.begin(), plan.swap_outs.end());
    return true;
  }
  if (!carried_swap_outs_.empty()) {
    plan.swap_outs.insert(plan.swap_outs.begin(), carried_swap_outs_.begin(), carried_swap_outs_.end());
    carried_swap_outs_.clear();
  }
  Submit(&f);
  return true;
}

void Planning::Submit(InFlight* f) {
  live_.TakeEndedGrammars(&f->plan.forgets);
  if (prefixes_.has_value()) prefixes_->Find(&f->plan);
  const StepPlan& plan = f->plan;
  plan_hash_ = MixHash(plan_hash_, HashOf(plan));
  if (keep_hashes_) hashes_.push_back(plan_hash_);
  if (parts_.tap != nullptr) parts_.tap->StepPlanned(plan, plan_hash_);
  previous_prefill_tokens_ = plan.prefill_tokens();
  planned_tokens_ += static_cast<double>(plan.num_tokens);
  budget_tokens_ += static_cast<double>(builder_.budget_tokens());
  kv_use_sum_ += static_cast<double>(parts_.kv->blocks_in_use());
  if (parts_.corrected != nullptr) f->predicted = parts_.corrected->Predict(plan);
  steps_.Submitted();
  live_.timelines().StepSubmitted();
  parts_.executor->Submit(plan);
}

void Planning::Apply(InFlight* f) {
  StepPlan* const plan = &f->plan;
  for (const SlotId s : plan->preempts) live_.Requeue(s);
  SequenceTable& table = live_.sequences();
  const bool host_tokens = traits_.has_tokens, can_chain = traits_.can_chain;
  const std::span<StepItem> items = plan->items;
  if (some_left_out_) {
    for (const StepItem& item : items) {
      if (table.planned_last(item.slot) + 1 != plan->step) live_.timelines().Resumed(item.slot);
    }
  }
  const std::span<SequenceStart> starts = plan->starts;
  f->epochs.resize(items.size());
  uint32_t* epoch = f->epochs.data();
  size_t next_start = 0;
  for (StepItem& item : items) {
    const SlotId s = item.slot;
    if (next_start < starts.size() && starts[next_start].slot == s) {
      live_.Start(&starts[next_start++], item.first_position);
    }
    *epoch++ = table.epoch(s);
    if (host_tokens && item.input == InputSource::kHost) CopyTokens(&item, plan);
    // A sequence may have its next item planned before the result: after a chunk of a known prompt always, after a
    // sampling item only if the host does not need the token first.
    const bool chainable = can_chain && (!item.sample || live_.slot(s).can_chain);
    table.PlanItem(s, item.count - item.draft_tokens, item.sample, plan->step, chainable);
  }
  TACTUS_CHECK(next_start == starts.size());
  if (!items.empty()) some_left_out_ = items.size() < table.running().size();
}

void Planning::CopyTokens(StepItem* item, StepPlan* plan) const {
  const SlotEntry& slot = live_.slot(item->slot);
  item->token_offset = static_cast<int32_t>(plan->tokens.size());
  const int32_t end = item->first_position + item->count - item->draft_tokens;
  int32_t p = item->first_position;
  if (p < slot.prompt_tokens) {
    const int32_t stop = std::min(end, slot.prompt_tokens);
    plan->tokens.insert(plan->tokens.end(), slot.prompt + p, slot.prompt + stop);
    p = stop;
  }
  const TokenId* output = slot.buffers->output.data() - slot.prompt_tokens;
  for (; p < end; ++p) plan->tokens.push_back(output[p]);
  const auto drafts = slot.buffers->drafts.begin();
  plan->tokens.insert(plan->tokens.end(), drafts, drafts + item->draft_tokens);
}

}  // namespace tactus::core
