// A model as a list of layers, a layer as a list of blocks. A block declares its tensors, its KV and its work; loaders,
// packing, dummy weights, memory plan, calibration, `tactus models inspect` and the cost model read the declarations
// and name no block. A block runs in compute/model/ (a forward pass for each backend).
//
// Plain data: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace tactus::compute {

// What a tensor is to its block. Matrices first; a bias follows the tensor that it belongs to.
enum class Role : uint8_t {
  kEmbedding,
  kLmHead,
  kQ,
  kK,
  kV,
  kO,
  kGate,
  kUp,
  kDown,
  // Vectors, always f32.
  kFinalNorm,
  kAttentionNorm,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kFeedForwardNorm,
  kGateBias,
  kUpBias,
  kDownBias,
  kNone,
};
inline constexpr size_t kMatrixRoles = static_cast<size_t>(Role::kFinalNorm);
inline constexpr size_t kVectorRoles = static_cast<size_t>(Role::kNone) - kMatrixRoles;
constexpr bool IsMatrix(Role role) {
  return role < Role::kFinalNorm;
}

// The axis along which ranks divide a tensor.
enum class Split : uint8_t {
  kNone,  // every rank has all of it
  kRows,  // outputs: a rank computes its share of them
  kCols,  // inputs: the ranks' products are added
};

struct TensorDecl {
  Role role = Role::kNone;
  int64_t rows = 0;
  int64_t cols = 1;      // 1 for vectors
  bool is_norm = false;  // a vector around 1 (dummy weights)
  Split split = Split::kNone;

  int64_t elements() const { return rows * cols; }
};

// RMSNorm (Zhang and Sennrich, 2019): x / sqrt(mean(x^2) + eps) * w.
struct NormSpec {
  Role weight = Role::kNone;  // kNone: no norm
  float eps = 1e-5f;
};

// Softmax attention over paged K and V, with rotary positions.
struct AttentionBlock {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int32_t window = 0;  // positions that a query sees, its own included; 0: all
  bool qkv_bias = false, o_bias = false;
  bool qk_norm = false;  // RMSNorm over head_dim of q and k, before RoPE
  float norm_eps = 1e-5f;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
};

// down(silu(gate(x)) * up(x)) (Shazeer, "GLU Variants", 2020).
struct GatedFeedForwardBlock {
  int64_t inner = 0;
  bool bias = false;

  std::vector<TensorDecl> Tensors(int64_t hidden) const;
};

using Block = std::variant<AttentionBlock, GatedFeedForwardBlock>;

// One step of a layer: stream += block(norm(stream)).
struct LayerBlock {
  NormSpec norm;
  Block block;

  // In a forward pass's reading order: matrices and vectors mixed, the norm first.
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
};
using Layer = std::vector<LayerBlock>;

// The attention of a layer; null: it has none.
const AttentionBlock* AttentionOf(const Layer& layer);

}  // namespace tactus::compute
