// The step loop's accepted requests, and its data per slot besides the lengths: tokens, keys, stop state. Records do
// not move while they live. Only arrivals allocate. Thread rule: engine thread only.
#pragma once

#include <limits>
#include <vector>

#include "base/free_ids.h"
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
  int32_t slots_held = 0;  // slots not freed yet; the buffers stay until it is 0
  bool siblings_held = false;
  bool waits_for_kv = false;      // its first choice is held until kFetched
  bool refused = false;           // by the gate
  DurationNs gate_fixed_ns = -1;  // as in GateAnswer; -1: no prediction
  DurationNs gate_by_model_ns = 0;
  DurationNs predicted_ttft_ns = -1;  // from these two, corrected at arrival
  FinishReason worst = FinishReason::kNone;
};

// All data that committing a token touches. [capacity]
struct SlotEntry {
  RequestRecord* request = nullptr;
  SequenceBuffers* buffers = nullptr;
  const TokenId* prompt = nullptr;  // null: no token ids
  void* user = nullptr;             // of the request, like the next four
  RequestHandle handle = 0;
  const TokenId* stop_ids = nullptr;
  int32_t num_stop_ids = 0;
  int32_t max_tokens = 0;
  int32_t prompt_tokens = 0;
  int32_t choice = 0;
  int32_t next_key_at = std::numeric_limits<int32_t>::max();  // known tokens at which the next block gets its key
  int32_t min_tokens = 0;
  bool started = false;    // has been scheduled
  bool can_chain = false;  // a token sampled in flight may be the next item's input
  bool has_stop_strings = false;
  bool own_keys = false;                      // PreparedRequest::own_keys, and the keys were not needed yet
  bool has_new_tokens = false;                // since the last Propose
  bool has_drafter = false;                   // DraftSource::Begin was called
  DraftKind draft_kind = DraftKind::kForced;  // of its current guesses
  uint8_t drafts_declined = 0;                // steps in a row that verified none of its guesses
  int32_t no_drafts_until = 0;                // generated tokens from which on it gets guesses again
  TimeNs last_token_ns = 0;
  DurationNs longest_gap_ns = 0;
  DurationNs tbt_slo_ns = kNever;  // longer gaps are late
  int32_t late_gaps = 0;
  int32_t generated = 0;          // tokens so far
  TimeNs longest_gap_end_ns = 0;  // not next to longest_gap_ns: the compiler would merge the stores, which is slower
};

class RequestTable {
 public:
  explicit RequestTable(int32_t capacity);

  RequestRecord* Add(PreparedRequest request);      // precondition: fewer than `capacity` live
  RequestRecord* Find(RequestHandle handle) const;  // null: unknown or forgotten
  // Find no longer returns it; the record stays until Release.
  void Forget(RequestHandle handle);
  void Release(RequestRecord* record);

 private:
  static constexpr size_t kFewestBuckets = 16;
  void Grow();
  void File(RequestRecord* record);
  size_t Home(RequestHandle handle) const { return (handle * 0x9e3779b97f4a7c15ULL >> 20) & mask_; }

  FreeIds free_;
  std::vector<RequestRecord> records_;   // up to the highest id that was ever taken, with room for all
  std::vector<RequestRecord*> buckets_;  // open addressing, linear probing, at most half full
  size_t mask_ = 0;
};

}  // namespace tactus::core
