// The table of live sequences: owns the rows of core/interfaces/sequence_columns.h, the waiting and running lists, the
// change list and the state machine. Every state change is one of the transitions below; each checks the state before
// it.
//
//   Add -> Held -> Waiting -> Prefill -> Decode -> Finished -> free
//                     ^----------+---------'  (Preempt)
//
// The table has lengths, never tokens, blocks or policies; of the policies' notes it has the size. Thread rule: engine
// thread only. Nothing here allocates after construction. All operations are O(1), except the removal from the running
// list: one pass per step (Compact).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/free_ids.h"
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
  // For a sequence that ran at another replica; it enters like a preempted one.
  int32_t output_tokens = 0;  // generated so far
  int32_t kept_tokens = 0;    // leading positions saved in host memory
  int32_t preemptions = 0;
};

class SequenceTable {
 public:
  // `note_bytes`, `client_note_bytes`: per sequence and per client, for the policies' notes (NoteLayout::stride).
  // `lean`: as in KvCacheConfig.
  explicit SequenceTable(int32_t capacity, size_t note_bytes = 0, size_t client_note_bytes = 0, bool lean = false);

  const SequenceColumns& columns() const { return columns_; }
  SequenceNotes notes() { return {notes_.data()->bytes, note_bytes_}; }
  SequenceNotes client_notes() { return clients_.notes(); }
  std::span<const SlotId> waiting() const { return waiting_; }  // in no particular order
  // Tokens that the waiting sequences compute before they generate: prompts, and output from before a preemption.
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
  // Held -> Waiting. `fork_from`: a slot that still holds the prompt's KV, or kNoSlot; `kept_tokens` as in
  // SequenceSpec.
  void Unhold(SlotId s, SlotId fork_from, TimeNs now_ns, int32_t kept_tokens = 0);
  void ClearFork(SlotId s) { At(s).fork_from = kNoSlot; }
  // Decode, not chainable: sets the number of draft tokens to verify, and the chance of each to be right.
  void SetDrafts(SlotId s, int32_t tokens, DraftChance chance) {
    TACTUS_DCHECK(At(s).state == SeqState::kDecode && At(s).flight != FlightState::kChainable && tokens >= 0);
    At(s).draft_tokens = static_cast<int16_t>(tokens);
    At(s).draft_chance = chance;
  }
  // Waiting -> Prefill; positions [0, matched_tokens) are in the cache already.
  void Admit(SlotId s, int32_t matched_tokens);
  // Step `step` computes `count` more positions, not counting drafts. `samples`: the last of them yields a token.
  // `chainable`: the sequence may be planned again before the result; not with drafts.
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
  // An item's result: `accepted` positions are computed and `new_tokens` tokens were sampled. `accepted_drafts` of both
  // are beyond what was planned.
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
  // A step with an item of the sequence has ended; its result is ignored (the sequence was rolled back, preempted or
  // finished since).
  void DropItem(SlotId s);
  // Until Resume the sequence counts as in flight: it is not planned, and keeps its KV.
  void Pause(SlotId s) {
    SequenceRow& r = At(s);
    TACTUS_CHECK(HoldsKv(r) || r.state == SeqState::kWaiting);
    ++r.in_flight;
    r.flight = FlightState::kInFlight;
  }
  void Resume(SlotId s) { DropItem(s); }
  // Resets the planned lengths to the committed ones. Items still in flight become stale: the caller drops them.
  void RollBackPlanned(SlotId s);
  // Prefill or Decode -> Waiting, KV released but for the first `kept_tokens` positions, which are in host memory.
  // Items still in flight become stale: the caller drops them.
  void Preempt(SlotId s, TimeNs now_ns, int32_t kept_tokens = 0);
  // Waiting: the KV kept in host memory is lost too.
  void LoseKept(SlotId s) {
    TACTUS_CHECK(At(s).state == SeqState::kWaiting);
    At(s).computed_planned = At(s).computed_committed = 0;
  }
  // Any live state -> Finished.
  void Finish(SlotId s);
  // Finished and idle -> free.
  void Free(SlotId s);
  // Removes sequences that no longer hold KV from the running list. Once per pass, after commits, before planning.
  void Compact();

  int32_t items_in_flight(SlotId s) const { return At(s).in_flight; }
  StepId last_step(SlotId s) const { return At(s).in_flight > 0 ? At(s).last_step : -1; }
  StepId planned_last(SlotId s) const { return At(s).last_step; }  // the last step with an item of it, in flight or not
  // Items planned under an older epoch are stale.
  uint32_t epoch(SlotId s) const { return At(s).epoch; }
  // Tokens computed again after preemptions, over the sequence's life.
  int32_t recomputed_tokens(SlotId s) const { return recomputed_[s]; }

  // Compares lists with states and lengths with each other. Empty: consistent; else the first error.
  std::string CheckIntegrity() const;

 private:
  struct alignas(64) NoteLine {
    std::byte bytes[64];
  };

  // Lines of the notes of `slots` slots, and one more: a reader may prefetch behind the last.
  static size_t NoteLines(size_t slots, size_t note_bytes) {
    return (slots * note_bytes + sizeof(NoteLine) - 1) / sizeof(NoteLine) + 1;
  }
  SequenceRow& At(SlotId s) { return rows_[static_cast<size_t>(s)]; }
  const SequenceRow& At(SlotId s) const { return rows_[static_cast<size_t>(s)]; }
  static bool HoldsKv(const SequenceRow& r) { return r.state == SeqState::kPrefill || r.state == SeqState::kDecode; }
  void MakeRow(SlotId s);
  void Enqueue(SlotId s, TimeNs now_ns);
  void Dequeue(SlotId s);
  void LeaveRunning(SlotId s);

  FreeIds free_;
  // These have room for all slots, and elements up to the highest slot that was ever taken.
  HugePageVector<SequenceRow> rows_;
  std::vector<PlannedPlace> planned_;
  std::vector<int32_t> recomputed_;
  std::vector<int32_t> lost_;       // tokens whose KV was lost in the last preemption and not restored since
  HugePageVector<NoteLine> notes_;  // blocks of note_bytes_
  size_t note_bytes_;
  SequenceColumns columns_;
  ClientTable clients_;

  std::vector<SlotId> waiting_, running_, by_arrival_;
  std::vector<SequenceChange> changes_;
  int64_t next_arrival_ = 0, next_admit_ = 0, waiting_tokens_ = 0;
  int32_t num_prefilling_ = 0, num_held_ = 0;
  bool running_dirty_ = false;
};

}  // namespace tactus::core
