// GGUF metadata -> ModelConfig and the tokeniser's tables.
#pragma once

#include "compute/model/loader.h"
#include "compute/weights/gguf.h"

namespace tactus::compute {

// Every field that is out of range names itself. The result has passed ValidateConfig.
Result<ModelConfig> ConfigFromGguf(const GgufFile& file);
// Fills chat_template and gguf_tokenizer; refuses tables whose lengths disagree with each other or with the vocabulary.
Status TokenizerFromGguf(const GgufFile& file, int64_t vocab_size, ModelDescription* description);

}  // namespace tactus::compute
