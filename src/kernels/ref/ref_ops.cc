// The specification of every operator, one obvious loop each. Not for speed; allocation-free but single-threaded.
// Linear sums in f32, columns ascending, one rounding per product and per sum; everything else computes in double and
// rounds once.
#include <cmath>
#include <limits>

#include "kernels/dequantize.h"
#include "kernels/kernel_set.h"
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

int64_t KvIndex(const KvLayer& kv, int64_t block, int64_t offset, int32_t head) {
  return ((block * kv.kv_heads + head) * kv.block_size + offset) * kv.head_dim;
}

float ReadKv(const KvLayer& kv, const void* base, int64_t index) {
  return kv.dtype == DType::kF32 ? static_cast<const float*>(base)[index]
                                 : BF16ToF32(static_cast<const uint16_t*>(base)[index]);
}

void WriteKv(const KvLayer& kv, void* base, int64_t index, float value) {
  if (kv.dtype == DType::kF32) {
    static_cast<float*>(base)[index] = value;
  } else {
    static_cast<uint16_t*>(base)[index] = F32ToBF16(value);
  }
}

void StoreKv(ThreadPool&, const float* k, const float* v, const int64_t* slots, int64_t tokens, const KvLayer& kv) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int32_t h = 0; h < kv.kv_heads; ++h) {
      const int64_t to = KvIndex(kv, slots[t] / kv.block_size, slots[t] % kv.block_size, h);
      const int64_t from = (t * kv.kv_heads + h) * kv.head_dim;
      for (int32_t d = 0; d < kv.head_dim; ++d) {
        WriteKv(kv, kv.k, to + d, k[from + d]);
        WriteKv(kv, kv.v, to + d, v[from + d]);
      }
    }
  }
}

// Softmax over all visible positions at once: a pass for the maximum, one for sum and values.
void AttendRow(const float* q, const AttentionItem& item, int32_t position, int32_t kv_head, const KvLayer& kv,
               float scale, int32_t window, float* out) {
  const int32_t low = window > 0 && position >= window ? position - window + 1 : 0;
  auto index_of = [&](int32_t s) {
    return KvIndex(kv, item.block_table[s / kv.block_size], s % kv.block_size, kv_head);
  };
  auto score = [&](int32_t s) {
    double dot = 0;
    for (int32_t d = 0; d < kv.head_dim; ++d) dot += static_cast<double>(q[d]) * ReadKv(kv, kv.k, index_of(s) + d);
    return dot * scale;
  };
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int32_t s = low; s <= position; ++s) maximum = std::fmax(maximum, score(s));
  double values[kMaxHeadDim] = {};
  for (int32_t s = low; s <= position; ++s) {
    const double weight = std::exp(score(s) - maximum);
    sum += weight;
    for (int32_t d = 0; d < kv.head_dim; ++d) values[d] += weight * ReadKv(kv, kv.v, index_of(s) + d);
  }
  for (int32_t d = 0; d < kv.head_dim; ++d) out[d] = static_cast<float>(values[d] / sum);
}

void Attention(ThreadPool&, const float* q, std::span<const AttentionItem> items, int32_t heads, const KvLayer& kv,
               float scale, int32_t window, float* out, Workspace) {
  CheckHeadDim(kv.head_dim, 0);
  for (const AttentionItem& item : items) {
    for (int32_t i = 0; i < item.count; ++i) {
      for (int32_t h = 0; h < heads; ++h) {
        const int64_t row = (static_cast<int64_t>(item.first_token + i) * heads + h) * kv.head_dim;
        AttendRow(q + row, item, item.first_position + i, h / (heads / kv.kv_heads), kv, scale, window, out + row);
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
  static constexpr Ops kOps = {"ref", Linear, RmsNorm, Embed, Rope, StoreKv, Attention, SiluMul, AddTo, DequantizeRow,
                               RefPack, RefLinearPacked, RefGatedPacked, RefEmbedPacked};
  return kOps;
}

}  // namespace tactus::kernels
