#include "compute/config/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace tactus::compute {
namespace {

struct Bound {
  const char* field;
  int64_t value;
  int64_t low, high;
};

Status CheckBounds(std::initializer_list<Bound> bounds) {
  for (const Bound& b : bounds) {
    if (b.value >= b.low && b.value <= b.high) continue;
    return InvalidArgument(std::string(b.field) + " is " + std::to_string(b.value) + "; possible is " +
                               std::to_string(b.low) + " to " + std::to_string(b.high),
                           b.field);
  }
  return Status();
}

Status CheckEps(float eps) {
  if (eps > 0.0f && eps < 1.0f) return Status();
  return InvalidArgument("rms_eps is " + std::to_string(eps) + "; possible is above 0 and below 1", "rms_eps");
}

Status CheckRotary(const AttentionBlock& a, const ModelConfig& c) {
  if (a.rope == RopeChoice::kLocal && !c.local_rope.has_value()) {
    return InvalidArgument("a layer has local rotary positions, but the model states no base for them", "rope");
  }
  const RopeConfig& rope = a.rope == RopeChoice::kLocal ? *c.local_rope : c.rope;
  if (rope.rotary_dim == 0 && a.head_dim % 2 != 0) {
    return InvalidArgument("head_dim is " + std::to_string(a.head_dim) + "; RoPE needs an even number", "head_dim");
  }
  if (rope.rotary_dim < 0 || rope.rotary_dim > a.head_dim || rope.rotary_dim % 2 != 0) {
    return InvalidArgument("rotary_dim is " + std::to_string(rope.rotary_dim) + "; possible are even numbers up to " +
                               std::to_string(a.head_dim) + ", the size of a head",
                           "rotary_dim");
  }
  const int64_t rotary_dim = rope.rotary_dim > 0 ? rope.rotary_dim : a.head_dim;
  if (rope.scaling == RopeScaling::kLongRope) {
    for (const auto* list : {&rope.short_factors, &rope.long_factors}) {
      const bool positive = std::all_of(list->begin(), list->end(), [](float f) { return std::isfinite(f) && f > 0; });
      if (list->size() == static_cast<size_t>(rotary_dim / 2) && positive) continue;
      return InvalidArgument("longrope needs two lists of " + std::to_string(rotary_dim / 2) +
                                 " positive factors, one has " + std::to_string(list->size()),
                             "long_factor");
    }
  }
  const size_t factors = rope.frequency_factors.size();
  if (factors != 0 && factors != static_cast<size_t>(rotary_dim / 2)) {
    return InvalidArgument("there are " + std::to_string(factors) + " RoPE frequency factors for head_dim " +
                           std::to_string(rotary_dim));
  }
  return Status();
}

// Queries that grow with their position.
Status CheckQueryScale(const AttentionBlock& a) {
  constexpr const char* kBeta = "attn_scale (or llama_4_scaling_beta)";
  if (a.query_beta == 0.0f) return Status();
  if (!(std::isfinite(a.query_beta) && a.query_beta > 0.0f)) {
    return InvalidArgument(
        std::string(kBeta) + " is " + std::to_string(a.query_beta) + "; possible are finite numbers from 0 on", kBeta);
  }
  return CheckBounds({{"floor_scale (or original_max_position_embeddings)", a.query_length, 1, 1 << 30},
                      {"the offset of positions in queries", a.query_offset, 0, 1 << 30}});
}

// Limits keep every product of two fields, times 8 bytes, far inside 64 bits. head_dim: what the attention kernels are
// built for.
Status CheckBlock(const AttentionBlock& a, const ModelConfig& c) {
  TACTUS_RETURN_IF_ERROR(CheckBounds({{"num_heads", a.heads, 1, 1 << 14},
                                      {"num_kv_heads", a.kv_heads, 1, 1 << 14},
                                      {"head_dim", a.head_dim, 2, kMaxConfigHeadDim}}));
  if (a.heads % a.kv_heads != 0) {
    return InvalidArgument(
        "num_heads " + std::to_string(a.heads) + " is not a multiple of num_kv_heads " + std::to_string(a.kv_heads),
        "num_kv_heads");
  }
  if (a.rope != RopeChoice::kNone) TACTUS_RETURN_IF_ERROR(CheckRotary(a, c));
  if (a.window < 0) {
    return InvalidArgument("a sliding window is " + std::to_string(a.window) + "; 0 means none", "window");
  }
  if (a.chunk < 0 || (a.chunk > 0 && a.window > 0)) {
    return InvalidArgument("a chunk of attention is " + std::to_string(a.chunk) + " beside a window of " +
                               std::to_string(a.window) + "; 0 means none, and a layer has one of the two",
                           "attention_chunk_size");
  }
  TACTUS_RETURN_IF_ERROR(CheckQueryScale(a));
  return CheckEps(a.norm_eps);
}

Status CheckBlock(const GatedFeedForwardBlock& f, const ModelConfig&) {
  return CheckBounds({{"intermediate_size", f.inner, 1, 1 << 22}});
}
Status CheckBlock(const FeedForwardBlock& f, const ModelConfig&) {
  return CheckBounds({{"intermediate_size", f.inner, 1, 1 << 22}});
}

Status CheckBlock(const ExpertsBlock& e, const ModelConfig&) {
  const RouterSpec& r = e.router;
  TACTUS_RETURN_IF_ERROR(CheckBounds({{"num_experts", e.experts, 1, kMaxExperts},
                                      {"num_experts_per_tok", r.chosen, 1, std::min(e.experts, kMaxChosenExperts)},
                                      {"moe_intermediate_size", e.expert.inner, 1, 1 << 22},
                                      {"shared_expert_intermediate_size", e.shared_inner, 0, 1 << 22},
                                      {"n_group", r.groups, 1, e.experts},
                                      {"topk_group", r.chosen_groups, 1, r.groups}}));
  if (e.experts % r.groups != 0) {
    return InvalidArgument(
        "num_experts " + std::to_string(e.experts) + " is not a multiple of n_group " + std::to_string(r.groups),
        "n_group");
  }
  const int64_t open = e.experts / r.groups * r.chosen_groups;
  if (open < r.chosen) {
    return InvalidArgument("num_experts_per_tok " + std::to_string(r.chosen) + " exceeds the " + std::to_string(open) +
                               " experts of topk_group " + std::to_string(r.chosen_groups) + " groups",
                           "topk_group");
  }
  return Status();
}

Status CheckBlock(const LayerInputBlock& f, const ModelConfig& c) {
  if (f.inner > 0 && f.inner == c.layer_inputs.size) return Status();
  return InvalidArgument("a layer takes inputs of " + std::to_string(f.inner) + " values, the model makes " +
                             std::to_string(c.layer_inputs.size),
                         "hidden_size_per_layer_input");
}

Status CheckBlock(const LowRankBlock& b, const ModelConfig&) {
  return CheckBounds({{"laurel_rank", b.rank, 1, 1 << 14}});
}

Status CheckBlock(const StreamsBlock& b, const ModelConfig& c) {
  TACTUS_RETURN_IF_ERROR(CheckBounds({{"altup_num_inputs", b.streams, 2, kMaxStreams}}));
  if (b.streams == c.streams) return Status();
  return InvalidArgument("altup_num_inputs is " + std::to_string(b.streams) + " in a layer and " +
                             std::to_string(c.streams) + " in the model",
                         "altup_num_inputs");
}

// Whether layer `l` may read K and V of the layer that it names.
Status CheckSharedKv(const ModelConfig& c, size_t l) {
  const AttentionBlock* const a = AttentionOf(c.layers[l]);
  if (a == nullptr || a->stores_kv()) return Status();
  const auto from = static_cast<size_t>(a->kv_layer);
  const AttentionBlock* const source = from < l ? AttentionOf(c.layers[from]) : nullptr;
  if (source != nullptr && source->stores_kv() && source->kv_heads == a->kv_heads && source->head_dim == a->head_dim) {
    return Status();
  }
  return InvalidArgument("layer " + std::to_string(l) + " reads K and V of layer " + std::to_string(from) +
                             ", which stores none of " + std::to_string(a->kv_heads) + " heads of " +
                             std::to_string(a->head_dim),
                         "num_kv_shared_layers");
}

// Layers with the same rotary positions have one table of frequencies.
Status CheckRotaryAlike(const ModelConfig& c, RopeChoice choice) {
  const int32_t stated = choice == RopeChoice::kLocal && c.local_rope ? c.local_rope->rotary_dim : c.rope.rotary_dim;
  int64_t first = 0;
  for (const Layer& layer : c.layers) {
    const AttentionBlock* const a = AttentionOf(layer);
    if (a == nullptr || a->rope != choice || stated > 0) continue;
    if (first == 0) first = a->head_dim;
    if (a->head_dim == first) continue;
    return InvalidArgument("head_dim is " + std::to_string(first) + " in one layer and " + std::to_string(a->head_dim) +
                               " in another with the same rotary positions",
                           "head_dim");
  }
  return Status();
}

Status CheckNorm(const NormSpec& norm) {
  return norm.exists() ? CheckEps(norm.eps) : Status();
}

// A norm within a block.
Status CheckInnerNorm(const Block& block) {
  if (const auto* e = std::get_if<ExpertsBlock>(&block)) return CheckNorm(e->router_norm);
  if (const auto* b = std::get_if<LowRankBlock>(&block)) return CheckNorm(b->norm);
  if (const auto* s = std::get_if<StreamsBlock>(&block)) return CheckNorm(s->norm);
  return Status();
}

// A branch that waits for the next block's and the stream that parallel blocks read are stored in one place.
Status CheckJoint(const Layer& layer) {
  for (size_t i = 0; i < layer.size(); ++i) {
    if (!layer[i].joint.exists()) continue;
    const bool follows = i > 0 && !std::holds_alternative<StreamsBlock>(layer[i - 1].block);
    const bool parallel = layer[i].parallel || (i + 1 < layer.size() && layer[i + 1].parallel);
    if (follows && !parallel) continue;
    return InvalidArgument("block " + std::to_string(i) + " of a layer has a joint norm " +
                           (follows ? "and is parallel to the block beside it" : "and no branch before its own"));
  }
  return Status();
}

Status CheckRope(const RopeConfig& r) {
  if (!(std::isfinite(r.theta) && r.theta > 0.0f)) {
    return InvalidArgument("rope theta is " + std::to_string(r.theta) + "; only positive numbers are possible",
                           "rope_theta");
  }
  if (!(r.factor >= 1.0f && r.factor <= 1e4f) && r.scaling != RopeScaling::kNone) {
    return InvalidArgument("the RoPE scaling factor is " + std::to_string(r.factor) + "; possible is 1 to 10000",
                           "factor");
  }
  if (r.scaling == RopeScaling::kProportional) {
    if (r.proportion >= 0.0f && r.proportion <= 1.0f) return Status();
    return InvalidArgument("partial_rotary_factor is " + std::to_string(r.proportion) + "; possible is 0 to 1",
                           "partial_rotary_factor");
  }
  if (r.scaling != RopeScaling::kNone && r.scaling != RopeScaling::kLinear) {
    if (r.original_max_position < 1) {
      return InvalidArgument("original_max_position is " + std::to_string(r.original_max_position) +
                                 "; this RoPE scaling needs at least 1",
                             "original_max_position_embeddings");
    }
  }
  if (r.scaling == RopeScaling::kLlama3 && !(r.low_freq_factor > 0.0f && r.high_freq_factor >= r.low_freq_factor)) {
    return InvalidArgument("llama3 RoPE scaling needs 0 < low_freq_factor <= high_freq_factor, got " +
                               std::to_string(r.low_freq_factor) + " and " + std::to_string(r.high_freq_factor),
                           "low_freq_factor");
  }
  return Status();
}

}  // namespace

std::vector<ModelTensor> ModelConfig::Tensors() const {
  const TensorDecl table{Role::kEmbedding, vocab_size, hidden_size, false, Split::kRows};
  std::vector<ModelTensor> tensors{{table}};
  if (learned_positions > 0) {
    tensors.push_back({{Role::kPositions, learned_positions, hidden_size}});
    tensors.back().fused = {first_position, first_position + learned_positions, 1};
  }
  for (const TensorDecl& tensor : NormTensors(embedding_norm, hidden_size)) tensors.push_back({tensor});
  if (layer_inputs.size > 0) {
    tensors.push_back({{Role::kInputTable, layer_inputs.rows, layer_inputs_width(), false, Split::kRows}});
    tensors.push_back({{Role::kInputProjection, layer_inputs_width(), hidden_size, false, Split::kNone}});
    for (const TensorDecl& tensor : NormTensors(layer_inputs.norm, layer_inputs.size)) tensors.push_back({tensor});
  }
  for (const Role role : {Role::kStreamIn, Role::kStreamOut}) {
    for (int64_t s = 0; s + 1 < streams; ++s) {
      tensors.push_back({{role, hidden_size, hidden_size}});
      tensors.back().expert = s;
    }
  }
  for (int64_t l = 0; l < num_layers(); ++l) {
    for (const LayerBlock& block : layers[static_cast<size_t>(l)]) {
      for (const TensorDecl& tensor : block.Tensors(hidden_size)) tensors.push_back({tensor, l});
    }
  }
  for (const TensorDecl& tensor : NormTensors(final_norm, hidden_size)) tensors.push_back({tensor});
  if (!tie_embeddings) {
    tensors.push_back({table});
    tensors.back().role = Role::kLmHead;
  }
  if (lm_head_bias) tensors.push_back({{Role::kLmHeadBias, vocab_size, 1, false, Split::kRows}});
  return tensors;
}

std::vector<int32_t> ModelConfig::Windows() const {
  std::vector<int32_t> windows;
  for (const Layer& layer : layers) {
    const AttentionBlock* attention = AttentionOf(layer);
    windows.push_back(attention == nullptr ? 0 : attention->window);
  }
  return windows;
}

bool ModelConfig::HasWindows() const {
  const std::vector<int32_t> windows = Windows();
  return std::any_of(windows.begin(), windows.end(), [](int32_t window) { return window > 0; });
}

int64_t ModelConfig::NumParameters() const {
  int64_t parameters = 0;
  for (const ModelTensor& tensor : Tensors()) parameters += tensor.elements();
  return parameters;
}

int64_t ModelConfig::KvBytesPerToken(DType kv_dtype) const {
  int64_t bytes = 0;
  for (const Layer& layer : layers) {
    const AttentionBlock* attention = AttentionOf(layer);
    if (attention == nullptr || !attention->stores_kv()) continue;
    const int64_t scales = kv_dtype == DType::kInt8 ? 4 * attention->kv_heads : 0;  // f32, one per head
    bytes += 2 * (RowBytes(kv_dtype, attention->kv_width()) + scales);
  }
  return bytes;
}

const AttentionBlock& FullAttentionOf(const ModelConfig& config) {
  for (const Layer& layer : config.layers) {
    const AttentionBlock* const attention = AttentionOf(layer);
    if (attention->window == 0) return *attention;
  }
  return *AttentionOf(config.layers[0]);
}

std::vector<int64_t> InnerSizes(const ModelConfig& config) {
  std::vector<int64_t> dense, experts;
  for (const ModelTensor& t : config.Tensors()) {
    if (t.role == Role::kDown) dense.push_back(t.cols);
    if (t.role == Role::kExpertDown) experts.push_back(t.cols);
  }
  if (dense.size() == config.layers.size()) return dense;
  return {!dense.empty() ? dense[0] : !experts.empty() ? experts[0] : 0};
}

Status ValidateShape(const StatedShape& s) {
  TACTUS_RETURN_IF_ERROR(CheckBounds({{"num_layers", s.num_layers, 1, kMaxLayers}}));
  if (s.window.size() != static_cast<size_t>(s.num_layers)) {
    return InvalidArgument(
        "window has " + std::to_string(s.window.size()) + " entries for " + std::to_string(s.num_layers) + " layers",
        "window");
  }
  for (const auto* list : {&s.layer_kv_heads, &s.layer_inner}) {
    if (list->empty() || list->size() == s.window.size()) continue;
    return InvalidArgument(
        std::to_string(list->size()) + " values are stated for " + std::to_string(s.num_layers) + " layers",
        "num_layers");
  }
  return Status();
}

Status ValidateConfig(const ModelConfig& c) {
  TACTUS_RETURN_IF_ERROR(CheckBounds({{"hidden_size", c.hidden_size, 1, 1 << 20},
                                      {"num_layers", c.num_layers(), 1, kMaxLayers},
                                      {"vocab_size", c.vocab_size, 1, 1 << 24},
                                      {"max_position", c.max_position, 1, 1 << 30}}));
  if (c.streams != 1) TACTUS_RETURN_IF_ERROR(CheckBounds({{"altup_num_inputs", c.streams, 2, kMaxStreams}}));
  for (const Layer& layer : c.layers) {
    TACTUS_RETURN_IF_ERROR(CheckJoint(layer));
    for (const LayerBlock& b : layer) {
      TACTUS_RETURN_IF_ERROR(CheckNorm(b.norm));
      TACTUS_RETURN_IF_ERROR(CheckNorm(b.post));
      TACTUS_RETURN_IF_ERROR(CheckNorm(b.joint));
      TACTUS_RETURN_IF_ERROR(CheckInnerNorm(b.block));
      TACTUS_RETURN_IF_ERROR(std::visit([&](const auto& block) { return CheckBlock(block, c); }, b.block));
    }
  }
  int64_t experts = 0;
  for (const Layer& layer : c.layers) experts += ExpertsOf(layer) != nullptr ? ExpertsOf(layer)->experts : 0;
  TACTUS_RETURN_IF_ERROR(CheckBounds({{"experts of all layers", experts, 0, kMaxExpertsOfAllLayers}}));
  for (size_t l = 0; l < c.layers.size(); ++l) TACTUS_RETURN_IF_ERROR(CheckSharedKv(c, l));
  TACTUS_RETURN_IF_ERROR(CheckRotaryAlike(c, RopeChoice::kMain));
  TACTUS_RETURN_IF_ERROR(CheckRotaryAlike(c, RopeChoice::kLocal));
  TACTUS_RETURN_IF_ERROR(CheckNorm(c.layer_inputs.norm));
  if (c.layer_inputs.size > 0) {
    TACTUS_RETURN_IF_ERROR(CheckBounds({{"hidden_size_per_layer_input", c.layer_inputs.size, 1, 1 << 14},
                                        {"vocab_size_per_layer_input", c.layer_inputs.rows, 1, 1 << 24}}));
  }
  if (c.learned_positions > 0 && c.max_position > c.learned_positions) {
    return InvalidArgument("max_position is " + std::to_string(c.max_position) + ", but there are only " +
                               std::to_string(c.learned_positions) + " learned positions",
                           "max_position_embeddings");
  }
  for (const NormSpec* norm : {&c.embedding_norm, &c.final_norm}) TACTUS_RETURN_IF_ERROR(CheckNorm(*norm));
  if (c.local_rope.has_value()) TACTUS_RETURN_IF_ERROR(CheckRope(*c.local_rope));
  return CheckRope(c.rope);
}

}  // namespace tactus::compute
