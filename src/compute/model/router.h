// The choice of experts: which feed-forward blocks of a mixture a token uses, and with what weights.
//
// A pure function of one token's logits, in f32 with a fixed order of operations: neither the batch nor the kernel set
// changes a choice. Any thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "compute/config/blocks.h"

namespace tactus::compute {

inline float Sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

// Bytes of scratch that Route needs.
int64_t RouteScratchBytes(int64_t experts);

// Chooses spec.chosen of `experts` experts by logits[experts]. chosen: their numbers, ascending; weights: of each.
// `choice_bias` and `expert_scale` [experts], null: none. Of equal scores the lower number wins, and NaN loses to every
// number.
//   kSoftmax, kSigmoid  scores s; the largest s + choice_bias are chosen, and the weight is s
//   kChosenSoftmax      s = logit; the weights are the softmax of the chosen logits
//   kChosenSigmoid      s = logit; the weight is the sigmoid of the logit
//   kSparseMixer        two rounds (Phi-3.5-MoE; Liu et al., "GRIN", 2024): the largest logit m is chosen, and its
//                       weight is its softmax among the experts with (m - logit) / max(|logit|, m) <= 0.02; then the
//                       same without it
// then the weights are divided by their sum, if spec.renormalise, and multiplied with spec.scale and with
// expert_scale of their experts.
void Route(const RouterSpec& spec, int64_t experts, const float* logits, const float* choice_bias,
           const float* expert_scale, float* scratch, int32_t* chosen, float* weights);

}  // namespace tactus::compute
