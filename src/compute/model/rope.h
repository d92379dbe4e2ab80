// Rotary position embedding: the frequencies of one model, as transformers computes them (every step in f32). Su et
// al., "RoFormer" (2021); llama3 scaling as in Llama 3.1; linear and dynamic (NTK)
// scaling; YaRN (Peng et al., 2023).
//
// Dynamic NTK differs from transformers on purpose. There the base grows with the longest sequence that the module has
// processed so far, so a token's keys depend on how its prompt was cut into chunks and on earlier requests. That can
// neither be batched nor cached by prefix. Here the base depends on max_model_len alone, as for a sequence of that
// length:
//   max_model_len <= original_max_position: no scaling ever, equal to transformers for every sequence it allows;
//   max_model_len >  original_max_position: one base for all positions, equal to transformers for a prompt of exactly
//     max_model_len tokens in one piece. Short sequences lose a little accuracy.
// A base per position (what transformers does when it decodes one token at a time) would be invariant too, but then the
// angle between two tokens no longer depends on their distance alone: just past the original length the slow
// dimensions would turn backwards.
//
// LongRoPE (Ding et al., 2024) has factors for sequences within the original length and others beyond it; transformers
// changes between them when a sequence grows past it, so that keys of one sequence differ. Here max_model_len alone
// decides, as for dynamic scaling.
//
// Immutable after construction: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/config/config.h"
#include "compute/kernels/ops.h"

namespace tactus::compute {

class Rope {
 public:
  // rotary_dim: even, >= 2. Only dynamic scaling uses max_model_len.
  Rope(const RopeConfig& config, int32_t rotary_dim, int64_t max_model_len);

  // Valid while this object lives.
  RopeTable table() const;
  const std::vector<float>& inv_freq() const { return inv_freq_; }  // [rotary_dim / 2]

 private:
  std::vector<float> inv_freq_;
  float attention_scale_ = 1.0f;
  bool interleaved_;
};

}  // namespace tactus::compute
