// config.json and generation_config.json -> ModelConfig. What a file leaves unsaid is what transformers assumes for
// that architecture (architecture.h). What would change the output and is not built is refused by name, never ignored.
#pragma once

#include <string>
#include <string_view>

#include "compute/config/config.h"

namespace tactus::compute {

// `path` is for messages. The result has passed ValidateConfig.
Result<ModelConfig> ConfigFromJson(std::string_view json, const std::string& path);

// Adds generation_config's stop ids, and the sampling values that it writes. null states nothing. `do_sample: false`
// there asks for greedy decoding by default in transformers, where the other values are then unused: none of them is
// taken, and a request that states nothing gets the built-in ones (compute/config/sampling_defaults.h).
Status ApplyGenerationConfig(std::string_view json, const std::string& path, ModelConfig* config);

}  // namespace tactus::compute
