#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace tactus {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLogitBytesMax = int64_t{256} << 20;
constexpr int64_t kLogitRowsMin = 16;

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Elements of each f32 buffer, in the order of Decoder's members.
struct BufferSizes {
  BufferSizes(const ModelConfig& c, const DecoderOptions& o) {
    hidden = o.max_tokens * c.hidden_size;
    query = o.max_tokens * c.num_heads * c.head_dim;
    key = o.max_tokens * c.num_kv_heads * c.head_dim;
    inner = o.max_tokens * c.intermediate_size;
    logits = o.max_logit_rows * c.vocab_size;
    const int64_t max_cols = std::max({c.hidden_size, c.intermediate_size, c.num_heads * c.head_dim});
    packed_x = kernels::PackedTokenBytes(o.max_tokens, std::max(c.hidden_size, c.num_heads * c.head_dim));
    packed_inner = kernels::PackedTokenBytes(o.max_tokens, c.intermediate_size);
    workspace_bytes = kernels::WorkspaceBytes(o.max_tokens, max_cols, static_cast<int32_t>(c.num_heads),
                                              static_cast<int32_t>(c.head_dim), o.threads);
  }
  int64_t TotalBytes() const {
    int64_t bytes = Aligned(workspace_bytes) + Aligned(packed_x) + Aligned(packed_inner);
    for (int64_t n : {hidden, hidden, hidden, hidden, query, query, key, key, inner, inner, logits})
      bytes += Aligned(n * 4);
    return bytes;
  }
  int64_t hidden, query, key, inner, logits, packed_x, packed_inner, workspace_bytes;
};

}  // namespace

int64_t DecoderLogitRows(const ModelConfig& config, int64_t rows) {
  const int64_t fit = kLogitBytesMax / (std::max<int64_t>(config.vocab_size, 1) * 4);
  return std::max<int64_t>(1, std::min(rows, std::max(fit, kLogitRowsMin)));
}

int64_t DecoderBufferBytes(const ModelConfig& config, const DecoderOptions& options) {
  return BufferSizes(config, options).TotalBytes();
}

void Decoder::FreeMemory::operator()(void* p) const {
  std::free(p);
}

Decoder::Decoder(const ModelConfig& config, const ModelWeights& weights, const DecoderOptions& options)
    : config_(config),
      weights_(weights),
      options_(options),
      rope_(config.rope, static_cast<int32_t>(config.head_dim), options.max_model_len) {}

Result<std::unique_ptr<Decoder>> Decoder::Create(const ModelConfig& config, const ModelWeights& weights,
                                                 const DecoderOptions& options) {
  std::unique_ptr<Decoder> decoder(new Decoder(config, weights, options));
  const BufferSizes sizes(config, options);
  const int64_t bytes = sizes.TotalBytes();
  decoder->memory_.reset(std::aligned_alloc(kAlignment, static_cast<size_t>(bytes)));
  if (decoder->memory_ == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate " + std::to_string(bytes) + " bytes of activations for steps of " +
                      std::to_string(options.max_tokens) + " tokens: lower --max-num-batched-tokens",
                  "max-num-batched-tokens");
  }
  auto* next = static_cast<std::byte*>(decoder->memory_.get());
  auto take = [&next](int64_t elements) {
    auto* buffer = reinterpret_cast<float*>(next);
    next += Aligned(elements * 4);
    return buffer;
  };
  decoder->hidden_ = take(sizes.hidden);
  decoder->normed_ = take(sizes.hidden);
  decoder->branch_ = take(sizes.hidden);
  decoder->final_ = take(sizes.hidden);
  decoder->q_ = take(sizes.query);
  decoder->mixed_ = take(sizes.query);
  decoder->k_ = take(sizes.key);
  decoder->v_ = take(sizes.key);
  decoder->gate_ = take(sizes.inner);
  decoder->up_ = take(sizes.inner);
  decoder->logits_ = take(sizes.logits);
  decoder->packed_x_ = next;
  next += Aligned(sizes.packed_x);
  decoder->packed_inner_ = next;
  next += Aligned(sizes.packed_inner);
  decoder->workspace_ = {next, sizes.workspace_bytes};
  return decoder;
}

void Decoder::Forward(kernels::ThreadPool& pool, const DecoderBatch& batch, std::span<const kernels::KvLayer> kv) {
  weights_.packed != nullptr ? ForwardPacked(pool, batch, kv) : ForwardRows(pool, batch, kv);
}

void Decoder::ForwardRows(kernels::ThreadPool& pool, const DecoderBatch& batch, std::span<const kernels::KvLayer> kv) {
  const kernels::Ops& ops = *options_.ops;
  const int64_t tokens = batch.tokens, dim = config_.hidden_size;
  ops.embed(pool, batch.ids, tokens, weights_.embedding, hidden_);
  for (size_t l = 0; l < weights_.layers.size(); ++l) {
    const LayerWeights& layer = weights_.layers[l];
    ops.rms_norm(pool, hidden_, tokens, dim, layer.attn_norm, config_.rms_eps, normed_);
    Attention(pool, batch, layer, kv[l], config_.window.empty() ? 0 : config_.window[l]);
    ops.add(pool, hidden_, branch_, tokens * dim);
    ops.rms_norm(pool, hidden_, tokens, dim, layer.ffn_norm, config_.rms_eps, normed_);
    FeedForward(pool, tokens, layer);
    ops.add(pool, hidden_, branch_, tokens * dim);
  }
  const auto rows = static_cast<int64_t>(batch.logit_rows.size());
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(final_ + r * dim, hidden_ + batch.logit_rows[static_cast<size_t>(r)] * dim,
                static_cast<size_t>(dim) * 4);
  }
  ops.rms_norm(pool, final_, rows, dim, weights_.final_norm, config_.rms_eps, final_);
}

float* Decoder::Logits(kernels::ThreadPool& pool, int64_t first, int64_t count) {
  if (weights_.packed != nullptr) return PackedLogits(pool, first, count);
  Linear(pool, final_ + first * config_.hidden_size, count, weights_.lm_head, nullptr, logits_);
  return logits_;
}

// branch_ = attention block of normed_. All writes of K and V come before all reads, so that an item may attend to
// blocks which another item of the same step fills.
void Decoder::Attention(kernels::ThreadPool& pool, const DecoderBatch& batch, const LayerWeights& layer,
                        const kernels::KvLayer& kv, int32_t window) {
  const kernels::Ops& ops = *options_.ops;
  const int64_t tokens = batch.tokens;
  const auto heads = static_cast<int32_t>(config_.num_heads);
  const auto kv_heads = static_cast<int32_t>(config_.num_kv_heads);
  const auto head_dim = static_cast<int32_t>(config_.head_dim);
  Linear(pool, normed_, tokens, layer.wq, layer.bq, q_);
  Linear(pool, normed_, tokens, layer.wk, layer.bk, k_);
  Linear(pool, normed_, tokens, layer.wv, layer.bv, v_);
  if (layer.q_norm != nullptr) ops.rms_norm(pool, q_, tokens * heads, head_dim, layer.q_norm, config_.rms_eps, q_);
  if (layer.k_norm != nullptr) ops.rms_norm(pool, k_, tokens * kv_heads, head_dim, layer.k_norm, config_.rms_eps, k_);
  ops.rope(pool, q_, k_, batch.positions, tokens, heads, kv_heads, head_dim, rope_.table());
  ops.store_kv(pool, k_, v_, batch.kv_slots, tokens, kv);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const int64_t row = config_.num_heads * config_.head_dim;
  ops.attention(pool, q_, row, batch.items, heads, kv, scale, window, mixed_, row, workspace_);
  Linear(pool, mixed_, tokens, layer.wo, layer.bo, branch_);
}

// branch_ = down(silu(gate(normed_)) * up(normed_))
void Decoder::FeedForward(kernels::ThreadPool& pool, int64_t tokens, const LayerWeights& layer) {
  Linear(pool, normed_, tokens, layer.w_gate, layer.b_gate, gate_);
  Linear(pool, normed_, tokens, layer.w_up, layer.b_up, up_);
  options_.ops->silu_mul(pool, gate_, up_, tokens * config_.intermediate_size, gate_);
  Linear(pool, gate_, tokens, layer.w_down, layer.b_down, branch_);
}

// Only bf16 weights ask for bf16 activations: any other format keeps its input in f32 (docs/numerics.md).
void Decoder::Linear(kernels::ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias,
                     float* y) {
  const auto mode = w.dtype == DType::kBF16 ? options_.linear_mode : kernels::LinearMode::kF32;
  options_.ops->linear(pool, x, tokens, w, bias, mode, y, workspace_);
}

}  // namespace tactus
