// Replays a recorded trace through the step loop: same scheduler, same KV bookkeeping, the recorded results instead of
// an executor. The plans must be the same, step by step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/loop/run_recorder.h"
#include "core/trace/recorded_drafts.h"
#include "core/trace/trace_format.h"

namespace tactus::core {

struct ReplayReport {
  std::string program_version;  // of the recording program
  std::string scheduler;        // Scheduler::Describe
  int64_t passes = 0;
  int64_t arrivals = 0;
  int64_t steps_recorded = 0;
  int64_t steps_replayed = 0;
  uint64_t plan_hash_recorded = 0;
  uint64_t plan_hash_replayed = 0;
  int64_t first_difference = -1;  // first step with another plan; -1: none
  bool complete = false;          // the trace was closed properly
  EngineStats stats;              // of the replay
  bool identical() const { return first_difference < 0 && steps_recorded == steps_replayed; }
};

// A request at its arrival, and the later records of it.
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
  TimeNs cancelled_ns = -1;  // -1: not cancelled
};

// Outputs of a replay; all may be null.
struct ReplayHooks {
  EventSink* sink = nullptr;
  // Called with a step's plan and the times of its execution in the recording.
  std::function<void(const StepPlan&, TimeNs start_ns, TimeNs end_ns)> on_step;
  std::vector<RecordedRequest>* requests = nullptr;  // filled, by handle
  TraceHeader* header = nullptr;                     // filled
  std::vector<RecordedDrafts>* drafts = nullptr;     // filled, as by RecordedDraftSource
  RunRecorder* recorder = nullptr;                   // gets the events of the run; its owner closes it
  // Returns the schedule of a request at its end or at that of the recording: the newest request with this id (or all
  // its prompts, by handle), else the request with this number.
  struct Explain {
    std::string id;
    std::vector<RequestTimeline> found;
    int64_t requests = 0, with_id = 0;  // in the recording
  };
  Explain* explain = nullptr;
};

// kDataLoss: the file is no trace, corrupt or of another format.
Result<ReplayReport> ReplayTrace(const std::string& path, const ReplayHooks& hooks);
inline Result<ReplayReport> ReplayTrace(const std::string& path, EventSink* sink = nullptr) {
  ReplayHooks hooks;
  hooks.sink = sink;
  return ReplayTrace(path, hooks);
}

}  // namespace tactus::core
