// Step times that a start measures itself (QuickProfile) if `tactus profile` has stored none; they are stored, so that
// the next start need not measure. They lie in the folder of --weight-cache, otherwise in `step_times` of the cache
// folder, one file for each model, machine, kernel set, number of threads, format and limits. A file is a profile as
// `tactus profile` writes it, followed by a checksum; it is used if it is complete and its remarks equal those of this
// start, and replaced otherwise. Caller's thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/backend.h"
#include "compute/weights/model_description.h"
#include "cost/step_tables/step_table.h"
#include "engine/step_times/profile_model.h"

namespace tactus::engine {

// Everything that a start's step times depend on: model (by its content), format, numerics, machine, version and build,
// and the limits of the measurement.
std::map<std::string, std::string> StepTimeRemarks(const compute::ModelDescription& model,
                                                   const std::string& weight_format, const BackendInfo& computes,
                                                   const ProfileLimits& limits);

struct QuickTimes {
  std::unique_ptr<cost::StepProfile> profile;
  std::string file;  // where they are stored; empty: the folder cannot be written
};

// Uses two of `options`: --weight-cache, and --measure-step-times, which measures although a file is stored. `wanted`:
// where `tactus profile` would store better ones. A stored file that cannot be used and a folder that cannot be written
// are reported to `say`; errors are those of measuring.
Result<QuickTimes> QuickStepTimes(Executor* executor, const ProfileLimits& limits,
                                  const std::map<std::string, std::string>& remarks, const EngineOptions& options,
                                  const std::string& wanted, Clock& clock, const Backend::Say& say);

}  // namespace tactus::engine
