// A model as a list of layers, a layer as a list of blocks. A block declares its tensors, its KV and its work; loaders,
// packing, dummy weights, memory plan, calibration, `tactus models inspect` and the cost model read the declarations
// and name no block. A block runs in compute/model/ (a forward pass for each backend).
//
// Plain data: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <variant>
#include <vector>

#include "compute/config/roles.h"
#include "compute/config/router_spec.h"
#include "compute/tensor/activation.h"

namespace tactus::compute {

enum class NormKind : uint8_t {
  kNone,
  kRms,    // x / sqrt(mean(x^2) + eps) * w (Zhang and Sennrich, 2019)
  kLayer,  // (x - mean) / sqrt(variance + eps) * w + b (Ba et al., 2016)
};

struct NormSpec {
  NormKind kind = NormKind::kNone;
  Role weight = Role::kNone;  // kNone: 1
  float eps = 1e-5f;
  Role bias = Role::kNone;  // kNone: 0

  bool exists() const { return kind != NormKind::kNone; }
  bool operator==(const NormSpec&) const = default;
};
inline NormSpec RmsNormOf(Role weight, float eps) {
  return {NormKind::kRms, weight, eps};
}
inline NormSpec LayerNormOf(Role weight, float eps, Role bias = Role::kNone) {
  return {NormKind::kLayer, weight, eps, bias};
}

// Which rotary positions a layer has.
enum class RopeChoice : uint8_t {
  kNone,
  kMain,   // ModelConfig::rope
  kLocal,  // ModelConfig::local_rope: another base (Gemma 3's layers with a window)
};

// What the RMSNorm of q and k is over.
enum class QkNorm : uint8_t {
  kNone,
  kHeads,      // head_dim of each head, with the same weights (Qwen3)
  kUnitHeads,  // head_dim of each head, the weights all 1 (Llama 4)
  kWidth,      // all heads together (OLMo 2)
};

// Softmax attention over paged K and V.
struct AttentionBlock {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int32_t window = 0;  // positions that a query sees, its own included; 0: all
  int32_t chunk = 0;   // positions are cut into chunks of this size; a query sees its chunk alone; 0: all (Llama 4)
  bool qkv_bias = false, o_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  float norm_eps = 1e-5f;   // of qk_norm and v_norm
  bool norms_last = false;  // the norms of q and k follow RoPE (Hunyuan)
  bool v_norm = false;      // an RMSNorm of each head of v, its weights all 1 (Gemma 4)
  bool k_is_v = false;      // V is the product of K before norm and RoPE; it has no tensor (Gemma 4)
  int32_t kv_layer = -1;    // the earlier layer whose K and V it reads; -1: it stores K and V (Gemma 3n and 4)
  float query_beta = 0.0f;  // as QueryScale's (kernels/ops.h), as are the next two (Ministral 3, Llama 4)
  int64_t query_length = 0, query_offset = 0;
  RopeChoice rope = RopeChoice::kMain;
  float scale = 0.0f;    // of q k^T; 0: 1 / sqrt(head_dim)
  float softcap = 0.0f;  // as AttentionSpec's (kernels/ops.h), as are the next two
  float alibi = 0.0f;    // factor of ALiBi's slopes (AlibiSlopes); 0: none
  bool sinks = false;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  bool stores_kv() const { return kv_layer < 0; }
  bool norms_heads() const { return qk_norm == QkNorm::kHeads || qk_norm == QkNorm::kUnitHeads; }
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
  bool operator==(const AttentionBlock&) const = default;
};

// down(f(gate(x)) * up(x)) (Shazeer, "GLU Variants", 2020).
struct GatedFeedForwardBlock {
  int64_t inner = 0;
  bool bias = false;
  Activation activation = Activation::kSilu;
  // The gate loses its mean and this many of its deviations, and what is then below 0 becomes 0 (Gemma 3n).
  static constexpr float kNoCutoff = -std::numeric_limits<float>::infinity();
  float cutoff = kNoCutoff;

  bool cuts() const { return cutoff != kNoCutoff; }
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
  bool operator==(const GatedFeedForwardBlock&) const = default;
};

// down(f(up(x))).
struct FeedForwardBlock {
  int64_t inner = 0;
  bool bias = false;
  Activation activation = Activation::kGeluTanh;

  std::vector<TensorDecl> Tensors(int64_t hidden) const;
  bool operator==(const FeedForwardBlock&) const = default;
};

// A mixture of gated feed-forward blocks, of which a token uses a few, beside one that every token uses.
struct ExpertsBlock {
  int64_t experts = 0;
  RouterSpec router;
  NormSpec router_norm;          // of the stream, for the router alone; kNone: it reads what the experts read
  GatedFeedForwardBlock expert;  // each of them
  int64_t shared_inner = 0;      // of the shared expert, which has no biases; 0: there is none
  bool shared_weight = false;    // its output is multiplied with sigmoid(x . w) (Qwen2-MoE)

  int64_t inner_total() const { return router.chosen * expert.inner + shared_inner; }  // of a token
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
  bool operator==(const ExpertsBlock&) const = default;
};

// down(f(gate(x)) * y), y the token's input to this layer (LayerInputs).
struct LayerInputBlock {
  int64_t inner = 0;
  Activation activation = Activation::kGeluTanh;

  bool operator==(const LayerInputBlock&) const = default;
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
};

// x + norm(right(left(x))), a residual connection beside another block (Menghani et al., "LAuReL", 2024).
struct LowRankBlock {
  int64_t rank = 0;
  NormSpec norm;

  bool operator==(const LowRankBlock&) const = default;
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
};

// One half of an alternating update (Baykal et al., "AltUp", 2023) of the residual's parallel streams, of which the
// blocks between the halves change one. With m = tanh(router(norm(x)) / hidden), x the stream that the blocks read:
//   kPredict  x = stream 0; then every stream i += the sum of predict(m)[i, k] * stream k, and x = stream 0
//   kCorrect  every stream i += (1 + correct(m)[i]) * (x - stream 0), and x = scale * stream 0
enum class StreamStep : uint8_t { kPredict, kCorrect };
struct StreamsBlock {
  StreamStep step = StreamStep::kPredict;
  int64_t streams = 0;
  NormSpec norm;

  bool operator==(const StreamsBlock&) const = default;
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
};

using Block = std::variant<AttentionBlock, GatedFeedForwardBlock, FeedForwardBlock, LayerInputBlock, ExpertsBlock,
                           LowRankBlock, StreamsBlock>;

// The weight and the bias of a norm over `size` values.
std::vector<TensorDecl> NormTensors(const NormSpec& norm, int64_t size);

// One step of a layer: stream += multiplier * post(block(norm(stream))), then stream *= scale. Two steps may be one:
// the second with `joint` adds joint(the first's post(...) + its post(...)), and both read the same stream.
struct LayerBlock {
  NormSpec norm;
  Block block;
  NormSpec post;
  float multiplier = 1.0f;   // Granite's residual_multiplier
  NormSpec joint;            // of this block's branch and that of the block before; kNone: each is added (Gemma 4)
  bool parallel = false;     // reads the stream that the block before it read (Falcon, GPT-NeoX, Command-R)
  Role scale = Role::kNone;  // one weight (Gemma 4); kNone: 1
  float factor = 1.0f;       // of the stream, as `scale` (Gemma 3n)
  bool to_others = false;    // added to every stream but the first (StreamsBlock)

  // The block's sum is added to the stream as it is.
  bool adds_directly() const { return !post.exists() && !joint.exists() && multiplier == 1.0f && !to_others; }

  // In a forward pass's reading order: matrices and vectors mixed, the norm first.
  std::vector<TensorDecl> Tensors(int64_t hidden) const;
  bool operator==(const LayerBlock&) const = default;
};
using Layer = std::vector<LayerBlock>;

// The slopes of ALiBi for `heads` heads (Press et al., 2022, section 3): powers of 2^(-8 / n) for n = heads, or for the
// next lower power of two and every second one of the next higher.
std::vector<float> AlibiSlopes(int64_t heads);

// The attention of a layer, and its experts; null: it has none.
const AttentionBlock* AttentionOf(const Layer& layer);
const ExpertsBlock* ExpertsOf(const Layer& layer);
// The residual's streams that a layer changes; 1: it has no StreamsBlock.
int64_t StreamsOf(const Layer& layer);

}  // namespace tactus::compute
