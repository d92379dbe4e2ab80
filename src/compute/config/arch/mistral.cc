// Mistral: Llama with a sliding window in every layer (v0.1), or none where the file has null (v0.2 on). Its GGUF files
// name the architecture "llama".
#include "compute/config/architecture.h"

namespace tactus::compute::arch {

extern constinit const Architecture mistral = {
    .name = "mistral",
    .hf_class = "MistralForCausalLM",
    .hf_model_type = "mistral",
    .hf_defaults = {.num_kv_heads = 8, .max_position = 131072, .sliding_window = 4096, .bos_id = 1, .eos_id = 2},
    .window = WindowRule::kEveryLayer,
};

}  // namespace tactus::compute::arch
