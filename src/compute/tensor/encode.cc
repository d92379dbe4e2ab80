#include "compute/tensor/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compute/tensor/load.h"
#include "compute/tensor/quantize.h"

namespace tactus::compute {
namespace {

int Truncated31(float value) {  // the caller has added the half
  return std::clamp(static_cast<int>(value), 0, 31);
}

// The fifth bits of 32 numbers, then nibbles: the low ones are numbers 0 to 15, the high ones 16 to 31.
void StoreFives(const int* q, uint8_t* out) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>(q[i] >> 4) << i;
  std::memcpy(out, &high, sizeof high);
  for (int i = 0; i < 16; ++i) out[4 + i] = static_cast<uint8_t>((q[i] & 15) | (q[i + 16] & 15) << 4);
}

// The value of largest magnitude becomes -16, so that its side of the range is used in full.
void EncodeQ50(const float* x, uint8_t* out) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i) extreme = std::fabs(x[i]) > std::fabs(extreme) ? x[i] : extreme;
  const float d = extreme / -16.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = Truncated31(x[i] * inverse + 16.5f);
  Store16(F32ToF16(d), out);
  StoreFives(q, out + 2);
}

void EncodeQ51(const float* x, uint8_t* out) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float minimum = *low, d = (*high - minimum) / 31.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = Truncated31((x[i] - minimum) * inverse + 0.5f);
  Store16(F32ToF16(d), out);
  Store16(F32ToF16(minimum), out + 2);
  StoreFives(q, out + 4);
}

int8_t IntegerAt(float x, float inverse, int32_t highest) {
  const float most = static_cast<float>(highest);
  return static_cast<int8_t>(std::clamp(std::nearbyint(x * inverse), -most - 1.0f, most));
}

double SquaredError(const float* x, int64_t elements, float scale, int32_t highest) {
  double error = 0;
  for (int64_t i = 0; i < elements; ++i) {
    const double d = static_cast<double>(x[i] - scale * static_cast<float>(IntegerAt(x[i], 1.0f / scale, highest)));
    error += d * d;
  }
  return error;
}

using Encoder = void (*)(const float*, uint8_t*);

// Null: not one of the formats that only this file encodes.
Encoder EncoderOf(DType dtype) {
  switch (dtype) {
    case DType::kQ5_0:
      return EncodeQ50;
    case DType::kQ5_1:
      return EncodeQ51;
    case DType::kQ4_K:
      return EncodeQ4K;
    case DType::kQ5_K:
      return EncodeQ5K;
    case DType::kQ6_K:
      return EncodeQ6K;
    default:
      return nullptr;
  }
}

}  // namespace

bool CanEncode(DType dtype) {
  return CanQuantize(dtype) || EncoderOf(dtype) != nullptr;
}

float EncodeIntegers(int32_t bits, const float* x, int64_t elements, int8_t* codes) {
  constexpr int kCandidates = 16;   // the first clips nothing
  constexpr float kLeast = 1e-30f;  // smaller ones have no finite inverse
  const int32_t highest = (1 << (bits - 1)) - 1;
  float largest = 0;
  for (int64_t i = 0; i < elements; ++i) largest = std::fmax(largest, std::fabs(x[i]));
  const auto scale_at = [&](int step) {
    return BF16ToF32(F32ToBF16(largest / (static_cast<float>(highest) + 0.1f * static_cast<float>(step))));
  };
  float scale = scale_at(0);
  if (scale < kLeast) scale = 0;
  if (bits == 4 && scale > 0) {
    double least = SquaredError(x, elements, scale, highest);
    for (int step = 1; step < kCandidates; ++step) {
      const float candidate = scale_at(step);
      const double error = SquaredError(x, elements, candidate, highest);
      if (error < least) least = error, scale = candidate;
    }
  }
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (int64_t i = 0; i < elements; ++i) codes[i] = IntegerAt(x[i], inverse, highest);
  return scale;
}

void Encode(DType dtype, const float* x, int64_t elements, std::byte* out) {
  const Encoder encoder = EncoderOf(dtype);
  if (encoder == nullptr) return Quantize(dtype, x, elements, out);
  const DTypeInfo& info = InfoOf(dtype);
  TACTUS_CHECK_MSG(elements % info.block_elements == 0, info.name);
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (int64_t i = 0; i < elements; i += info.block_elements, to += info.block_bytes) encoder(x + i, to);
}

}  // namespace tactus::compute
