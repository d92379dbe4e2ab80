// `tactus models convert`: writes a model that is read in another format. A written file is read back and compared with
// the model before its data are written, so what a format cannot state is refused and never left out.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compute/convert/compressed_tensors.h"
#include "compute/weights/model_description.h"

namespace tactus::compute {

enum class ModelFormat : uint8_t { kGguf, kSafetensors };

// How matrices are written.
struct MatrixFormat {
  DType dtype = DType::kF16;              // of those that are not integers
  const IntegerForm* integers = nullptr;  // of linear layers in a folder; null: none
};

// kInvalidArgument: an unknown name, with the known ones of this format.
Result<MatrixFormat> ConvertedFormat(const std::string& quantization, ModelFormat format);

struct ConvertOptions {
  std::string out;  // a file that ends with ".gguf", or a folder
  ModelFormat format = ModelFormat::kGguf;
  MatrixFormat matrices;
  bool overwrite = false;
  int threads = 1;
  int64_t most_file_bytes = 5'000'000'000;                 // of a safetensors file
  GgufTokenizerFields tokenizer;                           // for GGUF, of a model that is not; empty model: none
  std::vector<std::pair<std::string, std::string>> files;  // further ones of a folder: name and content
  // Bytes written of all; an error ends the conversion. On the caller's thread.
  std::function<Status(int64_t done, int64_t total)> progress;
};

struct ConvertReport {
  int64_t bytes = 0;
  std::string format;              // "q4_k (14), f32 (5)"
  std::vector<std::string> notes;  // "2 matrices are q5_0: their 96 columns are no multiple of q4_k's 256"
};

// kInvalidArgument: OUT exists or cannot be written. kUnimplemented: the family, or a setting of this model, has no
// place in the format. kResourceExhausted: the disk is full. kDataLoss: a value that is not finite, or beyond f16.
// Whatever `progress` returned. After an error OUT is as it was.
Result<ConvertReport> ConvertModel(const ModelDescription& description, const ConvertOptions& options);

}  // namespace tactus::compute
