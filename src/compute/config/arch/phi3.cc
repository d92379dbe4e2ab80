// Phi-3, 3.5 and 4: Llama with q, k and v in one matrix, gate and up in another, and partial rotation (Phi-4-mini).
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace phi3_family {

constexpr TensorSource::Form kFused = TensorSource::kFused;
constexpr TensorSource kHfQkv{"model.layers.{}.self_attn.qkv_proj.weight", kFused};
constexpr TensorSource kHfGateUp{"model.layers.{}.mlp.gate_up_proj.weight", kFused};
constexpr TensorNames kHfNames = kHfTensorNames.With(
    {{Role::kQ, kHfQkv}, {Role::kK, kHfQkv}, {Role::kV, kHfQkv}, {Role::kGate, kHfGateUp}, {Role::kUp, kHfGateUp}});
constexpr TensorSource kGgufQkv{"blk.{}.attn_qkv.weight", kFused};
constexpr TensorSource kGgufGateUp{"blk.{}.ffn_up.weight", kFused};
constexpr TensorNames kGgufNames = kGgufTensorNames.With({{Role::kQ, kGgufQkv},
                                                          {Role::kK, kGgufQkv},
                                                          {Role::kV, kGgufQkv},
                                                          {Role::kGate, kGgufGateUp},
                                                          {Role::kUp, kGgufGateUp}});

}  // namespace phi3_family

extern constinit const Architecture phi3 = {
    .name = "phi3",
    .hf_class = "Phi3ForCausalLM",
    .hf_model_type = "phi3",
    .gguf_name = "phi3",
    .hf_defaults = {.max_position = 4096, .bos_id = 1, .eos_id = 32000},
    .window = WindowRule::kEveryLayer,
    .hf_norm_eps = 1e-5,
    .hf_names = &phi3_family::kHfNames,
    .gguf_names = &phi3_family::kGgufNames,
};

}  // namespace tactus::compute::arch
