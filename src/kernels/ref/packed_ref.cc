// The specification of the operators over packed weights: kernels/packed.h's arithmetic as it is written there, one
// element at a time. Sums of bf16 products are f32, columns ascending.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "tensor/float16.h"

namespace tactus::kernels {
namespace {

int64_t PackedRow(const PackedTokens& x, int64_t token, int32_t plane) {
  return token * x.format.planes + plane;
}

int32_t TokenCode(const PackedTokens& x, int64_t row, int64_t col) {
  return static_cast<int8_t>(x.values[row * x.stride + col]);
}

float DotBf16(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n) {
  float y = 0;
  for (int64_t c = 0; c < w.cols; ++c) {
    uint16_t bits;
    std::memcpy(&bits, x.values + token * x.stride + 2 * c, sizeof bits);
    y += BF16ToF32(bits) * BF16ToF32(static_cast<uint16_t>(CodeAt(w, n, c)));
  }
  return y;
}

// One plane of one token by one row of weights.
float DotBlocks(const PackedTokens& x, int64_t row, const PackedMatrix& w, int64_t n) {
  float y = 0;
  for (int64_t b = 0; b < w.blocks(); ++b) {
    int32_t dot = 0, sum = 0;
    for (int64_t c = b * w.block; c < (b + 1) * w.block; ++c) {
      dot += (c < w.cols ? CodeAt(w, n, c) - w.zero : 0) * TokenCode(x, row, c);
      sum += TokenCode(x, row, c);
    }
    const float x_scale = x.scales[row * x.scale_count() + b * w.block / x.format.block];
    y = std::fma(static_cast<float>(dot), ScaleAt(w, n, b) * x_scale, y);
    if (w.has_minimum) y = std::fma(MinimumAt(w, n, b), x_scale * static_cast<float>(sum), y);
  }
  return y;
}

float DotRow(const PackedTokens& x, int64_t row, const PackedMatrix& w, int64_t n) {
  if (w.block > 0) return DotBlocks(x, row, w, n);
  float y = 0;
  for (int64_t b = 0; b < x.scale_count(); ++b) {
    int32_t dot = 0;
    for (int64_t c = b * kTokenBlockMax; c < (b + 1) * kTokenBlockMax && c < w.cols; ++c) {
      dot += (CodeAt(w, n, c) - w.zero) * TokenCode(x, row, c);
    }
    y = std::fma(static_cast<float>(dot), x.scales[row * x.scale_count() + b], y);
  }
  return y * ScaleAt(w, n, 0);
}

float Dot(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n, const float* bias) {
  float y;
  if (w.code == PackedCode::kBF16) {
    y = DotBf16(x, token, w, n);
  } else {
    y = DotRow(x, PackedRow(x, token, 0), w, n);
    if (x.format.planes == 2) y += DotRow(x, PackedRow(x, token, 1), w, n);
  }
  return bias != nullptr ? y + bias[n] : y;
}

// Rounds one block of `values` into column `first` of the token's rows.
void PackIntegers(const float* values, int64_t token, int64_t first, const PackedTokens& out) {
  const int32_t block = out.format.block, planes = out.format.planes;
  const float limit = planes == 2 ? 32512.0f : 127.0f;
  float largest = 0;
  bool finite = true;
  for (int32_t i = 0; i < block; ++i) {
    finite = finite && std::isfinite(values[i]);
    largest = std::fmax(largest, std::fabs(values[i]));
  }
  float scale = 0, inverse = 0;
  if (!finite) {
    scale = FloatOf(0x7fc00000u);
  } else if (largest >= kTokenZero) {
    scale = largest / limit;
    inverse = limit / largest;
  }
  for (int32_t plane = 0; plane < planes; ++plane) {
    const int64_t row = PackedRow(out, token, plane);
    out.scales[row * out.scale_count() + first / block] = planes == 2 && plane == 0 ? 256.0f * scale : scale;
    for (int32_t i = 0; i < block; i += 16) {
      int32_t sum = 0;
      for (int32_t j = i; j < i + 16; ++j) {
        const int32_t q = finite ? static_cast<int32_t>(std::nearbyint(values[j] * inverse)) : 0;
        const int32_t low = planes == 2 ? static_cast<int8_t>(q & 0xff) : q;
        const int32_t code = planes == 2 && plane == 0 ? (q - low) / 256 : low;
        out.values[row * out.stride + first + j] = static_cast<std::byte>(code);
        sum += code;
      }
      out.sums[row * out.sum_count() + (first + i) / 16] = sum;
    }
  }
}

// values(c) is column c of the token's row.
template <class Values>
void PackRow(int64_t token, const Values& values, const PackedTokens& out) {
  const int64_t padded = PackedTokens::PaddedCols(out.cols);
  if (!out.format.integer) {
    for (int64_t c = 0; c < padded; ++c) {
      const uint16_t bits = c < out.cols ? F32ToBF16(values(c)) : 0;
      std::memcpy(out.values + token * out.stride + 2 * c, &bits, sizeof bits);
    }
    return;
  }
  for (int64_t first = 0; first < padded; first += out.format.block) {
    float block[kTokenBlockMax];
    for (int64_t c = first; c < first + out.format.block; ++c) block[c - first] = c < out.cols ? values(c) : 0.0f;
    PackIntegers(block, token, first, out);
  }
}

}  // namespace

void CheckPackedMatch(const PackedTokens& x, const PackedMatrix& w) {
  TACTUS_CHECK_MSG(x.cols == w.cols && x.format == TokensFor(w, x.format.planes),
                   "tokens are packed for another matrix");
}

void RefPack(ThreadPool&, const float* x, const float* norm_weight, float eps, const PackedTokens& out) {
  for (int64_t t = 0; t < out.tokens; ++t) {
    const float* row = x + t * out.cols;
    if (norm_weight == nullptr) {
      PackRow(t, [row](int64_t c) { return row[c]; }, out);
      continue;
    }
    double squares = 0;
    for (int64_t c = 0; c < out.cols; ++c) squares += static_cast<double>(row[c]) * row[c];
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(out.cols) + eps);
    PackRow(t, [=](int64_t c) { return static_cast<float>(row[c] * inverse * norm_weight[c]); }, out);
  }
}

void RefLinearPacked(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs, Workspace) {
  for (const LinearOutput& o : outputs) {
    CheckPackedMatch(x, *o.w);
    pool.ParallelFor(o.w->rows, [&](int64_t n, int32_t) {
      for (int64_t t = 0; t < x.tokens; ++t) {
        float& y = o.y[t * o.y_stride + n];
        const float value = Dot(x, t, *o.w, n, o.bias);
        y = o.add ? y + value : value;
      }
    });
  }
}

void RefGatedPacked(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,
                    const PackedMatrix& up, const float* up_bias, float* inner, const PackedTokens& out, Workspace) {
  CheckPackedMatch(x, gate);
  CheckPackedMatch(x, up);
  const int64_t rows = gate.rows;
  TACTUS_CHECK(up.rows == rows && out.cols == rows && out.tokens == x.tokens);
  pool.ParallelFor(rows, [&](int64_t n, int32_t) {
    for (int64_t t = 0; t < x.tokens; ++t) {
      const double g = Dot(x, t, gate, n, gate_bias);
      inner[t * rows + n] = static_cast<float>(g / (1.0 + std::exp(-g)) * Dot(x, t, up, n, up_bias));
    }
  });
  RefPack(pool, inner, nullptr, 0, out);
}

void RefEmbedPacked(ThreadPool&, const int32_t* ids, int64_t tokens, const PackedMatrix& table, float* x) {
  for (int64_t t = 0; t < tokens; ++t) UnpackRow(table, ids[t], x + t * table.cols);
}

}  // namespace tactus::kernels
