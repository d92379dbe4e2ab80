// Feeds a recorded trace through the step loop again: same scheduler, same KV bookkeeping, the recorded results in place of
// an executor. The plans must come out the same, step by step.
#pragma once

#include <string>

#include "engine/trace_format.h"

namespace tactus {

struct ReplayReport {
  std::string program_version;     // that recorded
  std::string scheduler;           // as described
  int64_t passes = 0;
  int64_t arrivals = 0;
  int64_t steps_recorded = 0;
  int64_t steps_replayed = 0;
  uint64_t plan_hash_recorded = 0;
  uint64_t plan_hash_replayed = 0;
  int64_t first_difference = -1;   // step whose plan is another; -1: none
  bool complete = false;           // the trace was closed in order
  EngineStats stats;               // of the replay
  bool identical() const { return first_difference < 0 && steps_recorded == steps_replayed; }
};

// `sink` may be null. kDataLoss for a file that is no trace, is corrupt or of another format.
Result<ReplayReport> ReplayTrace(const std::string& path, EventSink* sink = nullptr);

}  // namespace tactus
