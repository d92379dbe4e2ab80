// The functions of feed-forward blocks and of soft caps, on single elements, written once over simd/simd.h.
#pragma once

#include <cstdint>

#include "compute/kernels/rows/row_kernel.h"
#include "compute/tensor/activation.h"

namespace tactus::compute {
namespace {

// tanh(x) as 1 - 2 / (e^2x + 1); |x| beyond 44 gives exactly +-1.
inline Simd::F Tanh(Simd::F x) {
  const Simd::F one = Simd::Set1(1.0f), two = Simd::Set1(2.0f);
  return Simd::Sub(one, Simd::Div(two, Simd::Add(Exp(Simd::Mul(two, x)), one)));
}

// Phi(x), the normal distribution, for erf by Abramowitz and Stegun 7.1.26: off by at most 1e-7.
inline Simd::F NormalCdf(Simd::F x) {
  using F = Simd::F;
  const F one = Simd::Set1(1.0f), half = Simd::Set1(0.5f), zero = Simd::Zero();
  const F negative = Simd::Sub(zero, x), size = Simd::Mul(Simd::Max(x, negative), Simd::Set1(0.70710678118654752f));
  const F t = Simd::Div(one, Simd::MulAdd(Simd::Set1(0.3275911f), size, one));
  F p = Simd::Set1(1.061405429f);
  p = Simd::MulAdd(p, t, Simd::Set1(-1.453152027f));
  p = Simd::MulAdd(p, t, Simd::Set1(1.421413741f));
  p = Simd::MulAdd(p, t, Simd::Set1(-0.284496736f));
  p = Simd::MulAdd(p, t, Simd::Set1(0.254829592f));
  // The tail beyond |x|, and 1 - tail on the right: half + sign(x) (half - tail).
  const F tail = Simd::Mul(half, Simd::Mul(Simd::Mul(p, t), Exp(Simd::Sub(zero, Simd::Mul(size, size)))));
  const F sign = Simd::Max(Simd::Set1(-1.0f), Simd::Min(one, Simd::Mul(x, Simd::Set1(3e38f))));
  return Simd::MulAdd(sign, Simd::Sub(half, tail), half);
}

// x / (1 + e^(-slope x))
inline Simd::F SigmoidGate(Simd::F x, Simd::F scaled) {
  return Simd::Div(x, Simd::Add(Simd::Set1(1.0f), Exp(Simd::Sub(Simd::Zero(), scaled))));
}

inline Simd::F Activated(Activation f, Simd::F x) {
  using F = Simd::F;
  switch (f) {
    case Activation::kGeluErf:
      return Simd::Mul(x, NormalCdf(x));
    case Activation::kGeluTanh: {  // (1 + tanh(u)) / 2 = 1 / (1 + e^-2u)
      const F cube = Simd::Mul(Simd::Mul(x, x), x);
      const F u = Simd::Mul(Simd::Set1(1.5957691216057308f), Simd::MulAdd(Simd::Set1(0.044715f), cube, x));
      return SigmoidGate(x, u);
    }
    case Activation::kRelu:
      return Simd::Max(x, Simd::Zero());
    case Activation::kRelu2: {
      const F kept = Simd::Max(x, Simd::Zero());
      return Simd::Mul(kept, kept);
    }
    case Activation::kSilu:
    case Activation::kClampedSwiglu:
      break;
  }
  return SigmoidGate(x, x);
}

inline Simd::F ClampedSwiglu(Simd::F gate, Simd::F up) {
  const Simd::F limit = Simd::Set1(7.0f), one = Simd::Set1(1.0f);
  const Simd::F g = Simd::Min(gate, limit), u = Simd::Max(Simd::Set1(-7.0f), Simd::Min(up, limit));
  return Simd::Mul(SigmoidGate(g, Simd::Mul(Simd::Set1(1.702f), g)), Simd::Add(u, one));
}

void Activate(ThreadPool& pool, Activation f, const float* gate, const float* up, int64_t n, float* out) {
  ForElements(pool, n, [&](int64_t i, int count) {
    const Simd::F g = LoadFirst(gate + i, count);
    Simd::F v;
    if (f == Activation::kClampedSwiglu) {
      v = ClampedSwiglu(g, LoadFirst(up + i, count));
    } else {
      v = Activated(f, g);
      if (up != nullptr) v = Simd::Mul(v, LoadFirst(up + i, count));
    }
    StoreFirst(out + i, v, count);
  });
}

void Scale(ThreadPool& pool, float* x, float factor, float softcap, int64_t n) {
  const Simd::F f = Simd::Set1(factor), cap = Simd::Set1(softcap), inverse = Simd::Set1(1.0f / softcap);
  ForElements(pool, n, [&](int64_t i, int count) {
    Simd::F v = Simd::Mul(LoadFirst(x + i, count), f);
    if (softcap > 0) v = Simd::Mul(cap, Tanh(Simd::Mul(v, inverse)));
    StoreFirst(x + i, v, count);
  });
}

}  // namespace
}  // namespace tactus::compute
