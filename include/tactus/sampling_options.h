// Sampling values that one source sets and another may leave open, in order of precedence: request, command line, model
// file, built-in default (docs/reference/api.md).
#pragma once

#include <cstdint>
#include <optional>

#include "tactus/option_fields.h"
#include "tactus/request.h"

namespace tactus {

struct StatedSampling {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;  // 0: all

  bool any() const {
    return temperature || top_p || min_p || repetition_penalty || presence_penalty || frequency_penalty || top_k;
  }

  template <class V>
  void VisitFields(V& v) {
    v.Group("Sampling, for values that a request leaves open");
    v.Field("temperature", temperature, {.min = 0, .max = 2, .help = "0 is greedy; default: the model's, else 0.8"});
    v.Field("top-p", top_p,
            {.min = 1e-6,
             .max = 1,
             .help = "share of the probability that is sampled from; default: the model's, else 0.95"});
    v.Field("top-k", top_k,
            {.unit = "tokens",
             .min = -1,
             .max = 2147483647,
             .help = "number of the likeliest tokens to sample from; 0 or -1: all; default: the model's, else 40"});
    v.Field(
        "min-p", min_p,
        {.min = 0,
         .max = 1,
         .help =
             "only tokens of at least this share of the likeliest one's probability; default: the model's, else 0.05"});
    v.Field(
        "repetition-penalty", repetition_penalty,
        {.min = kMinRepetitionPenalty,
         .max = kMaxRepetitionPenalty,
         .help = "divides the logits of tokens in the prompt or answer; default: the model's, else 1, which is none"});
    v.Field("presence-penalty", presence_penalty,
            {.min = -2,
             .max = 2,
             .help = "subtracted from the logits of tokens in the answer; default: the model's, else 0"});
    v.Field(
        "frequency-penalty", frequency_penalty,
        {.min = -2,
         .max = 2,
         .help = "subtracted from a token's logit for each time it is in the answer; default: the model's, else 0"});
  }
};

}  // namespace tactus
