#include "core/seq/sequence_table.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/growing_vector.h"

namespace tactus::core {

SequenceTable::SequenceTable(int32_t capacity, size_t note_bytes, size_t client_note_bytes, bool lean)
    : free_(static_cast<size_t>(std::max(1, capacity))),
      rows_(RoomFor<HugePageVector<SequenceRow>>(free_.count(), lean)),
      planned_(RoomFor<std::vector<PlannedPlace>>(free_.count())),
      recomputed_(RoomFor<std::vector<int32_t>>(free_.count())),
      lost_(RoomFor<std::vector<int32_t>>(free_.count())),
      notes_(RoomFor<HugePageVector<NoteLine>>(NoteLines(free_.count(), note_bytes), lean)),
      note_bytes_(note_bytes),
      columns_{0, rows_.data()},
      clients_(std::max(1, capacity), kIdleClients, client_note_bytes) {
  TACTUS_CHECK(capacity >= 1);
  columns_.planned = planned_.data();
  for (auto* list : {&waiting_, &running_, &by_arrival_}) list->reserve(free_.count());
  changes_.reserve(4 * free_.count());
}

void SequenceTable::MakeRow(SlotId s) {
  const auto at = static_cast<size_t>(s);
  if (at < rows_.size()) return;
  MakeUpTo(&rows_, at);
  columns_.slots = s + 1;
  MakeUpTo(&planned_, at);
  MakeUpTo(&recomputed_, at);
  MakeUpTo(&lost_, at);
  MakeUpTo(&notes_, NoteLines(at + 1, note_bytes_) - 1);
}

SlotId SequenceTable::Add(const SequenceSpec& spec, TimeNs now_ns) {
  TACTUS_CHECK(!free_.empty() && spec.prompt_tokens >= 1 && spec.max_output_tokens >= 1);
  const SlotId s = free_.Take();
  MakeRow(s);
  SequenceRow& r = At(s);
  TACTUS_CHECK(r.state == SeqState::kFree && r.in_flight == 0);
  const uint32_t epoch = r.epoch + 1;
  const StepId last_step = r.last_step;
  r = SequenceRow();
  r.epoch = epoch;
  r.last_step = last_step;
  TACTUS_CHECK(spec.output_tokens < spec.max_output_tokens &&
               spec.kept_tokens < spec.prompt_tokens + spec.output_tokens);
  r.prompt_tokens = spec.prompt_tokens;
  r.goal_tokens = r.known_planned = r.known_committed = spec.prompt_tokens + spec.output_tokens;
  r.computed_planned = r.computed_committed = spec.kept_tokens;
  r.preemptions = spec.preemptions;
  r.max_output_tokens = spec.max_output_tokens;
  r.prompt_logprobs = spec.prompt_logprobs;
  r.arrival_order = next_arrival_++;
  r.admit_order = -1;
  r.arrival_ns = spec.arrival_ns;
  r.priority = spec.priority;
  r.slo = spec.slo;
  r.client = clients_.Acquire(spec.client);
  r.service_class = spec.service_class;
  planned_[s] = spec.planned;
  recomputed_[s] = lost_[s] = 0;
  std::memset(notes_.data()->bytes + static_cast<size_t>(s) * note_bytes_, 0, note_bytes_);
  if (spec.held) {
    r.state = SeqState::kHeld;
    ++num_held_;
    r.queued_ns = now_ns;
  } else {
    Enqueue(s, now_ns);
  }
  return s;
}

void SequenceTable::Unhold(SlotId s, SlotId fork_from, TimeNs now_ns, int32_t kept_tokens) {
  TACTUS_CHECK(At(s).state == SeqState::kHeld && kept_tokens < At(s).known_committed);
  At(s).fork_from = fork_from;
  At(s).computed_planned = At(s).computed_committed = kept_tokens;
  --num_held_;
  Enqueue(s, now_ns);
}

void SequenceTable::Admit(SlotId s, int32_t matched_tokens) {
  SequenceRow& r = At(s);
  TACTUS_CHECK(r.state == SeqState::kWaiting && r.flight == FlightState::kIdle);
  TACTUS_CHECK(matched_tokens >= 0 && matched_tokens < r.known_committed);
  Dequeue(s);
  r.state = SeqState::kPrefill;
  r.goal_tokens = r.known_committed;
  r.computed_planned = r.computed_committed = matched_tokens;
  recomputed_[s] += std::max(0, lost_[s] - matched_tokens);
  lost_[s] = 0;
  r.admit_order = next_admit_++;
  ++num_prefilling_;
  running_.push_back(s);
  auto at = by_arrival_.end();  // it nearly always belongs at the end
  while (at != by_arrival_.begin() && At(*(at - 1)).arrival_order > r.arrival_order) --at;
  by_arrival_.insert(at, s);
  changes_.push_back({s, ChangeKind::kAdmitted});
}

void SequenceTable::DropItem(SlotId s) {
  TACTUS_CHECK(At(s).in_flight > 0);
  if (--At(s).in_flight == 0) At(s).flight = FlightState::kIdle;
}

void SequenceTable::RollBackPlanned(SlotId s) {
  SequenceRow& r = At(s);
  TACTUS_CHECK(holds_kv(s));
  r.known_planned = r.known_committed;
  r.computed_planned = r.computed_committed;
  if (r.state == SeqState::kDecode && r.computed_planned < r.goal_tokens) {
    r.state = SeqState::kPrefill;
    ++num_prefilling_;
  }
  r.flight = r.in_flight > 0 ? FlightState::kInFlight : FlightState::kIdle;
  ++r.epoch;
}

void SequenceTable::Preempt(SlotId s, TimeNs now_ns, int32_t kept_tokens) {
  SequenceRow& r = At(s);
  TACTUS_CHECK(holds_kv(s) && kept_tokens >= 0 && kept_tokens <= r.computed_committed);
  LeaveRunning(s);
  lost_[s] = r.computed_committed;
  r.known_planned = r.goal_tokens = r.known_committed;
  r.computed_planned = r.computed_committed = kept_tokens;
  r.fork_from = kNoSlot;
  r.draft_tokens = 0;
  ++r.preemptions;
  ++r.epoch;
  r.flight = r.in_flight > 0 ? FlightState::kInFlight : FlightState::kIdle;
  Enqueue(s, now_ns);
}

void SequenceTable::Finish(SlotId s) {
  SequenceRow& r = At(s);
  const SeqState from = r.state;
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
  r.state = SeqState::kFinished;
  ++r.epoch;
  r.fork_from = kNoSlot;
}

void SequenceTable::Free(SlotId s) {
  SequenceRow& r = At(s);
  TACTUS_CHECK(r.state == SeqState::kFinished && r.in_flight == 0);
  r.state = SeqState::kFree;
  clients_.Release(r.client);
  free_.Return(s);
  // Until Compact a freed slot may still be in the running lists; it must not be reused before.
}

void SequenceTable::Compact() {
  if (!running_dirty_) return;
  const auto gone = [this](SlotId s) { return !holds_kv(s); };
  running_.erase(std::remove_if(running_.begin(), running_.end(), gone), running_.end());
  by_arrival_.erase(std::remove_if(by_arrival_.begin(), by_arrival_.end(), gone), by_arrival_.end());
  running_dirty_ = false;
}

void SequenceTable::Enqueue(SlotId s, TimeNs now_ns) {
  At(s).state = SeqState::kWaiting;
  At(s).queued_ns = now_ns;
  At(s).waiting_index = static_cast<int32_t>(waiting_.size());
  waiting_.push_back(s);
  waiting_tokens_ += At(s).goal_tokens;
  changes_.push_back({s, ChangeKind::kQueued});
}

void SequenceTable::Dequeue(SlotId s) {
  const int32_t index = At(s).waiting_index;
  waiting_[index] = waiting_.back();
  At(waiting_[index]).waiting_index = index;
  waiting_.pop_back();
  waiting_tokens_ -= At(s).goal_tokens;
}

void SequenceTable::LeaveRunning(SlotId s) {
  if (At(s).state == SeqState::kPrefill) --num_prefilling_;
  running_dirty_ = true;
}

std::string SequenceTable::CheckIntegrity() const {
  const auto fail = [](SlotId s, const char* what) { return "slot " + std::to_string(s) + ": " + what; };
  size_t waiting = 0, running = 0, unused = 0;
  int64_t waiting_tokens = 0;
  int32_t prefilling = 0, held = 0;
  for (SlotId s = 0; s < columns_.slots; ++s) {
    const SequenceRow& r = At(s);
    if (r.in_flight < 0) return fail(s, "negative items in flight");
    if ((r.flight == FlightState::kIdle) != (r.in_flight == 0))
      return fail(s, "flight state does not match the item count");
    switch (r.state) {
      case SeqState::kFree:
        ++unused;
        if (r.in_flight != 0) return fail(s, "free but in flight");
        continue;
      case SeqState::kWaiting:
        ++waiting;
        waiting_tokens += r.known_committed;
        if (waiting_[r.waiting_index] != s) return fail(s, "not at its place in the waiting list");
        break;
      case SeqState::kPrefill:
        ++prefilling;
        [[fallthrough]];
      case SeqState::kDecode:
        ++running;
        if ((r.computed_planned < r.goal_tokens) != (r.state == SeqState::kPrefill)) {
          return fail(s, "state does not match the planned length");
        }
        break;
      case SeqState::kHeld:
        ++held;
        break;
      case SeqState::kFinished:
        break;
    }
    if (r.computed_committed > r.computed_planned || r.known_committed > r.known_planned) {
      return fail(s, "committed beyond planned");
    }
    if (r.computed_planned > r.known_planned) return fail(s, "computed more than is known");
    if (r.draft_tokens != 0 && r.state != SeqState::kDecode && r.state != SeqState::kFinished)
      return fail(s, "drafts of a sequence that does not decode");
    if (r.known_planned - r.prompt_tokens > r.max_output_tokens) return fail(s, "more output than allowed");
  }
  if (waiting != waiting_.size()) return "waiting list has the wrong size";
  if (waiting_tokens != waiting_tokens_) return "count of waiting tokens is off";
  if (unused != free_.returned().size() || rows_.size() != free_.taken()) return "free list has the wrong size";
  if (held != num_held_) return "count of held sequences is off";
  if (prefilling != num_prefilling_) return "count of prefilling sequences is off";
  if (!running_dirty_) {
    if (running != running_.size() || running != by_arrival_.size()) return "running list has the wrong size";
    for (size_t i = 1; i < running_.size(); ++i) {
      if (At(running_[i - 1]).admit_order >= At(running_[i]).admit_order) return "running list out of order";
      if (At(by_arrival_[i - 1]).arrival_order >= At(by_arrival_[i]).arrival_order) return "arrival list out of order";
    }
  }
  return {};
}

}  // namespace tactus::core
