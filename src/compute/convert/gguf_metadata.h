// A model's configuration and tokeniser as GGUF metadata. Pure: any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/gguf_tokenizer_fields.h"
#include "compute/config/architecture.h"
#include "compute/config/recorded_fields.h"
#include "compute/convert/gguf_header.h"
#include "compute/weights/model_description.h"

namespace tactus::compute {

// The architecture as whose GGUF files those of `architecture` are read. kUnimplemented: its models have none, with the
// families that have.
Result<const Architecture*> GgufArchitectureOf(const Architecture& architecture);

// The names, shape and settings of a model that is not of a GGUF file. `settings`: those that its family read from
// config.json.
void AddModelMetadata(const ModelDescription& description, const Architecture& target, const FieldRecord& settings,
                      GgufHeader* header);
// The tokeniser's tables, chat templates, and the tokens that end an answer.
void AddTokenizerMetadata(const GgufTokenizerFields& tokenizer, const ModelDescription& description,
                          GgufHeader* header);

// Whether a number under this key is a floating-point one, as a scale is, also where it is whole: readers insist on the
// type.
bool IsFactor(std::string_view key, double value);

// general.file_type: the format of most matrices, as GGUF numbers mixes.
int64_t FileTypeOf(DType dtype);

// Rotary positions as GGUF states them: llama3's and proportional scaling are lists of factors.
RopeConfig GgufRope(const ModelConfig& config);
// What proportional scaling divides each frequency by, [head_dim / 2]; those that do not turn by 1e30.
std::vector<float> ProportionalFactors(const RopeConfig& rope, int64_t head_dim);
// What llama3's scaling divides each frequency by, [rotary_dim / 2].
std::vector<float> Llama3Factors(const RopeConfig& rope, int64_t head_dim);
// The tensors of factors that files have for rotary positions.
std::vector<std::pair<std::string, std::vector<float>>> FactorTensors(const RopeConfig& rope);

}  // namespace tactus::compute
