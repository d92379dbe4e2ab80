// The table of live sequences: owns the rows of core/interfaces/sequence_columns.h, the waiting and running lists, the
// change list and the state machine. Every change of a sequence's state is one of the transitions below; each checks
// where it comes from.
//
//   Add -> Held -> Waiting -> Prefill -> Decode -> Finished -> free
//                     ^----------+---------'  (Preempt)
//
// It knows lengths, never tokens, blocks or policies; of what policies note about a sequence it knows the size. Thread
// rule: engine thread only. Nothing here allocates after construction. All operations are O(1) but leaving the running
// list, which is one pass per step (Compact).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/huge_pages.h"
#include "base/units.h"
#include "core/interfaces/sequence_columns.h"
#include "core/interfaces/sequence_notes.h"
#include "core/seq/client_table.h"

namespace tactus::core {

struct SequenceSpec {
  int32_t prompt_tokens = 0;
  int32_t max_output_tokens = 0;
  TimeNs arrival_ns = 0;
  int32_t priority = 0;
  PlannedPlace planned;
  Slo slo;
  bool prompt_logprobs = false;
  bool held = false;
  uint64_t client = 0;        // hash; 0: unknown
  uint8_t service_class = 0;  // SequenceColumns::service_class
  // Of one that has run elsewhere: it comes as a preempted one.
  int32_t output_tokens = 0;  // generated so far
  int32_t kept_tokens = 0;    // leading positions that are in host memory
  int32_t preemptions = 0;
};

class SequenceTable {
 public:
  // `note_bytes`: of each sequence, and of each client, for the policies (NoteLayout::stride).
  explicit SequenceTable(int32_t capacity, size_t note_bytes = 0, size_t client_note_bytes = 0);

  const SequenceColumns& columns() const { return columns_; }
  SequenceNotes notes() { return {notes_.data()->bytes, note_bytes_}; }
  SequenceNotes client_notes() { return clients_.notes(); }
  std::span<const SlotId> waiting() const { return waiting_; }  // in no particular order
  // That those have to compute before they generate: prompts, and what was generated before a preemption.
  int64_t waiting_tokens() const { return waiting_tokens_; }
  std::span<const SlotId> running() const { return running_; }  // in order of admission
  std::span<const SlotId> running_by_arrival() const { return by_arrival_; }
  std::span<const SequenceChange> changes() const { return changes_; }
  void ClearChanges() { changes_.clear(); }
  int32_t free_slots() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_prefilling() const { return num_prefilling_; }
  int32_t num_held() const { return num_held_; }
  bool holds_kv(SlotId s) const { return HoldsKv(At(s)); }

  // Precondition: free_slots() > 0.
  SlotId Add(const SequenceSpec& spec, TimeNs now_ns);
  // Held -> Waiting. `fork_from` still holds the prompt's KV, or kNoSlot; `kept_tokens` as of Add.
  void Unhold(SlotId s, SlotId fork_from, TimeNs now_ns, int32_t kept_tokens = 0);
  void ClearFork(SlotId s) { At(s).fork_from = kNoSlot; }
  // Decode, in no step: so many tokens that may follow are there to be verified, each right with that chance.
  void SetDrafts(SlotId s, int32_t tokens, DraftChance chance) {
    TACTUS_DCHECK(At(s).state == SeqState::kDecode && At(s).flight != FlightState::kChainable && tokens >= 0);
    At(s).draft_tokens = static_cast<int16_t>(tokens);
    At(s).draft_chance = chance;
  }
  // Waiting -> Prefill; positions [0, matched) are there already.
  void Admit(SlotId s, int32_t matched_tokens);
  // `count` more positions, drafts apart, are in step `step`; `samples`: the last of them yields a token. `chainable`:
  // it may be planned again before the result is there; not with drafts.
  void PlanItem(SlotId s, int32_t count, bool samples, StepId step, bool chainable) {
    SequenceRow& r = At(s);
    TACTUS_CHECK(HoldsKv(r) && r.flight != FlightState::kInFlight && count >= 1);
    r.computed_planned += count;
    if (samples) ++r.known_planned;
    TACTUS_DCHECK(r.computed_planned <= r.known_planned);
    if (r.state == SeqState::kPrefill && r.computed_planned >= r.goal_tokens) {
      r.state = SeqState::kDecode;
      --num_prefilling_;
    }
    ++r.in_flight;
    r.last_step = step;
    r.flight = chainable ? FlightState::kChainable : FlightState::kInFlight;
  }
  // An item's result: `accepted` positions are computed, `new_tokens` exist. `accepted_drafts` of both are beyond what
  // was planned.
  void CommitItem(SlotId s, int32_t accepted, int32_t new_tokens, int32_t accepted_drafts = 0) {
    SequenceRow& r = At(s);
    TACTUS_DCHECK(r.in_flight > 0 && accepted >= 0 && new_tokens >= 0 && accepted_drafts >= 0);
    if (accepted_drafts > 0) {
      r.computed_planned += accepted_drafts;
      r.known_planned += accepted_drafts;
    }
    r.computed_committed += accepted;
    r.known_committed += new_tokens;
    TACTUS_DCHECK(r.computed_committed <= r.computed_planned && r.known_committed <= r.known_planned);
    if (--r.in_flight == 0) r.flight = FlightState::kIdle;
  }
  // A step that used the sequence has ended; the item counts for nothing (it was rolled back, preempted or finished
  // since).
  void DropItem(SlotId s);
  // Until Resume it counts as in a step in flight: it is not planned, and keeps its KV.
  void Pause(SlotId s) {
    SequenceRow& r = At(s);
    TACTUS_CHECK(HoldsKv(r) || r.state == SeqState::kWaiting);
    ++r.in_flight;
    r.flight = FlightState::kInFlight;
  }
  void Resume(SlotId s) { DropItem(s); }
  // What is planned beyond the committed lengths is void; items still in flight are stale from here on: drop them.
  void RollBackPlanned(SlotId s);
  // Prefill or Decode -> Waiting, KV gone but for the first `kept_tokens` positions, which are in host memory. Items
  // still in flight are stale from here on: drop them.
  void Preempt(SlotId s, TimeNs now_ns, int32_t kept_tokens = 0);
  // Waiting: what was kept is gone too.
  void LoseKept(SlotId s) {
    TACTUS_CHECK(At(s).state == SeqState::kWaiting);
    At(s).computed_planned = At(s).computed_committed = 0;
  }
  // Any live state -> Finished.
  void Finish(SlotId s);
  // Finished and idle -> free.
  void Free(SlotId s);
  // Removes from the running list whatever no longer runs. Once per pass, after commits, before planning.
  void Compact();

  int32_t items_in_flight(SlotId s) const { return At(s).in_flight; }
  StepId last_step(SlotId s) const { return At(s).in_flight > 0 ? At(s).last_step : -1; }
  StepId planned_last(SlotId s) const { return At(s).last_step; }  // of what was planned at all; in flight or not
  // Items planned under an older epoch are stale.
  uint32_t epoch(SlotId s) const { return At(s).epoch; }
  // Tokens computed again after preemptions, over the sequence's life.
  int32_t recomputed_tokens(SlotId s) const { return recomputed_[s]; }

  // Lists against states, lengths against each other. Empty: all hold.
  std::string CheckIntegrity() const;

 private:
  struct alignas(64) NoteLine {
    std::byte bytes[64];
  };

  SequenceRow& At(SlotId s) { return rows_[static_cast<size_t>(s)]; }
  const SequenceRow& At(SlotId s) const { return rows_[static_cast<size_t>(s)]; }
  static bool HoldsKv(const SequenceRow& r) { return r.state == SeqState::kPrefill || r.state == SeqState::kDecode; }
  void Enqueue(SlotId s, TimeNs now_ns);
  void Dequeue(SlotId s);
  void LeaveRunning(SlotId s);

  HugePageVector<SequenceRow> rows_;  // [capacity]
  SequenceColumns columns_;
  std::vector<PlannedPlace> planned_;  // [capacity]
  std::vector<int32_t> recomputed_;    // [capacity]
  std::vector<int32_t> lost_;          // [capacity] tokens whose KV it lost and has not got back
  size_t note_bytes_;
  HugePageVector<NoteLine> notes_;  // [capacity] blocks of note_bytes_
  ClientTable clients_;

  std::vector<SlotId> free_, waiting_, running_, by_arrival_;
  std::vector<SequenceChange> changes_;
  int64_t next_arrival_ = 0, next_admit_ = 0, waiting_tokens_ = 0;
  int32_t num_prefilling_ = 0, num_held_ = 0;
  bool running_dirty_ = false;
};

}  // namespace tactus::core
