// Walks everything that a config says the model has, asks a source for each tensor, and fills ModelWeights. The two
// sources are files (loader.cc) and the dummy generator (dummy_weights.cc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/weights.h"

namespace tactus {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // A weight matrix [rows, cols].
  virtual Result<MatrixView> Matrix(const std::string& name, int64_t rows, int64_t cols) = 0;
  // A norm (is_norm) or a bias, [size], as f32.
  virtual Result<const float*> Vector(const std::string& name, int64_t size, bool is_norm) = 0;
};

// `weights.bytes`, `.format` and `.storage` are the source's business.
Status BuildWeights(const ModelConfig& config, const TensorNames& names, WeightSource& source, ModelWeights* weights);

// "q4_1 (211), f32 (61)": counts by dtype, most first.
std::string FormatText(const std::vector<std::pair<DType, int64_t>>& counts);

}  // namespace tactus
