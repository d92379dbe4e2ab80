// The step times that a start finds for itself where nobody has stored any: measured (QuickProfile), and kept in the
// --weight-cache folder, so that the next start is ready without measuring. A file of them is a profile as `tactus
// profile` writes it; it is used where its remarks are what this start would write, and replaced otherwise. Caller's
// thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/backend.h"
#include "cost/step_table.h"
#include "engine/profile_model.h"
#include "model/loader.h"

namespace tactus {

// What the step times of a start depend on: model, format, numerics, machine, build, and how far is measured.
std::map<std::string, std::string> StepTimeRemarks(const ModelDescription& model, const std::string& weight_format,
                                                   const BackendInfo& computes, const ProfileLimits& limits);

// `folder`: of --weight-cache; empty: nothing is kept. `wanted`: where `tactus profile` would store better ones. What
// is kept and cannot be used, and a folder that cannot be written, are lines to `say`; errors are those of measuring.
Result<std::unique_ptr<cost::StepProfile>> QuickStepTimes(Executor* executor, const ProfileLimits& limits,
                                                          const std::map<std::string, std::string>& remarks,
                                                          const std::string& folder, const std::string& wanted,
                                                          Clock& clock, const Backend::Say& say);

}  // namespace tactus
