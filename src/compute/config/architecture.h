// One architecture of the Llama family as data: the spelling of its files and its defaults. The two readers
// (hf_config.cc, gguf_config.cc) and the weight builder are generic over it. A new architecture is one file under arch/
// and one row in architectures.def.
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
};

// Where a file has a tensor.
struct TensorSource {
  enum Form : uint8_t {
    kWhole,
    kFused,         // rows of a larger tensor, whose parts follow one another
    kFusedInHeads,  // rows of each of its KV heads' groups (GPT-NeoX, BLOOM, Falcon)
    kTransposed,    // [cols, rows] (GPT-2)
    kFusedTransposed,
    kMinusOne,  // a vector; the file has w - 1 (Gemma's norms)
  };
  std::string_view pattern;  // "{}" is the layer number; empty: this spelling has no such tensor
  Form form = kWhole;

  constexpr TensorSource() = default;
  constexpr TensorSource(const char* name, Form how = kWhole) : pattern(name), form(how) {}
  std::string Name(int64_t layer) const;
};

// Tensors by role.
struct TensorNames {
  std::array<TensorSource, kMatrixRoles + kVectorRoles> sources;
  std::span<const std::string_view> ignored;  // suffixes of recomputed tables, which hold no weights

  constexpr const TensorSource& Of(Role role) const { return sources[static_cast<size_t>(role)]; }
  std::string Name(Role role, int64_t layer = 0) const { return Of(role).Name(layer); }
  // The same but for these.
  constexpr TensorNames With(std::initializer_list<std::pair<Role, TensorSource>> others) const {
    TensorNames names = *this;
    for (const auto& [role, source] : others) names.sources[static_cast<size_t>(role)] = source;
    return names;
  }
};
extern const TensorNames kHfTensorNames;  // the names of transformers' Llama, shared by its descendants
extern const TensorNames kGgufTensorNames;

// Attention and a gated feed-forward block, an RMSNorm before each: Llama and its descendants.
std::vector<Layer> PreNormLayers(const StatedShape& shape);

struct Architecture {
  std::string_view name;           // equals the row's name
  std::string_view hf_class;       // config.json "architectures"
  std::string_view hf_model_type;  // config.json "model_type"
  std::string_view gguf_name;      // general.architecture; empty: its GGUF files use another architecture's name
  HfDefaults hf_defaults;
  WindowRule window = WindowRule::kNone;
  bool qkv_bias = false;            // always present
  bool attention_bias_key = false;  // config.json may ask for biases on q, k, v and o
  bool mlp_bias_key = false;
  bool qk_norm = false;
  std::vector<Layer> (*layers)(const StatedShape& shape) = PreNormLayers;
  bool gguf_interleaved_rope = false;  // GGUF holds q and k rows permuted for pairs (2i, 2i + 1)
  const TensorNames* hf_names = &kHfTensorNames;
  const TensorNames* gguf_names = &kGgufTensorNames;
};

// Fills config->layers and the final norm from `shape`, and validates the whole.
Status MakeLayers(const Architecture& architecture, const StatedShape& shape, ModelConfig* config);

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
