// The step times that a start finds for itself where `tactus profile` has stored none: measured (QuickProfile), and
// kept, so that the next start is ready without measuring. They lie in the folder of --weight-cache, else in
// `step_times` of the cache folder, a file for each model, machine, kernel set, number of threads, format and limits. A
// file is a profile as `tactus profile` writes it, with a checksum behind it; it is used where it is whole and its
// remarks are what this start would write, and replaced otherwise. Caller's thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/backend.h"
#include "compute/model/loader.h"
#include "cost/step_table.h"
#include "engine/profile_model.h"

namespace tactus::engine {

// What the step times of a start depend on: model (by its content), format, numerics, machine, version and build, and
// how far is measured.
std::map<std::string, std::string> StepTimeRemarks(const compute::ModelDescription& model,
                                                   const std::string& weight_format, const BackendInfo& computes,
                                                   const ProfileLimits& limits);

// Of `options` --weight-cache and --measure-step-times, which measures although some are kept. `wanted`: where `tactus
// profile` would store better ones. What is kept and cannot be used, and a folder that cannot be written, are lines to
// `say`; errors are those of measuring.
Result<std::unique_ptr<cost::StepProfile>> QuickStepTimes(Executor* executor, const ProfileLimits& limits,
                                                          const std::map<std::string, std::string>& remarks,
                                                          const EngineOptions& options, const std::string& wanted,
                                                          Clock& clock, const Backend::Say& say);

}  // namespace tactus::engine
