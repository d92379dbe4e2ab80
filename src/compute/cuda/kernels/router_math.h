// The functions of a router's scores.
#pragma once

#include "compute/cuda/kernels/device.h"

namespace tactus::compute::cuda {

// exp(x), rounded from f64: the nearest f32 but for about one x in 100,000. expf of a device has errors of 2 units of
// the last place, which would change choices.
TACTUS_DEVICE float RoundedExp(float x) {
  if (!(x < 89.0f)) return x >= 89.0f ? __int_as_float(0x7f800000) : x;
  if (x < -104.0f) return 0.0f;
  // exp(x) = 2^k exp(r), |r| <= ln(2) / 2; Taylor's series to r^11.
  const double k = rint(x * 1.4426950408889634);
  const double r = fma(-k, 0.6931471805599453, static_cast<double>(x));
  double sum = 1.0 / 39916800;
  sum = fma(sum, r, 1.0 / 3628800);
  sum = fma(sum, r, 1.0 / 362880);
  sum = fma(sum, r, 1.0 / 40320);
  sum = fma(sum, r, 1.0 / 5040);
  sum = fma(sum, r, 1.0 / 720);
  sum = fma(sum, r, 1.0 / 120);
  sum = fma(sum, r, 1.0 / 24);
  sum = fma(sum, r, 1.0 / 6);
  sum = fma(sum, r, 0.5);
  sum = fma(sum, r, 1.0);
  sum = fma(sum, r, 1.0);
  return static_cast<float>(ldexp(sum, static_cast<int>(k)));
}

TACTUS_DEVICE float SigmoidOf(float x) {
  return Div(1.0f, Add(1.0f, RoundedExp(-x)));
}

}  // namespace tactus::compute::cuda
