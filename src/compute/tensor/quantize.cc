#include "compute/tensor/quantize.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compute/tensor/load.h"

namespace tactus::compute {
namespace {

float InverseOrZero(float d) {
  return d != 0.0f ? 1.0f / d : 0.0f;
}

int Clamp15(float value) {  // truncates; the caller has added the half
  const int v = static_cast<int>(value);
  return v < 0 ? 0 : v > 15 ? 15 : v;
}

void BlockQ80(const float* x, uint8_t* out) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(x[i]));
  const float d = largest / 127.0f, inverse = InverseOrZero(d);
  Store16(F32ToF16(d), out);
  for (int i = 0; i < 32; ++i) out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * inverse)));
}

// The value of largest magnitude becomes -8, so that its side of the range is used in full.
void BlockQ40(const float* x, uint8_t* out) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i) extreme = std::fabs(x[i]) > std::fabs(extreme) ? x[i] : extreme;
  const float d = extreme / -8.0f, inverse = InverseOrZero(d);
  Store16(F32ToF16(d), out);
  for (int i = 0; i < 16; ++i) {
    out[2 + i] = static_cast<uint8_t>(Clamp15(x[i] * inverse + 8.5f) | Clamp15(x[i + 16] * inverse + 8.5f) << 4);
  }
}

void BlockQ41(const float* x, uint8_t* out) {
  float low = x[0], high = x[0];
  for (int i = 1; i < 32; ++i) {
    low = std::fmin(low, x[i]);
    high = std::fmax(high, x[i]);
  }
  const float d = (high - low) / 15.0f, inverse = InverseOrZero(d);
  Store16(F32ToF16(d), out);
  Store16(F32ToF16(low), out + 2);
  for (int i = 0; i < 16; ++i) {
    out[4 + i] =
        static_cast<uint8_t>(Clamp15((x[i] - low) * inverse + 0.5f) | Clamp15((x[i + 16] - low) * inverse + 0.5f) << 4);
  }
}

}  // namespace

bool CanQuantize(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      return true;
    default:
      return false;
  }
}

void Quantize(DType dtype, const float* x, int64_t elements, std::byte* out) {
  const DTypeInfo& info = InfoOf(dtype);
  TACTUS_CHECK_MSG(CanQuantize(dtype) && elements % info.block_elements == 0, info.name);
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (int64_t i = 0; i < elements; i += info.block_elements, to += info.block_bytes) {
    switch (dtype) {
      case DType::kF32:
        std::memcpy(to, x + i, sizeof(float));
        break;
      case DType::kF16:
        Store16(F32ToF16(x[i]), to);
        break;
      case DType::kBF16:
        Store16(F32ToBF16(x[i]), to);
        break;
      case DType::kQ4_0:
        BlockQ40(x + i, to);
        break;
      case DType::kQ4_1:
        BlockQ41(x + i, to);
        break;
      default:
        BlockQ80(x + i, to);
        break;
    }
  }
}

}  // namespace tactus::compute
