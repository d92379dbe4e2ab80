// The specification of every operator, one obvious loop each. Not for speed; allocation-free but single-threaded.
// Linear sums in f32, columns ascending, one rounding per product and per sum; everything else computes in double and
// rounds once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention/kv_layout.h"
#include "kernels/kernel_set.h"
#include "kernels/rows/dequantize.h"
#include "tensor/float16.h"

namespace tactus::kernels {
namespace {

constexpr int64_t kPiece = 256;  // columns dequantised at a time: a multiple of every block

const std::byte* RowOf(const MatrixView& w, int64_t row) {
  return static_cast<const std::byte*>(w.data) + row * w.row_bytes;
}

float DotRow(const float* x, const MatrixView& w, int64_t row, bool round) {
  float sum = 0;
  float weights[kPiece];
  for (int64_t k = 0; k < w.cols; k += kPiece) {
    const int64_t n = w.cols - k < kPiece ? w.cols - k : kPiece;
    Dequantize(w.dtype, RowOf(w, row) + RowBytes(w.dtype, k), n, weights);
    for (int64_t i = 0; i < n; ++i) {
      const float input = round ? BF16ToF32(F32ToBF16(x[k + i])) : x[k + i];
      sum += input * weights[i];
    }
  }
  return sum;
}

void Linear(ThreadPool&, const float* x, int64_t tokens, const MatrixView& w, const float* bias, LinearMode mode,
            float* y, Workspace) {
  const bool round = mode == LinearMode::kBF16 && w.dtype == DType::kBF16;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < w.rows; ++n) {
      y[t * w.rows + n] = DotRow(x + t * w.cols, w, n, round) + (bias != nullptr ? bias[n] : 0.0f);
    }
  }
}

void RmsNorm(ThreadPool&, const float* x, int64_t tokens, int64_t dim, const float* weight, float eps, float* out) {
  for (int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x[t * dim + i]) * x[t * dim + i];
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (int64_t i = 0; i < dim; ++i) out[t * dim + i] = static_cast<float>(x[t * dim + i] * inverse * weight[i]);
  }
}

void DequantizeRow(const MatrixView& w, int64_t row, float* out) {
  Dequantize(w.dtype, RowOf(w, row), w.cols, out);
}

void Embed(ThreadPool&, const int32_t* ids, int64_t tokens, const MatrixView& table, float* x) {
  for (int64_t t = 0; t < tokens; ++t) DequantizeRow(table, ids[t], x + t * table.cols);
}

// The angle is a product of two f32, as models are trained with; its cosine and sine are exact.
void RotateHeads(float* rows, int32_t position, int32_t heads, int32_t head_dim, const RopeTable& rope) {
  const int32_t half = rope.rotary_dim / 2;
  for (int32_t h = 0; h < heads; ++h) {
    float* head = rows + static_cast<int64_t>(h) * head_dim;
    for (int32_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(position) * rope.inv_freq[i];
      const double cosine = std::cos(angle) * rope.attention_scale, sine = std::sin(angle) * rope.attention_scale;
      float& a = rope.interleaved ? head[2 * i] : head[i];
      float& b = rope.interleaved ? head[2 * i + 1] : head[i + half];
      const double p = a, q = b;
      a = static_cast<float>(p * cosine - q * sine);
      b = static_cast<float>(q * cosine + p * sine);
    }
  }
}

void Rope(ThreadPool&, float* q, float* k, const int32_t* positions, int64_t tokens, int32_t heads, int32_t kv_heads,
          int32_t head_dim, const RopeTable& rope) {
  CheckHeadDim(head_dim, rope.rotary_dim);
  for (int64_t t = 0; t < tokens; ++t) {
    RotateHeads(q + t * heads * head_dim, positions[t], heads, head_dim, rope);
    RotateHeads(k + t * kv_heads * head_dim, positions[t], kv_heads, head_dim, rope);
  }
}

void StoreKv(ThreadPool&, const float* k, const float* v, const int64_t* slots, int64_t tokens, const KvLayer& kv) {
  const int64_t row = static_cast<int64_t>(kv.kv_heads) * kv.head_dim;
  for (int64_t t = 0; t < tokens; ++t) StoreKvToken(kv, k + t * row, v + t * row, slots[t]);
}

void RopeStore(ThreadPool& pool, const RopeStoreCall& call, const KvLayer& kv) {
  CheckHeadDim(kv.head_dim, call.rope.rotary_dim);
  float key[kMaxHeadDim];
  for (int64_t t = 0; t < call.tokens; ++t) {
    float* q = call.q + t * call.q_stride;
    if (call.q_norm != nullptr) RmsNorm(pool, q, call.heads, kv.head_dim, call.q_norm, call.eps, q);
    RotateHeads(q, call.positions[t], call.heads, kv.head_dim, call.rope);
    const KvSlot slot(kv, call.slots[t]);
    for (int32_t h = 0; h < kv.kv_heads; ++h) {
      const float* k = call.k + t * call.k_stride + static_cast<int64_t>(h) * kv.head_dim;
      std::copy_n(k, kv.head_dim, key);
      if (call.k_norm != nullptr) RmsNorm(pool, k, 1, kv.head_dim, call.k_norm, call.eps, key);
      RotateHeads(key, call.positions[t], 1, kv.head_dim, call.rope);
      StoreKeyHead(kv, key, slot, h);
      StoreValueHead(kv, call.v + t * call.v_stride + static_cast<int64_t>(h) * kv.head_dim, slot, h);
    }
  }
}

// Softmax over all visible positions at once: a pass for the maximum, one for sum and values.
void AttendRow(const float* q, const AttentionItem& item, int32_t position, int32_t kv_head, const KvLayer& kv,
               float scale, int32_t window, float* out) {
  const int32_t low = window > 0 && position >= window ? position - window + 1 : 0;
  auto head_of = [&](const void* base, int32_t s) {
    return static_cast<const std::byte*>(base) + KvHeadOffset(kv, item.block_table[s / kv.block_size], kv_head);
  };
  auto scale_of = [&](const std::byte* head, int32_t s) {
    return kv.dtype == DType::kInt8 ? static_cast<double>(KvScale(kv, head, s % kv.block_size)) : 1.0;
  };
  float turned[kMaxHeadDim];  // q as K is stored
  std::copy_n(q, kv.head_dim, turned);
  if (kv.dtype == DType::kInt8) SpreadHead(turned, kv.head_dim);
  auto score = [&](int32_t s) {
    const std::byte* head = head_of(kv.k, s);
    double dot = 0;
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      dot += static_cast<double>(turned[d]) * KvElement(kv, head, KeyIndex(kv, s % kv.block_size, d));
    }
    return dot * scale_of(head, s) * scale;
  };
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int32_t s = low; s <= position; ++s) maximum = std::fmax(maximum, score(s));
  double values[kMaxHeadDim] = {};
  for (int32_t s = low; s <= position; ++s) {
    const double weight = std::exp(score(s) - maximum);
    const std::byte* head = head_of(kv.v, s);
    const double scaled = weight * scale_of(head, s);
    sum += weight;
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      values[d] += scaled * KvElement(kv, head, ValueIndex(kv, s % kv.block_size, d));
    }
  }
  for (int32_t d = 0; d < kv.head_dim; ++d) out[d] = static_cast<float>(values[d] / sum);
}

void Attention(ThreadPool&, const float* q, int64_t q_stride, std::span<const AttentionItem> items, int32_t heads,
               const KvLayer& kv, float scale, int32_t window, float* out, int64_t out_stride, Workspace) {
  CheckHeadDim(kv.head_dim, 0);
  for (const AttentionItem& item : items) {
    for (int32_t i = 0; i < item.count; ++i) {
      for (int32_t h = 0; h < heads; ++h) {
        const int64_t token = item.first_token + i, column = static_cast<int64_t>(h) * kv.head_dim;
        AttendRow(q + token * q_stride + column, item, item.first_position + i, h / (heads / kv.kv_heads), kv, scale,
                  window, out + token * out_stride + column);
      }
    }
  }
}

void SiluMul(ThreadPool&, const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const double g = gate[i];
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * up[i]);
  }
}

void AddTo(ThreadPool&, float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

}  // namespace

const Ops& RefOps() {
  static constexpr Ops kOps = {"ref",   Linear,          RmsNorm,        Embed,          Rope,
                               StoreKv, Attention,       SiluMul,        AddTo,          DequantizeRow,
                               RefPack, RefLinearPacked, RefGatedPacked, RefEmbedPacked, RopeStore};
  return kOps;
}

}  // namespace tactus::kernels
