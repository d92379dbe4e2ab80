// What the files of Granite's families share.
#pragma once

#include <vector>

#include "compute/config/mixtures.h"

namespace tactus::compute::arch {

// The multipliers of the embedding, of attention's scores, of each block's sum and of the logits.
void SetGraniteMultipliers(FamilyFields& fields, ModelConfig* config, std::vector<Layer>* layers);
// Granite with experts in every layer, and a shared one where a file states its width.
std::vector<Layer> GraniteMoeLayers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config);

inline constexpr HfMixtureKeys kGraniteSharedMixture{
    .experts = "num_local_experts", .inner = nullptr, .shared_inner = "shared_intermediate_size"};

inline constexpr TensorSource kGraniteGateUp =
    TensorSource::Stacked("model.layers.{}.block_sparse_moe.input_linear.weight", TensorSource::kFused);
inline constexpr TensorSource kGraniteSharedGateUp{"model.layers.{}.shared_mlp.input_linear.weight",
                                                   TensorSource::kFused};
inline constexpr TensorNames kGraniteMoeHfNames = kHfTensorNames.With({
    {Role::kRouter, "model.layers.{}.block_sparse_moe.router.layer.weight"},
    {Role::kExpertGate, kGraniteGateUp},
    {Role::kExpertUp, kGraniteGateUp},
    {Role::kExpertDown, TensorSource::Stacked("model.layers.{}.block_sparse_moe.output_linear.weight")},
    {Role::kSharedGate, kGraniteSharedGateUp},
    {Role::kSharedUp, kGraniteSharedGateUp},
    {Role::kSharedDown, "model.layers.{}.shared_mlp.output_linear.weight"},
});

}  // namespace tactus::compute::arch
