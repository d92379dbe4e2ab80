// Loads the step times that an engine starts with: stored ones of this model on this machine, if requested or useful.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/backend.h"
#include "compute/weights/model_description.h"
#include "cost/step_tables/measured_overlap.h"
#include "cost/step_tables/step_table.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::engine {

struct FoundStepTimes {
  std::unique_ptr<cost::StepProfile> profile;    // may be null
  std::string file;                              // where the profile is stored
  std::optional<cost::MeasuredOverlap> overlap;  // of the profile, with --overlap nano
  std::string wanted;                            // where wanted but missing step times would be stored; otherwise empty
  std::vector<std::string> notes;                // for people
};

// Files in the cache affect decisions only where a scheduler choice (ChoiceTraits::wants_step_time), --speculation or
// --overlap uses step times: the cache is read only then. kInvalidArgument: --profile names step times of another model
// or machine; the message says which.
Result<FoundStepTimes> FindStepTimes(const EngineOptions& options, const compute::ModelDescription& description,
                                     const BackendInfo& computes);

}  // namespace tactus::engine
