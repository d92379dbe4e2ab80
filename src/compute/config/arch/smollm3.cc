// SmolLM3: Llama without positions in every fourth layer ("Rope to Nope and Back Again", 2025).
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace smollm3_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  constexpr FieldKey kRotary{"no_rope_layers"};  // 1: has rotary positions
  const std::vector<double> rotary = fields.Numbers(kRotary);
  const auto period = static_cast<size_t>(WholeNumber(fields, {"no_rope_layer_interval"}, nullptr, 4));
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  if (!rotary.empty() && rotary.size() != layers.size()) {
    fields.Refuse(kRotary,
                  "has " + std::to_string(rotary.size()) + " entries for " + std::to_string(layers.size()) + " layers");
    return layers;
  }
  for (size_t l = 0; l < layers.size(); ++l) {
    const bool turns = rotary.empty() ? period == 0 || (l + 1) % period != 0 : rotary[l] != 0.0;
    if (!turns) std::get<AttentionBlock>(layers[l][0].block).rope = RopeChoice::kNone;
  }
  return layers;
}

}  // namespace smollm3_family

extern constinit const Architecture smollm3 = {
    .name = "smollm3",
    .hf_class = "SmolLM3ForCausalLM",
    .hf_model_type = "smollm3",
    .gguf_name = "smollm3",
    .hf_defaults = {.num_kv_heads = 4, .max_position = 32768, .bos_id = 128000, .eos_id = 128001, .tied = true},
    .window = WindowRule::kUpperLayers,
    .attention_bias_key = true,
    .mlp_bias_key = true,
    .layers = smollm3_family::Layers,
    .gguf_interleaved_rope = true,
};

}  // namespace tactus::compute::arch
