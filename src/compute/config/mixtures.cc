#include "compute/config/mixtures.h"

#include <algorithm>

namespace tactus::compute {
namespace {

// A number of experts, under the key of any family: some files state it as another family does.
int64_t NumberOfExperts(FamilyFields& fields, const char* HfMixtureKeys::* member, const char* gguf, int64_t fallback) {
  const char* key = HfMixtureKeys().*member;
  for (const Architecture* a : Architectures()) {
    if (fields.PresenceOf({key, gguf}) == Presence::kStated) break;
    key = a->hf_mixture.*member;
  }
  return WholeNumber(fields, {key}, gguf, fallback);
}

}  // namespace

ExpertsBlock ExpertsFrom(FamilyFields& fields, const StatedShape& shape, const MixtureDefaults& defaults) {
  ExpertsBlock e;
  e.experts = NumberOfExperts(fields, &HfMixtureKeys::experts, "expert_count", fields.gguf() ? 0 : defaults.experts);
  e.router.chosen = static_cast<int32_t>(
      NumberOfExperts(fields, &HfMixtureKeys::chosen, "expert_used_count", fields.gguf() ? 0 : defaults.chosen));
  if (e.experts == 0) fields.Refuse({"num_experts", "expert_count"}, "is missing");
  if (e.router.chosen == 0) fields.Refuse({"num_experts_per_tok", "expert_used_count"}, "is missing");
  e.expert = GatedOf(shape);
  const int64_t inner = fields.gguf() || defaults.inner == 0 ? shape.intermediate_size : defaults.inner;
  e.expert.inner = WholeNumber(fields, {HfMixtureKeys().inner}, "expert_feed_forward_length", inner);
  e.expert.bias = false;
  return e;
}

void SetSigmoidRouter(FamilyFields& fields, bool renormalise, ExpertsBlock* experts) {
  constexpr double kGgufSigmoid = 2;
  RouterSpec& router = experts->router;
  router.score = RouterScore::kSigmoid;
  router.choice_bias = true;
  const FieldKey function{nullptr, "expert_gating_func"};
  if (fields.Number(function).value_or(kGgufSigmoid) != kGgufSigmoid) {
    fields.Refuse(function, "is not 2 (sigmoid), the only one for this architecture");
  }
  router.renormalise = fields.FlagOr({"norm_topk_prob", "expert_weights_norm"}, renormalise);
  router.scale = fields.NumberOr({"routed_scaling_factor", "expert_weights_scale"}, 1.0);
  router.groups = static_cast<int32_t>(WholeNumber(fields, {"n_group"}, "expert_group_count", 1));
  router.chosen_groups = static_cast<int32_t>(WholeNumber(fields, {"topk_group"}, "expert_group_used_count", 1));
}

void SetSharedExperts(int64_t n, ExpertsBlock* experts) {
  experts->shared_inner = n * experts->expert.inner;
}

std::vector<Layer> WithExperts(std::vector<Layer> layers, const ExpertsBlock& experts,
                               const std::vector<bool>& sparse) {
  for (size_t l = 0; l < layers.size(); ++l) {
    if (sparse[l]) layers[l][1].block = experts;
  }
  return layers;
}

std::vector<bool> EveryLayer(const StatedShape& shape) {
  return std::vector<bool>(shape.window.size(), true);
}

std::vector<bool> AllButFirst(FamilyFields& fields, const StatedShape& shape, int64_t fallback) {
  std::vector<bool> sparse = EveryLayer(shape);
  const int64_t dense = WholeNumber(fields, {HfMixtureKeys().dense}, "leading_dense_block_count", fallback);
  std::fill_n(sparse.begin(), std::min(static_cast<size_t>(dense), sparse.size()), false);
  return sparse;
}

std::vector<bool> EveryStep(FamilyFields& fields, const StatedShape& shape) {
  std::vector<bool> sparse = EveryLayer(shape);
  const int64_t step = std::max<int64_t>(1, WholeNumber(fields, {"decoder_sparse_step"}, nullptr, 1));
  for (size_t l = 0; l < sparse.size(); ++l) sparse[l] = static_cast<int64_t>(l + 1) % step == 0;
  for (const double layer : fields.Numbers({"mlp_only_layers"})) {
    if (layer >= 0 && layer < static_cast<double>(sparse.size())) sparse[static_cast<size_t>(layer)] = false;
  }
  return sparse;
}

}  // namespace tactus::compute
