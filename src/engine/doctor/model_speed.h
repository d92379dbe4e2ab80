// How fast the executor that serves runs a model's steps on this machine, with the work that they must do at least.
// Caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/backend.h"
#include "base/clock.h"
#include "base/machine_facts.h"
#include "compute/model/operator_profile.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::engine {

struct StepSpeed {
  int32_t decodes = 0, context = 0;  // one token each after this many
  int32_t prompt_tokens = 0;         // without context
  double step_ms = 0;                // median
  compute::OperatorCost work;        // of one step; memory_bytes 0: not counted (the reference pass of float32)
  int64_t tokens() const { return int64_t{decodes} + prompt_tokens; }
};

struct ModelSpeed {
  std::string architecture, weight_format, arithmetic, hint;  // hint: BackendInfo's
  int64_t parameters = 0;
  int32_t threads = 0;
  std::vector<StepSpeed> steps;
  ResidentMemory resident;  // of the process, with the model
};

// Loads the model and measures decodes of one and of 16 sequences and a prompt of 512 tokens; a prompt of 64 where one
// of 512 would take more than `longest_ns`. `say` receives what the measurement does now.
Result<ModelSpeed> MeasureModelSpeed(const EngineOptions& options, DurationNs longest_ns, const Backend::Say& say,
                                     Clock& clock);

}  // namespace tactus::engine
