// The requests that the step loop has taken, and what it keeps per slot beside the lengths: tokens, keys, stop state.
// Records do not move while they live. Thread rule: engine thread only.
#pragma once

#include <limits>
#include <vector>

#include "core/interfaces/draft_source.h"
#include "core/loop/intake.h"

namespace tactus::core {

struct RequestLine;  // core/loop/timelines.h

struct RequestRecord {
  PreparedRequest in;
  RequestLine* line = nullptr;
  TimeNs scheduled_ns = 0;
  TimeNs first_token_ns = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  int32_t preemptions = 0;
  int32_t recomputed_tokens = 0;
  DurationNs longest_gap_ns = 0;
  int32_t gaps = 0, late_gaps = 0;
  int32_t live_choices = 0;
  int32_t slots_held = 0;  // slots not free yet: the buffers stay until none is left
  bool siblings_held = false;
  bool waits_for_kv = false;      // its first choice is held until kFetched
  bool refused = false;           // by the gate
  DurationNs gate_fixed_ns = -1;  // GateAnswer; -1: nothing was predicted
  DurationNs gate_by_model_ns = 0;
  DurationNs predicted_ttft_ns = -1;  // of the two, as corrected when it came
  FinishReason worst = FinishReason::kNone;
};

// Everything that committing a token touches, together. [capacity]
struct SlotEntry {
  RequestRecord* request = nullptr;
  SequenceBuffers* buffers = nullptr;
  const TokenId* prompt = nullptr;  // null: no token ids
  void* user = nullptr;             // of the request, as are the next four
  RequestHandle handle = 0;
  const TokenId* stop_ids = nullptr;
  int32_t num_stop_ids = 0;
  int32_t max_tokens = 0;
  int32_t prompt_tokens = 0;
  int32_t choice = 0;
  int32_t next_key_at = std::numeric_limits<int32_t>::max();  // known tokens at which another block has its key
  int32_t min_tokens = 0;
  bool started = false;    // was scheduled before
  bool can_chain = false;  // a token sampled in flight may be the next item's input
  bool has_stop_strings = false;
  bool own_keys = false;                      // PreparedRequest::own_keys, and they have not been needed so far
  bool has_new_tokens = false;                // since the draft source was asked last
  bool has_drafter = false;                   // the draft source knows the sequence
  DraftKind draft_kind = DraftKind::kForced;  // of the guesses that stand there
  uint8_t drafts_declined = 0;                // times in a row that no step took any of its guesses
  int32_t no_drafts_until = 0;                // tokens generated before it is asked for guesses again
  TimeNs last_token_ns = 0;
  DurationNs longest_gap_ns = 0;
  DurationNs tbt_slo_ns = kNever;  // gaps beyond it are late
  int32_t late_gaps = 0;
  int32_t generated = 0;          // tokens so far
  TimeNs longest_gap_end_ns = 0;  // not beside longest_gap_ns: the compiler would store both at once, at a cost to all
};

class RequestTable {
 public:
  explicit RequestTable(int32_t capacity);

  RequestRecord* Add(PreparedRequest request);      // precondition: fewer than `capacity` live
  RequestRecord* Find(RequestHandle handle) const;  // null: unknown or forgotten
  // Find no longer knows it; the record stays.
  void Forget(RequestHandle handle);
  void Release(RequestRecord* record);

 private:
  size_t Home(RequestHandle handle) const { return (handle * 0x9e3779b97f4a7c15ULL >> 20) & mask_; }

  std::vector<RequestRecord> records_;
  std::vector<RequestRecord*> free_;
  std::vector<RequestRecord*> buckets_;  // open addressing, linear probing, at most half full
  size_t mask_ = 0;
};

}  // namespace tactus::core
