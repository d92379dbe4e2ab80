// Inputs of the cases: plain C++17 without CUDA, so that an emulator's test can use the same inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace conformance {

using Words = std::vector<uint32_t>;

// splitmix64; its high half is used.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint32_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return uint32_t((z ^ (z >> 31)) >> 32);
  }
  uint32_t Below(uint32_t n) { return uint32_t((uint64_t(Next()) * n) >> 32); }

 private:
  uint64_t state_;
};

// FNV-1a over the words' bytes, the low byte first.
inline uint64_t Hash(const uint32_t* words, size_t n) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < n; ++i) {
    for (int byte = 0; byte < 4; ++byte) h = (h ^ ((words[i] >> (8 * byte)) & 0xffu)) * 0x100000001b3u;
  }
  return h;
}

// One pair of input and output of an exhaustive case. The case's hash is the sum of these, so the order is free.
#if defined(__CUDACC__)
__host__ __device__
#endif
    inline uint64_t
    MixPair(uint32_t in, uint32_t out) {
  uint64_t z = ((uint64_t(in) << 32) | out) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A binary floating-point format. `has_infinity` is false for e4m3, whose only NaN has all bits set.
struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity = true;
  int Bits() const { return 1 + exponent_bits + mantissa_bits; }
  int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t SignBit() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t One() const { return uint32_t(Bias()) << mantissa_bits; }
};
inline constexpr Format kF32{8, 23}, kTf32{8, 10}, kBf16{8, 7}, kF16{5, 10}, kE4m3{4, 3, false}, kE5m2{5, 2};

// Values that show rounding, overflow, subnormals, signs of zero and NaN payloads; then their negatives.
inline Words Specials(Format f) {
  const uint32_t ulp = 1, one = f.One(), top = (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
  const uint32_t normal = 1u << f.mantissa_bits, infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  Words v{0,
          ulp,
          2 * ulp,
          3 * ulp,
          normal - 1,
          normal,
          normal + 1,
          2 * normal,
          one - 1,
          one,
          one + 1,
          one + normal,
          one + normal + normal / 2,
          one - normal,
          one - normal + 1};
  if (f.has_infinity) {
    v.insert(v.end(), {infinity - 2, infinity - 1, infinity, infinity + 1, infinity + normal / 2,
                       infinity + normal / 2 + 1, infinity + normal / 4, top});
  } else {
    v.insert(v.end(), {top - 2, top - 1, top});
  }
  for (size_t i = 0, n = v.size(); i < n; ++i) v.push_back(v[i] | f.SignBit());
  return v;
}

// f32 values at which a narrower format rounds, ties, overflows or becomes subnormal.
inline Words NarrowingSpecials(Format f) {
  Words v = Specials(kF32);
  const int drop = 23 - f.mantissa_bits;
  const uint32_t half = 1u << (drop - 1), unit = 1u << drop;
  const int least = 127 - f.Bias() + 1;  // the f32 exponent field of the least normal value of `f`
  const auto add = [&](int exponent, uint32_t mantissa) {
    if (exponent > 0 && exponent < 255) {
      v.push_back((uint32_t(exponent) << 23) + mantissa);
      v.push_back(0x80000000u | ((uint32_t(exponent) << 23) + mantissa));
    }
  };
  const int greatest = 127 + f.Bias() + (f.has_infinity ? 0 : 1);
  for (int exponent : {127, least, greatest, greatest + 1}) {
    for (uint32_t steps : {0u, 1u, 2u, (1u << f.mantissa_bits) - 2, (1u << f.mantissa_bits) - 1}) {
      for (uint32_t part : {0u, 1u, half - 1, half, half + 1, unit - 1}) add(exponent, steps * unit + part);
    }
  }
  for (int below = 1; below <= f.mantissa_bits + 2; ++below) {
    for (uint32_t part : {0u, 1u, 0x400000u, 0x400001u, 0x600000u, 0x7fffffu}) add(least - below, part);
  }
  return v;
}

enum class Profile { kIntegers, kNear, kWide, kTiny, kBits };
inline const char* Name(Profile p) {
  const char* const names[] = {"integers", "near", "wide", "tiny", "bits"};
  return names[int(p)];
}

// One value of format `f`. integers: -4 to 4. near: exponents -2 to 1. wide: exponents over most of the range allowed
// by products in f32. tiny: subnormals and the least normals. bits: any bits, one in eight a special value.
inline uint32_t Draw(Rng& rng, Format f, Profile p) {
  const uint32_t sign = rng.Below(2) ? f.SignBit() : 0, bits = rng.Next();
  const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  switch (p) {
    case Profile::kIntegers: {
      const uint32_t n = bits % 5;
      if (n == 0) return sign;
      const uint32_t log = n >= 4 ? 2 : n >= 2 ? 1 : 0;
      return sign | (f.One() + (log << f.mantissa_bits) + (n == 3 ? 1u << (f.mantissa_bits - 1) : 0));
    }
    case Profile::kNear:
      return sign | ((uint32_t(f.Bias()) - 2 + rng.Below(4)) << f.mantissa_bits) | mantissa;
    case Profile::kWide: {
      const uint32_t reach = f.exponent_bits == 8 ? 14 : uint32_t(f.Bias()) - 1;
      return sign | ((uint32_t(f.Bias()) - reach + rng.Below(2 * reach)) << f.mantissa_bits) | mantissa;
    }
    case Profile::kTiny:
      return sign | (rng.Below(3) << f.mantissa_bits) | mantissa;
    default:
      break;
  }
  if (rng.Below(8) == 0) {
    const Words specials = Specials(f);
    return specials[rng.Below(uint32_t(specials.size()))];
  }
  return bits & ((f.SignBit() << 1) - 1);
}

// The value of a finite number; not defined for infinities and NaN.
inline double Value(uint32_t bits, Format f) {
  const uint32_t field = (bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1);
  double v = bits & ((1u << f.mantissa_bits) - 1);
  int exponent = int(field) - f.Bias() - f.mantissa_bits;
  if (field == 0) {
    ++exponent;
  } else {
    v += double(1u << f.mantissa_bits);
  }
  for (; exponent > 0; --exponent) v *= 2;
  for (; exponent < 0; ++exponent) v /= 2;
  return bits & f.SignBit() ? -v : v;
}

// Placement of an m16n8 product's elements in a warp. Each lane has `registers` words of A; a word holds `per_word`
// elements of A or B: 32 / the element's bits.
struct Tile {
  int k, per_word;
  int ARegisters() const { return k / per_word / 2; }
  int BRegisters() const { return k / per_word / 4; }
};
struct Place {
  int row, column;
};
inline Place APlace(Tile t, int lane, int reg, int part) {
  return {lane / 4 + 8 * (reg % 2), lane % 4 * t.per_word + part + 4 * t.per_word * (reg / 2)};
}
// `row` is along k.
inline Place BPlace(Tile t, int lane, int reg, int part) {
  return {lane % 4 * t.per_word + part + 4 * t.per_word * reg, lane / 4};
}
// For sums of 32 bits. A register holds two sums of 16 bits: number = 2 * register + part.
inline Place CPlace(int lane, int number) {
  return {lane / 4 + 8 * (number / 2), lane % 4 * 2 + number % 2};
}

// A, B and C of one product, as matrices and as the registers of 32 lanes.
struct Product {
  Tile tile;
  Format in_a, in_b, sum;  // mantissa_bits 0: integers
  Words a, b, c;           // 16 x k, k x 8, 16 x 8
  Product(Tile t, Format fa, Format fb, Format fs)
      : tile(t), in_a(fa), in_b(fb), sum(fs), a(size_t(16 * t.k)), b(size_t(t.k * 8)), c(16 * 8) {}
  uint32_t& A(int row, int k) { return a[size_t(row * tile.k + k)]; }
  uint32_t& B(int k, int column) { return b[size_t(k * 8 + column)]; }
  uint32_t& C(int row, int column) { return c[size_t(row * 8 + column)]; }
  int Width() const { return 32 / tile.per_word; }
  // tf32 lies in the high bits of a word.
  int Shift(Format f) const { return tile.per_word == 1 ? 32 - f.Bits() : 0; }
  Words ARegisters() {
    Words out;
    for (int lane = 0; lane < 32; ++lane) {
      for (int reg = 0; reg < tile.ARegisters(); ++reg) {
        uint32_t word = 0;
        for (int part = 0; part < tile.per_word; ++part) {
          const Place p = APlace(tile, lane, reg, part);
          word |= A(p.row, p.column) << (part * Width() + Shift(in_a));
        }
        out.push_back(word);
      }
    }
    return out;
  }
  Words BRegisters() {
    Words out;
    for (int lane = 0; lane < 32; ++lane) {
      for (int reg = 0; reg < tile.BRegisters(); ++reg) {
        uint32_t word = 0;
        for (int part = 0; part < tile.per_word; ++part) {
          const Place p = BPlace(tile, lane, reg, part);
          word |= B(p.row, p.column) << (part * Width() + Shift(in_b));
        }
        out.push_back(word);
      }
    }
    return out;
  }
  Words CRegisters() {
    Words out;
    for (int lane = 0; lane < 32; ++lane) {
      if (sum.Bits() == 16) {
        for (int reg = 0; reg < 2; ++reg) {
          const Place p = CPlace(lane, 2 * reg);
          out.push_back(C(p.row, p.column) | (C(p.row, p.column + 1) << 16));
        }
      } else {
        for (int number = 0; number < 4; ++number) {
          const Place p = CPlace(lane, number);
          out.push_back(C(p.row, p.column));
        }
      }
    }
    return out;
  }
};
inline constexpr Format kInt8{7, 0}, kInt32{31, 0};

// Draws A by rows, then B by rows of k, then C by rows. Integers are any bits.
inline Product RandomProduct(Rng& rng, Tile t, Format fa, Format fb, Format fs, Profile p) {
  Product product(t, fa, fb, fs);
  const auto draw = [&](Format f) -> uint32_t {
    return f.mantissa_bits == 0 ? rng.Next() & (f.Bits() == 32 ? ~0u : 0xffu) : Draw(rng, f, p);
  };
  for (uint32_t& x : product.a) x = draw(fa);
  for (uint32_t& x : product.b) x = draw(fb);
  for (uint32_t& x : product.c) x = draw(fs);
  return product;
}

// One dot product whose terms show how the sum is computed. All rows of A and all columns of B are the same.
struct Dot {
  std::string name;
  Words a, b;  // k each
  uint32_t c;
};

}  // namespace conformance
