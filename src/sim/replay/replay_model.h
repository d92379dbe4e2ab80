// Compares a recorded run of the server with a step-time model: the error of each step's predicted time, and the
// latencies of the same arrivals when the simulator uses predicted times throughout. Caller's thread.
#pragma once

#include <string>

#include "core/trace/replay.h"
#include "tactus/run_result.h"

namespace tactus::sim {

// One recorded step and the model's prediction.
struct StepPrediction {
  int64_t prefill_tokens = 0, prefill_context = 0, decodes = 0, decode_context_tokens = 0;  // context: of all chunks
  DurationNs measured_ns = 0, predicted_ns = 0;
};

struct StepErrors {
  int64_t steps = 0;
  double median_abs = 0, p90_abs = 0;  // |predicted / measured - 1|
  double total = 0;                    // sum of predicted / sum of measured - 1
};

struct ModelReplay {
  core::ReplayReport recorded;        // the replay with recorded times, from which the run was read
  std::vector<StepPrediction> steps;  // the recorded steps with their own plans
  StepErrors errors;                  // of these
  RunResult measured, predicted;      // with every latency kept
  StepShape most;  // largest of each field in the recorded steps, for Extrapolation; its chunk is below
  ChunkShape most_chunk;
};

// `recorder` (may be null) receives the predicted run; its owner closes it. kInvalidArgument: a recording
// without steps, or one that does not replay.
Result<ModelReplay> ReplayWithModel(const std::string& path, const StepTimeModel& model,
                                    core::RunRecorder* recorder = nullptr);

}  // namespace tactus::sim
