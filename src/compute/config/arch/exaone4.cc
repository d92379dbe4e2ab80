// EXAONE 4: norms after the blocks alone and of q and k; in hybrid models three layers with a window and rotary
// positions for each layer with neither.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace exaone4_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig*) {
  std::vector<Layer> layers = PostNormLayers(shape);
  const auto window = WindowOr(fields, 0);
  // Files that list the layers' types state the pattern as letters, such as "LLLG".
  const bool listed = !fields.Texts({"layer_types"}).empty();
  const int64_t period = listed ? 4 : WholeNumber(fields, {"sliding_window_pattern"}, nullptr, 4);
  SetWindows(fields, window, window > 0 ? period : 0, &layers);
  for (Layer& layer : layers) {
    auto& attention = std::get<AttentionBlock>(layer[0].block);
    if (window > 0 && attention.window == 0) attention.rope = RopeChoice::kNone;
  }
  return layers;
}

}  // namespace exaone4_family

extern constinit const Architecture exaone4 = {
    .name = "exaone4",
    .hf_class = "Exaone4ForCausalLM",
    .hf_model_type = "exaone4",
    .gguf_name = "exaone4",
    .hf_defaults = {.num_kv_heads = 32, .max_position = 2048, .bos_id = 0, .eos_id = 2},
    .qk_norm = true,
    .layers = exaone4_family::Layers,
    .hf_norm_eps = 1e-5,
    .hf_names = &kPostNormHfNames,
};

}  // namespace tactus::compute::arch
