// config.json and generation_config.json -> ModelConfig. Absent keys have the defaults of transformers for that
// architecture (architecture.h). Unsupported settings that would change the output are refused by name, never ignored.
#pragma once

#include <string>
#include <string_view>

#include "compute/config/config.h"
#include "compute/config/recorded_fields.h"

namespace tactus::compute {

// Keys of a model that also reads pictures which hold for its text part too (`text_config`).
inline constexpr const char* kWholeModelKeys[] = {"bos_token_id", "eos_token_id",        "dtype",
                                                  "torch_dtype",  "quantization_config", "tie_word_embeddings"};

// `path` is used in messages. The result has passed ValidateConfig. `record` gets the family's settings; null: they are
// not kept.
Result<ModelConfig> ConfigFromJson(std::string_view json, const std::string& path, FieldRecord* record = nullptr);

// Adds the stop ids and sampling values of generation_config.json; null counts as absent. In transformers, `do_sample:
// false` means greedy decoding by default and leaves the other values unused. None of them is adopted then: requests
// without sampling values get the built-in defaults (compute/config/sampling_defaults.h).
Status ApplyGenerationConfig(std::string_view json, const std::string& path, ModelConfig* config);

}  // namespace tactus::compute
