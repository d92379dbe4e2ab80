// How the matrix units of a card of compute capability 9.0 add, as far as its recorded results show: plain C++17, for
// an emulator. sum_model_check.cc compares it with a record, bit by bit.
//
// A sum adds all its products and the accumulator at once. Each is cut, towards zero, `kept` places below the leading
// place of the largest; the rest is added exactly; the sum is rounded once. A product's leading place is the sum of its
// factors' exponents, even if its mantissas' product is 2 or more.
#pragma once

#include <algorithm>
#include <cmath>

#include "inputs.h"

namespace conformance {

struct SumRule {
  Format in_a, in_b, sum;
  int kept = 25;
  int digits = 23;              // places of the result's mantissa that can be other than 0, if the format has more
  bool nearest = false;         // rounding of the sum to its format: to nearest, ties to even; else towards zero
  bool two_then_float = false;  // mma.sync on fp8: see DotOf
};

inline uint32_t MaskOf(int bits) {
  return bits >= 32 ? ~0u : (1u << bits) - 1;
}

struct Unpacked {
  bool negative, zero, infinite, nan;
  uint64_t digits;         // with the hidden bit
  int exponent, fraction;  // the value is digits * 2^(exponent - fraction)
};
inline Unpacked Unpack(uint32_t bits, Format f) {
  const uint32_t all = MaskOf(f.exponent_bits), field = (bits >> f.mantissa_bits) & all;
  const uint32_t mantissa = bits & MaskOf(f.mantissa_bits);
  Unpacked u{};
  u.negative = (bits & f.SignBit()) != 0;
  u.fraction = f.mantissa_bits;
  if (f.has_infinity && field == all) {
    u.infinite = mantissa == 0;
    u.nan = mantissa != 0;
  } else if (!f.has_infinity && field == all && mantissa == MaskOf(f.mantissa_bits)) {
    u.nan = true;
  }
  u.exponent = (field == 0 ? 1 : int(field)) - f.Bias();
  u.digits = field == 0 ? mantissa : mantissa | (1u << f.mantissa_bits);
  u.zero = u.digits == 0;
  return u;
}

// value * 2^unit in format `f`: to nearest with ties to even, or towards zero. A magnitude beyond the format's range is
// infinite in both. A zero result is +0 for any sign.
inline uint32_t Pack(int64_t value, int unit, Format f, bool nearest, int most_digits) {
  if (value == 0) return 0;
  const uint32_t sign = value < 0 ? f.SignBit() : 0;
  uint64_t digits = value < 0 ? uint64_t(-value) : uint64_t(value);
  int leading = 0;
  while ((digits >> leading) > 1) ++leading;
  const int exponent = std::max(leading + unit, 1 - f.Bias());
  const int spare = std::max(0, f.mantissa_bits - most_digits);
  const int drop = exponent - f.mantissa_bits + spare - unit;  // places below the result's last
  if (drop > 0) {
    const uint64_t rest = drop > 63 ? digits : digits & ((uint64_t(1) << drop) - 1);
    const uint64_t half = drop > 63 ? 0 : uint64_t(1) << (drop - 1);
    digits = drop > 63 ? 0 : digits >> drop;
    if (nearest && drop <= 63 && (rest > half || (rest == half && (digits & 1) != 0))) ++digits;
  } else {
    digits <<= -drop;
  }
  digits <<= spare;
  // The hidden bit of a normal number adds 1 to the exponent field, as does a carry from rounding.
  const uint64_t bits = (uint64_t(exponent + f.Bias() - 1) << f.mantissa_bits) + digits;
  const uint64_t infinity = uint64_t(MaskOf(f.exponent_bits)) << f.mantissa_bits;
  return bits == 0 ? 0 : sign | uint32_t(std::min(bits, infinity));
}

inline uint32_t SumOf(const SumRule& rule, const uint32_t* a, const uint32_t* b, int n, uint32_t c) {
  const uint32_t nan = rule.sum.SignBit() - 1;
  bool plus = false, minus = false;
  struct Term {
    bool negative;
    uint64_t digits;
    int exponent, fraction;
  };
  std::vector<Term> terms;
  const Unpacked start = Unpack(c, rule.sum);
  if (start.nan) return nan;
  if (start.infinite) (start.negative ? minus : plus) = true;
  if (!start.zero) terms.push_back({start.negative, start.digits, start.exponent, start.fraction});
  for (int i = 0; i < n; ++i) {
    const Unpacked x = Unpack(a[i], rule.in_a), y = Unpack(b[i], rule.in_b);
    if (x.nan || y.nan || (x.infinite && y.zero) || (x.zero && y.infinite)) return nan;
    const bool negative = x.negative != y.negative;
    if (x.infinite || y.infinite) (negative ? minus : plus) = true;
    if (x.zero || y.zero) continue;
    terms.push_back({negative, x.digits * y.digits, x.exponent + y.exponent, x.fraction + y.fraction});
  }
  if (plus && minus) return nan;
  const uint32_t infinity = MaskOf(rule.sum.exponent_bits) << rule.sum.mantissa_bits;
  if (plus || minus) return infinity | (minus ? rule.sum.SignBit() : 0);
  if (terms.empty()) return 0;
  int greatest = terms[0].exponent;
  for (const Term& t : terms) greatest = std::max(greatest, t.exponent);
  const int unit = greatest - rule.kept;
  int64_t sum = 0;
  for (const Term& t : terms) {
    const int shift = t.exponent - t.fraction - unit;
    const uint64_t cut = shift >= 0 ? t.digits << shift : shift > -64 ? t.digits >> -shift : 0;
    sum += t.negative ? -int64_t(cut) : int64_t(cut);
  }
  return Pack(sum, unit, rule.sum, rule.nearest, rule.digits);
}

// One element of an instruction's result. On this card mma.sync on fp8 is two sums of 16 products, places with k % 4 <
// 2 first, the second on top of the first; an ordinary addition of the accumulator follows.
inline uint32_t DotOf(const SumRule& rule, const uint32_t* a, const uint32_t* b, int k, uint32_t c) {
  if (!rule.two_then_float) return SumOf(rule, a, b, k, c);
  uint32_t sum = 0;
  for (int half = 0; half < 2; ++half) {
    std::vector<uint32_t> x, y;
    for (int i = 0; i < k; ++i) {
      if ((i % 4) / 2 != half) continue;
      x.push_back(a[i]);
      y.push_back(b[i]);
    }
    sum = SumOf(rule, x.data(), y.data(), int(x.size()), sum);
  }
  float f, g;
  std::memcpy(&f, &sum, 4);
  std::memcpy(&g, &c, 4);
  f += g;
  if (std::isnan(f)) return 0x7fffffffu;
  std::memcpy(&sum, &f, 4);
  return sum;
}

}  // namespace conformance
