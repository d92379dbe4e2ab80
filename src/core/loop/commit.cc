#include "core/loop/commit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tactus::core {
namespace {

// A sequence whose guesses are declined by kMostDeclined steps in a row gets none for a while: under load they would be
// wasted.
constexpr uint8_t kMostDeclined = 4;
constexpr int32_t kRestTokens = 32;  // tokens of the first rest; each further rest is twice as long
constexpr uint8_t kMostRests = 4;    // rests that double

// The sequence has been requeued, rolled back or ended since the item was planned.
inline bool Stale(const SequenceTable& table, SlotId s, uint32_t planned_epoch) {
  return table.epoch(s) != planned_epoch;
}

Status WhyItFailed(ItemStatus status) {
  switch (status) {
    case ItemStatus::kBadLogits:
      return Internal("the model's logits are not finite");
    case ItemStatus::kBadGrammar:  // the grammar compiled, but was too expensive to run
      return InvalidArgument(
          "the answer's grammar exceeds a limit of one answer: 1 ms of CPU time per token, the states and items of the "
          "grammar library, or its part of the memory for the grammars of all answers; make it simpler or less "
          "ambiguous, ask for fewer choices, or try again later");
    case ItemStatus::kFailed:
      return Internal("the executor could not run the sequence");
    case ItemStatus::kOk:
      break;
  }
  return Internal("the executor's result does not fit the plan");
}

}  // namespace

Commit::Commit(const LoopContext& context, PlanBuilder* builder, StepsInFlight* steps, LiveRequests* live,
               PassEvents* events, GiveUp give_up)
    : config_(context.config),
      parts_(context.parts),
      traits_(context.traits),
      builder_(*builder),
      steps_(*steps),
      live_(*live),
      events_(*events),
      give_up_(std::move(give_up)) {
  if (parts_.drafts == nullptr) return;
  const auto sequences = static_cast<size_t>(config_.slots());
  new_tokens_.reserve(sequences);
  tasks_.reserve(sequences);
}

bool Commit::Ready() {
  bool any = false;
  while (!steps_.empty() && parts_.executor->Poll(&result_)) {
    CommitStep();
    any = true;
  }
  if (!new_tokens_.empty()) AskForDrafts();
  return any;
}

StepRecord Commit::RecordOf(const StepPlan& plan, bool ok) const {
  StepRecord record;
  record.step = plan.step;
  record.planned_ns = plan.planned_ns;
  record.start_ns = result_.start_ns;
  record.end_ns = result_.end_ns;
  record.decode_tokens = plan.num_decodes;
  record.prefill_tokens = static_cast<int32_t>(plan.prefill_tokens());
  record.prefill_items = static_cast<int32_t>(plan.items.size()) - plan.num_decodes;
  record.preemptions = static_cast<int32_t>(plan.preempts.size());
  record.longest_preemption_ns = plan.longest_preemption_ns;
  record.ok = ok;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  record.budget_tokens = static_cast<int32_t>(std::min(plan.budget_tokens, kMost));
  return record;
}

void Commit::CommitStep() {
  const InFlight& f = steps_.Oldest();
  const StepPlan& plan = f.plan;
  least_chance_ = plan.least_chance;
  TACTUS_CHECK_MSG(result_.step == plan.step, "the executor returned step " + std::to_string(result_.step) +
                                                  " instead of " + std::to_string(plan.step));
  const bool ok = result_.status.ok() && (result_.as_planned || result_.items.size() == plan.items.size());
  StepRecord record = RecordOf(plan, ok);
  record.predicted_ns = f.predicted.corrected_ns;
  if (ok && parts_.corrected != nullptr) parts_.corrected->Ended(f.predicted, record.end_ns - record.start_ns);
  events_.Step(record);

  if (ok && !result_.as_planned) VoidFailedItems(f);
  recompute_.clear();
  parts_.kv->StepEnded(plan.step, ok, &recompute_);
  steps_.Ended(record);
  for (const int32_t i : plan.prompt_items) {
    const StepItem& item = plan.items[static_cast<size_t>(i)];
    if (Stale(live_.sequences(), item.slot, f.epochs[static_cast<size_t>(i)])) continue;
    live_.timelines().ChunkEnded(item.slot, item, plan.num_tokens);
    if (!ok || !events_.wants_chunks()) continue;
    const SlotEntry& slot = live_.slot(item.slot);
    events_.Chunk({plan.step, slot.handle, slot.choice, item.first_position, item.count});
  }
  if (!ok) {
    FailStep(f);
  } else if (result_.as_planned) {
    errors_in_a_row_ = 0;
    CommitAsPlanned(f);
  } else {
    errors_in_a_row_ = 0;
    logprob_cursor_ = prompt_logprob_cursor_ = 0;
    for (size_t i = 0; i < plan.items.size(); ++i) CommitItem(i, plan.items[i], f.epochs[i]);
  }
  if (parts_.tap != nullptr) parts_.tap->StepEnded(plan, result_, ok);
  RequeueReadersOfFailedBlocks();
  const bool failed_for_good = !ok && result_.device_failed;
  if ((failed_for_good || errors_in_a_row_ >= config_.max_errors_in_a_row) && give_up_) {
    const std::string what = failed_for_good
                                 ? "the device has failed: "
                                 : "the executor has failed " + std::to_string(errors_in_a_row_) + " steps in a row: ";
    give_up_(Status(StatusCode::kUnavailable, what + result_.status.message()));
    give_up_ = nullptr;
    live_.FinishAll(FinishReason::kError, result_.status);
  }
}

void Commit::FailStep(const InFlight& f) {
  const std::vector<StepItem>& items = f.plan.items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!Stale(live_.sequences(), items[i].slot, f.epochs[i])) live_.timelines().ShareEnded(items[i].slot);
  }
  for (const StepItem& item : items) live_.DropItem(item.slot);
  if (result_.status.ok()) result_.status = Internal("the executor returned another number of items than planned");
  ++errors_in_a_row_;
  const int32_t error = events_.Error(result_.status);
  for (size_t i = 0; i < items.size(); ++i) {
    const SlotId s = items[i].slot;
    // Sequences of stale items were requeued or rolled back since; the failure does not affect them.
    if (live_.sequences().epoch(s) == f.epochs[i] && live_.sequences().holds_kv(s)) {
      live_.Finish(s, FinishReason::kError, nullptr, error);
    }
  }
}

// Restarts sequences that read KV of failed blocks. (The failed step's own sequences have ended.)
void Commit::RequeueReadersOfFailedBlocks() {
  SequenceTable& table = live_.sequences();
  for (const SlotId s : recompute_) {
    if (table.holds_kv(s)) {
      live_.StartAgain(s);
    } else if (table.columns().state[s] == SeqState::kWaiting) {
      table.LoseKept(s);  // the failed step should have saved its KV
    }
  }
}

// A failed item wrote no KV. A sequence that matched the blocks it should have filled, even in the same step, has read
// garbage: it is restarted, and its own result is dropped as stale. (After an item with non-finite logits the KV is
// valid.)
void Commit::VoidFailedItems(const InFlight& f) {
  const std::vector<StepItem>& items = f.plan.items;
  const SequenceTable& table = live_.sequences();
  recompute_.clear();
  for (size_t i = 0; i < items.size(); ++i) {
    if (result_.items[i].status != ItemStatus::kFailed) continue;
    const SlotId s = items[i].slot;
    if (table.epoch(s) == f.epochs[i] && table.holds_kv(s)) {
      parts_.kv->ItemFailed(s, items[i].first_position, f.plan.step, &recompute_);
    } else {
      // The sequence has released its blocks, but they may be in the tree.
      parts_.kv->OnStepFailed(f.plan.step, &recompute_);
    }
  }
  for (const SlotId s : recompute_) {
    bool failed_itself = false;
    for (size_t i = 0; i < items.size(); ++i) {
      failed_itself |=
          items[i].slot == s && table.epoch(s) == f.epochs[i] && result_.items[i].status == ItemStatus::kFailed;
    }
    if (failed_itself || !table.holds_kv(s)) continue;  // ends with an error when its item is committed
    live_.StartAgain(s);
  }
}

void Commit::CommitItem(size_t index, const StepItem& item, uint32_t planned_epoch) {
  const SlotId s = item.slot;
  SequenceTable& table = live_.sequences();
  if (Stale(table, s, planned_epoch)) {
    live_.DropItem(s);
    return;
  }
  const ItemResult& r = result_.items[index];
  if (r.status != ItemStatus::kOk || !FitsPlan(item, r)) {
    live_.timelines().ShareEnded(s);
    table.CommitItem(s, 0, 0);
    live_.Finish(s, FinishReason::kError, nullptr, events_.Error(WhyItFailed(r.status)));
    return;
  }
  if (!result_.prompt_logprobs.empty()) PassOnPromptLogprobs(index, item);
  // Below 0: not all sure tokens were accepted either.
  const int32_t accepted_drafts = r.accepted - (item.count - item.draft_tokens);
  table.CommitItem(s, r.accepted, r.num_tokens, std::max(accepted_drafts, 0));
  if (parts_.drafts != nullptr) DraftsVerified(s, item, accepted_drafts);
  if (accepted_drafts < 0) {
    live_.timelines().ShareEnded(s);
    table.RollBackPlanned(s);
    const int32_t computed = table.columns().computed_committed[s];
    parts_.kv->Rollback(s, computed);
    builder_.RolledBack(s, computed);
  }
  const SlotEntry& slot = live_.slot(s);
  if (slot.choice == 0 && slot.request->siblings_held && table.columns().computed_committed[s] >= slot.prompt_tokens) {
    live_.ReleaseSiblings(slot.request, s);
  }
  for (int32_t i = 0; i < r.num_tokens; ++i) {
    const auto at = static_cast<size_t>(r.token_offset + i);
    if (AppendToken(s, index, i, at < result_.tokens.size() ? result_.tokens[at] : 0)) return;
  }
  if (parts_.drafts != nullptr && r.num_tokens > 0) NoteNewTokens(s);
}

// Whether the result fits the item; in particular, the accepted drafts equal the sampled tokens.
bool Commit::FitsPlan(const StepItem& item, const ItemResult& r) const {
  const int32_t sure = item.count - item.draft_tokens;
  if (r.accepted < 0 || r.accepted > item.count) return false;
  if (r.num_tokens != (item.sample && r.accepted >= sure ? r.accepted - sure + 1 : 0)) return false;
  if (!traits_.has_tokens || r.num_tokens == 0) return true;
  if (r.token_offset < 0 || r.token_offset + r.num_tokens > static_cast<int32_t>(result_.tokens.size())) return false;
  if (r.accepted <= sure) return true;
  const std::vector<TokenId>& drafts = live_.slot(item.slot).buffers->drafts;
  const auto sampled = result_.tokens.begin() + r.token_offset;
  return std::equal(sampled, sampled + (r.accepted - sure), drafts.begin());
}

// Rows are in item order, as are the commits.
void Commit::PassOnPromptLogprobs(size_t index, const StepItem& item) {
  const SlotEntry& slot = live_.slot(item.slot);
  if (slot.choice != 0) return;
  auto& all = result_.prompt_logprobs;
  size_t& at = prompt_logprob_cursor_;
  while (at < all.size() && all[at].item < static_cast<int32_t>(index)) ++at;
  if (at == all.size() || all[at].item != static_cast<int32_t>(index)) return;
  events_.PromptLogprobs({slot.user, slot.handle, item.first_position, std::move(all[at].per_token)});
}

// Counts the verified drafts, or that the step declined the drafts it could have verified.
void Commit::DraftsVerified(SlotId s, const StepItem& item, int32_t accepted_drafts) {
  SlotEntry& slot = live_.slot(s);
  if (item.draft_tokens > 0) {
    slot.drafts_declined = 0;
    live_.CountDrafts(slot, item.draft_tokens, std::max(accepted_drafts, 0));
  } else if (item.sample && live_.sequences().columns().draft_tokens[s] > 0 && ++slot.drafts_declined > kMostDeclined) {
    const auto rests = static_cast<uint8_t>(slot.drafts_declined - kMostDeclined);
    slot.no_drafts_until = slot.generated + (kRestTokens << (rests - 1));
    if (rests == kMostRests) --slot.drafts_declined;
  }
}

void Commit::NoteNewTokens(SlotId s) {
  SlotEntry& slot = live_.slot(s);
  if (!slot.has_new_tokens) new_tokens_.push_back(s);
  slot.has_new_tokens = true;
}

void Commit::AskForDrafts() {
  SequenceTable& table = live_.sequences();
  tasks_.clear();
  for (const SlotId s : new_tokens_) {
    SlotEntry& slot = live_.slot(s);
    slot.has_new_tokens = false;
    if (table.columns().state[s] != SeqState::kDecode) continue;  // it has ended or restarts
    DraftTask& task = tasks_.emplace_back();
    task.slot = s;
    if (slot.prompt != nullptr) task.prompt = {slot.prompt, static_cast<size_t>(slot.prompt_tokens)};
    task.output = slot.buffers->output;
    if (table.columns().flight[s] == FlightState::kIdle && slot.generated >= slot.no_drafts_until)
      task.most = std::max(0, std::min(config_.max_draft_tokens, slot.max_tokens - slot.generated - 1));
    task.least_chance = least_chance_;
    slot.buffers->drafts.clear();
    task.tokens = &slot.buffers->drafts;
  }
  new_tokens_.clear();
  parts_.drafts->Propose(tasks_);
  for (const DraftTask& task : tasks_) {
    SlotEntry& slot = live_.slot(task.slot);
    const auto drafts = static_cast<int32_t>(task.tokens->size());
    TACTUS_CHECK(drafts <= task.most && (drafts == 0 || task.waits));
    slot.draft_kind = task.kind;
    slot.can_chain =
        traits_.can_chain && !slot.request->in.tokens_on_host && (!task.waits || slot.generated < slot.no_drafts_until);
    if (table.columns().flight[task.slot] == FlightState::kIdle) table.SetDrafts(task.slot, drafts, task.chance);
    if (parts_.tap != nullptr && task.waits) parts_.tap->Drafted(task);
  }
}

// Commits a result in short form (StepResult::as_planned): no item failed, tokens have no values.
void Commit::CommitAsPlanned(const InFlight& f) {
  const std::span<const StepItem> items = f.plan.items;
  const uint32_t* const epochs = f.epochs.data();
  const std::span<const int32_t> stops = result_.stops;
  const bool wants_tokens = events_.wants_tokens();
  SequenceTable& table = live_.sequences();
  size_t stops_passed = 0, drafts_passed = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    const SlotId s = item.slot;
    const bool stop = stops_passed < stops.size() && stops[stops_passed] == static_cast<int32_t>(i);
    stops_passed += stop;
    int32_t accepted_drafts = 0;
    if (item.draft_tokens > 0) [[unlikely]] {
      TACTUS_CHECK(drafts_passed < result_.accepted_drafts.size());
      accepted_drafts = result_.accepted_drafts[drafts_passed++];
      TACTUS_CHECK(accepted_drafts >= 0 && accepted_drafts <= item.draft_tokens);
    }
    if (Stale(table, s, epochs[i])) {
      live_.DropItem(s);
      continue;
    }
    table.CommitItem(s, item.count - item.draft_tokens + accepted_drafts, item.sample ? 1 + accepted_drafts : 0,
                     accepted_drafts);
    if (parts_.drafts != nullptr) DraftsVerified(s, item, accepted_drafts);
    if (!item.sample) continue;
    SlotEntry& slot = live_.slot(s);
    for (int32_t d = 0; d < accepted_drafts; ++d) {
      const DurationNs gap_ns = live_.CountToken(s, &slot);
      if (wants_tokens) AddTokenEvent(slot, 0, gap_ns);
    }
    if (slot.generated == 0 && slot.choice == 0 && slot.request->siblings_held) live_.ReleaseSiblings(slot.request, s);
    const DurationNs gap_ns = live_.CountToken(s, &slot);
    FinishReason reason = FinishReason::kNone;
    if (stop && slot.generated > slot.min_tokens) {
      reason = FinishReason::kStop;
      if (parts_.tap != nullptr) parts_.tap->Stopped(static_cast<int32_t>(i), accepted_drafts);
    } else if (slot.generated >= slot.max_tokens) {
      reason = FinishReason::kLength;
    }
    TokenEvent* event = wants_tokens ? AddTokenEvent(slot, 0, gap_ns) : nullptr;
    if (reason != FinishReason::kNone) {
      live_.Finish(s, reason, event, -1);
    } else if (parts_.drafts != nullptr) {
      NoteNewTokens(s);
    }
  }
}

// Precondition: the token has been counted.
TokenEvent* Commit::AddTokenEvent(const SlotEntry& slot, TokenId token, DurationNs gap_ns) {
  TokenEvent* event = events_.Token();
  event->user = slot.user;
  event->handle = slot.handle;
  event->choice = slot.choice;
  event->token = token;
  event->first_token = slot.generated == 1;
  event->number = slot.generated;
  event->gap_ns = gap_ns;
  return event;
}

// Appends token number `nth` of the item. True: it ended the sequence.
bool Commit::AppendToken(SlotId s, size_t index, int32_t nth, TokenId token) {
  SlotEntry& slot = live_.slot(s);
  if (traits_.has_tokens) slot.buffers->output.push_back(token);
  const DurationNs gap_ns = live_.CountToken(s, &slot);

  int32_t stop_string = -1;
  FinishReason reason = StopReason(slot, slot.generated, token, &stop_string);
  TokenEvent* event = nullptr;
  if (events_.wants_tokens()) {
    event = AddTokenEvent(slot, token, gap_ns);
    event->stop_string = stop_string;
    if (!result_.logprobs.empty()) TakeLogprobs(index, nth, event);
  }
  if (reason == FinishReason::kNone) {
    if (slot.generated < slot.max_tokens) return false;
    reason = FinishReason::kLength;
  } else if (parts_.tap != nullptr) {
    parts_.tap->Stopped(static_cast<int32_t>(index), nth);
  }
  live_.Finish(s, reason, event, -1);
  return true;
}

void Commit::TakeLogprobs(size_t index, int32_t nth, TokenEvent* event) {
  auto& all = result_.logprobs;  // in item order, as are the commits
  size_t& at = logprob_cursor_;
  while (at < all.size() && all[at].item < static_cast<int32_t>(index)) ++at;
  if (at == all.size() || all[at].item != static_cast<int32_t>(index)) return;
  auto& per_token = all[at].per_token;
  if (static_cast<size_t>(nth) >= per_token.size()) return;
  event->logprobs = events_.Logprobs(std::move(per_token[static_cast<size_t>(nth)]));
}

// Whether an end token before min_tokens ends the sequence. Such tokens are sampled only (SamplingSpec::ends) where a
// grammar allows no other, so nothing can follow.
bool Commit::EndsGrammar(const SlotEntry& slot, TokenId token) const {
  const Request& request = *slot.request->in.request;
  if (request.grammar == nullptr || request.stop.ignore_eos) return false;
  const std::vector<TokenId>& ends = config_.limits.model_stop_ids;
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

FinishReason Commit::StopReason(const SlotEntry& slot, int32_t count, TokenId token, int32_t* stop_string) const {
  // The matcher gets every token: a stop string may begin before min_tokens and end after.
  const int found = slot.has_stop_strings ? slot.buffers->stop->Append(parts_.token_bytes(token)) : -1;
  if (count <= slot.min_tokens) return EndsGrammar(slot, token) ? FinishReason::kStop : FinishReason::kNone;
  for (int32_t i = 0; i < slot.num_stop_ids; ++i) {
    if (slot.stop_ids[i] == token) return FinishReason::kStop;
  }
  if (found < 0) return FinishReason::kNone;
  *stop_string = found;
  return FinishReason::kStop;
}

}  // namespace tactus::core
