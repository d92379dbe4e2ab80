// Mistral: Llama with a sliding window in every layer (v0.1), or none where the file has null (v0.2 on). Its GGUF files
// name the architecture "llama".
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace mistral_family {

bool HasWindowsAlone(const ModelConfig& config) {
  return config.HasWindows() && ExpertsOf(config.layers[0]) == nullptr;
}

}  // namespace mistral_family

extern constinit const Architecture mistral = {
    .name = "mistral",
    .hf_class = "MistralForCausalLM",
    .hf_model_type = "mistral",
    .gguf_read_as = "llama",
    .is_of_gguf = mistral_family::HasWindowsAlone,
    .hf_defaults = {.num_kv_heads = 8, .max_position = 131072, .sliding_window = 4096, .bos_id = 1, .eos_id = 2},
    .window = WindowRule::kEveryLayer,
};

}  // namespace tactus::compute::arch
