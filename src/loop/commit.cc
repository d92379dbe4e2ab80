// Results of steps: tokens, ends, errors.
#include <algorithm>

#include "base/check.h"
#include "kv/block_key.h"
#include "loop/step_loop_impl.h"

namespace tactus {

bool StepLoop::Impl::CommitReady() {
  bool any = false;
  while (ring_count > 0 && parts.executor->Poll(&result)) {
    CommitStep();
    any = true;
  }
  return any;
}

void StepLoop::Impl::CommitStep() {
  InFlight& f = ring[ring_head];
  const StepPlan& plan = f.plan;
  TACTUS_CHECK_MSG(result.step == plan.step, "the executor answered step " + std::to_string(result.step) +
                                                 " instead of " + std::to_string(plan.step));
  const bool ok = result.status.ok() && (result.as_planned || result.items.size() == plan.items.size());

  StepRecord& record = recent[recent_count++ % recent.size()];
  record = StepRecord();
  record.step = plan.step;
  record.planned_ns = plan.planned_ns;
  record.start_ns = result.start_ns;
  record.end_ns = result.end_ns;
  record.decode_tokens = plan.num_decodes;
  record.prefill_tokens = static_cast<int32_t>(plan.prefill_tokens());
  record.prefill_items = static_cast<int32_t>(plan.items.size()) - plan.num_decodes;
  record.preemptions = static_cast<int32_t>(plan.preempts.size());
  record.longest_preemption_ns = plan.longest_preemption_ns;
  record.ok = ok;
  step_events.push_back(record);

  if (ok && !result.as_planned) VoidFailedItems(plan, f.epochs);
  recompute.clear();
  parts.kv->StepEnded(plan.step, ok, &recompute);
  ring_head = ring_head + 1 == ring.size() ? 0 : ring_head + 1;
  --ring_count;
  if (!ok) {
    for (const StepItem& item : plan.items) DropItem(item.slot);
    if (result.status.ok()) result.status = Internal("the executor answered for another number of items");
    FailStep();
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const SlotId s = plan.items[i].slot;
      // Stale items are of sequences that were requeued or rolled back since: this failure is not theirs.
      if (table.epoch(s) == f.epochs[i] && table.holds_kv(s)) {
        Finish(s, FinishReason::kError, nullptr, static_cast<int32_t>(error_events.size()) - 1);
      }
    }
  } else if (result.as_planned) {
    errors_in_a_row = 0;
    CommitAsPlanned(f);
  } else {
    errors_in_a_row = 0;
    logprob_cursor = prompt_logprob_cursor = 0;
    for (size_t i = 0; i < plan.items.size(); ++i) CommitItem(i, plan.items[i], f.epochs[i]);
  }
  if (parts.tap != nullptr) parts.tap->StepEnded(plan, result, ok);
  // Sequences that read KV which will never be there start again (the failed step's own sequences have ended).
  for (const SlotId s : recompute) {
    if (table.holds_kv(s)) {
      parts.kv->Release(s, table.last_step(s));
      Requeue(s);
    } else if (table.columns().state[s] == SeqState::kWaiting) {
      table.LoseKept(s);  // the step was to save its KV
    }
  }
  if (errors_in_a_row >= config.max_errors_in_a_row && healthy.load(std::memory_order_relaxed)) {
    healthy.store(false, std::memory_order_release);
    intake.Close(Status(StatusCode::kUnavailable, "the executor has failed " + std::to_string(errors_in_a_row) +
                                                      " steps in a row: " + result.status.message()));
    FinishAll(FinishReason::kError, result.status);
  }
}

// An item that could not run wrote no KV. A sequence that matched what it was to fill, in this step already, has read
// garbage: it starts again, and its own result is dropped as stale. (Logits that are not finite leave sound KV behind.)
void StepLoop::Impl::VoidFailedItems(const StepPlan& plan, const std::vector<uint32_t>& epochs) {
  recompute.clear();
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (result.items[i].status != ItemStatus::kFailed) continue;
    const SlotId s = plan.items[i].slot;
    if (table.epoch(s) == epochs[i] && table.holds_kv(s)) {
      parts.kv->ItemFailed(s, plan.items[i].first_position, plan.step, &recompute);
    } else {
      parts.kv->StepFillsNothing(plan.step,
                                 &recompute);  // its blocks may be in the tree although it has let go of them
    }
  }
  if (recompute.empty()) return;
  for (const SlotId s : recompute) {
    bool failed_itself = false;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      failed_itself |=
          plan.items[i].slot == s && table.epoch(s) == epochs[i] && result.items[i].status == ItemStatus::kFailed;
    }
    if (failed_itself || !table.holds_kv(s)) continue;  // ends with an error when its item is committed
    parts.kv->Release(s, table.last_step(s));
    Requeue(s);
  }
}

void StepLoop::Impl::FailStep() {
  ++errors_in_a_row;
  AddError(result.status);
}

int32_t StepLoop::Impl::AddError(const Status& status) {
  error_events.push_back(status);
  return static_cast<int32_t>(error_events.size()) - 1;
}

void StepLoop::Impl::DropItem(SlotId s) {
  table.DropItem(s);
  if (table.columns().state[s] == SeqState::kFinished && table.items_in_flight(s) == 0) FreeSlot(s);
}

void StepLoop::Impl::CommitItem(size_t index, const StepItem& item, uint32_t planned_epoch) {
  const SlotId s = item.slot;
  if (table.columns().state[s] == SeqState::kFinished || table.epoch(s) != planned_epoch) {
    DropItem(s);
    return;
  }
  const ItemResult& r = result.items[index];
  const int32_t accepted_drafts = r.accepted - (item.count - item.draft_tokens);  // less than 0: not even the rest
  const bool whole = accepted_drafts >= 0;
  if (r.status != ItemStatus::kOk || !FitsPlan(item, r)) {
    table.CommitItem(s, 0, 0);
    const char* what = r.status == ItemStatus::kBadLogits ? "the model's logits are not finite"
                       : r.status == ItemStatus::kFailed  ? "the executor could not run the sequence"
                                                          : "the executor's answer does not fit the plan";
    Finish(s, FinishReason::kError, nullptr, AddError(Internal(what)));
    return;
  }
  SlotEntry& slot = slots[static_cast<size_t>(s)];
  if (!result.prompt_logprobs.empty() && slot.choice == 0) {
    // Rows come in item order, as the items are committed.
    auto& all = result.prompt_logprobs;
    while (prompt_logprob_cursor < all.size() && all[prompt_logprob_cursor].item < static_cast<int32_t>(index))
      ++prompt_logprob_cursor;
    if (prompt_logprob_cursor < all.size() && all[prompt_logprob_cursor].item == static_cast<int32_t>(index)) {
      prompt_logprob_events.push_back(
          {slot.user, slot.handle, item.first_position, std::move(all[prompt_logprob_cursor].per_token)});
    }
  }
  table.CommitItem(s, r.accepted, r.num_tokens, std::max(accepted_drafts, 0));
  if (!whole) {
    table.RollBackPlanned(s);
    const int32_t computed = table.columns().computed_committed[s];
    parts.kv->Rollback(s, computed);
    builder.RolledBack(s, computed);
  }
  if (slot.choice == 0 && slot.request->siblings_held && table.columns().computed_committed[s] >= slot.prompt_tokens) {
    ReleaseSiblings(slot.request, s);
  }
  for (int32_t i = 0; i < r.num_tokens; ++i) {
    const auto at = static_cast<size_t>(r.token_offset + i);
    if (AppendToken(s, index, i, at < result.tokens.size() ? result.tokens[at] : 0)) return;
  }
  if (drafting && r.num_tokens > 0) ProposeDrafts(s);
}

// Whether the executor has answered what it was asked: of the item's drafts, those that it accepts are what it sampled.
bool StepLoop::Impl::FitsPlan(const StepItem& item, const ItemResult& r) const {
  const int32_t sure = item.count - item.draft_tokens;
  if (r.accepted < 0 || r.accepted > item.count) return false;
  if (r.num_tokens != (item.sample && r.accepted >= sure ? r.accepted - sure + 1 : 0)) return false;
  if (!traits.has_tokens || r.accepted <= sure) return true;
  const std::vector<TokenId>& drafts = slots[static_cast<size_t>(item.slot)].buffers->drafts;
  const auto sampled = result.tokens.begin() + r.token_offset;
  return r.token_offset >= 0 && r.token_offset + r.num_tokens <= static_cast<int32_t>(result.tokens.size()) &&
         std::equal(sampled, sampled + (r.accepted - sure), drafts.begin());
}

void StepLoop::Impl::ProposeDrafts(SlotId s) {
  const SlotEntry& slot = slots[static_cast<size_t>(s)];
  std::vector<TokenId>& drafts = slot.buffers->drafts;
  drafts.clear();
  const int32_t most = std::min(config.max_draft_tokens, slot.max_tokens - slot.generated - 1);
  if (most > 0) {
    std::span<const TokenId> prompt;
    if (slot.prompt != nullptr) prompt = {slot.prompt, static_cast<size_t>(slot.prompt_tokens)};
    parts.drafts->Propose(s, prompt, slot.buffers->output, most, &drafts);
    TACTUS_CHECK(static_cast<int32_t>(drafts.size()) <= most);
  }
  table.SetDrafts(s, static_cast<int32_t>(drafts.size()));
  if (parts.tap != nullptr && !drafts.empty()) parts.tap->Drafted(s, static_cast<int32_t>(drafts.size()));
}

// The short form of a result: no item failed, no token has a value. One pass over the plan's items.
void StepLoop::Impl::CommitAsPlanned(const InFlight& f) {
  const std::vector<StepItem>& items = f.plan.items;
  size_t next_stop = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    const SlotId s = item.slot;
    const bool stop = next_stop < result.stops.size() && result.stops[next_stop] == static_cast<int32_t>(i);
    next_stop += stop;
    if (table.epoch(s) != f.epochs[i] || table.columns().state[s] == SeqState::kFinished) {
      DropItem(s);
      continue;
    }
    table.CommitItem(s, item.count, item.sample);
    if (!item.sample) continue;
    SlotEntry& slot = slots[static_cast<size_t>(s)];
    if (slot.generated == 0 && slot.choice == 0 && slot.request->siblings_held) ReleaseSiblings(slot.request, s);
    AddGap(&slot);
    if (slot.prompt_tokens + slot.generated >= slot.next_key_at) AddKey(s);
    FinishReason reason = FinishReason::kNone;
    if (stop && slot.generated >= slot.min_tokens) {
      reason = FinishReason::kStop;
      if (parts.tap != nullptr) parts.tap->Stopped(static_cast<int32_t>(i), 0);
    } else if (slot.generated >= slot.max_tokens) {
      reason = FinishReason::kLength;
    }
    TokenEvent* event = nullptr;
    if (wants_tokens) {
      event = AddTokenEvent(slot);
      event->token = 0;
    }
    if (reason != FinishReason::kNone) Finish(s, reason, event, -1);
  }
}

// One more token of the sequence exists, as of now.
void StepLoop::Impl::AddGap(SlotEntry* slot) {
  const DurationNs gap_ns = now_ns - slot->last_token_ns;
  slot->last_token_ns = now_ns;
  const bool first = ++slot->generated == 1;
  if (!first) {
    slot->longest_gap_ns = std::max(slot->longest_gap_ns, gap_ns);
  } else if (slot->request->first_token_ns == 0) {
    slot->request->first_token_ns = now_ns;
  }
  ++stats.generation_tokens;
  if (!gap_events.empty() && gap_events.back().gap_ns == gap_ns && gap_events.back().first == first) {
    ++gap_events.back().count;
  } else {
    gap_events.push_back({gap_ns, 1, first});
  }
}

// Precondition: AddGap has counted the token.
TokenEvent* StepLoop::Impl::AddTokenEvent(const SlotEntry& slot) {
  TokenEvent& event = token_events.emplace_back();
  event.user = slot.user;
  event.handle = slot.handle;
  event.choice = slot.choice;
  event.first_token = slot.generated == 1;
  event.gap_ns = gap_events.back().gap_ns;
  return &event;
}

// True: it ended the sequence. `nth` token of the item.
bool StepLoop::Impl::AppendToken(SlotId s, size_t index, int32_t nth, TokenId token) {
  SlotEntry& slot = slots[static_cast<size_t>(s)];
  if (traits.has_tokens) slot.buffers->output.push_back(token);
  AddGap(&slot);
  if (slot.prompt_tokens + slot.generated >= slot.next_key_at) AddKey(s);

  int32_t stop_string = -1;
  FinishReason reason = StopReason(slot, slot.generated, token, &stop_string);
  TokenEvent* event = nullptr;
  if (wants_tokens) {
    event = AddTokenEvent(slot);
    event->token = token;
    event->stop_string = stop_string;
    if (!result.logprobs.empty()) TakeLogprobs(index, nth, event);
  }
  if (reason == FinishReason::kNone) {
    if (slot.generated < slot.max_tokens) return false;
    reason = FinishReason::kLength;
  } else if (parts.tap != nullptr) {
    parts.tap->Stopped(static_cast<int32_t>(index), nth);
  }
  Finish(s, reason, event, -1);
  return true;
}

void StepLoop::Impl::TakeLogprobs(size_t index, int32_t nth, TokenEvent* event) {
  auto& all = result.logprobs;  // in item order, as the items are committed
  while (logprob_cursor < all.size() && all[logprob_cursor].item < static_cast<int32_t>(index)) ++logprob_cursor;
  if (logprob_cursor == all.size() || all[logprob_cursor].item != static_cast<int32_t>(index)) return;
  auto& per_token = all[logprob_cursor].per_token;
  if (static_cast<size_t>(nth) >= per_token.size()) return;
  event->logprobs = static_cast<int32_t>(logprob_events.size());
  logprob_events.push_back(std::move(per_token[static_cast<size_t>(nth)]));
}

FinishReason StepLoop::Impl::StopReason(const SlotEntry& slot, int32_t count, TokenId token,
                                        int32_t* stop_string) const {
  // The matcher sees every token: a stop string may begin before min_tokens and end after.
  const int found = slot.has_stop_strings ? slot.buffers->stop->Append(parts.token_bytes(token)) : -1;
  if (count < slot.min_tokens) return FinishReason::kNone;
  for (int32_t i = 0; i < slot.num_stop_ids; ++i) {
    if (slot.stop_ids[i] == token) return FinishReason::kStop;
  }
  if (found < 0) return FinishReason::kNone;
  *stop_string = found;
  return FinishReason::kStop;
}

void StepLoop::Impl::AddKey(SlotId s) {
  SlotEntry& slot = slots[static_cast<size_t>(s)];
  SequenceBuffers& buffers = *slot.buffers;
  const auto block = static_cast<int32_t>(buffers.keys.size());
  slot.next_key_at += block_size;
  if (parts.generated_key) {
    buffers.keys.push_back(parts.generated_key(slot.request->in.handle, slot.choice, block));
  } else {
    for (int32_t i = 0; i < block_size; ++i) {
      const int32_t p = block * block_size + i;
      key_tokens[static_cast<size_t>(i)] = !traits.has_tokens ? 0
                                           : p < slot.prompt_tokens
                                               ? slot.prompt[p]
                                               : buffers.output[static_cast<size_t>(p - slot.prompt_tokens)];
    }
    const Hash128& parent = buffers.keys.empty() ? slot.request->in.root_key : buffers.keys.back();
    buffers.keys.push_back(BlockKey(config.limits.secret, parent, key_tokens));
  }
  if (parts.tap != nullptr) parts.tap->Key(slot.request->in.handle, slot.choice, block, buffers.keys.back());
}

void StepLoop::Impl::ReleaseSiblings(RequestRecord* request, SlotId parent) {
  request->siblings_held = false;
  for (const SequenceBuffers& choice : request->in.choices) {
    if (choice.slot != kNoSlot && table.columns().state[choice.slot] == SeqState::kHeld) {
      table.Unhold(choice.slot, parent, now_ns);
    }
  }
}

void StepLoop::Impl::Finish(SlotId s, FinishReason reason, TokenEvent* event, int32_t error) {
  SlotEntry& slot = slots[static_cast<size_t>(s)];
  RequestRecord* request = slot.request;
  const bool ran = table.holds_kv(s);
  if (ran) {
    parts.kv->Release(s, table.last_step(s));
  } else {
    parts.kv->DropSwapped(s);
    intake.SequencesDequeued(1);
  }
  parts.kv->Unbind(s);
  if (parts.predictor != nullptr) {
    parts.predictor->Ended(s, slot.generated, reason == FinishReason::kCancelled || reason == FinishReason::kError);
  }
  request->recomputed_tokens += table.recomputed_tokens(s);
  request->completion_tokens += slot.generated;
  request->longest_gap_ns = std::max(request->longest_gap_ns, slot.longest_gap_ns);
  table.Finish(s);
  if (event == nullptr && wants_tokens) {
    event = &token_events.emplace_back();
    event->user = request->in.user;
    event->handle = request->in.handle;
    event->choice = slot.choice;
    event->gap_ns = now_ns - slot.last_token_ns;
  }
  if (event != nullptr) {
    event->finish = reason;
    event->error = error;
  }
  request->worst = std::max(request->worst, reason);
  if (request->in.choices.size() > 1) {
    for (const SequenceBuffers& choice : request->in.choices) {
      if (choice.slot != kNoSlot && table.columns().fork_from[choice.slot] == s) table.ClearFork(choice.slot);
    }
    if (request->siblings_held && slot.choice == 0 && reason != FinishReason::kCancelled)
      ReleaseSiblings(request, kNoSlot);
  }
  switch (reason) {
    case FinishReason::kStop:
      ++stats.finished_stop;
      break;
    case FinishReason::kLength:
      ++stats.finished_length;
      break;
    case FinishReason::kCancelled:
      ++stats.finished_cancelled;
      break;
    default:
      ++stats.finished_error;
      break;
  }
  if (--request->live_choices == 0) {
    const PreparedRequest& in = request->in;
    done_events.push_back({in.user, in.handle, in.arrival_ns, request->scheduled_ns, request->first_token_ns, now_ns,
                           in.prompt_tokens, request->cached_tokens, request->completion_tokens, request->preemptions,
                           request->recomputed_tokens, request->worst, request->longest_gap_ns, in.request});
    requests.Forget(in.handle);
    intake.RequestEnded();
  }
  if (table.items_in_flight(s) == 0) FreeSlot(s);
}

void StepLoop::Impl::FreeSlot(SlotId s) {
  table.Free(s);
  SlotEntry& slot = slots[static_cast<size_t>(s)];
  RequestRecord* request = slot.request;
  slot.buffers->slot = kNoSlot;
  slot.request = nullptr;
  slot.buffers = nullptr;
  intake.SequencesFreed(1);
  if (--request->slots_held == 0) requests.Release(request);
}

void StepLoop::Impl::FinishAll(FinishReason reason, const Status& why) {
  const int32_t error = AddError(why);
  const SequenceColumns& seq = table.columns();
  // Choice 0 releases held siblings when it ends; they end here too, in whichever state the sweep meets them.
  for (SlotId s = 0; s < seq.capacity; ++s) {
    if (seq.state[s] != SeqState::kFree && seq.state[s] != SeqState::kFinished) Finish(s, reason, nullptr, error);
  }
}

}  // namespace tactus
