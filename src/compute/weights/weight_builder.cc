#include "compute/weights/weight_builder.h"

#include <algorithm>

namespace tactus::compute {

TensorRequest RequestOf(const TensorNames& names, const ModelTensor& tensor) {
  const TensorSource& source = names.Of(tensor.role);
  TensorRequest request{
      tensor, source.Name(tensor.layer), TensorSource::NameOf(source.alternative, tensor.layer), {}, source.form};
  request.id = request.name;
  if (request.fused()) request.id += "#" + std::to_string(static_cast<int>(tensor.role));
  return request;
}

bool TensorRequest::fused() const {
  return form == TensorSource::kFused || form == TensorSource::kFusedInHeads || form == TensorSource::kFusedTransposed;
}
bool TensorRequest::transposed() const {
  return form == TensorSource::kTransposed || form == TensorSource::kFusedTransposed;
}
bool TensorRequest::in_place() const {
  return !transposed() && (form != TensorSource::kFusedInHeads || tensor.fused.groups == 1);
}

int64_t TensorRequest::FileRow(int64_t row) const {
  if (!fused()) return row;
  const int64_t groups = form == TensorSource::kFusedInHeads ? tensor.fused.groups : 1;
  const int64_t per_group = tensor.rows / groups;
  return row / per_group * (tensor.fused.total / groups) + tensor.fused.first / groups + row % per_group;
}

Status BuildWeights(const ModelConfig& c, const TensorNames& names, WeightSource& source, ModelWeights* weights) {
  weights->layers.resize(static_cast<size_t>(c.num_layers()));
  for (const ModelTensor& t : c.Tensors()) {
    const TensorRequest request = RequestOf(names, t);
    if (IsMatrix(t.role)) {
      TACTUS_ASSIGN_OR_RETURN(MatrixAt(*weights, t), source.Matrix(request));
      continue;
    }
    LayerWeights& of = t.layer < 0 ? weights->outside : weights->layers[static_cast<size_t>(t.layer)];
    TACTUS_ASSIGN_OR_RETURN(of.vector(t.role), source.Vector(request));
  }
  if (c.tie_embeddings) weights->lm_head = weights->embedding;
  return source.Finish(weights);
}

std::vector<MatrixPlace> MatrixPlaces(const ModelConfig& c, const TensorNames& names, ModelWeights* weights) {
  std::vector<MatrixPlace> places;
  for (const ModelTensor& t : c.Tensors()) {
    if (IsMatrix(t.role)) places.push_back({RequestOf(names, t), &MatrixAt(*weights, t)});
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
