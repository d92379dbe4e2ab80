// The config.json of a tiny Llama, for servers and engines that tests start with --load-format dummy.
#pragma once

namespace tactus::test {

inline constexpr const char* kTinyConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 260,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "bos_token_id": 256, "eos_token_id": 257, "torch_dtype": "bfloat16"})";

}  // namespace tactus::test
