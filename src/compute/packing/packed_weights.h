// A model's weights for the CPU: its matrices in panels (compute/kernels/packed/packed.h) beside the norms and biases
// of ModelWeights. Immutable after loading: any thread.
#pragma once

#include <memory>
#include <vector>

#include "compute/kernels/packed/packed.h"
#include "compute/weights/weights.h"

namespace tactus::compute {

struct PackedLayerWeights : LayerMatrices<PackedMatrix> {
  std::vector<PackedLayerWeights> experts;  // as LayerWeights'
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
  PackedMatrix positions;
  PackedMatrix lm_head;
  PackedLayerWeights outside;  // other matrices of no layer
  std::vector<PackedLayerWeights> layers;
  TokenRoundings roundings;
};

struct CpuWeights : ModelWeights {
  // Null: all weights are used as rows. Else every matrix is packed and the MatrixViews may have null data: the two
  // forms are never in memory together.
  std::shared_ptr<const PackedWeights> packed;
};

}  // namespace tactus::compute
