// The specification of the operators over rows, one obvious loop each. Not for speed; allocation-free but
// single-threaded. Linear operators sum in f32, columns ascending, with one rounding per product and per sum; all
// others compute in double and round once.
#include "compute/kernels/rows/ref/rows.h"

#include <algorithm>
#include <cmath>

#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/kernel_set.h"
#include "compute/tensor/dequantize.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

constexpr int64_t kPiece = 256;  // columns dequantised at a time: a multiple of every block

const std::byte* RowOf(const MatrixView& w, int64_t row) {
  return static_cast<const std::byte*>(w.data) + row * w.row_bytes;
}

float DotRow(const float* x, const MatrixView& w, int64_t row) {
  float sum = 0;
  float weights[kPiece];
  for (int64_t k = 0; k < w.cols; k += kPiece) {
    const int64_t n = w.cols - k < kPiece ? w.cols - k : kPiece;
    Dequantize(w.dtype, RowOf(w, row) + RowBytes(w.dtype, k), n, weights);
    for (int64_t i = 0; i < n; ++i) sum += x[k + i] * weights[i];
  }
  return sum;
}

void NormRows(const float* x, int64_t tokens, int64_t dim, const float* weight, float eps, float* out) {
  for (int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x[t * dim + i]) * x[t * dim + i];
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (int64_t i = 0; i < dim; ++i) {
      out[t * dim + i] = static_cast<float>(x[t * dim + i] * inverse * (weight != nullptr ? weight[i] : 1.0f));
    }
  }
}

// The angle is a product of two f32, as in training; its cosine and sine are exact.
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

double ActivatedRef(Activation f, double x) {
  switch (f) {
    case Activation::kGeluErf:
      return x * 0.5 * std::erfc(-x * 0.70710678118654752);
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return std::fmax(x, 0.0);
    case Activation::kRelu2:
      return x > 0 ? x * x : 0.0;
    case Activation::kSilu:
    case Activation::kClampedSwiglu:
      break;
  }
  return x / (1.0 + std::exp(-x));
}

}  // namespace

void LinearRef(ThreadPool&, const float* x, int64_t tokens, const MatrixView& w, const float* bias, float* y,
               Workspace) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < w.rows; ++n) {
      y[t * w.rows + n] = DotRow(x + t * w.cols, w, n) + (bias != nullptr ? bias[n] : 0.0f);
    }
  }
}

void RmsNormRef(ThreadPool&, const float* x, int64_t tokens, int64_t dim, const float* weight, float eps, float* out) {
  NormRows(x, tokens, dim, weight, eps, out);
}

void LayerNormRef(ThreadPool&, const float* x, int64_t tokens, int64_t dim, const float* weight, const float* bias,
                  float eps, float* out) {
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = x + t * dim;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < dim; ++i) sum += row[i];
    const double mean = sum / static_cast<double>(dim);
    for (int64_t i = 0; i < dim; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (int64_t i = 0; i < dim; ++i) {
      const double normed = (row[i] - mean) * inverse * (weight != nullptr ? weight[i] : 1.0f);
      out[t * dim + i] = static_cast<float>(normed + (bias != nullptr ? bias[i] : 0.0f));
    }
  }
}

void DequantizeRowRef(const MatrixView& w, int64_t row, float* out) {
  Dequantize(w.dtype, RowOf(w, row), w.cols, out);
}

void EmbedRef(ThreadPool&, const int32_t* ids, int64_t tokens, const MatrixView& table, float* x) {
  for (int64_t t = 0; t < tokens; ++t) Dequantize(table.dtype, RowOf(table, ids[t]), table.cols, x + t * table.cols);
}

void RopeRef(ThreadPool&, float* q, float* k, const int32_t* positions, int64_t tokens, int32_t heads, int32_t kv_heads,
             int32_t head_dim, const RopeTable& rope) {
  CheckHeadDim(head_dim, rope.rotary_dim);
  for (int64_t t = 0; t < tokens; ++t) {
    RotateHeads(q + t * heads * head_dim, positions[t], heads, head_dim, rope);
    RotateHeads(k + t * kv_heads * head_dim, positions[t], kv_heads, head_dim, rope);
  }
}

void StoreKvRef(ThreadPool&, const float* k, const float* v, const int64_t* slots, int64_t tokens, const KvLayer& kv) {
  const int64_t row = static_cast<int64_t>(kv.kv_heads) * kv.head_dim;
  for (int64_t t = 0; t < tokens; ++t) StoreKvToken(kv, k + t * row, v + t * row, slots[t]);
}

void RopeStoreRef(ThreadPool&, const RopeStoreCall& call, const KvLayer& kv) {
  CheckHeadDim(kv.head_dim, call.rope.rotary_dim);
  float turned[kMaxHeadDim];
  const auto turn = [&](float* rows, int32_t heads, int32_t position, const float* norm) {
    if (call.qk_norm && !call.norms_last) NormRows(rows, heads, kv.head_dim, norm, call.eps, rows);
    RotateHeads(rows, position, heads, kv.head_dim, call.rope);
    if (call.qk_norm && call.norms_last) NormRows(rows, heads, kv.head_dim, norm, call.eps, rows);
  };
  for (int64_t t = 0; t < call.tokens; ++t) {
    float* q = call.q + t * call.q_stride;
    turn(q, call.heads, call.positions[t], call.q_norm);
    for (int64_t i = 0; i < int64_t{call.heads} * kv.head_dim; ++i) q[i] *= call.query_scale.At(call.positions[t]);
    if (call.k == nullptr) continue;
    const KvSlot slot(kv, call.slots[t]);
    for (int32_t h = 0; h < kv.kv_heads; ++h) {
      std::copy_n(call.k + t * call.k_stride + static_cast<int64_t>(h) * kv.head_dim, kv.head_dim, turned);
      turn(turned, 1, call.positions[t], call.k_norm);
      StoreKeyHead(kv, turned, slot, h);
      std::copy_n(call.v + t * call.v_stride + static_cast<int64_t>(h) * kv.head_dim, kv.head_dim, turned);
      if (call.v_norm) NormRows(turned, 1, kv.head_dim, nullptr, call.eps, turned);
      StoreValueHead(kv, turned, slot, h);
    }
  }
}

void ActivateRef(ThreadPool&, Activation f, const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const double factor = up != nullptr ? up[i] : 1.0;
    if (f == Activation::kClampedSwiglu) {
      const double g = std::fmin(gate[i], 7.0), u = std::fmin(std::fmax(factor, -7.0), 7.0);
      out[i] = static_cast<float>(g / (1.0 + std::exp(-1.702 * g)) * (u + 1.0));
    } else {
      out[i] = static_cast<float>(ActivatedRef(f, gate[i]) * factor);
    }
  }
}

void AddToRef(ThreadPool&, float* x, const float* y, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<double>(factor) * y[i] + x[i]);
}

void ScaleRef(ThreadPool&, float* x, float factor, float softcap, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double scaled = static_cast<double>(x[i]) * factor;
    x[i] = static_cast<float>(softcap > 0 ? softcap * std::tanh(scaled / softcap) : scaled);
  }
}

}  // namespace tactus::compute
