// The tensors of a model by their roles, as blocks declare them.
//
// Plain data: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tactus::compute {

// What a tensor is to its block. Matrices first; a bias follows the tensor that it belongs to.
enum class Role : uint8_t {
  kEmbedding,
  kPositions,
  kLmHead,
  kQ,
  kK,
  kV,
  kO,
  kGate,
  kUp,
  kDown,
  kRouter,
  kExpertGate,  // of one expert each, with its number (TensorDecl::expert)
  kExpertUp,
  kExpertDown,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedWeight,
  kInputTable,       // LayerInputs
  kInputProjection,  // LayerInputs
  kInputGate,
  kInputDown,
  kStreamIn,      // ModelConfig::streams; of each stream but the first, with its number (TensorDecl::expert)
  kStreamOut,     // as kStreamIn
  kStreamRouter,  // StreamsBlock, as are the next two
  kPredict,
  kCorrect,
  kLowRankLeft,
  kLowRankRight,
  // Vectors, always f32.
  kEmbeddingNorm,
  kEmbeddingNormBias,
  kFinalNorm,
  kFinalNormBias,
  kLmHeadBias,
  kAttentionNorm,
  kAttentionNormBias,
  kAttentionPostNorm,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kSinks,
  kFeedForwardNorm,
  kFeedForwardNormBias,
  kFeedForwardPostNorm,
  kDensePostNorm,  // of a feed-forward block beside experts
  kGateBias,
  kUpBias,
  kDownBias,
  kRouterBias,
  kChoiceBias,
  kRouterNorm,
  kExpertScale,
  kExpertsNorm,
  kExpertsPostNorm,
  kExpertGateBias,
  kExpertUpBias,
  kExpertDownBias,
  kInputNorm,
  kInputPostNorm,
  kLayerScale,
  kStreamRouterNorm,
  kStreamScale,
  kLowRankNorm,
  kNone,
};
inline constexpr size_t kMatrixRoles = static_cast<size_t>(Role::kEmbeddingNorm);
inline constexpr size_t kVectorRoles = static_cast<size_t>(Role::kNone) - kMatrixRoles;
constexpr bool IsMatrix(Role role) {
  return role < Role::kEmbeddingNorm;
}
// Matrices whose products decide which experts run or how streams mix. They are used as the file has them and never
// quantised at load.
constexpr bool IsRouting(Role role) {
  return role == Role::kRouter || role == Role::kSharedWeight || role == Role::kStreamRouter ||
         role == Role::kPredict || role == Role::kCorrect;
}

// The axis along which ranks divide a tensor.
enum class Split : uint8_t {
  kNone,  // every rank has all of it
  kRows,  // outputs: a rank computes its share of them
  kCols,  // inputs: the ranks' products are added
};

// The rows of a tensor within a larger one that files fuse from several (q, k and v; gate and up): one after another,
// or in `groups` equal groups, each with its share of q, then of k, then of v (TensorSource). With as many groups as
// rows, gate and up alternate.
struct FusedRows {
  int64_t first = 0;  // the tensor's, where the parts follow one another
  int64_t total = 0;  // rows of the larger tensor; 0: never fused
  int64_t groups = 1;
};

struct TensorDecl {
  Role role = Role::kNone;
  int64_t rows = 0;
  int64_t cols = 1;      // 1 for vectors
  bool is_norm = false;  // a vector around 1 (dummy weights)
  Split split = Split::kNone;
  FusedRows fused;
  int64_t expert = -1;  // the number of the expert or of the stream that has it; -1: of neither

  int64_t elements() const { return rows * cols; }
};

}  // namespace tactus::compute
