// The output of `tactus models inspect`, as text and as JSON. Pure functions of the description.
#pragma once

#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "compute/model/end_token.h"
#include "compute/model/loader.h"

namespace tactus::compute {

struct InspectOptions {
  DType kv_dtype = DType::kBF16;
  MemoryPlanInput memory;   // weight_bytes 0: computed from `load`; available_bytes < 0: unknown, then no plan is made
  LoadWeightsOptions load;  // dummy is set where there are no weights
  std::string numerics;     // the arithmetic, for display; empty: not shown
  std::vector<EndToken> ends;  // tokens that end an answer (engine/start/turn_ends.h); empty: not shown
  std::vector<std::string> warnings;
  StatedSampling sampling;  // from the command line
  Status start;             // why a start with this model would fail; ok: it would not, or only for lack of memory
};

Json InspectJson(const ModelDescription& description, const InspectOptions& options);
std::string InspectText(const ModelDescription& description, const InspectOptions& options);

}  // namespace tactus::compute
