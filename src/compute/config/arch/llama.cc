// Llama 2, 3 and 3.1, and models saved in its format: SmolLM2, TinyLlama, Yi. In GGUF also Mistral.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {

extern constinit const Architecture llama = {
    .name = "llama",
    .hf_class = "LlamaForCausalLM",
    .hf_model_type = "llama",
    .gguf_name = "llama",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .mlp_bias_key = true,
    .gguf_interleaved_rope = true,
};

}  // namespace tactus::compute::arch
