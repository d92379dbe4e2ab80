#include "core/loop/live_requests.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/growing_vector.h"
#include "core/kv/block_key.h"

namespace tactus::core {
namespace {

std::string SecondsText(DurationNs ns) {
  return fmt::format("{:.2f} s", static_cast<double>(ns) * 1e-9);
}

}  // namespace

LiveRequests::LiveRequests(const LoopContext& context, Intake* intake, PassEvents* events,
                           ImportReservations* reservations)
    : config_(context.config),
      parts_(context.parts),
      traits_(context.traits),
      block_size_(parts_.kv->block_size()),
      intake_(*intake),
      events_(*events),
      reservations_(*reservations),
      sequences_(config_.slots(), parts_.scheduler->notes().stride(), parts_.scheduler->client_notes().stride(),
                 config_.lean),
      requests_(config_.slots()),
      slots_(RoomFor<std::vector<SlotEntry>>(static_cast<size_t>(config_.slots()))),
      timelines_(config_.slots(), config_.keep_timelines ? Timelines::kKeptSequences : 0, this),
      gate_asks_(parts_.scheduler->gate_asks()),
      key_tokens_(static_cast<size_t>(block_size_)) {}

void LiveRequests::Take(PreparedRequest prepared) {
  RequestRecord* request = requests_.Add(std::move(prepared));
  const PreparedRequest& in = request->in;
  if (parts_.tap != nullptr) parts_.tap->Arrival(in);
  const ImportedSequence* const imported = in.imported.get();
  std::vector<BlockId> imported_blocks;
  SequenceSpec migrated;
  if (imported != nullptr) {
    if (parts_.tap != nullptr) parts_.tap->Imported(*imported);
    const SequenceSnapshot& snapshot = imported->snapshot;
    imported_blocks = reservations_.Take(imported->import, (snapshot.computed_tokens + block_size_ - 1) / block_size_);
    migrated.output_tokens = snapshot.generated;
    migrated.kept_tokens = imported_blocks.empty() ? 0 : snapshot.computed_tokens;
    migrated.preemptions = snapshot.preemptions + 1;
  }
  const auto n = static_cast<int32_t>(in.choices.size());
  request->live_choices = request->slots_held = n;
  request->siblings_held = n > 1;
  request->waits_for_kv = MustFetch(in);
  request->line = timelines_.Arrived(in);
  TACTUS_CHECK_MSG(!traits_.has_tokens || in.request->prompt != nullptr,
                   "the executor needs token ids and the request has none");
  for (int32_t choice = 0; choice < n; ++choice) {
    SequenceBuffers& buffers = request->in.choices[static_cast<size_t>(choice)];
    const bool others_ahead = !sequences_.waiting().empty();
    const SlotId s = sequences_.Add({.prompt_tokens = in.prompt_tokens,
                                     .max_output_tokens = in.max_tokens,
                                     .arrival_ns = in.arrival_ns,
                                     .priority = in.request->priority,
                                     .planned = in.request->planned,
                                     .slo = in.request->slo,
                                     .prompt_logprobs = in.request->prompt_logprobs,
                                     .held = choice > 0 || request->waits_for_kv,
                                     .client = in.client,
                                     .service_class = in.service_class,
                                     .output_tokens = migrated.output_tokens,
                                     .kept_tokens = migrated.kept_tokens,
                                     .preemptions = migrated.preemptions},
                                    events_.now_ns());
    buffers.slot = s;
    const bool waits_for_kv = choice == 0 && request->waits_for_kv;
    if (gate_asks_ && choice == 0 && imported == nullptr && !waits_for_kv) arrived_.push_back(in.handle);
    timelines_.SequenceArrived(request->line, s, choice, choice > 0 || waits_for_kv, others_ahead);
    if (waits_for_kv) timelines_.WaitsForDisk(s);
    if (parts_.drafts != nullptr) buffers.drafts.reserve(static_cast<size_t>(config_.max_draft_tokens));
    MakeUpTo(&slots_, static_cast<size_t>(s));
    SlotEntry& entry = slot(s);
    entry = SlotEntry();
    entry.request = request;
    entry.buffers = &buffers;
    entry.prompt = in.request->prompt != nullptr ? in.request->prompt->data() : nullptr;
    entry.prompt_tokens = in.prompt_tokens;
    entry.user = in.user;
    entry.handle = in.handle;
    entry.stop_ids = in.stop_ids.data();
    entry.num_stop_ids = static_cast<int32_t>(in.stop_ids.size());
    entry.max_tokens = in.max_tokens;
    entry.has_stop_strings = buffers.stop.has_value() && parts_.token_bytes;
    entry.choice = choice;
    entry.can_chain = traits_.can_chain && !in.tokens_on_host;
    entry.min_tokens = static_cast<int32_t>(std::min<int64_t>(in.request->stop.min_tokens, in.max_tokens));
    entry.last_token_ns = in.arrival_ns;
    if (in.request->slo.tbt_ns > 0) entry.tbt_slo_ns = in.request->slo.tbt_ns;
    if (in.has_keys) entry.next_key_at = (in.prompt_tokens / block_size_ + 1) * block_size_;
    TACTUS_CHECK(!in.own_keys || (n == 1 && parts_.generated_key && parts_.tap == nullptr));  // a tap records keys
    entry.own_keys = in.own_keys;
    if (imported != nullptr) Restore(s, *imported);
    parts_.kv->Bind(s, in.has_keys ? &buffers.keys : nullptr, in.own_keys ? this : nullptr);
    if (!imported_blocks.empty()) parts_.kv->KeepImported(s, imported_blocks, migrated.kept_tokens);
    if (parts_.predictor != nullptr) BindPredictor(s, *request);
  }
}

bool LiveRequests::MustFetch(const PreparedRequest& in) const {
  const std::vector<Hash128>& keys = in.choices[0].keys;
  const auto stored = static_cast<size_t>(std::max(0, in.stored_blocks));
  if (stored == 0 || in.imported != nullptr || !in.has_keys || stored > keys.size()) return false;
  return parts_.kv->Cached(std::span(keys).first(stored)) < in.stored_blocks;
}

bool LiveRequests::Fetched(const TransferCommand& fetched) {
  RequestRecord* request = requests_.Find(fetched.handle);
  if (request == nullptr || !request->waits_for_kv) return false;
  PreparedRequest& in = request->in;
  const SlotId s = in.choices[0].slot;
  request->waits_for_kv = false;
  if (s == kNoSlot || sequences_.columns().state[s] != SeqState::kHeld) return false;
  std::vector<BlockId> fetched_blocks;
  if (fetched.blocks > 0 && fetched.blocks <= in.stored_blocks && fetched.blocks * block_size_ < in.prompt_tokens)
    fetched_blocks = reservations_.Take(fetched.import, fetched.blocks);
  if (fetched_blocks.empty())
    reservations_.Drop(fetched.import);
  else
    parts_.kv->KeepImported(s, fetched_blocks, fetched.blocks * block_size_);
  in.stored_end = fetched.end;
  timelines_.Unheld(s);
  sequences_.Unhold(s, kNoSlot, events_.now_ns(), static_cast<int32_t>(fetched_blocks.size()) * block_size_);
  if (gate_asks_) arrived_.push_back(in.handle);
  return true;
}

// Restores the state that the sequence had at the other replica.
void LiveRequests::Restore(SlotId s, const ImportedSequence& imported) {
  const SequenceSnapshot& snapshot = imported.snapshot;
  SlotEntry& entry = slot(s);
  RequestRecord* request = entry.request;
  entry.buffers->output.assign(snapshot.output.begin(), snapshot.output.end());
  entry.generated = snapshot.generated;
  entry.started = snapshot.scheduled_ns != 0;
  entry.last_token_ns = snapshot.last_token_ns;
  entry.longest_gap_ns = snapshot.longest_gap_ns;
  entry.longest_gap_end_ns = snapshot.longest_gap_end_ns;
  entry.late_gaps = snapshot.late_gaps;
  request->scheduled_ns = snapshot.scheduled_ns;
  request->first_token_ns = snapshot.first_token_ns;
  request->cached_tokens = snapshot.cached_tokens;
  request->preemptions = snapshot.preemptions;
  request->recomputed_tokens = snapshot.recomputed_tokens;
  if (entry.has_stop_strings) {
    for (const TokenId token : snapshot.output) entry.buffers->stop->Append(parts_.token_bytes(token));
  }
  if (request->in.has_keys) AddImportedKeys(s, imported);
  timelines_.Imported(s, snapshot.first_token_ns, snapshot.preemptions,
                      snapshot.generated > 0 ? entry.prompt_tokens + snapshot.generated - 1 : 0);
  ++counts_.migrated_in;
}

void LiveRequests::AddImportedKeys(SlotId s, const ImportedSequence& imported) {
  SlotEntry& entry = slot(s);
  entry.next_key_at = ((entry.prompt_tokens + entry.generated) / block_size_ + 1) * block_size_;
  if (entry.own_keys) return;
  std::vector<Hash128>& keys = entry.buffers->keys;
  const size_t of_prompt = keys.size();
  if (parts_.generated_key) {
    FillKeys(s);
  } else {
    keys.insert(keys.end(), imported.generated_keys.begin(), imported.generated_keys.end());
  }
  if (parts_.tap == nullptr) return;
  for (size_t i = of_prompt; i < keys.size(); ++i)
    parts_.tap->Key(entry.handle, entry.choice, static_cast<int32_t>(i), keys[i]);
}

SequenceSnapshot LiveRequests::SnapshotOf(SlotId s) const {
  const SlotEntry& entry = slot(s);
  const RequestRecord& request = *entry.request;
  SequenceSnapshot snapshot;
  snapshot.request = request.in.request;
  snapshot.output = entry.buffers->output;
  snapshot.generated = entry.generated;
  snapshot.computed_tokens = sequences_.holds_kv(s) ? sequences_.columns().computed_committed[s] : 0;
  snapshot.arrival_ns = request.in.arrival_ns;
  snapshot.scheduled_ns = request.scheduled_ns;
  snapshot.first_token_ns = request.first_token_ns;
  snapshot.last_token_ns = entry.last_token_ns;
  snapshot.longest_gap_ns = entry.longest_gap_ns;
  snapshot.longest_gap_end_ns = entry.longest_gap_end_ns;
  snapshot.late_gaps = entry.late_gaps;
  snapshot.cached_tokens = request.cached_tokens;
  snapshot.preemptions = request.preemptions;
  snapshot.recomputed_tokens = request.recomputed_tokens + sequences_.recomputed_tokens(s);
  return snapshot;
}

void LiveRequests::BindPredictor(SlotId s, const RequestRecord& request) {
  PredictionFeatures features;
  features.prompt_tokens = request.in.prompt_tokens;
  features.max_output_tokens = request.in.max_tokens;
  features.client = request.in.client;
  features.request = request.in.request.get();
  if (request.in.own_keys && parts_.predictor->learns()) FillKeys(s);
  if (request.in.has_keys) features.prefix_keys = slot(s).buffers->keys;
  parts_.predictor->Bind(s, features);
  if (parts_.tap != nullptr && !parts_.predictor->learns())
    parts_.tap->Predicted(parts_.predictor->PredictOutputTokens(s, 0));
}

void LiveRequests::Cancel(RequestHandle handle) {
  if (parts_.tap != nullptr) parts_.tap->Cancel(handle);
  RequestRecord* request = requests_.Find(handle);
  if (request == nullptr) return;
  End(request, FinishReason::kCancelled, events_.Error(Status(StatusCode::kCancelled, "cancelled")));
}

void LiveRequests::End(RequestRecord* request, FinishReason reason, int32_t error) {
  ++request->slots_held;  // keeps the record alive in the loop
  for (const SequenceBuffers& choice : request->in.choices) {
    if (choice.slot != kNoSlot && sequences_.columns().state[choice.slot] != SeqState::kFinished)
      Finish(choice.slot, reason, nullptr, error);
  }
  if (--request->slots_held == 0) requests_.Release(request);
}

SlotId LiveRequests::NextArrived() {
  while (next_arrived_ < arrived_.size()) {
    const RequestRecord* request = requests_.Find(arrived_[next_arrived_++]);
    if (request == nullptr) continue;  // it has ended
    const SlotId s = request->in.choices[0].slot;
    if (s != kNoSlot && sequences_.columns().state[s] == SeqState::kWaiting && !slot(s).started) return s;
  }
  arrived_.clear();
  next_arrived_ = 0;
  return kNoSlot;
}

void LiveRequests::Answered(SlotId s, const GateAnswer& answer) {
  RequestRecord* request = slot(s).request;
  if (answer.fixed_ns < 0) return;
  request->gate_fixed_ns = answer.fixed_ns;
  request->gate_by_model_ns = answer.by_model_ns;
  request->predicted_ttft_ns =
      answer.fixed_ns + static_cast<DurationNs>(static_cast<double>(answer.by_model_ns) * first_token_ratio_.factor());
  if (!answer.refused) return;
  request->refused = true;
  const auto worst_ns =
      answer.fixed_ns + static_cast<DurationNs>(static_cast<double>(answer.by_model_ns) * first_token_ratio_.high());
  // Refused requests yield no observations, so a correction that refuses all requests would be permanent. Therefore it
  // fades with time, independent of the number of refusals: without first tokens, one observation is dropped per
  // predicted time to first token.
  const bool kept_by_model = answer.fixed_ns + answer.by_model_ns <= request->in.request->slo.ttft_ns;
  const TimeNs now_ns = events_.now_ns();
  ratio_changed_ns_ = std::min(ratio_changed_ns_, now_ns);  // clocks may jump back
  if (kept_by_model && now_ns - ratio_changed_ns_ > answer.fixed_ns + answer.by_model_ns) {
    first_token_ratio_.Forget();
    ratio_changed_ns_ = now_ns;
  }
  const DurationNs objective_ns = request->in.request->slo.ttft_ns;
  const bool only_late_at_worst = request->predicted_ttft_ns <= objective_ns;
  Status why(StatusCode::kResourceExhausted,
             fmt::format("the first token is predicted {}{} after the request came and its objective is {}; try again "
                         "in {}, or allow more time (slo.ttft_ms)",
                         SecondsText(request->predicted_ttft_ns),
                         only_late_at_worst ? fmt::format(", at worst {},", SecondsText(worst_ns)) : "",
                         SecondsText(objective_ns), SecondsText(answer.retry_after_ns)));
  why.set_retry_after_ns(answer.retry_after_ns);
  End(request, FinishReason::kError, events_.Error(why));
}

void LiveRequests::Start(SequenceStart* start, int32_t first_position) {
  const SlotId s = start->slot;
  SlotEntry& entry = slot(s);
  RequestRecord* request = entry.request;
  start->choice = entry.choice;
  start->request = entry.handle;
  start->adapter = request->in.adapter;
  if (traits_.has_tokens)
    start->sampling = SamplingOf(*request->in.request, entry.buffers->output, config_.limits.model_stop_ids);
  if (parts_.drafts != nullptr && !entry.has_drafter) {
    parts_.drafts->Begin(s, *request->in.request, entry.buffers->output);
    entry.has_drafter = true;
  }
  const int32_t recomputed = sequences_.recomputed_tokens(s);
  sequences_.Admit(s, first_position);
  counts_.recomputed_tokens += sequences_.recomputed_tokens(s) - recomputed;
  intake_.SequencesDequeued(1);
  timelines_.Started(s, first_position, entry.generated > 0);
  if (entry.started) return;
  entry.started = true;
  counts_.prompt_tokens += entry.choice == 0 ? entry.prompt_tokens : 0;
  if (request->scheduled_ns != 0) return;
  request->scheduled_ns = events_.now_ns();
  request->cached_tokens = first_position;
  Timelines::Matched(request->line, MatchOf(s, *request, first_position));
  events_.Scheduled(
      {request->in.user, request->in.handle, request->in.arrival_ns, entry.prompt_tokens, first_position});
}

CacheMatch LiveRequests::MatchOf(SlotId s, const RequestRecord& request, int32_t first_position) const {
  const PreparedRequest& in = request.in;
  CacheMatch match;
  match.tokens = first_position;
  match.disk_tokens = parts_.kv->BroughtBack(s) * block_size_;
  const std::vector<Hash128>& keys = in.choices[0].keys;
  const int32_t blocks = first_position / block_size_;
  if (!in.has_keys) {
    match.end = in.request->prompt_logprobs ? CacheEnd::kLogprobs : CacheEnd::kOff;
  } else if (blocks >= (in.prompt_tokens - 1) / block_size_) {
    match.end = CacheEnd::kPrompt;
  } else if (in.stored_end != CacheEnd::kUnknown && blocks <= in.stored_blocks) {
    match.end = in.stored_end;
  } else if (static_cast<size_t>(blocks) < keys.size() && parts_.kv->WasEvicted(keys[static_cast<size_t>(blocks)])) {
    match.end = CacheEnd::kEvicted;
  }
  return match;
}

void LiveRequests::Requeue(SlotId s) {
  timelines_.Preempted(s, sequences_.columns().computed_committed[s]);
  sequences_.Preempt(s, events_.now_ns(), parts_.kv->SwappedTokens(s));
  intake_.SequencesQueued(1);
  ++counts_.preemptions;
  RequestRecord* request = slot(s).request;
  ++request->preemptions;
  ClearForks(*request, s);
}

void LiveRequests::StartAgain(SlotId s) {
  parts_.kv->Release(s, sequences_.last_step(s));
  Requeue(s);
}

Timelines::Running LiveRequests::RunningOf(SlotId s) const {
  const SlotEntry& entry = slot(s);
  return {sequences_.items_in_flight(s) > 0,
          sequences_.planned_last(s),
          entry.last_token_ns,
          entry.longest_gap_ns,
          entry.longest_gap_end_ns,
          entry.generated};
}

void LiveRequests::ClearForks(const RequestRecord& request, SlotId from) {
  for (const SequenceBuffers& choice : request.in.choices) {
    if (choice.slot != kNoSlot && sequences_.columns().fork_from[choice.slot] == from)
      sequences_.ClearFork(choice.slot);
  }
}

void LiveRequests::FirstToken(SlotEntry* slot, DurationNs gap_ns) {
  timelines_.FirstToken(slot->buffers->slot);
  RequestRecord& request = *slot->request;
  if (request.first_token_ns == 0) {
    request.first_token_ns = events_.now_ns();
    const DurationNs after_fixed_ns = events_.now_ns() - request.in.arrival_ns - request.gate_fixed_ns;
    ratio_changed_ns_ = events_.now_ns();
    if (request.gate_fixed_ns >= 0 && request.gate_by_model_ns > 0)
      first_token_ratio_.Observe(std::max<DurationNs>(1, after_fixed_ns), request.gate_by_model_ns);
  }
  events_.FirstGap(gap_ns);
}

void LiveRequests::AddKey(SlotId s) {
  SlotEntry& entry = slot(s);
  entry.next_key_at += block_size_;
  if (entry.own_keys) return;
  SequenceBuffers& buffers = *entry.buffers;
  const auto block = static_cast<int32_t>(buffers.keys.size());
  if (parts_.generated_key) {
    buffers.keys.push_back(parts_.generated_key(entry.handle, entry.choice, block));
  } else {
    for (int32_t i = 0; i < block_size_; ++i) {
      const int32_t p = block * block_size_ + i;
      key_tokens_[static_cast<size_t>(i)] = !traits_.has_tokens ? 0
                                            : p < entry.prompt_tokens
                                                ? entry.prompt[p]
                                                : buffers.output[static_cast<size_t>(p - entry.prompt_tokens)];
    }
    const Hash128& parent = buffers.keys.empty() ? entry.request->in.root_key : buffers.keys.back();
    buffers.keys.push_back(BlockKey(config_.limits.secret, parent, key_tokens_));
  }
  if (parts_.tap != nullptr) parts_.tap->Key(entry.handle, entry.choice, block, buffers.keys.back());
}

void LiveRequests::FillKeys(SlotId s) {
  const SlotEntry& entry = slot(s);
  std::vector<Hash128>& keys = entry.buffers->keys;
  for (int32_t block = static_cast<int32_t>(keys.size()); block < KeysKnown(s); ++block) {
    keys.push_back(parts_.generated_key(entry.handle, entry.choice, block));
  }
}

void LiveRequests::MakeKeys(SlotId s) {
  FillKeys(s);
  slot(s).own_keys = false;
}

void LiveRequests::ReleaseSiblings(RequestRecord* request, SlotId parent) {
  request->siblings_held = false;
  for (const SequenceBuffers& choice : request->in.choices) {
    if (choice.slot != kNoSlot && sequences_.columns().state[choice.slot] == SeqState::kHeld) {
      timelines_.Unheld(choice.slot);
      sequences_.Unhold(choice.slot, parent, events_.now_ns());
    }
  }
}

void LiveRequests::Finish(SlotId s, FinishReason reason, TokenEvent* event, int32_t error) {
  SlotEntry& entry = slot(s);
  RequestRecord* request = entry.request;
  timelines_.Ended(s, reason);
  if (sequences_.holds_kv(s)) {
    parts_.kv->End(s, sequences_.last_step(s));
  } else {
    parts_.kv->DropSwapped(s);
    parts_.kv->Unbind(s);
    intake_.SequencesDequeued(1);
  }
  if (parts_.predictor != nullptr) {
    parts_.predictor->Ended(s, entry.generated, reason != FinishReason::kStop && reason != FinishReason::kLength);
  }
  if (entry.has_drafter) parts_.drafts->End(s);
  request->recomputed_tokens += sequences_.recomputed_tokens(s);
  request->completion_tokens += entry.generated;
  request->longest_gap_ns = std::max(request->longest_gap_ns, entry.longest_gap_ns);
  request->gaps += std::max(0, entry.generated - 1);
  request->late_gaps += entry.late_gaps;
  sequences_.Finish(s);
  if (event == nullptr && events_.wants_tokens()) {
    event = events_.Token();
    event->user = request->in.user;
    event->handle = request->in.handle;
    event->choice = entry.choice;
    event->gap_ns = events_.now_ns() - entry.last_token_ns;
  }
  if (event != nullptr) {
    event->finish = reason;
    event->error = error;
  }
  request->worst = std::max(request->worst, reason);
  if (request->in.choices.size() > 1) {
    ClearForks(*request, s);
    if (request->siblings_held && entry.choice == 0 && reason != FinishReason::kCancelled)
      ReleaseSiblings(request, kNoSlot);
  }
  if (!request->refused) Count(reason);
  if (--request->live_choices == 0) {
    const PreparedRequest& in = request->in;
    events_.Done({in.user, in.handle, in.arrival_ns, request->scheduled_ns, request->first_token_ns, events_.now_ns(),
                  in.prompt_tokens, request->cached_tokens, request->completion_tokens, request->preemptions,
                  request->recomputed_tokens, request->worst, request->longest_gap_ns, request->gaps,
                  request->late_gaps, request->predicted_ttft_ns, request->refused, in.request,
                  timelines_.RequestEnded(request->line, request->worst)});
    requests_.Forget(in.handle);
    intake_.RequestEnded();
  }
  if (sequences_.items_in_flight(s) == 0) FreeSlot(s);
}

void LiveRequests::Count(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      ++counts_.finished_stop;
      break;
    case FinishReason::kLength:
      ++counts_.finished_length;
      break;
    case FinishReason::kCancelled:
      ++counts_.finished_cancelled;
      break;
    case FinishReason::kMigrated:
      ++counts_.migrated_out;
      break;
    default:
      ++counts_.finished_error;
      break;
  }
}

void LiveRequests::FinishAll(FinishReason reason, const Status& why) {
  const int32_t error = events_.Error(why);
  const SequenceColumns& seq = sequences_.columns();
  // Choice 0 releases held siblings when it ends; the loop ends them too, whether still held or waiting.
  for (SlotId s = 0; s < seq.slots; ++s) {
    if (seq.state[s] != SeqState::kFree && seq.state[s] != SeqState::kFinished) Finish(s, reason, nullptr, error);
  }
}

void LiveRequests::DropItem(SlotId s) {
  sequences_.DropItem(s);
  if (sequences_.columns().state[s] == SeqState::kFinished && sequences_.items_in_flight(s) == 0) FreeSlot(s);
}

void LiveRequests::FreeSlot(SlotId s) {
  sequences_.Free(s);
  SlotEntry& entry = slot(s);
  RequestRecord* request = entry.request;
  if (request->in.request->grammar != nullptr) ended_grammars_.push_back(s);
  entry.buffers->slot = kNoSlot;
  entry.request = nullptr;
  entry.buffers = nullptr;
  intake_.SequencesFreed(1);
  if (--request->slots_held == 0) requests_.Release(request);
}

std::string LiveRequests::CheckIntegrity() const {
  if (std::string broken = sequences_.CheckIntegrity(); !broken.empty()) return "sequences: " + broken;
  const SequenceColumns& seq = sequences_.columns();
  for (SlotId s = 0; s < seq.slots; ++s) {
    const int64_t held = parts_.kv->blocks_held(s);
    if (!sequences_.holds_kv(s)) {
      if (held != 0) return "slot " + std::to_string(s) + " holds blocks but does not run";
      const int32_t kept = seq.state[s] == SeqState::kWaiting ? seq.computed_committed[s] : 0;
      if (parts_.kv->SwappedTokens(s) != kept) return "slot " + std::to_string(s) + ": length in host memory is wrong";
      continue;
    }
    if (held * block_size_ < seq.computed_planned[s])
      return "slot " + std::to_string(s) + " computes beyond its blocks";
    const SlotEntry& entry = slot(s);
    const bool all_there = !traits_.has_tokens || static_cast<int32_t>(entry.buffers->output.size()) == entry.generated;
    if (!all_there || entry.generated + seq.prompt_tokens[s] != seq.known_committed[s]) {
      return "slot " + std::to_string(s) + " has another number of tokens than were generated";
    }
  }
  return {};
}

}  // namespace tactus::core
