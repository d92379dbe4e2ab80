// The state of every live sequence, indexed by SlotId. core/seq owns and writes it; the policies of core/sched read it
// in place (never copied, never rebuilt per step), column by column. A row fills two cache lines, because readers use
// many columns of one sequence and rarely the neighbouring rows. Plain data.
//
// Each length exists twice. "Planned" includes the steps in flight, "committed" only confirmed results; they differ
// only while the sequence is in flight.
//   known     tokens that exist: prompt + generated (planned: plus those that steps in flight will sample)
//   computed  leading positions whose K and V are (planned: will be) in the cache
//   goal      tokens known at the last admission: prefill ends, and the first token is sampled, at position goal - 1
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/prefetch.h"
#include "base/units.h"
#include "core/interfaces/draft_source.h"

namespace tactus::core {

enum class SeqState : uint8_t {
  kFree,      // no sequence
  kHeld,      // choice > 0 of a request whose first choice has not computed the prompt yet; hidden from policies
  kWaiting,   // in the queue, holds no KV; also after a preemption (computed > 0: swapped out to host memory)
  kPrefill,   // holds KV, planned computed < goal
  kDecode,    // holds KV, planned computed >= goal
  kFinished,  // its output is complete; the slot stays taken until the last step in flight that uses it has ended
};

enum class FlightState : uint8_t {
  kIdle,       // in no step in flight
  kInFlight,   // in one, and cannot be planned before its result
  kChainable,  // in one or more, and may be planned: the next input token is known or already on the device
};

// Clients without live sequences whose notes are kept.
inline constexpr int32_t kIdleClients = 4096;

// The memory layout of a sequence. The first cache line has the fields that planning a decode reads.
struct alignas(64) SequenceRow {
  SeqState state = SeqState::kFree;
  FlightState flight = FlightState::kIdle;
  bool prompt_logprobs = false;  // every prompt row gets logits
  uint8_t service_class = 0;     // 1 + an index of SchedulerLimits::classes; 0: none
  int32_t prompt_tokens = 0;
  int32_t max_output_tokens = 0;
  int32_t goal_tokens = 0;
  int32_t known_planned = 0;
  int32_t known_committed = 0;
  int32_t computed_planned = 0;
  int32_t preemptions = 0;
  int64_t arrival_order = 0;  // unique, ascending in arrival; choices of a request are consecutive
  Slo slo;

  TimeNs queued_ns = 0;  // when it last entered the queue
  TimeNs arrival_ns = 0;
  int64_t admit_order = 0;  // unique, ascending in (last) admission
  int32_t computed_committed = 0;
  int16_t draft_tokens = 0;  // draft tokens after the last known token, to be verified with it
  DraftChance draft_chance = 0;
  SlotId fork_from = kNoSlot;  // a sequence that has computed the same prompt and still holds it, or kNoSlot
  int32_t priority = 0;        // lower runs first
  ClientId client = 0;         // index of StepView::client_notes
  int32_t in_flight = 0;       // its items in steps in flight
  StepId last_step = 0;        // the last step with an item of it
  uint32_t epoch = 0;          // items planned under an older epoch are stale
  int32_t waiting_index = 0;   // index in the waiting list
};
static_assert(sizeof(SequenceRow) == 128);

// One member of all rows.
template <class T>
class SequenceColumn {
 public:
  SequenceColumn(const SequenceRow* rows, T SequenceRow::* member)
      : first_(rows != nullptr ? &(rows->*member) : nullptr) {}
  const T& operator[](SlotId s) const {
    return *reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(first_) +
                                       static_cast<size_t>(s) * sizeof(SequenceRow));
  }
  bool operator==(const SequenceColumn&) const = default;

 private:
  const T* first_;
};

struct SequenceColumns {  // each [slots]; described in SequenceRow
  int32_t slots = 0;      // those that were ever taken: the rows of the others do not exist yet
  const SequenceRow* rows = nullptr;
  SequenceColumn<SeqState> state{rows, &SequenceRow::state};
  SequenceColumn<FlightState> flight{rows, &SequenceRow::flight};
  SequenceColumn<bool> prompt_logprobs{rows, &SequenceRow::prompt_logprobs};
  SequenceColumn<uint8_t> service_class{rows, &SequenceRow::service_class};
  SequenceColumn<int32_t> prompt_tokens{rows, &SequenceRow::prompt_tokens};
  SequenceColumn<int32_t> max_output_tokens{rows, &SequenceRow::max_output_tokens};
  SequenceColumn<int32_t> goal_tokens{rows, &SequenceRow::goal_tokens};
  SequenceColumn<int32_t> known_planned{rows, &SequenceRow::known_planned};
  SequenceColumn<int32_t> known_committed{rows, &SequenceRow::known_committed};
  SequenceColumn<int32_t> computed_planned{rows, &SequenceRow::computed_planned};
  SequenceColumn<int32_t> preemptions{rows, &SequenceRow::preemptions};
  SequenceColumn<int64_t> arrival_order{rows, &SequenceRow::arrival_order};
  SequenceColumn<Slo> slo{rows, &SequenceRow::slo};
  SequenceColumn<TimeNs> queued_ns{rows, &SequenceRow::queued_ns};
  SequenceColumn<TimeNs> arrival_ns{rows, &SequenceRow::arrival_ns};
  SequenceColumn<int64_t> admit_order{rows, &SequenceRow::admit_order};
  SequenceColumn<int32_t> computed_committed{rows, &SequenceRow::computed_committed};
  SequenceColumn<int16_t> draft_tokens{rows, &SequenceRow::draft_tokens};
  SequenceColumn<DraftChance> draft_chance{rows, &SequenceRow::draft_chance};
  SequenceColumn<SlotId> fork_from{rows, &SequenceRow::fork_from};
  SequenceColumn<int32_t> priority{rows, &SequenceRow::priority};
  SequenceColumn<ClientId> client{rows, &SequenceRow::client};
  const PlannedPlace* planned = nullptr;  // a separate array: only the orders of offline jobs read it

  // Prefetches the row.
  void PrefetchRow(SlotId s) const {
    Prefetch(&state[s]);
    Prefetch(&queued_ns[s]);
  }

  // Tokens that can be planned now: known and not yet (planned to be) computed; 0 when the last token by length is
  // already in flight. Precondition: prefilling or decoding.
  int32_t Pending(SlotId s) const {
    const int32_t output = known_planned[s] - prompt_tokens[s];
    return output >= max_output_tokens[s] ? 0 : known_planned[s] - computed_planned[s];
  }
  bool HoldsKv(SlotId s) const { return state[s] == SeqState::kPrefill || state[s] == SeqState::kDecode; }
  bool Plannable(SlotId s) const { return flight[s] != FlightState::kInFlight; }
};

enum class ChangeKind : uint8_t {
  kQueued,    // entered the queue: arrived, preempted or no longer held
  kUnqueued,  // left the queue without running: cancelled or failed
  kAdmitted,  // left the queue, holds KV
  kFinished,  // had KV, has ended
};

// A state change since the previous plan, in order of time (a slot may be reused in between). A preemption is kQueued
// of a sequence with preemptions > 0.
struct SequenceChange {
  SlotId slot = kNoSlot;
  ChangeKind kind = ChangeKind::kQueued;
};

// One finished step, for policies that use past step times.
struct StepRecord {
  StepId step = -1;
  TimeNs planned_ns = 0;
  TimeNs start_ns = 0;
  TimeNs end_ns = 0;
  DurationNs predicted_ns = 0;  // predicted duration; 0: not known
  int32_t prefill_tokens = 0;
  int32_t decode_tokens = 0;
  int32_t prefill_items = 0;
  int32_t preemptions = 0;
  DurationNs longest_preemption_ns = 0;  // longest time without KV of the sequences restarted in it
  bool ok = true;
  int32_t budget_tokens = 0;  // size limit set by the budget; the largest number: none
};

}  // namespace tactus::core
