// A decoder's buffers, and the choice between the two passes: forward.cc or reference_forward.cc.
#include "compute/model/decoder.h"

#include <algorithm>
#include <cstdlib>

namespace tactus::compute {
namespace {

constexpr int64_t kBufferAlignment = 64;
constexpr int64_t kLogitBytesMax = int64_t{256} << 20;
constexpr int64_t kLogitRowsMin = 16;

int64_t Aligned(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Elements of each f32 buffer, in the order of Decoder's members.
struct BufferSizes {
  BufferSizes(const ModelConfig& c, const DecoderOptions& o) {
    int64_t q_width = 0, kv_width = 0, inner_width = 0, heads = 0, head_dim = 0;  // the largest of any block
    for (const Layer& layer : c.layers) {
      for (const LayerBlock& b : layer) {
        if (const auto* a = std::get_if<AttentionBlock>(&b.block)) {
          q_width = std::max(q_width, a->q_width());
          kv_width = std::max(kv_width, a->kv_width());
          heads = std::max(heads, a->heads);
          head_dim = std::max(head_dim, a->head_dim);
        } else if (const auto* f = std::get_if<GatedFeedForwardBlock>(&b.block)) {
          inner_width = std::max(inner_width, f->inner);
        }
      }
    }
    hidden = o.max_tokens * c.hidden_size;
    query = o.max_tokens * q_width;
    key = o.max_tokens * kv_width;
    inner = o.max_tokens * inner_width;
    logits = o.max_logit_rows * c.vocab_size;
    const int64_t max_cols = std::max({c.hidden_size, inner_width, q_width});
    packed_x = PackedTokenBytes(o.max_tokens, std::max(c.hidden_size, q_width));
    packed_inner = PackedTokenBytes(o.max_tokens, inner_width);
    workspace_bytes =
        WorkspaceBytes(o.max_tokens, max_cols, static_cast<int32_t>(heads), static_cast<int32_t>(head_dim), o.threads);
  }
  // Packed tokens share memory with f32 buffers of the reference pass, or of an operator that needs no packed tokens
  // meanwhile.
  int64_t NormedBytes() const { return std::max(3 * Aligned(hidden * 4), Aligned(packed_x)); }
  int64_t UpBytes() const { return std::max(Aligned(inner * 4), Aligned(packed_inner)); }
  int64_t TotalBytes() const {
    int64_t bytes = Aligned(workspace_bytes) + NormedBytes() + UpBytes();
    for (int64_t n : {hidden, query, query, key, key, inner, logits}) bytes += Aligned(n * 4);
    return bytes;
  }
  int64_t hidden, query, key, inner, logits, packed_x, packed_inner, workspace_bytes;
};

// Layers share one head_dim (ValidateConfig).
int32_t RotaryDim(const ModelConfig& config) {
  for (const Layer& layer : config.layers) {
    if (const AttentionBlock* attention = AttentionOf(layer)) return static_cast<int32_t>(attention->head_dim);
  }
  return 0;
}

size_t LastAttention(const ModelConfig& config) {
  size_t last = 0;
  for (size_t l = 0; l < config.layers.size(); ++l) {
    if (AttentionOf(config.layers[l]) != nullptr) last = l;
  }
  return last;
}

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

Decoder::Decoder(const ModelConfig& config, const CpuWeights& weights, const DecoderOptions& options)
    : config_(config),
      weights_(weights),
      options_(options),
      rope_(config.rope, RotaryDim(config), options.max_model_len),
      last_attention_(LastAttention(config)) {}

Result<std::unique_ptr<Decoder>> Decoder::Create(const ModelConfig& config, const CpuWeights& weights,
                                                 const DecoderOptions& options) {
  std::unique_ptr<Decoder> decoder(new Decoder(config, weights, options));
  const BufferSizes sizes(config, options);
  const int64_t bytes = sizes.TotalBytes();
  decoder->memory_.reset(std::aligned_alloc(kBufferAlignment, static_cast<size_t>(bytes)));
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
  decoder->q_ = take(sizes.query);
  decoder->mixed_ = take(sizes.query);
  decoder->k_ = take(sizes.key);
  decoder->v_ = take(sizes.key);
  decoder->gate_ = take(sizes.inner);
  decoder->logits_ = take(sizes.logits);
  decoder->packed_inner_ = next;
  decoder->up_ = reinterpret_cast<float*>(next);
  next += sizes.UpBytes();
  decoder->packed_x_ = next;
  std::byte* const after = next + sizes.NormedBytes();
  decoder->normed_ = take(sizes.hidden);
  decoder->branch_ = take(sizes.hidden);
  decoder->final_ = take(sizes.hidden);
  next = after;
  decoder->workspace_ = {next, sizes.workspace_bytes};
  return decoder;
}

void Decoder::Forward(ThreadPool& pool, const DecoderBatch& batch, std::span<const KvLayer> kv) {
  Pass pass{pool, batch, kv, batch.tokens, batch.items};
  weights_.packed != nullptr ? ForwardPacked(pass) : ForwardReference(pass);
}

float* Decoder::Logits(ThreadPool& pool, int64_t first, int64_t count) {
  return weights_.packed != nullptr ? PackedLogits(pool, first, count) : ReferenceLogits(pool, first, count);
}

}  // namespace tactus::compute
