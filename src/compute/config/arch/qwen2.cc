// Qwen2 and Qwen2.5: Llama with biases on q, k and v.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {

extern constinit const Architecture qwen2 = {
    .name = "qwen2",
    .hf_class = "Qwen2ForCausalLM",
    .hf_model_type = "qwen2",
    .gguf_name = "qwen2",
    .hf_defaults = {.num_kv_heads = 32, .max_position = 32768, .sliding_window = 4096},
    .window = WindowRule::kUpperLayers,
    .qkv_bias = true,
};

}  // namespace tactus::compute::arch
