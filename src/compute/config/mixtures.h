// What families of mixtures of experts share: the reading of their fields, and layers with experts in place of
// feed-forward blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/config/architecture.h"

namespace tactus::compute {

// A family's defaults of config.json, where it states none; 0: the field is required.
struct MixtureDefaults {
  int64_t experts = 0, chosen = 0;
  int64_t inner = 0;  // of an expert; 0: as wide as the feed-forward block that `shape` states
};

// The experts of every layer, as transformers names their numbers. Softmax over all of them; a family changes the rest.
ExpertsBlock ExpertsFrom(FamilyFields& fields, const StatedShape& shape, const MixtureDefaults& defaults);
// The router of DeepSeek-V3 (section 2.1.2) and its descendants: sigmoid, groups, a bias for the choice, scaled
// weights.
void SetSigmoidRouter(FamilyFields& fields, bool renormalise, ExpertsBlock* experts);
// `n` shared experts as wide as the others, which run as one.
void SetSharedExperts(int64_t n, ExpertsBlock* experts);

// Replaces the second block of the layers with `sparse` by the experts; sparse[layer] says which.
std::vector<Layer> WithExperts(std::vector<Layer> layers, const ExpertsBlock& experts, const std::vector<bool>& sparse);
// Every layer; all but the first few; every `step`-th without those that a list names (Qwen2-MoE).
std::vector<bool> EveryLayer(const StatedShape& shape);
std::vector<bool> AllButFirst(FamilyFields& fields, const StatedShape& shape, int64_t fallback);
std::vector<bool> EveryStep(FamilyFields& fields, const StatedShape& shape);

// The names of Mixtral's experts, which several families use.
inline constexpr TensorNames kMixtralHfNames = kHfTensorNames.With({
    {Role::kRouter, "model.layers.{}.block_sparse_moe.gate.weight"},
    {Role::kChoiceBias, "model.layers.{}.block_sparse_moe.e_score_correction_bias"},
    {Role::kExpertGate, "model.layers.{}.block_sparse_moe.experts.{}.w1.weight"},
    {Role::kExpertDown, "model.layers.{}.block_sparse_moe.experts.{}.w2.weight"},
    {Role::kExpertUp, "model.layers.{}.block_sparse_moe.experts.{}.w3.weight"},
});

}  // namespace tactus::compute
