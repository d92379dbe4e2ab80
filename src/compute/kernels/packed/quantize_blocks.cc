#include "compute/kernels/packed/quantize_blocks.h"

#include <array>
#include <cstring>
#include <limits>

#include "compute/kernels/clones.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

// As std::round: halves away from zero.
int32_t RoundAway(float v) {
  const auto whole = static_cast<int32_t>(v);
  const float rest = v - static_cast<float>(whole);
  return whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
}

int32_t OrderedKey(float v) {
  const auto bits = static_cast<int32_t>(BitsOf(v));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

float FromOrderedKey(int32_t key) {
  return FloatOf(static_cast<uint32_t>(key ^ ((key >> 31) & 0x7fffffff)));
}

constexpr int kLanes = 16;
// Clipping the extremes slightly often fits the other values better.
constexpr float kInt4Ranges[] = {1.0f, 0.9f};
constexpr uint16_t kF16NaN = 0x7e00;
constexpr float kInt4MostZero = 60.0f;  // quarter steps below zero: all 15 steps

struct Int4Fit {
  float error = std::numeric_limits<float>::infinity();
  uint16_t scale = 0;                     // of a quarter step, f16
  uint8_t zero = 0;                       // quarter steps
  float next_step = 0, next_minimum = 0;  // the least-squares line through the codes found
  uint8_t codes[kInt4Group] = {};
};

float SumOf(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Rounds the group to scale * (4 * code - zero), where scale is step / 4 in f16 and zero is nearest to -minimum.
TACTUS_CLONES Int4Fit FitInt4(const float* x, const float* weights, float step, float minimum) {
  Int4Fit fit;
  fit.scale = F32ToF16(0.25f * step);
  const float d = F16ToF32(fit.scale), inverse = d != 0.0f ? 1.0f / d : 0.0f;
  float z = -minimum * inverse;
  z = z > 0.0f ? z : 0.0f;  // also for NaN
  z = z < kInt4MostZero ? z : kInt4MostZero;
  const int32_t zero = RoundEven(z);
  fit.zero = static_cast<uint8_t>(zero);
  z = static_cast<float>(zero);
  float errors[kLanes] = {}, n1[kLanes] = {}, q1[kLanes] = {}, q2[kLanes] = {}, x1[kLanes] = {}, qx[kLanes] = {};
  for (int i = 0; i < kInt4Group; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const int32_t code = Int4Code(x[i + j], inverse, z);
      const auto q = static_cast<float>(code);
      const float weight = weights[i + j], wq = weight * q;
      const float error = (4.0f * q - z) * d - x[i + j];
      fit.codes[i + j] = static_cast<uint8_t>(code);
      errors[j] += weight * (error * error);
      n1[j] += weight;
      q1[j] += wq;
      q2[j] += wq * q;
      x1[j] += weight * x[i + j];
      qx[j] += wq * x[i + j];
    }
  }
  fit.error = SumOf(errors);
  const float n = SumOf(n1), sum_q = SumOf(q1), sum_x = SumOf(x1);
  const float spread = n * SumOf(q2) - sum_q * sum_q;
  fit.next_step = spread > 0.0f ? (n * SumOf(qx) - sum_q * sum_x) / spread : step;
  fit.next_minimum = n > 0.0f ? (sum_x - fit.next_step * sum_q) / n : minimum;
  return fit;
}

}  // namespace

float LargestMagnitude(const float* x, int64_t n, float largest) {
  // Bits of non-negative floats compare as integers, and an integer maximum needs no rule for NaN.
  auto bits = static_cast<int32_t>(BitsOf(largest));
  for (int64_t i = 0; i < n; ++i) {
    const auto b = static_cast<int32_t>(BitsOf(x[i]) & 0x7fffffffu);
    bits = b > bits ? b : bits;
  }
  return FloatOf(static_cast<uint32_t>(bits));
}

void RoundToCodes(const float* x, int64_t n, float inverse, uint8_t* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(RoundEven(x[i] * inverse) + 128);
}

BlockScale QuantizeQ80(const float* x, uint8_t* codes) {
  const float d = LargestMagnitude(x, 32, 0) / 127.0f;
  const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(RoundAway(x[i] * inverse) + 128);
  return {F32ToF16(d), 0};
}

BlockScale QuantizeInt4(const float* x, const float* weights, uint8_t* codes) {
  // Floats compare as integers once the magnitude bits of negative ones are inverted, and integer minima can be
  // vectorised. The range includes 0, as every range of the grid does.
  int32_t low_key = 0, high_key = 0;
  for (int i = 0; i < kInt4Group; ++i) {
    const int32_t key = OrderedKey(x[i]);
    low_key = key < low_key ? key : low_key;
    high_key = key > high_key ? key : high_key;
  }
  const float low = FromOrderedKey(low_key), high = FromOrderedKey(high_key);
  Int4Fit best;
  for (const float keep : kInt4Ranges) {
    const float step = (high - low) * keep / 15.0f, middle = 0.5f * (low + high);
    const Int4Fit fit = FitInt4(x, weights, step, middle - 7.5f * step);
    if (fit.error < best.error) best = fit;
    const Int4Fit refined = FitInt4(x, weights, fit.next_step, fit.next_minimum);
    if (refined.error < best.error) best = refined;
  }
  if (!(best.error < std::numeric_limits<float>::infinity())) {  // an infinity or NaN propagates
    std::memset(codes, 0, kInt4Group);
    return {kF16NaN, 0};
  }
  // Fits once more: the zero point's rounding moved the line.
  const Int4Fit polished = FitInt4(x, weights, best.next_step, best.next_minimum);
  if (polished.error < best.error) best = polished;
  std::memcpy(codes, best.codes, sizeof best.codes);
  return {best.scale, best.zero};
}

BlockScale QuantizeInt4(const float* x, uint8_t* codes) {
  constexpr auto kAlike = [] {
    std::array<float, kInt4Group> weights{};
    for (float& weight : weights) weight = 1.0f;
    return weights;
  }();
  return QuantizeInt4(x, kAlike.data(), codes);
}

}  // namespace tactus::compute
