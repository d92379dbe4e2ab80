// Llama 4, its text (Scout, Maverick): rotary positions within chunks of attention in three layers of four, all
// positions and growing queries in the fourth, and experts that weigh their input beside a shared one.
#include <algorithm>

#include <fmt/format.h>

#include "base/printable.h"
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
constexpr FieldKey kStep{"interleave_moe_layer_step", "interleave_moe_layer_step"};
constexpr HfMixtureKeys kMixture{.experts = "num_local_experts", .inner = nullptr, .step = kStep.hf};
constexpr FieldKey kTypes{"layer_types"}, kNormed{"use_qk_norm"}, kTuning{"attn_temperature_tuning"};
constexpr FieldKey kBeta{"attn_scale", "attention.temperature_scale"};
constexpr FieldKey kLength{"floor_scale", "attention.temperature_length"};
constexpr FieldKey kRotary{"no_rope_layers"};  // 1: has rotary positions
// GGUF files have it under the key of windows; 0: there are neither chunks nor layers without rotary positions.
constexpr FieldKey kChunk{"attention_chunk_size", "attention.sliding_window"};
constexpr FieldKey kDenseInner{"intermediate_size_mlp"};
constexpr int64_t kExpertsWithoutQkNorm = 128;  // Maverick; GGUF files do not state it

// Which layers have rotary positions. GGUF files state it by a chunk of 0: all.
std::vector<bool> RotaryLayers(FamilyFields& fields, size_t layers, int64_t chunk) {
  constexpr FieldKey kInterval{"no_rope_layer_interval"};
  const std::vector<double> listed = fields.Numbers(kRotary);
  const auto period = static_cast<size_t>(WholeNumber(fields, {kInterval.hf}, nullptr, 4));
  if (period == 0) fields.Refuse(kInterval, "is 0; possible is 1 and more");
  std::vector<bool> rotary(layers, true);
  if (!listed.empty()) HasOneForEach(fields, kRotary, listed.size(), layers);
  for (size_t l = 0; l < layers; ++l) {
    const bool by_period = period == 0 || (l + 1) % period != 0 || (fields.gguf() && chunk == 0);
    rotary[l] = l < listed.size() ? listed[l] != 0.0 : by_period;
  }
  return rotary;
}

void SetAttention(FamilyFields& fields, const ExpertsBlock& experts, std::vector<Layer>* layers) {
  const auto is_null = [&](FieldKey key) { return fields.PresenceOf(key) == Presence::kNull; };
  const bool unnormed = fields.gguf() && experts.experts == kExpertsWithoutQkNorm;
  const bool qk_norm = fields.FlagOr(kNormed, !unnormed && !is_null(kNormed));
  const int64_t chunk = WholeNumber(fields, {kChunk.hf}, kChunk.gguf, is_null(kChunk) ? 0 : 8192);
  const std::vector<bool> rotary = RotaryLayers(fields, layers->size(), chunk);
  const std::vector<std::string> types = fields.Texts(kTypes);
  if (!types.empty()) HasOneForEach(fields, kTypes, types.size(), layers->size());
  const bool tuned = fields.FlagOrNumber(kTuning).value_or(!is_null(kTuning));  // 4 in early files
  const float beta = fields.NumberOr(kBeta, 0.1);
  const int64_t length = WholeNumber(fields, {kLength.hf}, kLength.gguf, 8192);
  for (size_t l = 0; l < layers->size(); ++l) {
    auto& attention = std::get<AttentionBlock>((*layers)[l][0].block);
    const bool chunked = l < types.size() ? types[l] == "chunked_attention" : rotary[l];
    if (l < types.size() && !chunked && types[l] != "full_attention") {
      fields.Refuse(kTypes, "has an entry that is neither chunked_attention nor full_attention" +
                                fmt::format(" ('{}')", Printable(types[l])));
    }
    attention.window = 0;
    attention.chunk = chunked ? static_cast<int32_t>(chunk) : 0;
    if (rotary[l]) {
      attention.qk_norm = qk_norm ? QkNorm::kUnitHeads : QkNorm::kNone;
      attention.norms_last = true;
      continue;
    }
    attention.rope = RopeChoice::kNone;
    if (!tuned) continue;
    attention.query_beta = beta;
    attention.query_length = length;
    attention.query_offset = 1;
  }
}

// A list of the layers with experts, which may be empty, or every `step`-th layer. In GGUF files a step of 0 is none.
std::vector<bool> SparseLayers(FamilyFields& fields, const StatedShape& shape) {
  constexpr FieldKey kListed{"moe_layers"};
  std::vector<bool> sparse(shape.window.size(), false);
  if (fields.PresenceOf(kListed) == Presence::kStated) {
    for (const double layer : fields.Numbers(kListed)) {
      if (layer >= 0 && layer < static_cast<double>(sparse.size())) {
        sparse[static_cast<size_t>(layer)] = true;
      } else {
        fields.Refuse(kListed, fmt::format("holds {}; the layers are 0 to {}", layer, sparse.size() - 1));
      }
    }
    return sparse;
  }
  const auto step = static_cast<size_t>(WholeNumber(fields, {kStep.hf}, kStep.gguf, 1));
  if (step == 0 && !fields.gguf()) fields.Refuse(kStep, "is 0; possible is 1 and more");
  for (size_t l = 0; l < sparse.size(); ++l) sparse[l] = step > 0 && (l + 1) % step == 0;
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
      WholeNumber(fields, {kDenseInner.hf}, nullptr, fields.gguf() ? shape.intermediate_size : 16384);
  std::vector<Layer> layers = PreNormLayers(fields, dense, config);
  SetAttention(fields, experts, &layers);
  return WithExperts(std::move(layers), experts, SparseLayers(fields, shape));
}

FieldRecord OwnFields(const ModelConfig& config) {
  std::vector<std::string> types;
  std::vector<int64_t> rotary;
  int64_t chunk = 0;
  bool normed = false;
  const AttentionBlock* growing = nullptr;  // without rotary positions
  for (const Layer& layer : config.layers) {
    const AttentionBlock& a = *AttentionOf(layer);
    chunk = std::max<int64_t>(chunk, a.chunk);
    types.emplace_back(a.chunk > 0 ? "chunked_attention" : "full_attention");
    rotary.push_back(a.rope == RopeChoice::kNone ? 0 : 1);
    normed |= a.qk_norm != QkNorm::kNone;
    if (a.rope == RopeChoice::kNone) growing = &a;
  }
  FieldRecord fields = {{kTypes, types}, {kRotary, rotary}, {kNormed, normed}};
  if (growing != nullptr) {
    fields.emplace_back(kTuning, growing->query_length > 0);
    fields.emplace_back(FieldKey{kBeta.hf}, growing->query_beta);
    fields.emplace_back(FieldKey{kLength.hf}, growing->query_length);
  }
  fields.emplace_back(FieldKey{kChunk.hf}, chunk > 0 ? FieldValue(chunk) : FieldValue(nullptr));
  fields.emplace_back(FieldKey{nullptr, kChunk.gguf}, chunk);
  fields.emplace_back(kDenseInner, InnerSizes(config)[0]);
  return fields;
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
    .own_fields = llama4_family::OwnFields,
    .hf_mixture = llama4_family::kMixture,
    .hf_norm_eps = 1e-5,
    .gguf_interleaved_rope = true,
    .hf_interleaved_rope = true,
    .hf_names = &llama4_family::kHfNames,
    .hf_names_by_expert = &llama4_family::kHfNamesByExpert,
};

}  // namespace tactus::compute::arch
