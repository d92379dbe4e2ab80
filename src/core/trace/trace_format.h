// The file format of --trace-out (docs/reference/trace.md): a header of named values, then one group of records per
// pass of the step loop. Numbers are LEB128 varints, signed ones zigzag; times are nanoseconds. No text of requests, no
// token ids.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/hash.h"
#include "core/kv/kv_cache.h"
#include "core/loop/replica.h"
#include "core/sched/scheduler.h"
#include "tactus/status.h"

namespace tactus::core {

inline constexpr char kTraceMagic[8] = {'T', 'A', 'C', 'T', 'R', 'A', 'C', 'E'};
inline constexpr uint64_t kTraceVersion = 11;
// The oldest readable version. Versions lack: 2: drafts; 3: classes of service, request ids; 4: the gate; 5: planned
// places; 6: the present form of places; 7: migration; 8: prompts on disk, the present form of drafts (only tests
// recorded the old one); 9: the least chance of guesses; 10: scanned ends of plans.
inline constexpr uint64_t kOldestTraceVersion = 2;

inline constexpr size_t kLongestRequestId = 256;  // bytes; a longer one is not recorded

enum class TraceTag : uint8_t {
  kPass = 1,  // time since the previous pass; the records up to the next kPass belong to it
  kArrival = 2,
  kCancel = 3,
  kResult = 4,
  kKey = 5,  // key of a block of generated text
  kAbort = 6,
  kPlan = 7,        // a submitted step: plan hash so far, tokens, items, decodes, preemptions
  kEnd = 8,         // closed properly; the records after the last kPlan are complete
  kStepTimes = 10,  // results of the step-time model since the last kStepTimes
  // Prediction for the next sequence (in order of arrival and choice) by a predictor that does not learn.
  kPredicted = 9,
  kDrafts = 11,     // number of guesses for a sequence, in formats 3 to 8
  kRequestId = 12,  // of the last arrival
  kPlanned = 13,    // its place in a job's plan, in format 6
  kPlace = 14,      // its place in a job's plan
  kTransfer = 15,   // a TransferCommand
  kImported = 16,   // the last arrival was migrated in
  kProposal = 17,   // a sequence waits for its next token; the guesses after it
  kStored = 18,     // blocks of the last arrival that are stored on disk
  kScanned = 19,    // the end of the plan from which the last arrival was taken, and the values that choose the end
};

// The configuration of a replay.
struct TraceHeader {
  std::string version;        // of the program
  std::string started_with;   // free text: the effective configuration as printed by the program; may be empty
  SchedulerConfig scheduler;  // with all names filled in; without step-time model, and of the predictor only its name
  KvCacheConfig kv;
  IntakeLimits limits;
  int32_t slot_capacity = 0;
  int32_t max_errors_in_a_row = 3;
  int32_t max_in_flight = 1;
  bool can_chain = false;
  int32_t max_draft_tokens = 0;        // 0: no drafts
  bool guesses = false;                // some drafts are not sure
  int32_t step_tile_tokens = 0;        // of the scheduler's step-time model; 0: no model
  std::vector<DurationNs> step_times;  // results of that model while the scheduler was created
};

// The header for a replica about to be connected; moves out the step times that its scheduler has read so far.
TraceHeader MakeTraceHeader(Replica& replica, const ExecutorTraits& traits, std::string started_with = {});

// The configuration of the recorded replica, but without a queue limit: requests that it refused are not in the
// recording.
ReplicaConfig ReplicaOf(const TraceHeader& header);

using TraceBytes = std::vector<uint8_t>;

inline void PutVarint(uint64_t v, TraceBytes* out) {
  while (v >= 0x80) {
    out->push_back(static_cast<uint8_t>(v) | 0x80);
    v >>= 7;
  }
  out->push_back(static_cast<uint8_t>(v));
}
inline void PutSigned(int64_t v, TraceBytes* out) {
  PutVarint((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63), out);
}
inline void PutFixed64(uint64_t v, TraceBytes* out) {
  for (int i = 0; i < 8; ++i) out->push_back(static_cast<uint8_t>(v >> (8 * i)));
}
inline void PutHash(const Hash128& h, TraceBytes* out) {
  PutFixed64(h.low, out);
  PutFixed64(h.high, out);
}
inline void PutString(std::string_view s, TraceBytes* out) {
  PutVarint(s.size(), out);
  out->insert(out->end(), s.begin(), s.end());
}

void PutHeader(const TraceHeader& header, TraceBytes* out);

// Reads data written by the functions above. A trace is untrusted input: reads beyond the end give 0 and make ok()
// false.
class TraceCursor {
 public:
  TraceCursor(const uint8_t* data, size_t size) : at_(data), begin_(data), end_(data + size) {}
  bool ok() const { return ok_; }
  bool done() const { return at_ == end_; }
  size_t offset() const { return static_cast<size_t>(at_ - begin_); }
  uint8_t Byte() { return Has(1) ? *at_++ : 0; }
  uint64_t Varint();
  int64_t Signed() {
    const uint64_t v = Varint();
    return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
  }
  // A varint that must be in [low, high].
  int64_t Bounded(int64_t low, int64_t high);
  uint64_t Fixed64();
  Hash128 Hash() {
    const uint64_t low = Fixed64();
    return {low, Fixed64()};
  }
  std::string String(size_t limit);
  bool Has(size_t n) {
    if (static_cast<size_t>(end_ - at_) >= n) return true;
    Fail();
    return false;
  }
  // The data are invalid: ends all reading.
  void Fail() {
    ok_ = false;
    at_ = end_;
  }

 private:
  const uint8_t* at_;
  const uint8_t* begin_;
  const uint8_t* end_;
  bool ok_ = true;
};

Result<TraceHeader> ReadHeader(TraceCursor* cursor);

}  // namespace tactus::core
