// Planning a step: the view, the scheduler's decision, its application to the sequence table, submission.
#include <algorithm>

#include "base/check.h"
#include "loop/step_loop_impl.h"

namespace tactus {

bool StepLoop::Impl::PlanAndSubmit() {
  table.Compact();
  if (table.running().empty() && table.waiting().empty()) return false;
  InFlight& f = ring[(ring_head + ring_count) % ring.size()];
  StepPlan& plan = f.plan;
  plan.Clear();
  plan.step = next_step;
  plan.planned_ns = now_ns;

  sched::StepView view;
  view.step = next_step;
  view.now_ns = now_ns;
  view.seq = table.columns();
  view.notes = table.notes();
  view.waiting = table.waiting();
  view.running = table.running();
  view.running_by_arrival = table.running_by_arrival();
  view.changes = table.changes();
  view.recent = {recent.data(), std::min(recent_count, recent.size())};
  view.recent_begin = recent_count > recent.size() ? static_cast<int32_t>(recent_count % recent.size()) : 0;
  view.num_prefilling = table.num_prefilling();
  view.previous_prefill_tokens = previous_prefill_tokens;
  view.steps_in_flight = static_cast<int32_t>(ring_count);

  const bool timed = parts.stopwatch != nullptr && next_step % parts.stopwatch_every == 0;
  const TimeNs begin = timed ? parts.stopwatch->NowNs() : 0;
  parts.scheduler->Plan(view, &builder, &plan);
  if (timed) decision_ns = parts.stopwatch->NowNs() - begin;
  table.ClearChanges();
  if (parts.tap != nullptr) {
    if (parts.step_times == nullptr) {
      parts.tap->PlanCalled({});
    } else {
      parts.tap->PlanCalled(parts.step_times->answers());
      parts.step_times->Clear();
    }
  }

  if (plan.items.empty() && plan.preempts.empty()) {
    // With nothing in flight nothing could ever change: the policy has stopped for good.
    TACTUS_CHECK_MSG(ring_count > 0, "an empty plan with " + std::to_string(table.waiting().size()) + " waiting and " +
                                         std::to_string(table.running().size()) + " running sequences under " +
                                         parts.scheduler->Describe());
    return false;
  }
  Apply(&plan);
  if (plan.items.empty()) {  // memory was freed; the next plan uses it, and makes this one's copies first
    carried_swap_outs.insert(carried_swap_outs.end(), plan.swap_outs.begin(), plan.swap_outs.end());
    return true;
  }
  if (!carried_swap_outs.empty()) {
    plan.swap_outs.insert(plan.swap_outs.begin(), carried_swap_outs.begin(), carried_swap_outs.end());
    carried_swap_outs.clear();
  }

  f.epochs.clear();
  for (const StepItem& item : plan.items) f.epochs.push_back(table.epoch(item.slot));
  plan_hash = MixHash(plan_hash, HashOf(plan));
  if (keep_hashes) hashes.push_back(plan_hash);
  if (parts.tap != nullptr) parts.tap->StepPlanned(plan, plan_hash);
  previous_prefill_tokens = plan.num_tokens - plan.num_decodes;
  ++next_step;
  ++ring_count;
  ++stats.steps;
  planned_tokens += static_cast<double>(plan.num_tokens);
  budget_tokens += static_cast<double>(builder.budget_tokens());
  kv_use_sum += static_cast<double>(parts.kv->blocks_in_use());
  parts.executor->Submit(plan);
  return true;
}

void StepLoop::Impl::Apply(StepPlan* plan) {
  for (const SlotId s : plan->preempts) Requeue(s);
  size_t next_start = 0;
  for (StepItem& item : plan->items) {
    const SlotId s = item.slot;
    if (next_start < plan->starts.size() && plan->starts[next_start].slot == s) {
      StartSequence(&plan->starts[next_start++], item.first_position);
    }
    if (traits.has_tokens && item.input == InputSource::kHost) CopyTokens(&item, plan);
    table.PlanItem(s, item.count, item.sample, plan->step, traits.can_chain);
  }
  TACTUS_CHECK(next_start == plan->starts.size());
}

void StepLoop::Impl::CopyTokens(StepItem* item, StepPlan* plan) const {
  const SlotEntry& slot = slots[static_cast<size_t>(item->slot)];
  item->token_offset = static_cast<int32_t>(plan->tokens.size());
  const int32_t end = item->first_position + item->count;
  int32_t p = item->first_position;
  if (p < slot.prompt_tokens) {
    const int32_t stop = std::min(end, slot.prompt_tokens);
    plan->tokens.insert(plan->tokens.end(), slot.prompt + p, slot.prompt + stop);
    p = stop;
  }
  const TokenId* output = slot.buffers->output.data() - slot.prompt_tokens;
  for (; p < end; ++p) plan->tokens.push_back(output[p]);
}

void StepLoop::Impl::StartSequence(SequenceStart* start, int32_t first_position) {
  const SlotId s = start->slot;
  SlotEntry& slot = slots[static_cast<size_t>(s)];
  RequestRecord* request = slot.request;
  start->choice = slot.choice;
  start->request = request->in.request;
  if (traits.has_tokens) start->output = slot.buffers->output;
  const int32_t recomputed = table.recomputed_tokens(s);
  table.Admit(s, first_position);
  stats.recomputed_tokens += table.recomputed_tokens(s) - recomputed;
  intake.SequencesDequeued(1);
  if (slot.started) return;
  slot.started = true;
  stats.prompt_tokens += slot.choice == 0 ? slot.prompt_tokens : 0;
  if (request->scheduled_ns != 0) return;
  request->scheduled_ns = now_ns;
  request->cached_tokens = first_position;
  scheduled_events.push_back(
      {request->in.user, request->in.handle, request->in.arrival_ns, slot.prompt_tokens, first_position});
}

void StepLoop::Impl::Requeue(SlotId s) {
  table.Preempt(s, now_ns, parts.kv->SwappedTokens(s));
  intake.SequencesQueued(1);
  ++stats.preemptions;
  RequestRecord* request = slots[static_cast<size_t>(s)].request;
  ++request->preemptions;
  for (const SequenceBuffers& choice : request->in.choices) {
    if (choice.slot != kNoSlot && table.columns().fork_from[choice.slot] == s) table.ClearFork(choice.slot);
  }
}

uint64_t StepLoop::Impl::HashOf(const StepPlan& plan) const {
  // Four chains side by side: one would wait for each multiplication.
  const auto step = static_cast<uint64_t>(plan.step);
  uint64_t chains[4] = {step, step + 1, step + 2, step + 3};
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    // One mix per item: the fields go to disjoint bits, or nearly so.
    const uint64_t what = static_cast<uint64_t>(item.slot) << 40 ^ static_cast<uint64_t>(item.first_position) << 20 ^
                          static_cast<uint64_t>(item.count) << 2 ^ static_cast<uint64_t>(item.sample) << 1 ^
                          static_cast<uint64_t>(item.input == InputSource::kChained);
    chains[i % 4] = MixHash(chains[i % 4], what ^ static_cast<uint64_t>(item.logit_rows) << 56);
  }
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

}  // namespace tactus
