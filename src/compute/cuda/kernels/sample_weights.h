// Weights and draws by the definition of compute/model/sampler.h, with its bits, and the order of logits.
#pragma once

#include "compute/cuda/kernels/device.h"

namespace tactus::compute::cuda {

inline constexpr float kLowest = -3.40282346638528859812e+38f;

using Sum = unsigned long long;  // atomics and shuffles have no uint64_t

// The order of floats as unsigned integers, -0 and 0 alike.
TACTUS_DEVICE uint32_t KeyOf(float x) {
  const uint32_t bits = __float_as_uint(Add(x, 0.0f));  // -0 becomes 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
TACTUS_DEVICE float ValueOf(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}
TACTUS_DEVICE bool IsFinite(float x) {
  return fabsf(x) <= -kLowest;
}

// e^x for x <= 0: Exp of compute/model/sampler.cc, operation by operation.
TACTUS_DEVICE float ExpOf(float x) {
  const float shift = 12582912.0f;
  const float clamped = x > -87.0f ? x : -87.0f;
  const float shifted = Add(Mul(clamped, 1.44269504f), shift);
  const float n = Add(shifted, -shift);
  const float r = Add(Add(clamped, -Mul(n, 0.693359375f)), -Mul(n, -2.12194440e-4f));
  float p = 1.0f / 5040;
  p = Add(Mul(p, r), 1.0f / 720);
  p = Add(Mul(p, r), 1.0f / 120);
  p = Add(Mul(p, r), 1.0f / 24);
  p = Add(Mul(p, r), 1.0f / 6);
  p = Add(Mul(p, r), 0.5f);
  p = Add(Mul(p, r), 1.0f);
  p = Add(Mul(p, r), 1.0f);
  const uint32_t exponent = (__float_as_uint(shifted) - __float_as_uint(shift) + 127u) << 23;
  const float result = Mul(p, __uint_as_float(exponent));
  return x < -87.0f ? 0.0f : result;
}

// Philox4x32-10 (Salmon et al., SC'11), and UniformAt of base/rng.h.
TACTUS_DEVICE double UniformOf(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0, p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const uint64_t bits = (static_cast<uint64_t>(c1) << 32) | c0;
  return static_cast<double>(bits >> 11) * 1.1102230246251565e-16;
}

// A logit's weight relative to the best logit.
struct Weights {
  float max, temperature, min_p;
  TACTUS_DEVICE Sum Of(float logit) const {
    const float e = ExpOf(Div(Add(logit, -max), temperature));
    if (e < min_p) return 0;
    return static_cast<Sum>(static_cast<long long>(Mul(e, 17592186044416.0f)));
  }
};

}  // namespace tactus::compute::cuda
