// A recorded run of the server against a step-time model: how far each step's predicted time is from the measured one,
// and what latencies the same arrivals have when the simulator decides with predicted times from the first to the last
// step. Caller's thread.
#pragma once

#include <string>

#include "core/trace/replay.h"
#include "tactus/run_result.h"

namespace tactus::sim {

// One recorded step and what the model says of it.
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
  core::ReplayReport recorded;        // of the replay with recorded times, which this one reads the run from
  std::vector<StepPrediction> steps;  // the recorded ones, on their own plans
  StepErrors errors;                  // of these
  RunResult measured, predicted;      // with every latency kept
  StepShape most;  // largest of each field in the recorded steps, for Extrapolation; its chunk is below
  ChunkShape most_chunk;
};

// `recorder` (may be null) is told of the predicted run; its owner closes it. kInvalidArgument for a recording with
// more than one step in flight, or that does not replay.
Result<ModelReplay> ReplayWithModel(const std::string& path, const StepTimeModel& model,
                                    core::RunRecorder* recorder = nullptr);

}  // namespace tactus::sim
