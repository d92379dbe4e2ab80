// How the router of a mixture chooses a token's experts. Plain C++17, since kernels include it.
#pragma once

#include <cstdint>

namespace tactus::compute {

// What the router makes of its logits: the scores by which a token's experts are chosen, and their weights.
enum class RouterScore : uint8_t {
  kSoftmax,        // over all experts (Shazeer et al., "Outrageously Large Neural Networks", 2017)
  kSigmoid,        // of each logit (DeepSeek-V3, section 2.1.2)
  kChosenSoftmax,  // the largest logits are chosen; weights are their softmax (Mixtral, section 2.1)
  kChosenSigmoid,  // the largest logits are chosen; weights are the sigmoid of each (Llama 4)
  kSparseMixer,    // two experts, each weighed among the experts with a near logit (Phi-3.5-MoE; router.h)
};

struct RouterSpec {
  int32_t chosen = 1;  // experts per token
  RouterScore score = RouterScore::kSoftmax;
  bool renormalise = false;  // the chosen weights are divided by their sum
  float scale = 1.0f;        // of the weights
  bool bias = false;         // added to the logits (gpt-oss)
  bool choice_bias = false;  // added to the scores for the choice, not to the weights (DeepSeek-V3, section 2.1.2)
  // Experts are chosen from the `chosen_groups` of `groups` equal groups whose two best scores have the largest sum.
  int32_t groups = 1, chosen_groups = 1;
  bool weighs_input = false;  // an expert's input is multiplied with its weight, not its output (Llama 4)
  float logit_scale = 1.0f;   // of the logits, before their scores (Gemma 4), as is the next
  bool expert_scale = false;  // the weights are multiplied with those of kExpertScale at the end

#if __cplusplus >= 202002L
  bool operator==(const RouterSpec&) const = default;
#endif
};

}  // namespace tactus::compute
