// Llama 4, its text (Scout, Maverick): rotary positions within chunks of attention in three layers of four, all
// positions and growing queries in the fourth, and experts that weigh their input beside a shared one.
#include <algorithm>

#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace llama4_family {

constexpr TensorSource kHfGateUp =
    TensorSource::Stacked("model.layers.{}.feed_forward.experts.gate_up_proj", TensorSource::kFusedTransposed);
constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kGate, "model.layers.{}.feed_forward.gate_proj.weight"},
    {Role::kUp, "model.layers.{}.feed_forward.up_proj.weight"},
    {Role::kDown, "model.layers.{}.feed_forward.down_proj.weight"},
    {Role::kRouter, "model.layers.{}.feed_forward.router.weight"},
    {Role::kExpertGate, kHfGateUp},
    {Role::kExpertUp, kHfGateUp},
    {Role::kExpertDown,
     TensorSource::Stacked("model.layers.{}.feed_forward.experts.down_proj", TensorSource::kTransposed)},
    {Role::kSharedGate, "model.layers.{}.feed_forward.shared_expert.gate_proj.weight"},
    {Role::kSharedUp, "model.layers.{}.feed_forward.shared_expert.up_proj.weight"},
    {Role::kSharedDown, "model.layers.{}.feed_forward.shared_expert.down_proj.weight"},
});
// Quantised folders, as transformers reads them.
constexpr TensorNames kHfNamesByExpert = kHfNames.With({
    {Role::kExpertGate, "model.layers.{}.feed_forward.experts.{}.gate_proj.weight"},
    {Role::kExpertUp, "model.layers.{}.feed_forward.experts.{}.up_proj.weight"},
    {Role::kExpertDown, "model.layers.{}.feed_forward.experts.{}.down_proj.weight"},
});
constexpr int64_t kExpertsWithoutQkNorm = 128;  // Maverick; GGUF files do not state it

void CheckLength(FamilyFields& fields, FieldKey key, size_t entries, size_t layers) {
  if (entries == 0 || entries == layers) return;
  fields.Refuse(key, "has " + std::to_string(entries) + " entries for " + std::to_string(layers) + " layers");
}

// Which layers have rotary positions. GGUF files state it by a chunk of 0: all.
std::vector<bool> RotaryLayers(FamilyFields& fields, size_t layers, int64_t chunk) {
  constexpr FieldKey kRotary{"no_rope_layers"};  // 1: has rotary positions
  const std::vector<double> listed = fields.Numbers(kRotary);
  const auto period = static_cast<size_t>(WholeNumber(fields, {"no_rope_layer_interval"}, nullptr, 4));
  std::vector<bool> rotary(layers, true);
  CheckLength(fields, kRotary, listed.size(), layers);
  for (size_t l = 0; l < layers; ++l) {
    const bool by_period = period == 0 || (l + 1) % period != 0 || (fields.gguf() && chunk == 0);
    rotary[l] = l < listed.size() ? listed[l] != 0.0 : by_period;
  }
  return rotary;
}

void SetAttention(FamilyFields& fields, const ExpertsBlock& experts, std::vector<Layer>* layers) {
  constexpr FieldKey kTypes{"layer_types"};
  const bool unnormed = fields.gguf() && experts.experts == kExpertsWithoutQkNorm;
  const bool qk_norm = fields.FlagOr({"use_qk_norm"}, !unnormed);
  const int64_t chunk = WholeNumber(fields, {"attention_chunk_size"}, "attention.sliding_window", 8192);
  const std::vector<bool> rotary = RotaryLayers(fields, layers->size(), chunk);
  const std::vector<std::string> types = fields.Texts(kTypes);
  CheckLength(fields, kTypes, types.size(), layers->size());
  const std::vector<double> tuning = fields.Numbers({"attn_temperature_tuning"});  // true, or 4 in early files
  const float beta = fields.NumberOr({"attn_scale", "attention.temperature_scale"}, 0.1);
  const int64_t length = WholeNumber(fields, {"floor_scale"}, "attention.temperature_length", 8192);
  for (size_t l = 0; l < layers->size(); ++l) {
    auto& attention = std::get<AttentionBlock>((*layers)[l][0].block);
    const bool chunked = l < types.size() ? types[l] == "chunked_attention" : rotary[l];
    attention.window = 0;
    attention.chunk = chunked ? static_cast<int32_t>(chunk) : 0;
    if (rotary[l]) {
      attention.qk_norm = qk_norm ? QkNorm::kUnitHeads : QkNorm::kNone;
      attention.norms_last = true;
      continue;
    }
    attention.rope = RopeChoice::kNone;
    if (!tuning.empty() && tuning[0] == 0.0) continue;
    attention.query_beta = beta;
    attention.query_length = length;
    attention.query_offset = 1;
  }
}

std::vector<bool> SparseLayers(FamilyFields& fields, const StatedShape& shape) {
  std::vector<bool> sparse = EveryLayer(shape);
  const int64_t step = WholeNumber(fields, {"interleave_moe_layer_step"}, "interleave_moe_layer_step", 1);
  const std::vector<double> listed = fields.Numbers({"moe_layers"});
  for (size_t l = 0; l < sparse.size(); ++l) {
    sparse[l] = listed.empty() ? step > 0 && static_cast<int64_t>(l + 1) % step == 0
                               : std::find(listed.begin(), listed.end(), static_cast<double>(l)) != listed.end();
  }
  return sparse;
}

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 16, .chosen = 1});
  experts.router.score = RouterScore::kChosenSigmoid;
  experts.router.weighs_input = true;
  SetSharedExperts(1, &experts);
  if (!fields.gguf() && !fields.Number({"rope_theta"}) && !fields.Number({"rope_parameters.rope_theta"}))
    config->rope.theta = 5e5f;
  StatedShape dense = shape;
  dense.intermediate_size =
      WholeNumber(fields, {"intermediate_size_mlp"}, nullptr, fields.gguf() ? shape.intermediate_size : 16384);
  std::vector<Layer> layers = PreNormLayers(fields, dense, config);
  SetAttention(fields, experts, &layers);
  return WithExperts(std::move(layers), experts, SparseLayers(fields, shape));
}

}  // namespace llama4_family

extern constinit const Architecture llama4_text = {
    .name = "llama4_text",
    .hf_class = "Llama4ForCausalLM",
    .hf_model_type = "llama4_text",
    .gguf_name = "llama4",
    .hf_defaults = {.num_kv_heads = 8, .head_dim = 128, .max_position = 131072, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .layers = llama4_family::Layers,
    .hf_norm_eps = 1e-5,
    .gguf_interleaved_rope = true,
    .hf_interleaved_rope = true,
    .hf_names = &llama4_family::kHfNames,
    .hf_names_by_expert = &llama4_family::kHfNamesByExpert,
};

}  // namespace tactus::compute::arch
