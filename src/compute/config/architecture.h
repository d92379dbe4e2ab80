// One architecture as data: the spelling of its files, its defaults, and how its layers are made of blocks. The two
// readers (hf_config.cc, gguf_config.cc) and the weight builder are generic over it. A new architecture is one file
// under arch/ and one row in architectures.def.
//
// Immutable, static storage: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/config/blocks.h"
#include "compute/config/config.h"
#include "compute/config/family_fields.h"
#include "compute/config/recorded_fields.h"
#include "compute/config/tensor_names.h"

namespace tactus::compute {

// Which layers attend through a sliding window.
enum class WindowRule : uint8_t {
  kNone,         // full attention always
  kEveryLayer,   // `sliding_window`, null: full attention (Mistral)
  kUpperLayers,  // only under `use_sliding_window`: layers from `max_window_layers` on, or as `layer_types` says (Qwen)
};

// transformers' defaults for keys absent from config.json. -1: the field is required, or derived (kv heads, head_dim).
struct HfDefaults {
  int64_t num_kv_heads = -1;  // -1: as many as attention heads
  int64_t head_dim = -1;      // -1: hidden_size / num_attention_heads
  int64_t max_position = 2048;
  int64_t sliding_window = 0;
  int64_t bos_id = -1;
  int64_t eos_id = -1;
  bool tied = false;             // the output matrix is the embedding
  int64_t vocab = 0, heads = 0;  // 0: required
  int64_t inner_factor = 0;      // > 0: intermediate_size over hidden_size; 0: required
};

// The keys of config.json under which a family states its shape.
struct HfKeys {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* kv_heads = "num_key_value_heads";
  const char* inner = "intermediate_size";  // absent: four times the hidden size, if the family's default says so
  const char* max_position = "max_position_embeddings";
  const char* norm_eps = "rms_norm_eps";
  const char* activation = "hidden_act";
  // Null: the family has no such key.
  const char* qk_norm = nullptr;       // whether q and k have norms
  const char* lm_head_bias = nullptr;  // whether the output matrix has a bias
  const char* rotary_dim = nullptr;    // leading dimensions of a head that turn, if not all of them do
  const char* rotary_part = nullptr;   // their share, beside "partial_rotary_factor"
  const char* rope_theta = nullptr;    // beside "rope_theta"
  const char* query_scalar = nullptr;  // 1 / scale^2 of attention's scores
};

// The keys of config.json under which a family states its mixture of experts. `experts` and `chosen` are read under the
// keys of any family. Null: the family has no such key.
struct HfMixtureKeys {
  const char* experts = "num_experts";
  const char* chosen = "num_experts_per_tok";
  const char* inner = "moe_intermediate_size";  // the width of an expert; null: HfKeys::inner
  const char* shared_inner = nullptr;           // the width of the shared expert
  const char* used = nullptr;                   // a flag: there are experts
  const char* step = nullptr;                   // every how manyth layer has experts
  // Of routers with a bias for the choice.
  const char* dense = "first_k_dense_replace";  // the layers before the first one with experts
  const char* shared = "n_shared_experts";      // shared experts, which run as one
};

// A family's layers. May change `config` beside them: norms and scales of the embedding and of the output, positions.
// Refuses in `fields` what it does not support.
using LayerMaker = std::vector<Layer> (*)(FamilyFields& fields, const StatedShape& shape, ModelConfig* config);

// What the files of a family alone state of a model, as `layers` reads it.
using FieldLister = FieldRecord (*)(const ModelConfig& config);
inline FieldRecord NoOwnFields(const ModelConfig&) {
  return {};
}

// Attention and a gated feed-forward block, an RMSNorm before each: Llama and its descendants.
std::vector<Layer> PreNormLayers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config);
// As PreNormLayers with norms after the blocks too (Gemma 2), or only after them (OLMo 2).
std::vector<Layer> PrePostNormLayers(const StatedShape& shape);
std::vector<Layer> PostNormLayers(const StatedShape& shape);
// Attention and `feed_forward`, a LayerNorm before each. `parallel`: both read the same stream; `one_norm`: through the
// first one's norm.
struct LayerNormOptions {
  bool bias = true;  // of the norms
  bool parallel = false;
  bool one_norm = false;
};
std::vector<Layer> LayerNormLayers(const StatedShape& shape, const Block& feed_forward, LayerNormOptions options = {});
// The attention of a layer and its feed-forward block as `shape` states them.
AttentionBlock AttentionOf(const StatedShape& shape, size_t layer);
GatedFeedForwardBlock GatedOf(const StatedShape& shape, size_t layer = 0);
FeedForwardBlock PlainOf(const StatedShape& shape);
// "silu", "gelu", "gelu_pytorch_tanh" ... as transformers names them; nullopt: not built.
std::optional<Activation> FindActivation(std::string_view name);
// A whole number under the first of these names of config.json that is there, or under the GGUF name; else `fallback`.
int64_t WholeNumber(FamilyFields& fields, std::initializer_list<const char*> hf, const char* gguf, int64_t fallback);
// `value`, which was read under `key`, as a whole number; refuses others and returns `fallback`.
int64_t WholeOf(FamilyFields& fields, FieldKey key, double value, int64_t fallback);
// "has 3 entries for 4 layers".
std::string EntriesText(size_t entries, size_t layers);
// Whether a list has one entry for each layer; refuses it if not.
bool HasOneForEach(FamilyFields& fields, FieldKey key, size_t entries, size_t layers);
// The size of windows that a file states.
inline int32_t WindowOr(FamilyFields& fields, int64_t fallback) {
  return static_cast<int32_t>(WholeNumber(fields, {"sliding_window"}, "attention.sliding_window", fallback));
}
// In GGUF files: one flag for each layer, or the period of layers without a window.
inline constexpr FieldKey kWindowPattern{nullptr, "attention.sliding_window_pattern"};
// Windows by `layer_types`, or by a pattern: every `period`-th layer sees all positions.
void SetWindows(FamilyFields& fields, int32_t window, int64_t period, std::vector<Layer>* layers);

struct Architecture {
  std::string_view name;           // equals the row's name
  std::string_view hf_class;       // config.json "architectures"
  std::string_view hf_model_type;  // config.json "model_type"
  std::string_view gguf_name;      // general.architecture; empty: its GGUF files use another architecture's name
  std::string_view gguf_read_as;   // that name; empty: it has its own, or its models have no GGUF files
  // Whether a model of a GGUF file with that name is one of this family; null: none is.
  bool (*is_of_gguf)(const ModelConfig& config) = nullptr;
  HfDefaults hf_defaults;
  WindowRule window = WindowRule::kNone;
  bool qkv_bias = false;            // always present
  bool attention_bias_key = false;  // config.json may ask for biases on q, k, v and o
  bool mlp_bias_key = false;
  const char* qkv_bias_key = nullptr;  // config.json may ask for biases on q, k and v alone
  bool qk_norm = false;
  bool gguf_qk_norm = false;  // GGUF files have norms of q and k or not, and state it by their tensors alone
  LayerMaker layers = PreNormLayers;
  FieldLister own_fields = NoOwnFields;
  HfKeys hf_keys;
  HfMixtureKeys hf_mixture;
  bool hf_head_dim = true;                    // config.json may state head_dim
  bool hf_rope_by_type = false;               // config.json states rotary positions for each type of layer
  bool hf_inner_by_layer = false;             // HfKeys::inner may be a list (Gemma 3n)
  Activation activation = Activation::kSilu;  // where a file states none
  double hf_norm_eps = 1e-6;                  // transformers' default
  bool rms_norm = true;                       // else LayerNorm: its epsilon has another key in GGUF files
  bool gguf_rms_eps = false;                  // GGUF files state a LayerNorm's epsilon under RMSNorm's key too
  bool gguf_interleaved_rope = false;         // GGUF holds q and k rows permuted for pairs (2i, 2i + 1)
  bool hf_interleaved_rope = false;           // so do folders
  const TensorNames* hf_names = &kHfTensorNames;
  // The names in folders that have each expert by itself where others have all in one tensor; null: no such folders.
  const TensorNames* hf_names_by_expert = nullptr;
  const TensorNames* gguf_names = &kGgufTensorNames;
};

// Fills config->layers and the final norm from `shape`, and validates the whole.
Status MakeLayers(const Architecture& architecture, FamilyFields& fields, const StatedShape& shape,
                  ModelConfig* config);

// All rows, in the order of architectures.def.
std::span<const Architecture* const> Architectures();
const Architecture* FindArchitecture(std::string_view name);
const Architecture* FindHfArchitecture(std::string_view hf_class);
const Architecture* FindHfArchitectureByType(std::string_view hf_model_type);
const Architecture* FindGgufArchitecture(std::string_view gguf_name);
// "LlamaForCausalLM, MistralForCausalLM, ..." and the GGUF spelling, for messages.
std::string KnownHfClasses();
std::string KnownGgufNames();

}  // namespace tactus::compute
