// The state of every live sequence as structure-of-arrays, indexed by SlotId: what seq/ owns and writes, and what the
// policies of sched/ read in place (never copied, never rebuilt per step). Plain data.
//
// A sequence has two lengths of each kind. "Planned" counts what steps in flight will have done, "committed" what
// results have confirmed; they differ only while the sequence is in flight.
//   known     tokens that exist: prompt + generated (planned: with those that steps in flight will sample)
//   computed  leading positions whose K and V are (planned: will be) in the cache
//   goal      tokens known when it was last admitted: prefill ends, and the first token is sampled, at position goal -
//   1
#pragma once

#include <cstdint>

#include "base/units.h"

namespace tactus {

enum class SeqState : uint8_t {
  kFree,      // no sequence
  kHeld,      // choice > 0 of a request whose first choice has not computed the prompt yet; no policy sees it
  kWaiting,   // in the queue, holds no KV; a preempted sequence comes back here (computed > 0: swapped out to host
              // memory)
  kPrefill,   // holds KV, planned computed < goal
  kDecode,    // holds KV, planned computed >= goal
  kFinished,  // its answer is complete; the slot is kept until the last step in flight that uses it has ended
};

enum class FlightState : uint8_t {
  kIdle,       // in no step in flight
  kInFlight,   // in one, and cannot be planned until its result is there
  kChainable,  // in one or more, and may be planned: whatever it needs next is known or already on the device
};

// Clients that are remembered beside those that have live sequences.
inline constexpr int32_t kIdleClients = 4096;

struct SequenceColumns {  // each [capacity]
  int32_t capacity = 0;
  const SeqState* state = nullptr;
  const FlightState* flight = nullptr;
  const int32_t* prompt_tokens = nullptr;
  const int32_t* max_output_tokens = nullptr;
  const int32_t* goal_tokens = nullptr;
  const int32_t* known_planned = nullptr;
  const int32_t* known_committed = nullptr;
  const int32_t* computed_planned = nullptr;
  const int32_t* computed_committed = nullptr;
  const uint8_t* prompt_logprobs = nullptr;  // bool: every prompt row gets logits
  const int64_t* arrival_order = nullptr;    // unique, ascending in arrival; choices of a request are neighbours
  const int64_t* admit_order = nullptr;      // unique, ascending in (last) admission
  const TimeNs* arrival_ns = nullptr;
  const TimeNs* queued_ns = nullptr;  // when it last entered the queue
  const int32_t* priority = nullptr;  // lower runs first
  const PlannedPlace* planned = nullptr;
  const Slo* slo = nullptr;
  const int32_t* preemptions = nullptr;
  const int32_t* draft_tokens = nullptr;   // guesses at what follows the last known token, to be verified with it
  const ClientId* client = nullptr;        // index of StepView::client_notes
  const uint8_t* service_class = nullptr;  // 1 + an index of SchedulerLimits::classes; 0: none
  const SlotId* fork_from = nullptr;  // a sequence that has computed the same prompt and still holds it, or kNoSlot

  // Tokens that can be planned now: whatever is known and not yet (planned to be) computed; 0 when the end by length is
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

// Since the previous plan, in the order in which they happened (a slot may be reused in between). A preemption is
// kQueued of a sequence with preemptions > 0.
struct SequenceChange {
  SlotId slot = kNoSlot;
  ChangeKind kind = ChangeKind::kQueued;
};

// One finished step, for policies that look back.
struct StepRecord {
  StepId step = -1;
  TimeNs planned_ns = 0;
  TimeNs start_ns = 0;
  TimeNs end_ns = 0;
  DurationNs predicted_ns = 0;  // how long it was to take; 0: nobody said
  int32_t prefill_tokens = 0;
  int32_t decode_tokens = 0;
  int32_t prefill_items = 0;
  int32_t preemptions = 0;
  DurationNs longest_preemption_ns = 0;  // of the sequences that started again in it: how long they were without KV
  bool ok = true;
};

}  // namespace tactus
