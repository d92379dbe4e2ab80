// OLMo 2: no norm before a block but one after it, and norms of q and k over all heads together.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace olmo2_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig*) {
  std::vector<Layer> layers = PostNormLayers(shape);
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).qk_norm = QkNorm::kWidth;
  const auto window = static_cast<int32_t>(WholeNumber(fields, {nullptr}, "attention.sliding_window", 0));
  if (window > 0) SetWindows(fields, window, 4, &layers);  // OLMo 3
  return layers;
}

}  // namespace olmo2_family

extern constinit const Architecture olmo2 = {
    .name = "olmo2",
    .hf_class = "Olmo2ForCausalLM",
    .hf_model_type = "olmo2",
    .gguf_name = "olmo2",
    .hf_defaults = {.max_position = 2048, .eos_id = 50279},
    .attention_bias_key = true,
    .layers = olmo2_family::Layers,
    .hf_norm_eps = 1e-5,
    .hf_names = &kPostNormHfNames,
};

}  // namespace tactus::compute::arch
