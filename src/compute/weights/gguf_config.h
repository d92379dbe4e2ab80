// GGUF metadata -> ModelConfig and the tokeniser's tables.
#pragma once

#include "compute/config/recorded_fields.h"
#include "compute/weights/gguf.h"
#include "compute/weights/model_description.h"

namespace tactus::compute {

// An out-of-range field's error names the field. The result has passed ValidateConfig. `record` gets the family's
// settings; null: they are not kept.
Result<ModelConfig> ConfigFromGguf(const GgufFile& file, FieldRecord* record = nullptr);
// Fills chat_template, tool_use_template and gguf_tokenizer, whose model_name is config.name; refuses tables whose
// lengths differ from each other or from the vocabulary.
Status TokenizerFromGguf(const GgufFile& file, int64_t vocab_size, ModelDescription* description);

}  // namespace tactus::compute
