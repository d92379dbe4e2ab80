// OLMo 3: OLMo 2 with a window in three of four layers. Its GGUF files name the architecture "olmo2".
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace olmo3_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  std::vector<Layer> layers = PostNormLayers(shape);
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).qk_norm = QkNorm::kWidth;
  SetWindows(fields, static_cast<int32_t>(WholeNumber(fields, {"sliding_window"}, nullptr, 4096)), 4, &layers);
  if (!config->local_rope.has_value()) return layers;
  for (Layer& layer : layers) {
    auto& attention = std::get<AttentionBlock>(layer[0].block);
    if (attention.window > 0) attention.rope = RopeChoice::kLocal;
  }
  return layers;
}

bool HasWindows(const ModelConfig& config) {
  return config.HasWindows();
}

}  // namespace olmo3_family

extern constinit const Architecture olmo3 = {
    .name = "olmo3",
    .hf_class = "Olmo3ForCausalLM",
    .hf_model_type = "olmo3",
    .gguf_read_as = "olmo2",
    .is_of_gguf = olmo3_family::HasWindows,
    .hf_defaults = {.max_position = 2048, .eos_id = 50279},
    .attention_bias_key = true,
    .layers = olmo3_family::Layers,
    .hf_norm_eps = 1e-5,
    .hf_names = &kPostNormHfNames,
};

}  // namespace tactus::compute::arch
