// The step times that an engine starts with: stored ones of this model on this machine, where they are asked for or of
// use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/backend.h"
#include "compute/model/loader.h"
#include "cost/step_table.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::engine {

struct FoundStepTimes {
  std::unique_ptr<cost::StepProfile> profile;  // may be null
  std::string wanted;                          // empty, or where they would be stored that are wanted and are not there
  std::vector<std::string> notes;              // for people
};

// Decisions do not depend on what lies about in the cache: it is looked at where a choice of the
// scheduler (ChoiceTraits::wants_step_time) or --speculation goes by step times.
// kInvalidArgument: --profile names those of another model or machine, and which.
Result<FoundStepTimes> FindStepTimes(const EngineOptions& options, const compute::ModelDescription& description,
                                     const BackendInfo& computes);

}  // namespace tactus::engine
