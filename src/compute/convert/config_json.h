// A model's configuration as the JSON files of a Hugging Face folder. Pure: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "compute/config/architecture.h"
#include "compute/config/recorded_fields.h"
#include "compute/tensor/dtype.h"

namespace tactus::compute {

// The class of transformers for a model of a GGUF file, whose architecture may stand for several.
const Architecture& HfArchitectureOf(const ModelConfig& config);

// config.json of a model of a GGUF file. `settings`: those that its family read from the metadata. `quantization`: the
// object `quantization_config`; null: none.
std::string ConfigText(const ModelConfig& config, const Architecture& target, const FieldRecord& settings, DType dtype,
                       const Json& quantization);
// generation_config.json; empty: the model states nothing for it.
std::string GenerationConfigText(const ModelConfig& config);
// An existing config.json with another type of weights and another `quantization_config`; of a model that also reads
// pictures, its text's alone, which `architecture` is. `text` is valid.
std::string ConfigWithType(std::string_view text, const Architecture& architecture, DType dtype,
                           const Json& quantization);

}  // namespace tactus::compute
