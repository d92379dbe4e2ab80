// Reads a step trace pass by pass. A trace is untrusted: every number is checked against the header's sizes, and a
// record that no recording can have makes the cursor fail.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/trace/recorded_drafts.h"
#include "core/trace/trace_format.h"

namespace tactus::core {

// In a replay token 1 is the stop id of every request, and token 0 represents all others.
inline constexpr TokenId kOtherToken = 0, kStopToken = 1;

struct RecordedItem {
  int32_t index = 0;
  ItemStatus status = ItemStatus::kOk;
  int32_t accepted = 0;
  int32_t num_tokens = 0;
  int32_t stopped_at = 0;  // 1 + index of the token that ended the sequence; 0: none
};

struct RecordedResult {
  StepId step = 0;
  TimeNs start_ns = 0, end_ns = 0;
  bool ok = true, device_failed = false;
  std::vector<RecordedItem> items;
};

struct RecordedKey {
  RequestHandle handle = 0;
  int32_t choice = 0, block = 0;
  Hash128 key;
};

struct RecordedArrival {
  RequestHandle handle = 0;
  TimeNs arrival_ns = 0;
  int32_t prompt_tokens = 0;
  uint64_t client = 0;
  std::shared_ptr<Request> request;
  std::vector<Hash128> keys;
  bool has_keys = false;
  bool tokens_on_host = false;
  std::optional<ImportedSequence> imported;
  int32_t stored_blocks = 0;
  CacheEnd stored_end = CacheEnd::kUnknown;
};

// The records of one pass of the loop.
struct RecordedPass {
  TimeNs now_ns = 0;
  std::vector<RecordedArrival> arrivals;
  std::vector<RequestHandle> cancels;
  std::vector<TransferCommand> transfers;
  std::vector<RecordedResult> results;
  std::vector<RecordedKey> keys;
  std::vector<int32_t> predictions;
  std::vector<RecordedDrafts> drafts;
  std::vector<DurationNs> step_times;
  std::vector<uint64_t> plan_hashes;
  bool abort = false;
};

// Reads the next pass. `now_ns`: the time of the previous pass, then of this one. False at the end of the trace or
// after a failure (in->ok()); *complete is then true if the trace was closed properly.
bool ReadPass(TraceCursor* in, const TraceHeader& header, TimeNs* now_ns, RecordedPass* pass, bool* complete);

}  // namespace tactus::core
