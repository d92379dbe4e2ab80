#include "compute/weights/weight_builder.h"

#include <algorithm>

namespace tactus::compute {

TensorRequest RequestOf(const ModelConfig& config, const TensorNames& names, const ModelTensor& tensor) {
  const TensorSource& source = names.Of(tensor.role);
  TensorRequest request;
  request.tensor = tensor;
  request.name = source.Name(tensor.layer, tensor.expert);
  request.alternative = TensorSource::NameOf(source.alternative, tensor.layer, tensor.expert);
  request.form = source.form;
  request.id = request.name;
  if (request.fused()) request.id += "#" + std::to_string(static_cast<int>(tensor.role));
  if (source.stacked && tensor.expert >= 0) {
    request.stacked =
        tensor.layer < 0 ? config.streams - 1 : ExpertsOf(config.layers[static_cast<size_t>(tensor.layer)])->experts;
    request.id += "@" + std::to_string(tensor.expert);
  }
  return request;
}

bool TensorRequest::fused() const {
  return form == TensorSource::kFused || form == TensorSource::kFusedInHeads ||
         form == TensorSource::kFusedTransposed || form == TensorSource::kFusedInHeadsTransposed;
}
bool TensorRequest::transposed() const {
  return form == TensorSource::kTransposed || form == TensorSource::kFusedTransposed ||
         form == TensorSource::kFusedInHeadsTransposed;
}
bool TensorRequest::in_place() const {
  return !transposed() && (form != TensorSource::kFusedInHeads || tensor.fused.groups == 1);
}

int64_t TensorRequest::FileRow(int64_t row) const {
  if (!fused()) return row;
  const bool in_heads = form == TensorSource::kFusedInHeads || form == TensorSource::kFusedInHeadsTransposed;
  const int64_t groups = in_heads ? tensor.fused.groups : 1;
  const int64_t per_group = tensor.rows / groups;
  return row / per_group * (tensor.fused.total / groups) + tensor.fused.first / groups + row % per_group;
}

int64_t TensorRequest::FirstElement() const {
  return stacked > 0 ? tensor.expert * FileRows() * tensor.cols : 0;
}

std::vector<int64_t> TensorRequest::FileShape() const {
  std::vector<int64_t> shape = {FileRows()};
  if (IsMatrix(tensor.role)) shape.insert(transposed() ? shape.begin() : shape.end(), tensor.cols);
  if (stacked > 0) shape.insert(shape.begin(), stacked);
  return shape;
}

Status BuildWeights(const ModelConfig& c, const TensorNames& names, WeightSource& source, ModelWeights* weights) {
  ResizeLayers(c, weights);
  for (const ModelTensor& t : c.Tensors()) {
    const TensorRequest request = RequestOf(c, names, t);
    if (IsMatrix(t.role)) {
      TACTUS_ASSIGN_OR_RETURN(MatrixAt(*weights, t), source.Matrix(request));
      continue;
    }
    TACTUS_ASSIGN_OR_RETURN(OwnerOf(*weights, t).vector(t.role), source.Vector(request));
  }
  if (c.tie_embeddings) weights->lm_head = weights->embedding;
  return source.Finish(weights);
}

std::vector<MatrixPlace> MatrixPlaces(const ModelConfig& c, const TensorNames& names, ModelWeights* weights) {
  std::vector<MatrixPlace> places;
  for (const ModelTensor& t : c.Tensors()) {
    if (IsMatrix(t.role)) places.push_back({RequestOf(c, names, t), &MatrixAt(*weights, t)});
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
