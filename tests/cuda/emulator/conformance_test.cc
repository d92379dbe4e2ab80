// The emulated instructions give the bits of an H200, wherever cuda/conformance has recorded them. Not compared,
// because the record lacks it or because it is no promise of the emulator:
//   - `__expf`, `rsqrtf` and their like, whose bits kernels must not depend on; Exp2 and Reciprocal only within their
//     bounds, but exactly for zeros, infinities and whole numbers;
//   - the bits of a NaN of f32 arithmetic: a card has 7fffffff, the processor an operand's;
//   - f32 of every input of the conversions to 16 and 8 bits: 65,536 of them and the special ones;
//   - cp.async of 4 and 8 bytes and of a part of 16, and ldmatrix.x1 and .x2.trans, which device.h does not have;
//   - __reduce_* of 64 bits, __shfl_*_sync of 8 bytes, atomic operations on memory that several threads change.
#include <cmath>
#include <functional>

#include "compute/cuda/kernels/device.h"
#include "cuda/emulator/device_test.h"
#include "cuda/emulator/recorded.h"

namespace tactus::compute::cuda {
namespace {

using conformance::Words;

float AsFloat(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
// The bits of a sum, as a card has them.
uint32_t SumBits(float v) {
  return v != v ? 0x7fffffffu : std::bit_cast<uint32_t>(v);
}

using Unary = std::function<uint32_t(uint32_t)>;

Words Mapped(const Words& in, const Unary& f) {
  Words out;
  for (const uint32_t x : in) out.push_back(f(x));
  return out;
}

void ExpectUnary(const std::string& name, const Words& specials, const Unary& f) {
  ExpectRecorded(name + "/special", Mapped(specials, f));
  Words strided(65536);
  for (size_t i = 0; i < strided.size(); ++i) strided[i] = static_cast<uint32_t>(i) * 65537u;
  if (Record().contains(name + "/strided")) ExpectRecorded(name + "/strided", Mapped(strided, f));
}
// From 16 bits: every input.
void ExpectAllHalves(const std::string& name, const Words& specials, const Unary& f) {
  ExpectUnary(name, specials, f);
  uint64_t sum = 0;
  for (uint32_t x = 0; x < 65536; ++x) sum += conformance::MixPair(x, f(x));
  ASSERT_TRUE(Record().contains("all " + name)) << name;
  EXPECT_EQ(sum, Record().at("all " + name).hash) << name;
}

TEST(ConformanceTest, ConversionsOfFloatsHaveTheCardsBits) {
  const Words bf16s = conformance::NarrowingSpecials(conformance::kBf16);
  const Words f16s = conformance::NarrowingSpecials(conformance::kF16);
  const Words e4m3s = conformance::NarrowingSpecials(conformance::kE4m3);
  ExpectUnary("cvt.rn.bf16.f32", bf16s, [](uint32_t x) { return FromFloat<bf16>(AsFloat(x)).bits; });
  ExpectUnary("cvt.rn.f16.f32", f16s, [](uint32_t x) { return FromFloat<f16>(AsFloat(x)).bits; });
  ExpectUnary("cvt.rn.bf16x2.f32(x,-1.5)", bf16s, [](uint32_t x) { return PackPair<bf16>(-1.5f, AsFloat(x)); });
  ExpectUnary("cvt.rn.f16x2.f32(-1.5,x)", f16s, [](uint32_t x) { return PackPair<f16>(AsFloat(x), -1.5f); });
  ExpectUnary("cvt.rn.satfinite.e4m3x2.f32(1.0,x)", e4m3s,
              [](uint32_t x) { return 0x3800u | FromFloat<e4m3>(AsFloat(x)).bits; });
  ExpectUnary("cvt.rni.s32.f32", f16s, [](uint32_t x) { return static_cast<uint32_t>(__float2int_rn(AsFloat(x))); });
  ExpectUnary("cvt.rzi.s32.f32", f16s, [](uint32_t x) { return static_cast<uint32_t>(__float2int_rz(AsFloat(x))); });
  ExpectUnary("cvt.rni.u32.f32", f16s, [](uint32_t x) { return __float2uint_rn(AsFloat(x)); });
  ExpectUnary("cvt.rni.sat.s8.f32", f16s,
              [](uint32_t x) { return static_cast<uint32_t>(int32_t{FromFloat<int8_t>(AsFloat(x))}); });
}

TEST(ConformanceTest, ConversionsToFloatsHaveTheCardsBits) {
  const Words f32s = conformance::Specials(conformance::kF32);
  ExpectAllHalves("cvt.f32.f16", conformance::Specials(conformance::kF16),
                  [](uint32_t x) { return std::bit_cast<uint32_t>(ToFloat(f16{static_cast<uint16_t>(x)})); });
  ExpectAllHalves("cvt.f32.bf16", conformance::Specials(conformance::kBf16),
                  [](uint32_t x) { return std::bit_cast<uint32_t>(ToFloat(bf16{static_cast<uint16_t>(x)})); });
  const auto half = [](uint32_t x) -> uint32_t { return F16Bits(ToFloat(e4m3{static_cast<uint8_t>(x)})); };
  ExpectAllHalves("cvt.rn.f16x2.e4m3x2", conformance::Specials(conformance::kE4m3),
                  [&](uint32_t x) { return half(x) | half(x >> 8) << 16; });
  ExpectUnary("cvt.rn.f32.s32", f32s, [](uint32_t x) { return SumBits(__int2float_rn(static_cast<int>(x))); });
  ExpectUnary("cvt.rn.f32.u32", f32s, [](uint32_t x) { return SumBits(__uint2float_rn(x)); });
}

TEST(ConformanceTest, BitFunctionsHaveTheCardsBits) {
  const Words f32s = conformance::Specials(conformance::kF32);
  ExpectUnary("popc.b32", f32s, [](uint32_t x) { return static_cast<uint32_t>(__popc(x)); });
  ExpectUnary("clz.b32", f32s, [](uint32_t x) { return static_cast<uint32_t>(__clz(static_cast<int>(x))); });
  ExpectUnary("brev.b32", f32s, [](uint32_t x) { return __brev(x); });
}

// Differences in the last place are counted between ordered bits.
void ExpectNear(const std::string& name, const Words& in, float (*f)(float), int32_t places) {
  ASSERT_TRUE(Record().contains(name)) << name;
  const Words want = Record().at(name).out;
  ASSERT_EQ(in.size(), want.size()) << name;
  for (size_t i = 0; i < in.size(); ++i) {
    const uint32_t got = SumBits(f(AsFloat(in[i])));
    const auto field = [](uint32_t x) { return x >> 23 & 255u; };
    const bool exact = field(want[i]) == 0 || field(want[i]) == 255;
    EXPECT_LE(std::abs(static_cast<int32_t>(got) - static_cast<int32_t>(want[i])), exact ? 0 : places)
        << name << ", input " << std::hex << in[i] << ": " << got << ", the card has " << want[i];
  }
}

TEST(ConformanceTest, ApproximationsAreNearTheCards) {
  const Words specials = conformance::Specials(conformance::kF32);
  ExpectNear("ex2.approx.ftz.f32/special", specials, &Exp2, 3);
  ExpectNear("rcp.approx.ftz.f32/special", specials, &Reciprocal, 1);
  for (int x = -126; x <= 127; ++x) EXPECT_EQ(Exp2(static_cast<float>(x)), std::ldexp(1.0f, x));
}

struct Operands {
  Words a, b, c;
};
using Ternary = std::function<uint32_t(uint32_t, uint32_t, uint32_t)>;

Operands Grid(const Words& v, int operands) {
  Operands o;
  for (const uint32_t a : v) {
    for (const uint32_t b : v) {
      for (size_t k = 0; k < (operands == 3 ? v.size() : 1); ++k) {
        o.a.push_back(a);
        o.b.push_back(b);
        o.c.push_back(operands == 3 ? v[k] : 0);
      }
    }
  }
  return o;
}
// As pairs.cu draws them.
Operands Random(uint64_t seed, const conformance::Format* f, int per_word) {
  using conformance::Profile;
  conformance::Rng rng(seed);
  Operands o;
  for (int i = 0; i < 65536; ++i) {
    const Profile profile = i % 3 == 0 ? Profile::kNear : i % 3 == 1 ? Profile::kBits : Profile::kWide;
    for (Words* w : {&o.a, &o.b, &o.c}) {
      uint32_t word = 0;
      if (f == nullptr) {
        word = rng.Next();
      } else {
        for (int part = 0; part < per_word; ++part) word |= conformance::Draw(rng, *f, profile) << (16 * part);
      }
      w->push_back(word);
    }
    if (f == nullptr && i % 4 == 0) o.c.back() &= 63;
  }
  return o;
}

// Specials, pairs of them in 16 bits, and every third of those for three operands.
struct PairCases {
  uint64_t seed;
  const conformance::Format* format;
  int per_word;
  Words specials;
  bool some_of_three = true;
};
void ExpectPairs(const PairCases& cases, const std::string& name, int operands, const Ternary& f) {
  Words some;
  for (size_t i = 0; i < cases.specials.size(); i += cases.some_of_three ? 3 : 1) some.push_back(cases.specials[i]);
  const auto map = [&](const Operands& in) {
    Words out;
    for (size_t i = 0; i < in.a.size(); ++i) out.push_back(f(in.a[i], in.b[i], in.c[i]));
    return out;
  };
  ExpectRecorded(name + "/grid", map(Grid(operands == 3 ? some : cases.specials, operands)));
  ExpectRecorded(name + "/random", map(Random(cases.seed, cases.format, cases.per_word)));
}
Words Doubled(const Words& v) {
  Words out;
  for (size_t i = 0; i < v.size(); ++i) out.push_back(v[i] | v[(i + 1) % v.size()] << 16);
  return out;
}

TEST(ConformanceTest, ArithmeticOfFloatsHasTheCardsBits) {
  const PairCases f32{600, &conformance::kF32, 1, conformance::Specials(conformance::kF32)};
  ExpectPairs(f32, "add.rn.f32", 2,
              [](uint32_t a, uint32_t b, uint32_t) { return SumBits(Add(AsFloat(a), AsFloat(b))); });
  ExpectPairs(f32, "mul.rn.f32", 2,
              [](uint32_t a, uint32_t b, uint32_t) { return SumBits(Mul(AsFloat(a), AsFloat(b))); });
  ExpectPairs(f32, "div.rn.f32", 2,
              [](uint32_t a, uint32_t b, uint32_t) { return SumBits(Div(AsFloat(a), AsFloat(b))); });
  ExpectPairs(f32, "fma.rn.f32", 3,
              [](uint32_t a, uint32_t b, uint32_t c) { return SumBits(Fma(AsFloat(a), AsFloat(b), AsFloat(c))); });
}

TEST(ConformanceTest, ArithmeticOfPairsHasTheCardsBits) {
  const PairCases f16s{601, &conformance::kF16, 2, Doubled(conformance::Specials(conformance::kF16))};
  const PairCases bf16s{602, &conformance::kBf16, 2, Doubled(conformance::Specials(conformance::kBf16))};
  ExpectPairs(f16s, "mul.rn.f16x2", 2, [](uint32_t a, uint32_t b, uint32_t) { return MulPair<f16>(a, b); });
  ExpectPairs(bf16s, "__hmul2(bf162)", 2, [](uint32_t a, uint32_t b, uint32_t) { return MulPair<bf16>(a, b); });
  ExpectPairs(f16s, "fma.rn.f16x2", 3, [](uint32_t a, uint32_t b, uint32_t c) { return FmaPair<f16>(a, b, c); });
  ExpectPairs(bf16s, "fma.rn.bf16x2", 3, [](uint32_t a, uint32_t b, uint32_t c) { return FmaPair<bf16>(a, b, c); });
}

TEST(ConformanceTest, ArithmeticOfIntegersHasTheCardsBits) {
  const PairCases bits{
      603,
      nullptr,
      1,
      {0, 1, 31, 32, 33, 63, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000, 0x80808080, 0xffffffff, 0x12345678},
      false};
  ExpectPairs(bits, "prmt.b32", 3, [](uint32_t a, uint32_t b, uint32_t c) { return __byte_perm(a, b, c); });
  ExpectPairs(bits, "dp4a.s32.s32", 3, [](uint32_t a, uint32_t b, uint32_t c) {
    return static_cast<uint32_t>(__dp4a(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)));
  });
  ExpectPairs(bits, "dp4a.u32.u32", 3, [](uint32_t a, uint32_t b, uint32_t c) { return __dp4a(a, b, c); });
  ExpectPairs(bits, "shf.l.wrap.b32", 3, [](uint32_t a, uint32_t b, uint32_t c) { return __funnelshift_l(a, b, c); });
  ExpectPairs(bits, "shf.r.wrap.b32", 3, [](uint32_t a, uint32_t b, uint32_t c) { return __funnelshift_r(a, b, c); });
  ExpectPairs(bits, "mul.hi.u32", 2, [](uint32_t a, uint32_t b, uint32_t) { return __umulhi(a, b); });
  ExpectPairs(bits, "mul.hi.s32", 2, [](uint32_t a, uint32_t b, uint32_t) {
    return static_cast<uint32_t>(__mulhi(static_cast<int>(a), static_cast<int>(b)));
  });
}

}  // namespace
}  // namespace tactus::compute::cuda
