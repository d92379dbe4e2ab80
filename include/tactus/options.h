// The engine's options, each declared once (tactus/option_fields.h: how they become flags, TACTUS_* variables, TOML
// keys, help and docs).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tactus/option_fields.h"
#include "tactus/sampling_options.h"
#include "tactus/scheduling_options.h"

namespace tactus {

// The words of options that `tactus models inspect` has too.
inline constexpr const char* kDtypeChoices = "auto|float32|bfloat16|float16";
inline constexpr const char* kActivationDtypeChoices = "auto|float32|bfloat16|mixed|int16|int8|fp8";
inline constexpr const char* kQuantizationChoices = "none|q8_0|int8|int4|int4_nearest";
inline constexpr const char* kKvCacheDtypeChoices = "auto|bfloat16|float32|int8|float16|fp8";

struct EngineOptions : SchedulingOptions {
  // Model
  std::string model;  // folder, GGUF file or a name of `tactus models`; empty: the default model
  std::vector<std::string> served_model_name;  // each may be several, separated by commas; empty: the model's own
  std::string dtype = "auto";
  std::string load_format = "auto";
  std::string activation_dtype = "auto";
  std::string quantization = "none";
  std::string weight_cache;         // folder; empty: none
  std::string chat_template;        // a .jinja file instead of the model's own
  int64_t seed = 0;                 // for dummy weights, and for per-request seeds that clients leave out
  std::string draft_model;          // as `model`; empty: none
  std::string profile;              // step times of this machine; empty: the default place, for --tbt-slo
  bool measure_step_times = false;  // at this start, even if an earlier start has stored some
  StatedSampling sampling;          // where requests leave values open
  // KV cache
  BytesText kv_cache_memory;
  std::string kv_cache_dtype = "auto";
  std::string kv_cache_dir;  // empty: cached prompts are forgotten at the end
  BytesText kv_cache_dir_size{int64_t{8} << 30};
  // Execution
  std::string device = "auto";
  int64_t threads = 0;
  std::string kernels;
  bool cascade_attention = true;
  bool batch_invariant = true;
  std::string overlap = "off";
  std::string attention_backend = "tactus";
  // Memory for requests outside the engine (bodies, parsing, stream buffers). Not a flag: the front end sets it.
  int64_t front_end_bytes = 0;
  // Loads stored step times of this machine even if no policy needs them. Not a flag.
  bool likes_step_times = false;
  // Secret that block keys derive from: engines with equal secrets can compare prefixes and move sequences; empty:
  // drawn at random. Not a flag: a command reads it from a file.
  std::string kv_secret;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Model");
    v.Field(
        "served-model-name", served_model_name,
        {.help = "the model's names in the API, separated by commas; may be repeated; requests may use any of them, "
                 "answers have the first; default: the model's own",
         .several = true});
    v.Field("dtype", dtype,
            {.choices = kDtypeChoices,
             .help = "auto: by the file's format; float32: the reference mode, weights dequantised, every sum and the "
                     "KV in f32; bfloat16: f16 and f32 weights are rounded to bfloat16; float16: on GPUs alone"});
    v.Field(
        "load-format", load_format,
        {.choices = "auto|dummy", .help = "auto: read the weights; dummy: seeded random weights for any config.json"});
    v.Field("activation-dtype", activation_dtype,
            {.choices = kActivationDtypeChoices,
             .help = "what the inputs of linear operators are rounded to; auto: mixed for quantised "
                     "weights, bfloat16 for bfloat16 ones; int8 is faster and less accurate; fp8 (e4m3, a scale for "
                     "each token): on GPUs alone, with FP8 weights"});
    v.Field("quantization", quantization,
            {.choices = kQuantizationChoices,
             .help = "quantise the weights at load; q8_0: 8 bits, a scale per 32; int8: 8 bits, a scale per row; int4: "
                     "4 bits, a scale per 64, by least squares against the model's activations, which takes a minute "
                     "or several (--weight-cache keeps it); int4_nearest: each weight to the nearest, which is fast "
                     "and far less accurate"});
    v.Field("weight-cache", weight_cache,
            {.help = "folder that keeps packed weights and measured step times for the next start; default: every "
                     "start packs, and step times are kept in the cache folder"});
    v.Field("chat-template", chat_template, {.help = "Jinja file that replaces the model's own chat template"});
    v.Field("seed", seed, {.help = "seed of dummy weights, and of requests without one"});
    v.Field("profile", profile,
            {.help = "file of this machine's step times, from which --tbt-slo chooses the budget; default: where "
                     "`tactus profile` writes it"});
    v.Field(
        "measure-step-times", measure_step_times,
        {.help = "measure step times at this start, even if an earlier one has stored some in the cache folder, and "
                 "replace those"});
    v.Field(
        "draft-model", draft_model,
        {.help = "with --speculation draft: a smaller model of the same vocabulary, a folder, a GGUF file or a name "
                 "of `tactus models`"});
    sampling.VisitFields(v);
    SchedulingOptions::VisitFields(v);
    v.Group("KV cache");
    v.Field(
        "kv-cache-memory", kv_cache_memory,
        {.unit = "bytes",
         .help = "most memory for KV; 0: on a CPU half of what is left, at most 8 GiB, on a GPU nine tenths of what is "
                 "left; a CPU allocates it as needed, a GPU at start"});
    v.Field(
        "kv-cache-dtype", kv_cache_dtype,
        {.choices = kKvCacheDtypeChoices,
         .help = "format of K and V; auto: that of --dtype, bfloat16 for auto; float16 and fp8 (e4m3): on GPUs alone"});
    v.Field("kv-cache-dir", kv_cache_dir,
            {.help = "folder that keeps the KV of prompts and answers for the next start; one process at a time; "
                     "default: no KV is kept"});
    v.Field("kv-cache-dir-size", kv_cache_dir_size,
            {.unit = "bytes",
             .help = "size limit of --kv-cache-dir; the least recently used KV is removed first; never more than "
                     "half of what is free on its disk"});
    v.Group("Execution");
    v.Field("device", device,
            {.choices = "auto|cpu|cuda",
             .help = "where the model is computed; auto: on a CUDA device if one is there and computes this model with "
                     "these options, else on the CPU"});
    v.Field("threads", threads,
            {.unit = "threads",
             .min = 0,
             .max = 1024,
             .help = "compute threads; 0: as many as the cores this process may use"});
    v.Field("kernels", kernels,
            {.choices = "|ref|scalar|avx2|avxvnni|avx512|amx|neon_dotprod|neon_i8mm",
             .help = "kernel set; default: the fastest that this machine runs"});
    v.Field("cascade-attention", cascade_attention,
            {.help = "read the KV of a prefix that decodes share once for all of them; does not change tokens"});
    v.Field("batch-invariant", batch_invariant,
            {.help = "a request's values do not depend on the requests beside it; off: on a CUDA device products may "
                     "use the fastest algorithm for each number of tokens, which changes rounding; on a CPU this is "
                     "always on"});
    v.Field("overlap", overlap,
            {.choices = "off|nano",
             .help = "nano: a CUDA device splits large steps in two, and one half reads the KV of its decodes while "
                     "the other multiplies; does not change tokens"});
    v.Field(
        "attention-backend", attention_backend,
        {.choices = "tactus|flashinfer",
         .help = "whose kernels compute attention on a CUDA device; flashinfer: in builds with it, for some models"});
  }
};

}  // namespace tactus
