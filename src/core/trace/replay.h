// Feeds a recorded trace through the step loop again: same scheduler, same KV bookkeeping, the recorded results in
// place of an executor. The plans must come out the same, step by step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/loop/run_recorder.h"
#include "core/trace/recorded_drafts.h"
#include "core/trace/trace_format.h"

namespace tactus::core {

struct ReplayReport {
  std::string program_version;  // that recorded
  std::string scheduler;        // as described
  int64_t passes = 0;
  int64_t arrivals = 0;
  int64_t steps_recorded = 0;
  int64_t steps_replayed = 0;
  uint64_t plan_hash_recorded = 0;
  uint64_t plan_hash_replayed = 0;
  int64_t first_difference = -1;  // step whose plan is another; -1: none
  bool complete = false;          // the trace was closed in order
  EngineStats stats;              // of the replay
  bool identical() const { return first_difference < 0 && steps_recorded == steps_replayed; }
};

// A request as it came in, and what the recording tells of it later.
struct RecordedRequest {
  RequestHandle handle = 0;
  TimeNs arrival_ns = 0;  // by the recording's clock
  int32_t prompt_tokens = 0;
  uint64_t client = 0;
  std::shared_ptr<const Request> request;
  std::vector<Hash128> prompt_keys;
  bool has_keys = false;
  struct GeneratedKey {
    int32_t choice = 0, block = 0;
    Hash128 key;
  };
  std::vector<GeneratedKey> generated_keys;
  TimeNs cancelled_ns = -1;  // -1: it was not
};

// What others may see of a replay; all may be null.
struct ReplayHooks {
  EventSink* sink = nullptr;
  // A step's plan, with the times that its execution took in the recording.
  std::function<void(const StepPlan&, TimeNs start_ns, TimeNs end_ns)> on_step;
  std::vector<RecordedRequest>* requests = nullptr;  // filled, by handle
  TraceHeader* header = nullptr;                     // filled
  std::vector<RecordedDrafts>* drafts = nullptr;     // filled, as RecordedDraftSource says
  RunRecorder* recorder = nullptr;                   // told of the run; its owner closes it
  // The schedule of a request, when it has ended or the recording has: of the newest with this id (or all its prompts,
  // by handle), else of the one with this number.
  struct Explain {
    std::string id;
    std::vector<RequestTimeline> found;
    int64_t requests = 0, with_id = 0;  // that the recording has
  };
  Explain* explain = nullptr;
};

// kDataLoss for a file that is no trace, is corrupt or of another format.
Result<ReplayReport> ReplayTrace(const std::string& path, const ReplayHooks& hooks);
inline Result<ReplayReport> ReplayTrace(const std::string& path, EventSink* sink = nullptr) {
  ReplayHooks hooks;
  hooks.sink = sink;
  return ReplayTrace(path, hooks);
}

}  // namespace tactus::core
