// The file format of --trace-out (docs/trace.md): a header of named values, then one group of records per pass of the
// step loop. Numbers are LEB128 varints, signed ones zigzag; times are nanoseconds. No text of requests, no token ids.
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
inline constexpr uint64_t kOldestTraceVersion = 2;  // still read: no drafts; 3: no classes of service, no request ids;
                                                    // 4: no gate; 5: no planned places; 6: places of another form;
                                                    // 7: nothing moves between engines; 8: nothing is on disk, drafts
                                                    // of another form, which no program but tests recorded;
                                                    // 9: no plan says how likely a guess must be; 10: no plan's ends
                                                    // are scanned

inline constexpr size_t kLongestRequestId = 256;  // bytes; a longer one is not recorded

enum class TraceTag : uint8_t {
  kPass = 1,  // time since the previous pass; the records up to the next kPass belong to it
  kArrival = 2,
  kCancel = 3,
  kResult = 4,
  kKey = 5,  // key of a block of generated text
  kAbort = 6,
  kPlan = 7,        // a submitted step: plan hash so far, tokens, items, decodes, preemptions
  kEnd = 8,         // closed in order; what follows the last kPlan is complete
  kStepTimes = 10,  // what the step-time model answered since the last of these
  kPredicted =
      9,         // what a predictor that does not learn answered for the next sequence, in order of arrival and choice
  kDrafts = 11,  // so many tokens were guessed to follow a sequence, as formats 3 to 8 had it
  kRequestId = 12,  // of the arrival before it
  kPlanned = 13,    // its place in a job's plan, as format 6 had it
  kPlace = 14,      // its place in a job's plan
  kTransfer = 15,   // a command of who moves sequences between engines
  kImported = 16,   // the arrival before it has run elsewhere
  kProposal = 17,   // a sequence waits for its next token, and what is guessed to follow it
  kStored = 18,     // what is kept on disk of the arrival before it
  kScanned = 19,    // the end of the plan that the arrival before it was taken from, and what the end is chosen by
};

// Everything that a replay must be built with.
struct TraceHeader {
  std::string version;        // of the program
  std::string started_with;   // free text: effective configuration as the program prints it; may be empty
  SchedulerConfig scheduler;  // with every choice filled in; no step-time model, no predictor but its name
  KvCacheConfig kv;
  IntakeLimits limits;
  int32_t slot_capacity = 0;
  int32_t max_errors_in_a_row = 3;
  int32_t max_in_flight = 1;
  bool can_chain = false;
  int32_t max_draft_tokens = 0;        // 0: no drafts
  bool guesses = false;                // some of them are not sure
  int32_t step_tile_tokens = 0;        // of the scheduler's step-time model; 0: it had none
  std::vector<DurationNs> step_times;  // what that model answered while the scheduler was made
};

// Of a replica that is about to be connected; takes what its scheduler has asked so far.
TraceHeader MakeTraceHeader(Replica& replica, const ExecutorTraits& traits, std::string started_with = {});

// A replica as the one that was recorded. What the recorded one refused is not in its recording: nothing is refused for
// a full queue.
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

// Reads what the functions above wrote. A trace is untrusted input: reads beyond the end give 0 and make ok() false.
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
  // What was read makes no sense: nothing more will be.
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
