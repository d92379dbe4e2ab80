// A model's weights for the forward pass: views into the mapped file, or into memory that `storage` owns (dummy weights
// and converted norms). Immutable after loading: any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compute/config/config.h"
#include "compute/kernels/packed/packed.h"
#include "compute/tensor/matrix_view.h"

namespace tactus::compute {

// Norm weights and biases are small and always f32. Null where the architecture has none.
struct LayerWeights {
  const float* attn_norm = nullptr;  // [hidden]
  MatrixView wq, wk, wv,
      wo;  // [heads * head_dim, hidden], [kv_heads * head_dim, hidden] x 2, [hidden, heads * head_dim]
  const float* bq = nullptr;  // [heads * head_dim]
  const float* bk = nullptr;  // [kv_heads * head_dim]
  const float* bv = nullptr;
  const float* bo = nullptr;        // [hidden]
  const float* q_norm = nullptr;    // [head_dim]
  const float* k_norm = nullptr;    // [head_dim]
  const float* ffn_norm = nullptr;  // [hidden]
  MatrixView w_gate, w_up, w_down;  // [intermediate, hidden] x 2, [hidden, intermediate]
  const float* b_gate = nullptr;
  const float* b_up = nullptr;
  const float* b_down = nullptr;
};

// The same matrices packed for the fast operators (compute/kernels/packed/packed.h).
struct PackedLayerWeights {
  PackedMatrix wq, wk, wv, wo, w_gate, w_up, w_down;
};
// How the tokens of operators are rounded.
struct TokenRoundings {
  Rounding kv = Rounding::kInt8;  // wk and wv
  Rounding down = Rounding::kInt8;
  Rounding lm_head = Rounding::kInt8;
  Rounding others = Rounding::kInt8;
};
struct PackedWeights {
  PackedMatrix embedding;  // separate, or lm_head's data where tied
  PackedMatrix lm_head;
  std::vector<PackedLayerWeights> layers;
  TokenRoundings roundings;
};

struct ModelWeights {
  MatrixView embedding;               // [vocab, hidden]
  MatrixView lm_head;                 // [vocab, hidden]; the embedding when tied
  const float* final_norm = nullptr;  // [hidden]
  std::vector<LayerWeights> layers;
  // Null: all weights are used as rows. Else every matrix is packed and the MatrixViews may have null data: the two
  // forms are never in memory together.
  std::shared_ptr<const PackedWeights> packed;
  int64_t bytes = 0;   // of all tensors as used
  std::string format;  // for display: "q4_1 (211), q8_0 (1), f32 (61)"
  std::shared_ptr<const void> storage;
};

}  // namespace tactus::compute
