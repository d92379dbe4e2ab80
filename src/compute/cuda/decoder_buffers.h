// The sizes of a decoder's buffers, by the blocks of a model.
#pragma once

#include "compute/config/config.h"
#include "compute/cuda/decoder.h"

namespace tactus::compute::cuda {

// Values (not bytes) per token, the largest of any block; `rows`: of experts per token.
struct BufferWidths {
  explicit BufferWidths(const ModelConfig& config);

  int64_t hidden = 0, q = 0, kv = 0, inner = 0, x = 0;
  int64_t experts = 0, expert_rows = 0, shared_inner = 0;
  int64_t layer_inputs = 0, streams = 1, group = 1, head_dim = 0;
};

// Whether layers need a second stream beside the residual: parallel blocks, or branches that wait for each other.
bool KeepsInputs(const ModelConfig& config);

}  // namespace tactus::compute::cuda
