// Options that a server and its simulation share, each declared once: the same flags with the same defaults, so that a
// simulation matches what is served.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tactus/option_fields.h"
#include "tactus/policy_options.h"

namespace tactus {

struct SchedulingOptions {
  std::string scheduler = "tactus";
  std::string order, admission, composition, budget, preemption, predictor;  // empty: the preset's
  std::string gate = "queue";
  int64_t token_budget = 0;  // 0: the preset's (512)
  DurationText tbt_slo{kAutoDuration};
  std::string step_limit = "context";
  int64_t max_num_seqs = 256;
  int64_t max_queue = 2048;
  double watermark = 0.0;
  bool reserve_full = false;
  std::vector<std::string> slo_class;
  PolicyOptions policy;
  // Speculation
  std::string speculation = "none";
  int64_t draft_tokens = 16;
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
    v.Field("order", order, {.help = "which request is next in the queue; default: the preset's"});
    v.Field("admission", admission,
            {.help = "whether a request may start, given the KV memory; default: the preset's"});
    v.Field("composition", composition, {.help = "which tokens make up a step; default: the preset's"});
    v.Field("budget", budget, {.help = "how many tokens a step may have; default: the preset's"});
    v.Field("preemption", preemption,
            {.help = "which sequence gives its KV back when memory is short, and how; default: the preset's"});
    v.Field("gate", gate,
            {.help = "which request may queue: none, queue (--max-queue), or predict (a request that is predicted to "
                     "miss its time to first token is refused at once, 503); classes may have others (--slo-class)"});
    v.Field("predictor", predictor,
            {.help = "predicts output lengths: none or history; in simulation also oracle, noisy:SIGMA and stated; "
                     "default: history where the preset needs one"});
    v.Field("max-num-batched-tokens", token_budget,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 20,
             .alias = "token-budget",
             .help = "most tokens in one step; 0: the preset's, or what --tbt-slo allows"});
    v.Field("tbt-slo", tbt_slo,
            {.unit = "duration",
             .choices = "auto|none",
             .help = "largest gap between two tokens of a stream, kept by the size of every step (budgets promise "
                     "and tbt-slo; profile: by one size for all); auto: reading speed, 187.5 ms, or twice the time "
                     "of the step's decodes where that is more, unless --token-budget is given"});
    v.Field("step-limit", step_limit,
            {.choices = "context|none",
             .help = "most tokens in a step of a preset without a token budget; context: the context length, "
                     "so that memory can be planned; none: any number (simulation only)"});
    v.Field("max-num-seqs", max_num_seqs,
            {.unit = "sequences", .min = 1, .max = 65536, .help = "most sequences that hold KV at once"});
    v.Field("max-queue", max_queue,
            {.unit = "requests",
             .min = 1,
             .max = 1 << 20,
             .help = "most requests waiting; one more is rejected (503), unless its gate is none"});
    v.Field("watermark", watermark,
            {.min = 0, .max = 0.9, .help = "share of the KV blocks that admission leaves free for decodes"});
    v.Field("reserve-full", reserve_full,
            {.help = "admission max-length reserves the whole context instead of prompt + max_tokens"});
    v.Field(
        "slo-class", slo_class,
        {.help =
             "a class of service, NAME:ttft=500ms,tbt=50ms,jct=10s,weight=4,share=20%,gate=shed (each optional); "
             "may be repeated: the objectives of its requests that state none, their weight where clients share, their "
             "least share of the prompt tokens that start while some of them wait, and whether they queue (off, "
             "queue or shed: --gate none, queue or predict)"});
    policy.VisitFields(v);
    v.Group("Speculation");
    v.Field(
        "speculation", speculation,
        {.choices = "none|ngram|draft",
         .help = "guesses of the next tokens, of which a step verifies as many as are predicted to pay; they change no "
                 "token. ngram: what followed the same text before; draft: a smaller model "
                 "(--draft-model)"});
    v.Field("draft-tokens", draft_tokens,
            {.unit = "tokens", .min = 1, .max = 64, .help = "most guesses of one sequence in one step"});
    v.Group("Requests");
    v.Field("max-model-len", max_model_len,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 24,
             .help = "longest context, prompt and answer together; 0: the model's, or what the KV memory holds"});
    v.Field("default-max-tokens", default_max_tokens,
            {.unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .help = "longest answer of a chat request that states no max_tokens"});
    v.Field("trace-out", trace_out,
            {.help = "file that records every input of the step loop, for `tactus sim --replay`"});
    v.Group("KV cache");
    v.Field("block-size", block_size, {.unit = "tokens", .min = 1, .max = 256, .help = "positions in one KV block"});
    v.Field("prefix-caching", prefix_caching, {.help = "reuse the KV of equal prompt prefixes"});
    v.Field("swap-space", swap_space,
            {.unit = "bytes",
             .help = "host memory of an engine that keeps the KV of preempted sequences; 0: they are recomputed"});
  }
};

}  // namespace tactus
