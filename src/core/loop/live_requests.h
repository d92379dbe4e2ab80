// The accepted requests, from arrival to the end of the last sequence: their data, the state of their sequences, and
// every way in which a sequence starts, releases its KV or ends. The three tables (lengths, requests, slots) and the KV
// cache change together here, so that they stay consistent.
//
// Invariants: an accepted request gets exactly one RequestDoneEvent; a sequence's KV is released once, at its end.
// Thread rule: engine thread only. Nothing allocates while no sequence arrives, starts or ends.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/loop/import_reservations.h"
#include "core/loop/measured_ratio.h"
#include "core/loop/pass_events.h"
#include "core/loop/request_table.h"
#include "core/loop/step_loop.h"
#include "core/loop/timelines.h"
#include "core/seq/sequence_table.h"

namespace tactus::core {

// Counters since the start.
struct SequenceCounts {
  int64_t prompt_tokens = 0, generation_tokens = 0;
  int64_t preemptions = 0, recomputed_tokens = 0;
  int64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  int64_t migrated_in = 0, migrated_out = 0;
  std::array<DraftCounts, kDraftKindNames.size()> drafts;  // by DraftKind
};

class LiveRequests : private OwnKeys, private Timelines::Sequences {
 public:
  // All arguments outlive it.
  LiveRequests(const LoopContext& context, Intake* intake, PassEvents* events, ImportReservations* reservations);

  void Take(PreparedRequest request);
  const RequestRecord* Find(RequestHandle handle) const { return requests_.Find(handle); }  // null: ended
  // The state of a single-choice request's sequence. Precondition: it is in no step in flight.
  SequenceSnapshot SnapshotOf(SlotId s) const;
  // The first choice of the oldest waiting request that the scheduler's gate has not judged; kNoSlot: none. Returns
  // each request once.
  SlotId NextArrived();
  // Applies the gate's answer for such a request. A refused request ends with all its choices.
  void Answered(SlotId s, const GateAnswer& answer);
  // Measured / predicted time to first token of the gate.
  const MeasuredRatio& first_token_ratio() const { return first_token_ratio_; }
  // Whether the request waits for KV from the disk.
  bool WaitsForKv(RequestHandle handle) const {
    const RequestRecord* request = requests_.Find(handle);
    return request != nullptr && request->waits_for_kv;
  }
  // The KV that the request waits for has been read: the first `blocks` blocks of its prompt, in host blocks of
  // `import`. False: the request does not wait.
  bool Fetched(const TransferCommand& fetched);
  void Cancel(RequestHandle handle);  // unknown or ended: no effect
  // The current plan starts the sequence, with positions [0, first_position) in the cache already. Fills in *start.
  void Start(SequenceStart* start, int32_t first_position);
  // Puts a sequence whose KV was released or swapped out back into the queue.
  void Requeue(SlotId s);
  // Releases the sequence's void KV, then Requeue.
  void StartAgain(SlotId s);
  // Ends a sequence in any state. `event`: that of its last token, which gets the reason; null: an event is added.
  // `error`: index in PassEvents, or -1.
  void Finish(SlotId s, FinishReason reason, TokenEvent* event, int32_t error);
  void FinishAll(FinishReason reason, const Status& why);
  // A step with an item of the sequence has ended; its result is ignored.
  void DropItem(SlotId s);
  // Lets the other choices start: `parent` (choice 0) has computed the prompt, or never will (kNoSlot).
  void ReleaseSiblings(RequestRecord* request, SlotId parent);
  // Counts a token that was sampled now, and adds the key of the block that it fills, if any. Returns the time since
  // the token before.
  DurationNs CountToken(SlotId s, SlotEntry* slot) {
    const DurationNs gap_ns = events_.now_ns() - slot->last_token_ns;
    slot->last_token_ns += gap_ns;
    ++counts_.generation_tokens;
    if (slot->generated++ == 0) [[unlikely]] {
      FirstToken(slot, gap_ns);
    } else {
      if (gap_ns > slot->longest_gap_ns) [[unlikely]] {
        slot->longest_gap_ns = gap_ns;
        slot->longest_gap_end_ns = events_.now_ns();
      }
      if (gap_ns > slot->tbt_slo_ns) ++slot->late_gaps;
      events_.Gap(gap_ns);
    }
    if (slot->prompt_tokens + slot->generated >= slot->next_key_at) [[unlikely]]
      AddKey(s);
    return gap_ns;
  }

  // A step has verified `verified` draft tokens of the sequence and accepted `accepted` of them.
  void CountDrafts(const SlotEntry& slot, int32_t verified, int32_t accepted) {
    DraftCounts& counts = counts_.drafts[static_cast<size_t>(slot.draft_kind)];
    ++counts.drafts;
    counts.draft_tokens += verified;
    counts.accepted_tokens += accepted;
  }

  // The lengths and the state machine; each of its transitions checks the state before it.
  SequenceTable& sequences() { return sequences_; }
  const SequenceTable& sequences() const { return sequences_; }
  SlotEntry& slot(SlotId s) { return slots_[static_cast<size_t>(s)]; }
  const SlotEntry& slot(SlotId s) const { return slots_[static_cast<size_t>(s)]; }
  bool empty() const {
    return sequences_.waiting().empty() && sequences_.running().empty() && sequences_.num_held() == 0;
  }
  Timelines& timelines() { return timelines_; }
  const Timelines& timelines() const { return timelines_; }
  // Appends the slots freed since the last call whose sequences had a grammar.
  void TakeEndedGrammars(std::vector<SlotId>* slots) {
    slots->insert(slots->end(), ended_grammars_.begin(), ended_grammars_.end());
    ended_grammars_.clear();
  }
  const SequenceCounts& counts() const { return counts_; }
  std::string CheckIntegrity() const;  // compares sequences with KV; slow

 private:
  bool MustFetch(const PreparedRequest& in) const;
  CacheMatch MatchOf(SlotId s, const RequestRecord& request, int32_t first_position) const;
  void BindPredictor(SlotId s, const RequestRecord& request);
  void Restore(SlotId s, const ImportedSequence& imported);
  void AddImportedKeys(SlotId s, const ImportedSequence& imported);
  void End(RequestRecord* request, FinishReason reason, int32_t error);
  void FirstToken(SlotEntry* slot, DurationNs gap_ns);
  void AddKey(SlotId s);
  void FillKeys(SlotId s);
  int32_t KeysKnown(SlotId s) const override { return slot(s).next_key_at / block_size_ - 1; }
  void MakeKeys(SlotId s) override;
  Timelines::Running RunningOf(SlotId s) const override;
  void ClearForks(const RequestRecord& request, SlotId from);
  void Count(FinishReason reason);
  void FreeSlot(SlotId s);

  const StepLoopConfig& config_;
  const StepLoopParts& parts_;
  const ExecutorTraits& traits_;
  const int32_t block_size_;
  Intake& intake_;
  PassEvents& events_;
  ImportReservations& reservations_;
  SequenceTable sequences_;
  RequestTable requests_;
  std::vector<SlotEntry> slots_;  // up to the highest slot that was ever taken, with room for all
  Timelines timelines_;
  MeasuredRatio first_token_ratio_;
  TimeNs ratio_changed_ns_ = 0;  // last change of first_token_ratio_
  const bool gate_asks_;
  std::vector<RequestHandle> arrived_;  // from next_arrived_ on: not yet judged by the gate
  size_t next_arrived_ = 0;
  std::vector<SlotId> ended_grammars_;
  std::vector<TokenId> key_tokens_;  // [block_size], scratch
  SequenceCounts counts_;
};

}  // namespace tactus::core
