// Reads a model from disk: a Hugging Face folder (config.json, *.safetensors, possibly sharded) or a GGUF file. Files
// are hostile input: every length, offset and shape is checked before use, and every error names file, value and limit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/gguf_tokenizer_fields.h"
#include "compute/config/config.h"
#include "compute/tensor/dtype.h"

namespace tactus::compute {

class QuantMethod;

// The contents of a model directory or file, without its weights. Cheap: maps and parses headers only.
struct ModelDescription {
  enum class Source : uint8_t { kHuggingFace, kGguf } source = Source::kHuggingFace;
  std::string path;  // as resolved
  ModelConfig config;
  int64_t weight_file_bytes = 0;
  std::shared_ptr<const QuantMethod> quantization;  // of the weights (quant/quantization.h); null: none, or GGUF
  Status weights_status;                            // kNotFound: no (complete) weights; only dummy loading is possible
  struct TensorFormat {
    DType dtype = DType::kF32;
    int64_t tensors = 0, bytes = 0;
  };
  std::vector<TensorFormat> tensor_formats;  // of the files, most bytes first
  std::string chat_template;                 // Jinja source; empty: none; among several named ones "default"
  std::string tool_use_template;       // among several, the one for chats with tools; empty: chat_template serves all
                                       // chats
  std::string tokenizer_json;          // contents; HF only
  std::string tokenizer_config_json;   // contents; HF only
  std::string tokenizer_model;         // contents of a SentencePiece tokenizer.model; HF only
  std::string tekken_json;             // contents of Mistral's tekken.json, where the two above are absent; HF only
  GgufTokenizerFields gguf_tokenizer;  // GGUF only
};

// `path`: a Hugging Face folder, a config.json alone (or a folder with nothing else: dummy weights only), a GGUF file,
// the first part of a split one, or a folder with exactly one GGUF model. Errors name the file and the reason; an
// unknown architecture lists the known ones.
Result<ModelDescription> DescribeModel(const std::string& path);

// For display: the source of the model's sampling values.
inline const char* SamplingSource(const ModelDescription& description) {
  return description.source == ModelDescription::Source::kGguf ? "general.sampling" : "generation_config.json";
}

}  // namespace tactus::compute
