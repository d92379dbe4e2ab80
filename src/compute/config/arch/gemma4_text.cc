// Gemma 4, its text (E2B, E4B, 26B-A4B, 31B): Gemma 3 with plain norm weights, a norm of v, larger heads in the layers
// without a window, K and V shared by the last layers, inputs of each token to each layer, a scale of each layer, and
// in 26B-A4B experts beside each feed-forward block.
#include "compute/config/arch/gemma4_layers.h"
#include "compute/config/mixtures.h"

#include <cmath>

namespace tactus::compute::arch {
namespace gemma4_family {
namespace {

constexpr TensorSource kHfGateUp = TensorSource::Stacked("model.layers.{}.experts.gate_up_proj", TensorSource::kFused);
constexpr TensorNames kHfNames = kPrePostNormHfNames.With({
    {Role::kDensePostNorm, "model.layers.{}.post_feedforward_layernorm_1.weight"},
    {Role::kExpertsNorm, "model.layers.{}.pre_feedforward_layernorm_2.weight"},
    {Role::kExpertsPostNorm, "model.layers.{}.post_feedforward_layernorm_2.weight"},
    {Role::kRouter, "model.layers.{}.router.proj.weight"},
    {Role::kRouterNorm, "model.layers.{}.router.scale"},
    {Role::kExpertScale, "model.layers.{}.router.per_expert_scale"},
    {Role::kExpertGate, kHfGateUp},
    {Role::kExpertUp, kHfGateUp},
    {Role::kExpertDown, TensorSource::Stacked("model.layers.{}.experts.down_proj")},
});
constexpr TensorSource kGgufGateUp = TensorSource::Stacked("blk.{}.ffn_gate_up_exps.weight", TensorSource::kFused);
constexpr TensorNames kGgufNames = kGgufTensorNames.With({
    {Role::kDensePostNorm, "blk.{}.post_ffw_norm_1.weight"},
    {Role::kExpertsNorm, "blk.{}.pre_ffw_norm_2.weight"},
    {Role::kExpertsPostNorm, "blk.{}.post_ffw_norm_2.weight"},
    {Role::kRouterNorm, "blk.{}.ffn_gate_inp.scale"},
    {Role::kExpertScale, "blk.{}.ffn_down_exps.scale"},
    {Role::kExpertGate, kGgufGateUp},
    {Role::kExpertUp, kGgufGateUp},
});

constexpr HfMixtureKeys kMixture{.chosen = "top_k_experts", .used = "enable_moe_block"};
constexpr FieldKey kInputSize{"hidden_size_per_layer_input", "embedding_length_per_layer_input"};
constexpr FieldKey kInputRows{"vocab_size_per_layer_input"}, kDoubleWide{"use_double_wide_mlp"};
constexpr FieldKey kKIsV{"attention_k_eq_v"};
// The heads of layers without a window; GGUF files state those of the others.
constexpr const char *kFullHeadDim = "global_head_dim", *kFullKvHeads = "num_global_key_value_heads";
constexpr const char* kLocalHeadDim = "attention.key_length_swa";

// A setting of one layer: config.json states it by layer, or once (`global`) for all layers without a window.
int64_t OfFullLayer(FamilyFields& fields, size_t layer, const std::string& name, const char* global, int64_t fallback) {
  const std::string key = "per_layer_config." + std::to_string(layer) + "." + name;
  return WholeNumber(fields, {key.c_str(), global}, nullptr, fallback);
}

// Heads of layer `l`, whose window is set.
void SetHeads(FamilyFields& fields, const StatedShape& shape, size_t l, AttentionBlock* a) {
  const bool full = a->window == 0, same = fields.FlagOr(kKIsV, false);
  if (fields.gguf()) {
    const int64_t local = WholeNumber(fields, {nullptr}, kLocalHeadDim, shape.head_dim);
    a->head_dim = full ? shape.head_dim : local;
    a->k_is_v = !fields.HasTensor(Role::kV, static_cast<int64_t>(l));
  } else if (full) {
    const char* const global = same ? kFullKvHeads : nullptr;
    a->head_dim = OfFullLayer(fields, l, "head_dim", kFullHeadDim, 512);
    a->kv_heads = OfFullLayer(fields, l, "num_key_value_heads", global, shape.num_kv_heads);
    a->k_is_v = same;
  }
  a->rope = full ? RopeChoice::kMain : RopeChoice::kLocal;
  a->qk_norm = QkNorm::kHeads;
  a->v_norm = true;
  a->scale = 1.0f;
}

// Experts beside each feed-forward block: both read the same stream, and their sum is normed.
void AddExperts(FamilyFields& fields, const StatedShape& shape, int64_t hidden, std::vector<Layer>* layers) {
  constexpr FieldKey kInner{"moe_intermediate_size", "expert_feed_forward_length"};
  const bool used = fields.gguf() ? fields.Number({nullptr, "expert_count"}).value_or(0.0) > 0.0
                                  : fields.FlagOr({kMixture.used}, false);
  if (!used) return;
  if (!fields.Number(kInner).has_value()) fields.Refuse(kInner, "is missing");
  ExpertsBlock experts = ExpertsFrom(fields, shape, {});
  experts.router.renormalise = true;
  experts.router.logit_scale = 1.0f / std::sqrt(static_cast<float>(hidden));
  experts.router.expert_scale = true;
  experts.router_norm = RmsNormOf(Role::kRouterNorm, shape.norm_eps);
  for (Layer& layer : *layers) {
    layer[1].post = RmsNormOf(Role::kDensePostNorm, shape.norm_eps);
    layer.push_back({.norm = RmsNormOf(Role::kExpertsNorm, shape.norm_eps),
                     .block = experts,
                     .post = RmsNormOf(Role::kExpertsPostNorm, shape.norm_eps),
                     .joint = RmsNormOf(Role::kFeedForwardPostNorm, shape.norm_eps)});
  }
}

void AddLayerInputs(FamilyFields& fields, const StatedShape& shape, ModelConfig* config, std::vector<Layer>* layers) {
  SetLayerInputs(fields, shape, {}, config);
  if (config->layer_inputs.size == 0) return;
  for (Layer& layer : *layers) {
    layer.push_back({.block = LayerInputBlock{config->layer_inputs.size, shape.activation},
                     .post = RmsNormOf(Role::kInputPostNorm, shape.norm_eps)});
  }
}

void SetPositions(FamilyFields& fields, ModelConfig* config) {
  if (config->local_rope.has_value()) return;
  config->local_rope.emplace();
  config->local_rope->theta = fields.NumberOr({nullptr, "rope.freq_base_swa"}, 1e4);
  if (fields.gguf()) return;
  config->rope.theta = 1e6f;
  config->rope.scaling = RopeScaling::kProportional;
  config->rope.proportion = 0.25f;
}

void RefuseOthers(FamilyFields& fields) {
  constexpr FieldKey kDirection{"use_bidirectional_attention"};
  if (fields.Text(kDirection).value_or("") == "all") fields.Refuse(kDirection, "is 'all', which is not supported");
}

}  // namespace

void ShareKv(FamilyFields& fields, size_t shared, std::vector<Layer>* layers) {
  int32_t last[2] = {-1, -1};  // without a window, with one
  for (size_t l = 0; l < layers->size(); ++l) {
    auto& a = std::get<AttentionBlock>((*layers)[l][0].block);
    int32_t& source = last[a.window > 0 ? 1 : 0];
    if (l + shared < layers->size()) {
      source = static_cast<int32_t>(l);
    } else if (source < 0) {
      fields.Refuse(kShared, "is " + std::to_string(shared) + ", and no earlier layer is of the kind of layer " +
                                 std::to_string(l));
    } else {
      a.kv_layer = source;
      a.k_is_v = false;
    }
  }
}

void SetLayerInputs(FamilyFields& fields, const StatedShape& shape, const InputDefaults& defaults,
                    ModelConfig* config) {
  const int64_t size = WholeNumber(fields, {kInputSize.hf}, kInputSize.gguf, defaults.size);
  if (size == 0) return;
  const bool own = defaults.rows > 0 && !fields.gguf();
  const int64_t rows = WholeNumber(fields, {kInputRows.hf}, nullptr, own ? defaults.rows : config->vocab_size);
  if (rows != config->vocab_size && !defaults.may_lack_rows) {
    fields.Refuse(kInputRows, "is " + std::to_string(rows) + "; only the vocabulary's size, " +
                                  std::to_string(config->vocab_size) + ", is supported");
  }
  config->layer_inputs = {size,
                          rows,
                          RmsNormOf(Role::kInputNorm, shape.norm_eps),
                          1.0f / std::sqrt(static_cast<float>(config->hidden_size)),
                          std::sqrt(static_cast<float>(size)),
                          std::sqrt(0.5f)};
}

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  RefuseOthers(fields);
  SetPositions(fields, config);
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
  config->logits_softcap = fields.NumberOr({"final_logit_softcapping", "final_logit_softcapping"}, 0.0);
  const auto shared = static_cast<size_t>(WholeNumber(fields, {kShared.hf}, kShared.gguf, 0));
  const bool double_wide = fields.FlagOr(kDoubleWide, false);
  std::vector<Layer> layers = PrePostNormLayers(shape);
  SetWindows(fields, WindowOr(fields, 512), 6, &layers);
  for (size_t l = 0; l < layers.size(); ++l) {
    auto& attention = std::get<AttentionBlock>(layers[l][0].block);
    if (l + 1 == layers.size()) attention.window = 0;
    SetHeads(fields, shape, l, &attention);
    if (double_wide && l + shared >= layers.size()) std::get<GatedFeedForwardBlock>(layers[l][1].block).inner *= 2;
  }
  ShareKv(fields, shared, &layers);
  AddExperts(fields, shape, config->hidden_size, &layers);
  AddLayerInputs(fields, shape, config, &layers);
  for (size_t l = 0; l < layers.size(); ++l) {
    if (fields.HasTensor(Role::kLayerScale, static_cast<int64_t>(l))) layers[l].back().scale = Role::kLayerScale;
  }
  return layers;
}

FieldRecord SharedFields(const ModelConfig& config) {
  std::vector<bool> sliding;
  int64_t sharing = 0;
  for (const Layer& layer : config.layers) {
    sliding.push_back(AttentionOf(layer)->window > 0);
    sharing += AttentionOf(layer)->stores_kv() ? 0 : 1;
  }
  FieldRecord fields = {{kWindowPattern, sliding}, {kShared, sharing}, {kInputSize, config.layer_inputs.size}};
  if (config.layer_inputs.size > 0) fields.emplace_back(kInputRows, config.layer_inputs.rows);
  return fields;
}

namespace {

FieldRecord OwnFields(const ModelConfig& config) {
  const AttentionBlock& full = FullAttentionOf(config);
  const AttentionBlock* local = nullptr;  // of a layer with a window
  bool k_is_v = false;
  for (const Layer& layer : config.layers) {
    if (AttentionOf(layer)->window > 0) local = AttentionOf(layer);
    k_is_v |= AttentionOf(layer)->k_is_v;
  }
  FieldRecord fields = SharedFields(config);
  if (local != nullptr) {
    for (const char* key : {kLocalHeadDim, "attention.value_length_swa", "rope.dimension_count_swa"})
      fields.emplace_back(FieldKey{nullptr, key}, local->head_dim);
  }
  const AttentionBlock& usual = local != nullptr ? *local : full;
  const std::vector<int64_t> inner = InnerSizes(config);
  fields.emplace_back(FieldKey{HfKeys().inner}, inner[0]);
  fields.emplace_back(kDoubleWide, inner.back() != inner[0]);
  fields.emplace_back(FieldKey{"head_dim"}, usual.head_dim);
  fields.emplace_back(FieldKey{kFullHeadDim}, full.head_dim);
  fields.emplace_back(FieldKey{HfKeys().kv_heads}, usual.kv_heads);
  fields.emplace_back(kKIsV, k_is_v);
  if (k_is_v) fields.emplace_back(FieldKey{kFullKvHeads}, full.kv_heads);
  return fields;
}

}  // namespace
}  // namespace gemma4_family

extern constinit const Architecture gemma4_text = {
    .name = "gemma4_text",
    .hf_class = "Gemma4ForCausalLM",
    .hf_model_type = "gemma4_text",
    .gguf_name = "gemma4",
    .hf_defaults = {.num_kv_heads = 4, .head_dim = 256, .max_position = 131072, .bos_id = 2, .eos_id = 1, .tied = true},
    .attention_bias_key = true,
    .layers = gemma4_family::Layers,
    .own_fields = gemma4_family::OwnFields,
    .hf_keys = {.activation = "hidden_activation"},
    .hf_mixture = gemma4_family::kMixture,
    .hf_rope_by_type = true,
    .activation = Activation::kGeluTanh,
    .hf_names = &gemma4_family::kHfNames,
    .gguf_names = &gemma4_family::kGgufNames,
};

}  // namespace tactus::compute::arch
