// The cost of a request on a device: the time of its compute-bound and of its memory-bound operators, each without the
// other (BlendServe, 2.3). Filled by a simulation, a profile of processors or a GPU's data sheet. Plain data, pure
// functions.
#pragma once

#include <cstdint>

#include "tactus/status.h"

namespace tactus::offline {

struct BatchCostModel {
  double flops_per_token = 0;     // of the linear operators: 2 x parameters
  double attention_flops = 0;     // of a prompt of p tokens, divided by p^2: 4 x hidden size x layers
  double kv_bytes_per_token = 0;  // 4 x kv heads x head size x layers with 16-bit K and V
  double flops_per_s = 0;
  double bytes_per_s = 0;

  // Seconds of the linear operators and the attention of the first `tokens` of a prompt.
  double PrefixSeconds(int64_t tokens) const {
    const auto t = static_cast<double>(tokens);
    return (flops_per_token * t + attention_flops * t * t) / flops_per_s;
  }
  // "Comp": the whole compute time of a request, without sharing.
  double ComputeSeconds(int64_t prompt_tokens, int64_t output_tokens) const {
    return PrefixSeconds(prompt_tokens) + flops_per_token * static_cast<double>(output_tokens) / flops_per_s;
  }
  // "Mem": reading the K and V of its sequence once for each token that it generates. `prompt_tokens`: the prompt
  // tokens read for this request; a fraction of those that several requests read together (ReadPrompts,
  // offline/plan/totals.h).
  double MemorySeconds(double prompt_tokens, int64_t output_tokens) const {
    const auto d = static_cast<double>(output_tokens);
    return kv_bytes_per_token * (prompt_tokens * d + d * d / 2) / bytes_per_s;
  }
  // Every value is finite and, except attention_flops, more than 0.
  Status Check() const;
};

}  // namespace tactus::offline
