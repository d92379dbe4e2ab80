// Ministral 3: Mistral with YaRN and queries that grow with their position.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace ministral3_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  const float beta = fields.NumberOr({"rope_parameters.llama_4_scaling_beta", "attention.temperature_scale"}, 0.0);
  const int64_t length =
      WholeNumber(fields, {nullptr}, "attention.temperature_length", config->rope.original_max_position);
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  for (Layer& layer : layers) {
    auto& attention = std::get<AttentionBlock>(layer[0].block);
    attention.query_beta = beta;
    attention.query_length = length;
  }
  return layers;
}

}  // namespace ministral3_family

extern constinit const Architecture ministral3 = {
    .name = "ministral3",
    .hf_class = "Ministral3ForCausalLM",
    .hf_model_type = "ministral3",
    .gguf_name = "mistral3",
    .hf_defaults = {.num_kv_heads = 8, .head_dim = 128, .max_position = 262144, .bos_id = 1, .eos_id = 2},
    .window = WindowRule::kEveryLayer,
    .layers = ministral3_family::Layers,
    .hf_norm_eps = 1e-5,
    .gguf_interleaved_rope = true,
};

}  // namespace tactus::compute::arch
