// What a server and a simulation of it have in common, each option declared once: the same flags with the same
// defaults, so that what is simulated is what is served.
#pragma once

#include <cstdint>
#include <string>

#include "tactus/option_fields.h"
#include "tactus/policy_parameters.h"

namespace tactus {

struct SchedulingOptions {
  std::string scheduler = "sarathi-serve";
  std::string order, admission, composition, budget, preemption, predictor;  // each empty: as the preset says
  int64_t token_budget = 0;                                                  // 0: the preset's (512)
  DurationText tbt_slo;
  std::string step_limit = "context";
  int64_t max_num_seqs = 256;
  int64_t max_queue = 2048;
  double watermark = 0.0;
  bool reserve_full = false;
  PolicyParameters policy;
  // Requests
  int64_t max_model_len = 0;
  int64_t default_max_tokens = 4096;
  std::string trace_out;
  // KV cache
  int64_t block_size = 16;
  bool prefix_caching = true;
  BytesText swap_space;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Scheduling");
    v.Field("scheduler", scheduler,
            {.help = "a preset: order, admission, composition, budget and preemption in one name"});
    v.Field("order", order, {.help = "who goes next in the queue; overrides the preset"});
    v.Field("admission", admission, {.help = "may a request start, given KV memory; overrides the preset"});
    v.Field("composition", composition, {.help = "which tokens make up a step; overrides the preset"});
    v.Field("budget", budget, {.help = "how large a step may be; overrides the preset"});
    v.Field("preemption", preemption, {.help = "who gives memory back; overrides the preset"});
    v.Field("predictor", predictor,
            {.help = "of output lengths, where the preset needs one: none or history; in simulation also oracle and "
                     "noisy:SIGMA"});
    v.Field("max-num-batched-tokens", token_budget,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 20,
             .alias = "token-budget",
             .help = "token budget of a step; 0: the preset's"});
    v.Field("tbt-slo", tbt_slo,
            {.unit = "duration", .help = "largest gap between tokens; chooses the budget where the preset profiles"});
    v.Field(
        "step-limit", step_limit,
        {.choices = "context|none",
         .help = "of presets without a token budget: a step takes at most as many tokens as the context has, so that "
                 "memory can be planned, or any number (simulation only)"});
    v.Field("max-num-seqs", max_num_seqs,
            {.unit = "sequences", .min = 1, .max = 65536, .help = "most sequences that hold KV at once"});
    v.Field("max-queue", max_queue,
            {.unit = "requests",
             .min = 1,
             .max = 1 << 20,
             .help = "most requests waiting; beyond it one is rejected (503)"});
    v.Field("watermark", watermark,
            {.min = 0, .max = 0.9, .help = "share of KV blocks that admission keeps free for decodes"});
    v.Field("reserve-full", reserve_full,
            {.help = "max-length admission reserves the whole context, as the papers' baselines do"});
    policy.VisitFields(v);
    v.Group("Requests");
    v.Field("max-model-len", max_model_len,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 24,
             .help = "context limit; 0: the model's, or what the KV memory holds"});
    v.Field("default-max-tokens", default_max_tokens,
            {.unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .help = "most tokens of a chat that does not say how long its answer may be"});
    v.Field("trace-out", trace_out, {.help = "record every input of the step loop, for replay"});
    v.Group("KV cache");
    v.Field("block-size", block_size, {.unit = "tokens", .min = 1, .max = 256, .help = "tokens per KV block"});
    v.Field("prefix-caching", prefix_caching, {.help = "reuse the KV of equal prompt prefixes (on|off)"});
    v.Field("swap-space", swap_space,
            {.unit = "bytes", .help = "host memory of an engine for swap preemption; 0: recompute"});
  }
};

}  // namespace tactus
