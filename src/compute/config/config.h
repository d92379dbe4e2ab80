// A model's shape and settings as plain data, read from config.json or GGUF metadata. Usable without weights: the
// memory plan, the cost model and --load-format dummy need nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/config/blocks.h"
#include "compute/tensor/dtype.h"
#include "tactus/request.h"
#include "tactus/sampling_options.h"

namespace tactus::compute {

enum class RopeScaling : uint8_t { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope, kProportional };

struct RopeConfig {
  int32_t rotary_dim = 0;  // leading dimensions of a head that turn; 0: all
  float theta = 10000.0f;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;               // llama3
  float high_freq_factor = 4.0f;              // llama3
  int64_t original_max_position = 0;          // all but linear
  float attention_factor = 1.0f;              // yarn, longrope: multiplies cos and sin
  float beta_fast = 32.0f, beta_slow = 1.0f;  // yarn: turns within the original length between which it interpolates
  bool truncate = true;                       // yarn: to whole dimensions
  // proportional: the share of the pairs that turn, with frequencies as if all of them turned.
  float proportion = 1.0f;
  std::vector<float> short_factors, long_factors;  // longrope: divide inv_freq, [rotary_dim / 2]
  bool interleaved = false;              // GGUF "llama" files hold q and k rows permuted for pairs (2i, 2i + 1)
  std::vector<float> frequency_factors;  // GGUF rope_freqs tensor: divides inv_freq, [rotary_dim / 2]; empty: none

  bool operator==(const RopeConfig&) const = default;
};

// A tensor and the number of its layer; -1: of the model.
struct ModelTensor : TensorDecl {
  int64_t layer = -1;
};

// The shape of a decoder as files state it. A family makes layers of it
// (Architecture::layers).
struct StatedShape {
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  float norm_eps = 1e-5f;
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;  // Qwen2
  bool o_bias = false;    // attention_bias of Llama configs
  bool mlp_bias = false;
  bool qk_norm = false;         // Qwen3: RMSNorm over head_dim of q and k, before RoPE
  std::vector<int32_t> window;  // [num_layers], 0: full attention; Mistral's sliding window
  // [num_layers], where layers differ; empty: as above.
  std::vector<int64_t> layer_kv_heads, layer_inner;
};

// Inputs of every token to every layer (per-layer embeddings, Gemma 3n and 4), [layers, size] per token:
// scale * (norm(projection_scale * projection(x)) + table_scale * the token's row of a table), x the scaled embedding.
struct LayerInputs {
  int64_t size = 0;  // 0: none
  int64_t rows = 0;  // of the table; tokens beyond have the first row's (Gemma 3n)
  NormSpec norm;     // over `size`
  float projection_scale = 1.0f, table_scale = 1.0f, scale = 1.0f;

  bool operator==(const LayerInputs&) const = default;
};

struct ModelConfig {
  std::string architecture;  // row of architectures.def, "llama"
  std::string name;          // for display
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;    // rows of the embedding
  int64_t max_position = 0;  // context length of the model's training
  bool tie_embeddings = false;
  std::vector<Layer> layers;
  NormSpec final_norm = RmsNormOf(Role::kFinalNorm, 1e-5f);
  RopeConfig rope;
  std::optional<RopeConfig> local_rope;  // of layers with RopeChoice::kLocal
  float embedding_scale = 1.0f;          // times the embedding (Gemma, Granite)
  NormSpec embedding_norm;               // of the embedding (BLOOM)
  LayerInputs layer_inputs;
  int64_t streams = 1;            // of the residual (StreamsBlock); all but the first are projections of the embedding
  int64_t learned_positions = 0;  // rows of the position table (GPT-2, OPT); 0: none
  int32_t first_position = 0;     // the row of position 0 (OPT: 2)
  float logits_scale = 1.0f;      // Granite, Command-R
  float logits_softcap = 0.0f;    // Gemma 2: cap * tanh(logit / cap); 0: none
  bool lm_head_bias = false;
  int64_t unused_layers = 0;  // that files have beyond `layers`: they predict several tokens at once (GLM-4.5)
  bool text_part = false;  // of a model that also reads pictures: its safetensors have other tensors beside the text's
  DType weight_dtype = DType::kBF16;  // of the bulk of the linear weights

  std::vector<TokenId>
      stop_ids;  // union of config, generation_config, GGUF eos, eot and eom; engine/start/turn_ends.h adds
  TokenId assumed_stop_id = -1;  // the stop id that transformers assumes and no file states; -1: none
  TokenId bos_id = -1;
  StatedSampling generation_defaults;  // of generation_config.json or general.sampling.*
  std::vector<std::string> warnings;   // settings in the files that this build does not follow

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // Every tensor of the model in a forward pass's reading order; a tied output matrix is the embedding's and not listed
  // again.
  std::vector<ModelTensor> Tensors() const;
  int64_t layer_inputs_width() const { return num_layers() * layer_inputs.size; }
  std::vector<int32_t> Windows() const;  // of each layer's attention, 0: full or no attention
  bool HasWindows() const;
  int64_t NumParameters() const;
  int64_t KvBytesPerToken(DType kv_dtype) const;  // K and V, all layers
};

// The attention whose heads and rotary positions are those of the whole model: of the first layer without a window;
// else of the first layer.
const AttentionBlock& FullAttentionOf(const ModelConfig& config);
// The width of each layer's feed-forward block. One number: of mixtures where other layers have experts instead; of the
// experts where no layer has such a block.
std::vector<int64_t> InnerSizes(const ModelConfig& config);

// Input to the memory plan, computed before any allocation (bytes). A pure function of shape and options.
struct MemoryPlanInput {
  int64_t weight_bytes = 0;     // in memory: mapped file bytes, or dequantised size in the float32 mode
  int64_t available_bytes = 0;  // limit of the cgroup and the machine
  int64_t kv_memory_bytes = 0;  // --kv-cache-memory; 0: min(half of what is left after weights, 8 GiB)
  int64_t swap_bytes = 0;       // --swap-space: a second arena for the KV of swapped-out sequences
  int64_t front_end_bytes = 0;  // limit for requests outside the engine; lowered where memory is short
  int64_t max_model_len = 0;    // --max-model-len; 0: the model's, or less if the KV memory is smaller
  int64_t max_num_seqs = 256;
  int64_t max_step_tokens = 512;  // largest step that composition can make
  int32_t block_size = 16;
  DType kv_dtype = DType::kBF16;
  int32_t threads = 1;
};
struct MemoryPlan {
  int64_t weight_bytes = 0, kv_bytes = 0, activation_bytes = 0, total_bytes = 0, available_bytes = 0;
  int64_t num_blocks = 0;
  int64_t swap_bytes = 0, swap_blocks = 0;  // whole blocks
  int64_t front_end_bytes = 0;              // the input's, or lowered to what remains
  int64_t max_model_len = 0;
  std::string ToString() const;  // the table that start-up prints
};
// If it does not fit: kInvalidArgument with the arithmetic and the flag to change.
Result<MemoryPlan> PlanMemory(const ModelConfig& config, const MemoryPlanInput& input);

inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxExperts = 1024, kMaxChosenExperts = 64;
inline constexpr int64_t kMaxExpertsOfAllLayers = 1 << 16;
inline constexpr int64_t kMaxStreams = 8;
inline constexpr int64_t kMaxConfigHeadDim = 512;  // kernels::kMaxHeadDim

// Whether layers can be made of it: their number, and a window for each.
Status ValidateShape(const StatedShape& shape);

// Shape errors that would make a forward pass read out of bounds: each with field, value and limit.
Status ValidateConfig(const ModelConfig& config);

}  // namespace tactus::compute
