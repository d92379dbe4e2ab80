#include "compute/weights/weight_builder.h"

#include <algorithm>

namespace tactus::compute {

Status BuildWeights(const ModelConfig& c, const TensorNames& names, WeightSource& source, ModelWeights* weights) {
  weights->layers.resize(static_cast<size_t>(c.num_layers()));
  for (const ModelTensor& t : c.Tensors()) {
    const std::string name = names.Name(t.role, t.layer);
    if (IsMatrix(t.role)) {
      TACTUS_ASSIGN_OR_RETURN(MatrixAt(*weights, t), source.Matrix(name, t.rows, t.cols));
      continue;
    }
    const float*& vector =
        t.layer < 0 ? weights->final_norm : weights->layers[static_cast<size_t>(t.layer)].vector(t.role);
    TACTUS_ASSIGN_OR_RETURN(vector, source.Vector(name, t.rows, t.is_norm));
  }
  if (c.tie_embeddings) weights->lm_head = weights->embedding;
  return source.Finish(weights);
}

std::vector<MatrixPlace> MatrixPlaces(const ModelConfig& c, const TensorNames& names, ModelWeights* weights) {
  std::vector<MatrixPlace> places;
  for (const ModelTensor& t : c.Tensors()) {
    if (IsMatrix(t.role)) places.push_back({names.Name(t.role, t.layer), &MatrixAt(*weights, t), t});
  }
  return places;
}

std::string FormatText(const std::vector<std::pair<DType, int64_t>>& counts) {
  auto sorted = counts;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::string text;
  for (const auto& [dtype, count] : sorted) {
    if (!text.empty()) text += ", ";
    text += std::string(InfoOf(dtype).name) + " (" + std::to_string(count) + ")";
  }
  return text;
}

}  // namespace tactus::compute
