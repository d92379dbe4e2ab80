// What the files of Hunyuan's families share.
#pragma once

#include <vector>

#include "compute/config/architecture.h"

namespace tactus::compute::arch {

// Llama's layers with norms of q and k after their rotation, and the rotary base that `alpha` stretches.
std::vector<Layer> HunyuanLayers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config);

inline constexpr TensorNames kHunyuanHfNames = kHfTensorNames.With({
    {Role::kQNorm, "model.layers.{}.self_attn.query_layernorm.weight"},
    {Role::kKNorm, "model.layers.{}.self_attn.key_layernorm.weight"},
});

}  // namespace tactus::compute::arch
