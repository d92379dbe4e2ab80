// A model's weights as stored: views into the mapped file, or into memory that `storage` owns (dummy weights and
// converted norms). Immutable after loading: any thread. Backends derive the forms that they compute with from these.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "compute/config/config.h"
#include "compute/tensor/matrix_view.h"

namespace tactus::compute {

// The matrices of a layer by role, as stored or in a backend's form. A role that no block of the layer declares has an
// empty matrix.
template <class Matrix>
class LayerMatrices {
 public:
  Matrix& operator[](Role role) { return matrices_[static_cast<size_t>(role)]; }
  const Matrix& operator[](Role role) const { return matrices_[static_cast<size_t>(role)]; }

 private:
  std::array<Matrix, kMatrixRoles> matrices_;
};

struct LayerWeights : LayerMatrices<MatrixView> {
  std::vector<LayerWeights> experts;  // the tensors with the number of an expert or a stream; empty: there are none

  // A norm's weights or a bias, f32; null where no block declares it, and for Role::kNone.
  const float*& vector(Role role) { return vectors_[static_cast<size_t>(role) - kMatrixRoles]; }
  const float* vector(Role role) const {
    return role == Role::kNone ? nullptr : vectors_[static_cast<size_t>(role) - kMatrixRoles];
  }

 private:
  std::array<const float*, kVectorRoles> vectors_{};
};

struct ModelWeights {
  MatrixView embedding;  // [vocab, hidden]
  MatrixView positions;  // [learned_positions, hidden]
  MatrixView lm_head;    // [vocab, hidden]; the embedding when tied
  LayerWeights outside;  // other tensors of no layer: norms of the embedding and of the output, LayerInputs ...
  std::vector<LayerWeights> layers;
  int64_t bytes = 0;   // of all tensors as used
  std::string format;  // for display: "q4_1 (211), q8_0 (1), f32 (61)"
  std::shared_ptr<const void> storage;
};

// Makes room for the layers of a model and their experts, in its weights as stored or in a backend's form.
template <class Weights>
void ResizeLayers(const ModelConfig& config, Weights* weights) {
  weights->layers.resize(config.layers.size());
  weights->outside.experts.resize(static_cast<size_t>(config.streams - 1));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    const ExpertsBlock* const experts = ExpertsOf(config.layers[l]);
    if (experts != nullptr) weights->layers[l].experts.resize(static_cast<size_t>(experts->experts));
  }
}

// What has a tensor: a layer, the model outside of its layers, or an expert or a stream of either.
template <class Weights>
auto& OwnerOf(Weights& weights, const ModelTensor& tensor) {
  auto& owner = tensor.layer < 0 ? weights.outside : weights.layers[static_cast<size_t>(tensor.layer)];
  return tensor.expert < 0 ? owner : owner.experts[static_cast<size_t>(tensor.expert)];
}

// The place of a matrix that a model declares.
template <class Weights>
auto& MatrixAt(Weights& weights, const ModelTensor& tensor) {
  if (tensor.role == Role::kEmbedding) return weights.embedding;
  if (tensor.role == Role::kPositions) return weights.positions;
  if (tensor.role == Role::kLmHead) return weights.lm_head;
  return OwnerOf(weights, tensor)[tensor.role];
}

}  // namespace tactus::compute
