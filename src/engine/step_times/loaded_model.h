// A model loaded as a server would, to measure the steps of its executor: for `tactus profile` and `tactus doctor`.
// Caller's thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/backend.h"
#include "base/clock.h"
#include "compute/model/operator_profile.h"
#include "engine/step_times/step_profiler.h"
#include "tactus/options.h"

namespace tactus::engine {

struct LoadedModel {
  std::unique_ptr<Backend> backend;  // outlives the executor
  std::unique_ptr<Executor> executor;
  ProfileLimits limits;                        // of the executor
  std::map<std::string, std::string> remarks;  // what its step times depend on
  std::string architecture, weight_format;     // "llama", "q8_0"
  int64_t parameters = 0;
};

// The token budget, the number of sequences and the memory of `options` bound the steps; where they are left open, the
// device's ProfileDefaults do. `max_context`: of a sequence, in tokens; 0: the device's. With `profile` the model is on
// the CPU, and the executor counts its steps' operators there (MakeCountingBackend). kInvalidArgument: the model does
// not fit; names the sizes and a flag.
Result<LoadedModel> LoadForSteps(const EngineOptions& options, int64_t max_context, const Backend::Say& say,
                                 Clock& clock, compute::OperatorProfile* profile = nullptr);

}  // namespace tactus::engine
