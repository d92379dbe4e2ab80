// The specification of the operators over packed weights: compute/kernels/packed/packed.h's arithmetic literally, one
// element at a time. Sums of products of floats are f32, columns ascending.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/packed/operators.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

// The integer of a row's column.
int32_t ValueOf(const PackedTokens& x, int64_t row, int64_t col) {
  int32_t q = static_cast<int8_t>(x.values[row * x.stride + col]);
  if (x.wide == nullptr) return q;
  const int64_t wide = x.format.wide;
  const WideGroup& group = x.wide[row * x.wide_count() + col / wide];
  const int64_t i = col % wide - group.first;
  return i >= 0 && i < kWideColumns ? q + 256 * group.upper[i] : q;
}

float WeightAt(const PackedMatrix& w, int64_t n, int64_t col) {
  const int32_t v = ValueAt(w, n, col);
  switch (w.code) {
    case PackedCode::kF32:
      return FloatOf(static_cast<uint32_t>(v));
    case PackedCode::kF16:
      return F16ToF32(static_cast<uint16_t>(v));
    case PackedCode::kBF16:
      return BF16ToF32(static_cast<uint16_t>(v));
    default: {
      const int64_t block = w.block > 0 ? col / w.block : 0;
      const float value = ScaleAt(w, n, block) * static_cast<float>(v);
      return w.has_minimum ? value + MinimumAt(w, n, block) : value;
    }
  }
}

float DotFloats(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n) {
  float y = 0;
  const std::byte* row = x.values + token * x.stride;
  for (int64_t c = 0; c < w.cols; ++c) {
    float value;
    uint16_t half;
    if (x.format.values == TokenValues::kF32) {
      std::memcpy(&value, row + 4 * c, sizeof value);
    } else {
      std::memcpy(&half, row + 2 * c, sizeof half);
      value = BF16ToF32(half);
    }
    y += value * WeightAt(w, n, c);
  }
  return y;
}

float DotPart(const PackedTokens& x, int64_t row, const PackedMatrix& w, int64_t n) {
  float y = 0;
  const int64_t block = w.block > 0 ? w.block : kTokenBlock, padded = PackedTokens::PaddedCols(w.cols);
  for (int64_t first = 0, b = 0; first < w.cols; first += block, ++b) {
    int32_t dot = 0, sum = 0;
    for (int64_t c = first; c < first + block && c < padded; ++c) {
      const int32_t q = ValueOf(x, row, c);
      dot += ValueAt(w, n, c) * q;
      sum += q;
    }
    const float scale = x.scales[row * x.scale_count() + first / x.format.block];
    if (w.block == 0) {
      y = std::fma(static_cast<float>(dot), scale, y);
      continue;
    }
    y = std::fma(static_cast<float>(dot) * scale, ScaleAt(w, n, b), y);
    if (w.has_minimum) y = std::fma(MinimumAt(w, n, b), static_cast<float>(sum) * scale, y);
  }
  return y;
}

float DotIntegers(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n) {
  const int64_t parts = x.format.parts;
  float y = DotPart(x, token * parts, w, n);
  if (parts == 2) y += DotPart(x, token * parts + 1, w, n);
  return w.block > 0 ? y : y * ScaleAt(w, n, 0);
}

float Dot(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n, const float* bias) {
  const float y = x.format.integer() ? DotIntegers(x, token, w, n) : DotFloats(x, token, w, n);
  return bias != nullptr ? y + bias[n] : y;
}

// The first four neighbours among `wide` columns with the largest magnitude, NaN above infinity above all others.
int64_t WideFirst(const float* values, int64_t wide) {
  uint32_t largest = 0;
  int64_t first = 0;
  for (int64_t c = 0; c < wide; ++c) {
    const uint32_t magnitude = BitsOf(values[c]) & 0x7fffffffu;
    if (magnitude <= largest) continue;
    largest = magnitude;
    first = c / kWideColumns * kWideColumns;
  }
  return first;
}

// Rounds a block of a row; values: receives the remainder.
void RoundPart(float* values, int64_t row, int64_t first, const PackedTokens& out) {
  const TokenFormat& f = out.format;
  bool wide[kTokenBlock] = {};
  for (int64_t c = 0; f.wide > 0 && c < f.block; c += f.wide) {
    WideGroup& group = out.wide[row * out.wide_count() + (first + c) / f.wide];
    group.first = static_cast<int32_t>(WideFirst(values + c, f.wide));
    for (int64_t i = 0; i < kWideColumns; ++i) wide[c + group.first + i] = true;
  }
  float scale = 0;
  for (int64_t i = 0; i < f.block; ++i) {
    const float own = std::fabs(values[i]) * (wide[i] ? kWideReach : kNarrowReach);
    if (!std::isfinite(own)) scale = FloatOf(0x7fc00000u);
    scale = std::isnan(scale) ? scale : std::fmax(scale, own);
  }
  const bool none = std::isnan(scale) || scale < kTokenZero;
  if (scale < kTokenZero) scale = 0;
  const float inverse = none ? 0.0f : 1.0f / scale;
  out.scales[row * out.scale_count() + first / f.block] = scale;
  for (int64_t i = 0; i < f.block; ++i) {
    const int32_t q = none ? 0 : static_cast<int32_t>(std::nearbyint(values[i] * inverse));
    const int32_t lower = static_cast<int8_t>(q & 0xff);
    out.values[row * out.stride + first + i] = static_cast<std::byte>(lower);
    if (wide[i]) {
      WideGroup& group = out.wide[row * out.wide_count() + (first + i) / f.wide];
      group.upper[(first + i) % kWideColumns] = static_cast<int8_t>((q - lower) / 256);
    }
    int32_t& sum = out.sums[row * out.sum_count() + (first + i) / 16];
    sum = q + (i % 16 == 0 ? 0 : sum);
    const float rounded = static_cast<float>(q) * scale;
    values[i] = values[i] - rounded;
  }
}

// values(c) is column c of the token's row.
template <class Values>
void PackRow(int64_t token, const Values& values, const PackedTokens& out) {
  const int64_t padded = PackedTokens::PaddedCols(out.cols);
  if (out.format.values == TokenValues::kF32) {
    for (int64_t c = 0; c < padded; ++c) {
      const float value = c < out.cols ? values(c) : 0.0f;
      std::memcpy(out.values + token * out.stride + 4 * c, &value, sizeof value);
    }
    return;
  }
  if (!out.format.integer()) {
    for (int64_t c = 0; c < padded; ++c) {
      const uint16_t bits = c < out.cols ? F32ToBF16(values(c)) : 0;
      std::memcpy(out.values + token * out.stride + 2 * c, &bits, sizeof bits);
    }
    return;
  }
  for (int64_t first = 0; first < padded; first += out.format.block) {
    float block[kTokenBlock];
    for (int64_t c = first; c < first + out.format.block; ++c) block[c - first] = c < out.cols ? values(c) : 0.0f;
    for (int64_t part = 0; part < out.format.parts; ++part) {
      RoundPart(block, token * out.format.parts + part, first, out);
    }
  }
}

}  // namespace

void PackRef(ThreadPool&, const float* x, const float* norm_weight, float eps, const PackedTokens& out) {
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

void LinearPackedRef(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs, Workspace) {
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

void GatedPackedRef(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,
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
  PackRef(pool, inner, nullptr, 0, out);
}

void EmbedPackedRef(ThreadPool&, const int32_t* ids, int64_t tokens, const PackedMatrix& table, float* x) {
  for (int64_t t = 0; t < tokens; ++t) UnpackRow(table, ids[t], x + t * table.cols);
}

}  // namespace tactus::compute
