// A model's weights as stored: views into the mapped file, or into memory that `storage` owns (dummy weights and
// converted norms). Immutable after loading: any thread. Backends derive the forms that they compute with from these.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "compute/tensor/matrix_view.h"

namespace tactus::compute {

// The matrices of a layer, as stored or in a backend's form.
template <class Matrix>
struct LayerMatrices {
  Matrix wq, wk, wv, wo;  // [heads * head_dim, hidden], [kv_heads * head_dim, hidden] x 2, [hidden, heads * head_dim]
  Matrix w_gate, w_up, w_down;  // [intermediate, hidden] x 2, [hidden, intermediate]
};
inline constexpr size_t kLayerMatrices = 7;
// In a forward pass's reading order.
template <class Matrix>
std::array<Matrix*, kLayerMatrices> MatricesOf(LayerMatrices<Matrix>& m) {
  return {&m.wq, &m.wk, &m.wv, &m.wo, &m.w_gate, &m.w_up, &m.w_down};
}

// Norm weights and biases are small and always f32. Null where the architecture has none.
struct LayerWeights : LayerMatrices<MatrixView> {
  const float* attn_norm = nullptr;  // [hidden]
  const float* bq = nullptr;         // [heads * head_dim]
  const float* bk = nullptr;         // [kv_heads * head_dim]
  const float* bv = nullptr;
  const float* bo = nullptr;        // [hidden]
  const float* q_norm = nullptr;    // [head_dim]
  const float* k_norm = nullptr;    // [head_dim]
  const float* ffn_norm = nullptr;  // [hidden]
  const float* b_gate = nullptr;
  const float* b_up = nullptr;
  const float* b_down = nullptr;
};

struct ModelWeights {
  MatrixView embedding;               // [vocab, hidden]
  MatrixView lm_head;                 // [vocab, hidden]; the embedding when tied
  const float* final_norm = nullptr;  // [hidden]
  std::vector<LayerWeights> layers;
  int64_t bytes = 0;   // of all tensors as used
  std::string format;  // for display: "q4_1 (211), q8_0 (1), f32 (61)"
  std::shared_ptr<const void> storage;
};

}  // namespace tactus::compute
