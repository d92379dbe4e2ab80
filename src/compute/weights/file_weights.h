// Weights from files: checks each tensor against the config, views or converts it, and records which were used. Norms
// and biases are converted to f32; matrices are views into the mapping, f32 copies (the reference mode), or rows on
// demand, whose pages a conversion releases as it proceeds.
//
// Matrix and Vector: one thread. Rows, Prefetch and Release: any thread.
#pragma once

#include <memory>
#include <string>

#include "compute/weights/tensor_file.h"
#include "compute/weights/weight_builder.h"

namespace tactus::compute {

enum class MatrixUse : uint8_t {
  kViews,  // as in the file, in the mapping; misaligned ones are copied
  kF32,    // dequantised copies
  kRows,   // for conversions: copies nothing and reads no matrix before Rows
};

// `tensors`, `names` and `path` (for messages) outlive the source; with kViews the weights keep the mapping.
std::unique_ptr<WeightSource> MakeFileSource(const TensorSet& tensors, const TensorNames& names,
                                             const std::string& path, const ModelConfig& config, MatrixUse use);

}  // namespace tactus::compute
