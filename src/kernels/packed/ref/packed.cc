// The specification of the operators over packed weights: kernels/packed/packed.h's arithmetic as it is written there,
// one element at a time. Sums of products of floats are f32, columns ascending.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "kernels/packed/operators.h"
#include "tensor/float16.h"

namespace tactus::kernels {
namespace {

// A token's integer, its planes together.
int32_t TokenValue(const PackedTokens& x, int64_t token, int64_t col) {
  int32_t q = 0;
  for (int32_t plane = 0; plane < x.format.planes; ++plane) {
    q = 256 * q + static_cast<int8_t>(x.values[(token * x.format.planes + plane) * x.stride + col]);
  }
  return q;
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

int32_t ShiftAt(const PackedTokens& x, int64_t token, int64_t col) {
  return x.shifts != nullptr ? x.shifts[token * x.shift_count() + col / x.format.block] : 0;
}

// Columns [first, end) of one token by one row of weights.
int32_t DotValues(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n, int64_t first, int64_t end) {
  int32_t dot = 0;
  for (int64_t c = first; c < end; ++c) dot += ValueAt(w, n, c) * TokenValue(x, token, c);
  return dot;
}

// The token block that begins at column `first`, over blocks of weights.
float DotBlocks(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n, int64_t first) {
  float t = 0;
  for (int64_t b = first / w.block; b * w.block < first + kTokenBlock && b < w.blocks(); ++b) {
    const int64_t begin = b * w.block, end = begin + w.block;
    const int32_t factor = 1 << ShiftAt(x, token, begin);
    t = std::fma(static_cast<float>(factor * DotValues(x, token, w, n, begin, end)), ScaleAt(w, n, b), t);
    if (!w.has_minimum) continue;
    int32_t sum = 0;
    for (int64_t c = begin; c < end; ++c) sum += TokenValue(x, token, c);
    t = std::fma(MinimumAt(w, n, b), static_cast<float>(factor * sum), t);
  }
  return t;
}

float DotIntegers(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n) {
  float y = 0;
  for (int64_t i = 0; i < x.scale_count(); ++i) {
    const int64_t first = i * kTokenBlock;
    const float t = w.block > 0 ? DotBlocks(x, token, w, n, first)
                                : static_cast<float>(DotValues(x, token, w, n, first, first + kTokenBlock));
    y = std::fma(t, x.scales[token * x.scale_count() + i], y);
  }
  return w.block > 0 ? y : y * ScaleAt(w, n, 0);
}

float Dot(const PackedTokens& x, int64_t token, const PackedMatrix& w, int64_t n, const float* bias) {
  const float y = x.format.integer() ? DotIntegers(x, token, w, n) : DotFloats(x, token, w, n);
  return bias != nullptr ? y + bias[n] : y;
}

// NaN where one is.
float LargestOf(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(values[i])) return values[i];
    largest = std::fmax(largest, std::fabs(values[i]));
  }
  return largest;
}

// Rounds kTokenBlock values into columns `first` and on of the token's rows.
void PackIntegers(const float* values, int64_t token, int64_t first, const PackedTokens& out) {
  const int32_t planes = out.format.planes, block = out.format.block;
  const float limit = planes == 2 ? 32512.0f : 127.0f;
  const float largest = LargestOf(values, kTokenBlock);
  const bool finite = std::isfinite(largest);
  float scale = 0, inverse = 0;
  if (!finite) {
    scale = FloatOf(0x7fc00000u);
  } else if (largest >= kTokenZero) {
    scale = largest / limit * (out.format.has_shifts() ? 1.0f / (1 << kTokenShift) : 1.0f);
    inverse = limit / largest;
  }
  float factors[kTokenBlock / 32];
  for (int32_t i = 0; i < kTokenBlock; i += block) {
    const float own = LargestOf(values + i, block);
    int32_t k = 0;
    while (out.format.has_shifts() && k < kTokenShift && std::ldexp(own, k + 1) <= largest) ++k;
    factors[i / block] = std::ldexp(inverse, k);
    if (out.format.has_shifts()) {
      out.shifts[token * out.shift_count() + (first + i) / block] = inverse > 0 ? kTokenShift - k : 0;
    }
  }
  out.scales[token * out.scale_count() + first / kTokenBlock] = scale;
  std::byte* const high = out.values + token * planes * out.stride + first;
  std::byte* const low = planes == 2 ? high + out.stride : high;
  int32_t* const sums = out.sums + token * out.sum_count() + first / 16;
  for (int32_t i = 0; i < kTokenBlock; ++i) {
    const int32_t q = finite ? static_cast<int32_t>(std::nearbyint(values[i] * factors[i / block])) : 0;
    const int32_t rest = static_cast<int8_t>(q & 0xff);  // of one plane: q itself
    if (planes == 2) high[i] = static_cast<std::byte>((q - rest) / 256);
    low[i] = static_cast<std::byte>(rest);
    sums[i / 16] = q + (i % 16 == 0 ? 0 : sums[i / 16]);
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
  for (int64_t first = 0; first < padded; first += kTokenBlock) {
    float block[kTokenBlock];
    for (int64_t c = first; c < first + kTokenBlock; ++c) block[c - first] = c < out.cols ? values(c) : 0.0f;
    PackIntegers(block, token, first, out);
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

}  // namespace tactus::kernels
