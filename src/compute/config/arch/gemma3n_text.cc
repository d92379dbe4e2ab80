// Gemma 3n, its text (E2B, E4B): Gemma 3 with four streams of the residual, of which the blocks change one, a low-rank
// residual beside the attention, K and V shared by the last layers, inputs of each token to each layer, and gates of
// the first layers of which most values are 0.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "compute/config/arch/gemma4_layers.h"

namespace tactus::compute::arch {
namespace gemma3n_text_family {

constexpr TensorNames kHfNames = kPrePostNormHfNames.With({
    {Role::kStreamIn, "model.altup_projections.{}.weight"},
    {Role::kStreamOut, "model.altup_unembed_projections.{}.weight"},
    {Role::kStreamRouter, "model.layers.{}.altup.modality_router.weight"},
    {Role::kStreamRouterNorm, "model.layers.{}.altup.router_norm.weight"},
    {Role::kPredict, "model.layers.{}.altup.prediction_coefs.weight"},
    {Role::kCorrect, "model.layers.{}.altup.correction_coefs.weight"},
    {Role::kStreamScale, "model.layers.{}.altup.correct_output_scale"},
    {Role::kLowRankLeft, "model.layers.{}.laurel.linear_left.weight"},
    {Role::kLowRankRight, "model.layers.{}.laurel.linear_right.weight"},
    {Role::kLowRankNorm, "model.layers.{}.laurel.post_laurel_norm.weight"},
});
constexpr TensorNames kGgufNames = kGgufTensorNames.With({
    {Role::kStreamIn, TensorSource::Stacked("altup_proj.weight")},
    {Role::kStreamOut, TensorSource::Stacked("altup_unembd_proj.weight")},
    {Role::kStreamRouter, "blk.{}.altup_router.weight"},
    {Role::kStreamRouterNorm, "blk.{}.altup_router_norm.weight"},
    {Role::kPredict, "blk.{}.altup_predict_coef.weight"},
    {Role::kCorrect, "blk.{}.altup_correct_coef.weight"},
    {Role::kStreamScale, "blk.{}.altup_correct_scale.weight"},
    {Role::kLowRankLeft, "blk.{}.laurel_l.weight"},
    {Role::kLowRankRight, "blk.{}.laurel_r.weight"},
    {Role::kLowRankNorm, "blk.{}.laurel_post_norm.weight"},
});

constexpr FieldKey kActive{"altup_active_idx", "altup.active_idx"};
constexpr FieldKey kStreams{"altup_num_inputs", "altup.num_inputs"};
constexpr FieldKey kRank{"laurel_rank"};  // GGUF files do not state it
// How sparse each layer's gates are: config.json states shares of values that become 0, GGUF files the cutoffs.
constexpr FieldKey kShares{"activation_sparsity_pattern"}, kCutoffs{nullptr, "activation_sparsity_scale"};

// The share of a normal distribution's values below `x`.
double NormalShare(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// The x below which lies the share `p` of a normal distribution's values.
double NormalQuantile(double p) {
  double low = -40.0, high = 40.0;
  for (int i = 0; i < 100; ++i) {
    const double x = (low + high) / 2;
    (NormalShare(x) < p ? low : high) = x;
  }
  return low;
}

// Each layer's GatedFeedForwardBlock::cutoff.
std::vector<float> Cutoffs(FamilyFields& fields, size_t layers) {
  constexpr size_t kSparseLayers = 10;
  constexpr double kUsualShare = 0.95;
  const FieldKey key = fields.gguf() ? kCutoffs : kShares;
  std::vector<double> stated = fields.Reals(key);
  const bool shares = stated.empty() || !fields.gguf();
  if (stated.empty()) {
    stated.resize(layers);
    if (layers > kSparseLayers) std::fill_n(stated.begin(), kSparseLayers, kUsualShare);
  }
  std::vector<float> cutoffs(layers, GatedFeedForwardBlock::kNoCutoff);
  if (!HasOneForEach(fields, key, stated.size(), layers)) return cutoffs;
  for (size_t l = 0; l < layers; ++l) {
    const double value = stated[l];
    const auto cutoff = static_cast<float>(value);
    if (shares && !(value >= 0.0 && value < 1.0)) {
      fields.Refuse(key, fmt::format("holds {}; possible is 0 to less than 1", value));
    } else if (!shares && !std::isfinite(cutoff) && value != GatedFeedForwardBlock::kNoCutoff) {
      fields.Refuse(key, fmt::format("holds {}; possible are f32 numbers and -inf, for no cutoff", value));
    } else if (!shares || value > 0.0) {
      cutoffs[l] = shares ? static_cast<float>(NormalQuantile(value)) : cutoff;
    }
  }
  return cutoffs;
}

void SetPositions(FamilyFields& fields, ModelConfig* config) {
  if (config->local_rope.has_value()) return;
  if (!fields.Number({"rope_theta", "rope.freq_base"}).has_value()) config->rope.theta = 1e6f;
  config->local_rope.emplace();
  config->local_rope->theta = fields.NumberOr({"rope_local_base_freq", "rope.freq_base_swa"}, 1e4);
}

void RefuseOthers(FamilyFields& fields) {
  constexpr FieldKey kScaled{"altup_correct_scale"};
  const double active = fields.Number(kActive).value_or(0.0);
  if (active != 0.0) {
    fields.Refuse(kActive, "is not 0, the only one that is supported" + fmt::format(" ({} is stated)", active));
  }
  if (!fields.FlagOr(kScaled, true)) fields.Refuse(kScaled, "is false, which is not supported");
}

// Layers that read K and V of earlier ones. GGUF files that do not state it share all but the first 20.
size_t SharedLayers(FamilyFields& fields, int64_t layers) {
  const int64_t fallback = fields.gguf() ? std::max<int64_t>(0, layers - 20) : 15;
  return static_cast<size_t>(WholeNumber(fields, {gemma4_family::kShared.hf}, gemma4_family::kShared.gguf, fallback));
}

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  RefuseOthers(fields);
  SetPositions(fields, config);
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
  config->logits_softcap = fields.NumberOrOff({"final_logit_softcapping", "final_logit_softcapping"}, 30.0);
  config->streams = WholeNumber(fields, {kStreams.hf}, kStreams.gguf, 4);
  const int64_t rank = WholeNumber(fields, {kRank.hf}, nullptr, 64);
  gemma4_family::SetLayerInputs(fields, shape, {.size = 256, .rows = 262144, .may_lack_rows = true}, config);
  std::vector<Layer> layers = PrePostNormLayers(shape);
  SetWindows(fields, WindowOr(fields, 512), 5, &layers);
  gemma4_family::ShareKv(fields, SharedLayers(fields, shape.num_layers), &layers);
  const std::vector<float> cutoffs = Cutoffs(fields, layers.size());
  const NormSpec router_norm = RmsNormOf(Role::kStreamRouterNorm, shape.norm_eps);
  for (size_t l = 0; l < layers.size(); ++l) {
    LayerBlock attention = layers[l][0], feed_forward = layers[l][1];
    auto& a = std::get<AttentionBlock>(attention.block);
    a.rope = a.window == 0 ? RopeChoice::kMain : RopeChoice::kLocal;
    a.qk_norm = QkNorm::kHeads;
    a.v_norm = true;
    a.scale = 1.0f;
    attention.parallel = true;
    attention.factor = std::sqrt(0.5f);
    std::get<GatedFeedForwardBlock>(feed_forward.block).cutoff = cutoffs[l];
    layers[l] = {{.block = StreamsBlock{StreamStep::kPredict, config->streams, router_norm}},
                 {.norm = attention.norm, .block = LowRankBlock{rank, RmsNormOf(Role::kLowRankNorm, shape.norm_eps)}},
                 attention,
                 feed_forward,
                 {.block = StreamsBlock{StreamStep::kCorrect, config->streams, router_norm}},
                 {.block = LayerInputBlock{config->layer_inputs.size, shape.activation},
                  .post = RmsNormOf(Role::kInputPostNorm, shape.norm_eps),
                  .to_others = true}};
  }
  return layers;
}

FieldRecord OwnFields(const ModelConfig& config) {
  std::vector<float> cutoffs;
  std::vector<double> shares;
  int64_t rank = 0;
  for (const Layer& layer : config.layers) {
    for (const LayerBlock& b : layer) {
      if (const auto* low_rank = std::get_if<LowRankBlock>(&b.block)) rank = low_rank->rank;
      const auto* gated = std::get_if<GatedFeedForwardBlock>(&b.block);
      if (gated == nullptr) continue;
      cutoffs.push_back(gated->cutoff);
      shares.push_back(NormalShare(static_cast<double>(gated->cutoff)));
    }
  }
  FieldRecord fields = gemma4_family::SharedFields(config);
  fields.emplace_back(FieldKey{HfKeys().inner}, ByLayer(InnerSizes(config)));
  fields.emplace_back(FieldKey{nullptr, kActive.gguf}, int64_t{0});
  fields.emplace_back(kStreams, config.streams);
  fields.emplace_back(kShares, shares);
  fields.emplace_back(kCutoffs, cutoffs);
  fields.emplace_back(kRank, rank);
  return fields;
}

}  // namespace gemma3n_text_family

extern constinit const Architecture gemma3n_text = {
    .name = "gemma3n_text",
    .hf_class = "Gemma3nForCausalLM",
    .hf_model_type = "gemma3n_text",
    .gguf_name = "gemma3n",
    .hf_defaults = {.num_kv_heads = 2,
                    .head_dim = 256,
                    .max_position = 32768,
                    .bos_id = 2,
                    .eos_id = 1,
                    .tied = true,
                    .vocab = 262400,
                    .heads = 8},
    .attention_bias_key = true,
    .layers = gemma3n_text_family::Layers,
    .own_fields = gemma3n_text_family::OwnFields,
    .hf_keys = {.activation = "hidden_activation"},
    .hf_inner_by_layer = true,
    .activation = Activation::kGeluTanh,
    .hf_names = &gemma3n_text_family::kHfNames,
    .gguf_names = &gemma3n_text_family::kGgufNames,
};

}  // namespace tactus::compute::arch
