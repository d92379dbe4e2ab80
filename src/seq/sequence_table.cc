#include "seq/sequence_table.h"

#include <algorithm>

#include "base/check.h"

namespace tactus {

SequenceTable::SequenceTable(int32_t capacity, size_t note_bytes, size_t client_note_bytes)
    : note_bytes_(note_bytes), clients_(std::max(1, capacity), kIdleClients, client_note_bytes) {
  TACTUS_CHECK(capacity >= 1);
  const auto n = static_cast<size_t>(capacity);
  state_.assign(n, SeqState::kFree);
  flight_.assign(n, FlightState::kIdle);
  for (auto* column : {&prompt_tokens_, &max_output_tokens_, &goal_tokens_, &known_planned_, &known_committed_,
                       &computed_planned_, &computed_committed_, &priority_, &preemptions_, &draft_tokens_, &in_flight_,
                       &recomputed_, &lost_, &waiting_index_}) {
    column->assign(n, 0);
  }
  prompt_logprobs_.assign(n, 0);
  for (auto* column : {&arrival_order_, &admit_order_, &arrival_ns_, &queued_ns_, &last_step_}) column->assign(n, 0);
  planned_.assign(n, PlannedPlace());
  slo_.assign(n, Slo());
  fork_from_.assign(n, kNoSlot);
  notes_.assign(n * note_bytes_, std::byte{0});
  epoch_.assign(n, 0);
  client_.assign(n, 0);
  service_class_.assign(n, 0);
  for (auto* list : {&free_, &waiting_, &running_, &by_arrival_}) list->reserve(n);
  changes_.reserve(4 * n);
  for (SlotId s = capacity - 1; s >= 0; --s) free_.push_back(s);  // the lowest slot goes out first

  columns_.capacity = capacity;
  columns_.state = state_.data();
  columns_.flight = flight_.data();
  columns_.prompt_tokens = prompt_tokens_.data();
  columns_.max_output_tokens = max_output_tokens_.data();
  columns_.goal_tokens = goal_tokens_.data();
  columns_.known_planned = known_planned_.data();
  columns_.known_committed = known_committed_.data();
  columns_.computed_planned = computed_planned_.data();
  columns_.computed_committed = computed_committed_.data();
  columns_.prompt_logprobs = prompt_logprobs_.data();
  columns_.arrival_order = arrival_order_.data();
  columns_.admit_order = admit_order_.data();
  columns_.arrival_ns = arrival_ns_.data();
  columns_.queued_ns = queued_ns_.data();
  columns_.priority = priority_.data();
  columns_.planned = planned_.data();
  columns_.slo = slo_.data();
  columns_.preemptions = preemptions_.data();
  columns_.draft_tokens = draft_tokens_.data();
  columns_.client = client_.data();
  columns_.service_class = service_class_.data();
  columns_.fork_from = fork_from_.data();
}

SlotId SequenceTable::Add(const SequenceSpec& spec, TimeNs now_ns) {
  TACTUS_CHECK(!free_.empty() && spec.prompt_tokens >= 1 && spec.max_output_tokens >= 1);
  const SlotId s = free_.back();
  free_.pop_back();
  TACTUS_CHECK(state_[s] == SeqState::kFree && in_flight_[s] == 0);
  flight_[s] = FlightState::kIdle;
  prompt_tokens_[s] = goal_tokens_[s] = known_planned_[s] = known_committed_[s] = spec.prompt_tokens;
  max_output_tokens_[s] = spec.max_output_tokens;
  computed_planned_[s] = computed_committed_[s] = 0;
  prompt_logprobs_[s] = spec.prompt_logprobs ? 1 : 0;
  arrival_order_[s] = next_arrival_++;
  admit_order_[s] = -1;
  arrival_ns_[s] = spec.arrival_ns;
  priority_[s] = spec.priority;
  planned_[s] = spec.planned;
  slo_[s] = spec.slo;
  client_[s] = clients_.Acquire(spec.client);
  service_class_[s] = spec.service_class;
  preemptions_[s] = recomputed_[s] = lost_[s] = draft_tokens_[s] = 0;
  fork_from_[s] = kNoSlot;
  std::fill_n(notes_.begin() + static_cast<ptrdiff_t>(s * note_bytes_), note_bytes_, std::byte{0});
  ++epoch_[s];
  if (spec.held) {
    state_[s] = SeqState::kHeld;
    ++num_held_;
    queued_ns_[s] = now_ns;
  } else {
    Enqueue(s, now_ns);
  }
  return s;
}

void SequenceTable::Unhold(SlotId s, SlotId fork_from, TimeNs now_ns) {
  TACTUS_CHECK(state_[s] == SeqState::kHeld);
  fork_from_[s] = fork_from;
  --num_held_;
  Enqueue(s, now_ns);
}

void SequenceTable::Admit(SlotId s, int32_t matched_tokens) {
  TACTUS_CHECK(state_[s] == SeqState::kWaiting && flight_[s] == FlightState::kIdle);
  TACTUS_CHECK(matched_tokens >= 0 && matched_tokens < known_committed_[s]);
  Dequeue(s);
  state_[s] = SeqState::kPrefill;
  goal_tokens_[s] = known_committed_[s];
  computed_planned_[s] = computed_committed_[s] = matched_tokens;
  recomputed_[s] += std::max(0, lost_[s] - matched_tokens);
  lost_[s] = 0;
  admit_order_[s] = next_admit_++;
  ++num_prefilling_;
  running_.push_back(s);
  auto at = by_arrival_.end();  // nearly always the newest
  while (at != by_arrival_.begin() && arrival_order_[*(at - 1)] > arrival_order_[s]) --at;
  by_arrival_.insert(at, s);
  changes_.push_back({s, ChangeKind::kAdmitted});
}

void SequenceTable::DropItem(SlotId s) {
  TACTUS_CHECK(in_flight_[s] > 0);
  if (--in_flight_[s] == 0) flight_[s] = FlightState::kIdle;
}

void SequenceTable::RollBackPlanned(SlotId s) {
  TACTUS_CHECK(holds_kv(s));
  known_planned_[s] = known_committed_[s];
  computed_planned_[s] = computed_committed_[s];
  if (state_[s] == SeqState::kDecode && computed_planned_[s] < goal_tokens_[s]) {
    state_[s] = SeqState::kPrefill;
    ++num_prefilling_;
  }
  flight_[s] = in_flight_[s] > 0 ? FlightState::kInFlight : FlightState::kIdle;
  ++epoch_[s];
}

void SequenceTable::Preempt(SlotId s, TimeNs now_ns, int32_t kept_tokens) {
  TACTUS_CHECK(holds_kv(s) && kept_tokens >= 0 && kept_tokens <= computed_committed_[s]);
  LeaveRunning(s);
  lost_[s] = computed_committed_[s];
  known_planned_[s] = goal_tokens_[s] = known_committed_[s];
  computed_planned_[s] = computed_committed_[s] = kept_tokens;
  fork_from_[s] = kNoSlot;
  draft_tokens_[s] = 0;
  ++preemptions_[s];
  ++epoch_[s];
  flight_[s] = in_flight_[s] > 0 ? FlightState::kInFlight : FlightState::kIdle;
  Enqueue(s, now_ns);
}

void SequenceTable::Finish(SlotId s) {
  const SeqState from = state_[s];
  TACTUS_CHECK(from != SeqState::kFree && from != SeqState::kFinished);
  if (from == SeqState::kWaiting) {
    Dequeue(s);
    changes_.push_back({s, ChangeKind::kUnqueued});
  } else if (holds_kv(s)) {
    LeaveRunning(s);
    changes_.push_back({s, ChangeKind::kFinished});
  } else {
    --num_held_;
  }
  state_[s] = SeqState::kFinished;
  ++epoch_[s];
  fork_from_[s] = kNoSlot;
}

void SequenceTable::Free(SlotId s) {
  TACTUS_CHECK(state_[s] == SeqState::kFinished && in_flight_[s] == 0);
  state_[s] = SeqState::kFree;
  clients_.Release(client_[s]);
  free_.push_back(s);
  // Until Compact a freed slot may still be in the running lists; it must not be handed out before.
}

void SequenceTable::Compact() {
  if (!running_dirty_) return;
  const auto gone = [this](SlotId s) { return !holds_kv(s); };
  running_.erase(std::remove_if(running_.begin(), running_.end(), gone), running_.end());
  by_arrival_.erase(std::remove_if(by_arrival_.begin(), by_arrival_.end(), gone), by_arrival_.end());
  running_dirty_ = false;
}

void SequenceTable::Enqueue(SlotId s, TimeNs now_ns) {
  state_[s] = SeqState::kWaiting;
  queued_ns_[s] = now_ns;
  waiting_index_[s] = static_cast<int32_t>(waiting_.size());
  waiting_.push_back(s);
  changes_.push_back({s, ChangeKind::kQueued});
}

void SequenceTable::Dequeue(SlotId s) {
  const int32_t index = waiting_index_[s];
  waiting_[index] = waiting_.back();
  waiting_index_[waiting_[index]] = index;
  waiting_.pop_back();
}

void SequenceTable::LeaveRunning(SlotId s) {
  if (state_[s] == SeqState::kPrefill) --num_prefilling_;
  running_dirty_ = true;
}

std::string SequenceTable::CheckIntegrity() const {
  const auto fail = [](SlotId s, const char* what) { return "slot " + std::to_string(s) + ": " + what; };
  size_t waiting = 0, running = 0, unused = 0;
  int32_t prefilling = 0, held = 0;
  for (SlotId s = 0; s < columns_.capacity; ++s) {
    if (in_flight_[s] < 0) return fail(s, "negative items in flight");
    if ((flight_[s] == FlightState::kIdle) != (in_flight_[s] == 0)) return fail(s, "flight state against item count");
    switch (state_[s]) {
      case SeqState::kFree:
        ++unused;
        if (in_flight_[s] != 0) return fail(s, "free but in flight");
        continue;
      case SeqState::kWaiting:
        ++waiting;
        if (waiting_[waiting_index_[s]] != s) return fail(s, "not at its place in the waiting list");
        break;
      case SeqState::kPrefill:
        ++prefilling;
        [[fallthrough]];
      case SeqState::kDecode:
        ++running;
        if ((computed_planned_[s] < goal_tokens_[s]) != (state_[s] == SeqState::kPrefill)) {
          return fail(s, "prefill against planned length");
        }
        break;
      case SeqState::kHeld:
        ++held;
        break;
      case SeqState::kFinished:
        break;
    }
    if (computed_committed_[s] > computed_planned_[s] || known_committed_[s] > known_planned_[s]) {
      return fail(s, "committed beyond planned");
    }
    if (computed_planned_[s] > known_planned_[s]) return fail(s, "computed more than is known");
    if (draft_tokens_[s] != 0 && state_[s] != SeqState::kDecode && state_[s] != SeqState::kFinished)
      return fail(s, "drafts of a sequence that does not decode");
    if (known_planned_[s] - prompt_tokens_[s] > max_output_tokens_[s]) return fail(s, "more output than allowed");
  }
  if (waiting != waiting_.size()) return "waiting list has the wrong size";
  if (unused != free_.size()) return "free list has the wrong size";
  if (held != num_held_) return "count of held sequences is off";
  if (prefilling != num_prefilling_) return "count of prefilling sequences is off";
  if (!running_dirty_) {
    if (running != running_.size() || running != by_arrival_.size()) return "running list has the wrong size";
    for (size_t i = 1; i < running_.size(); ++i) {
      if (admit_order_[running_[i - 1]] >= admit_order_[running_[i]]) return "running list out of order";
      if (arrival_order_[by_arrival_[i - 1]] >= arrival_order_[by_arrival_[i]]) return "arrival list out of order";
    }
  }
  return {};
}

}  // namespace tactus
