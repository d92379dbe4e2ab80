// Qwen3: RMSNorm over head_dim of q and k before RoPE instead of Qwen2's biases; head_dim is its own number.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {

extern constinit const Architecture qwen3 = {
    .name = "qwen3",
    .hf_class = "Qwen3ForCausalLM",
    .hf_model_type = "qwen3",
    .gguf_name = "qwen3",
    .hf_defaults = {.num_kv_heads = 32, .head_dim = 128, .max_position = 32768, .sliding_window = 4096},
    .window = WindowRule::kUpperLayers,
    .attention_bias_key = true,
    .qk_norm = true,
};

}  // namespace tactus::compute::arch
