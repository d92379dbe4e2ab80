// Instructions of two or three operands: arithmetic in f32, f16x2 and bf16x2, bytes, bits and shifts.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cases.h"

namespace conformance {
namespace {

#if defined(__CUDA_ARCH__)
constexpr int kArch = __CUDA_ARCH__ / 10;
#else
constexpr int kArch = 0;
#endif

#define OP2(name, title, min, text)                                      \
  struct name {                                                          \
    static constexpr const char* kName = title;                          \
    static constexpr int kMin = min, kOperands = 2;                      \
    static __device__ uint32_t F(uint32_t a, uint32_t b, uint32_t) {     \
      uint32_t d = 0;                                                    \
      if constexpr (kArch >= kMin) asm(text : "=r"(d) : "r"(a), "r"(b)); \
      return d;                                                          \
    }                                                                    \
  };
#define OP3(name, title, min, text)                                              \
  struct name {                                                                  \
    static constexpr const char* kName = title;                                  \
    static constexpr int kMin = min, kOperands = 3;                              \
    static __device__ uint32_t F(uint32_t a, uint32_t b, uint32_t c) {           \
      uint32_t d = 0;                                                            \
      if constexpr (kArch >= kMin) asm(text : "=r"(d) : "r"(a), "r"(b), "r"(c)); \
      return d;                                                                  \
    }                                                                            \
  };
#define CALL2(name, title, expression)                               \
  struct name {                                                      \
    static constexpr const char* kName = title;                      \
    static constexpr int kMin = 80, kOperands = 2;                   \
    static __device__ uint32_t F(uint32_t a, uint32_t b, uint32_t) { \
      return expression;                                             \
    }                                                                \
  };
#define SIMPLE2(name, instruction) OP2(name, instruction, 80, instruction " %0, %1, %2;")
#define SIMPLE2_90(name, instruction) OP2(name, instruction, 90, instruction " %0, %1, %2;")
#define SIMPLE3(name, instruction) OP3(name, instruction, 80, instruction " %0, %1, %2, %3;")

SIMPLE2(AddF32, "add.rn.f32")
SIMPLE2(AddFtz, "add.rn.ftz.f32")
SIMPLE2(AddSat, "add.rn.sat.f32")
SIMPLE2(AddRz, "add.rz.f32")
SIMPLE2(SubF32, "sub.rn.f32")
SIMPLE2(MulF32, "mul.rn.f32")
SIMPLE2(MulFtz, "mul.rn.ftz.f32")
SIMPLE2(DivRn, "div.rn.f32")
SIMPLE2(DivFull, "div.full.f32")
SIMPLE2(DivApprox, "div.approx.f32")
SIMPLE2(MinF32, "min.f32")
SIMPLE2(MaxF32, "max.f32")
SIMPLE2(MaxNanF32, "max.NaN.f32")
SIMPLE3(FmaF32, "fma.rn.f32")
SIMPLE3(FmaFtz, "fma.rn.ftz.f32")
SIMPLE3(FmaRz, "fma.rz.f32")
SIMPLE2(AddF16x2, "add.rn.f16x2")
SIMPLE2(AddFtzF16x2, "add.rn.ftz.f16x2")
SIMPLE2(AddSatF16x2, "add.rn.sat.f16x2")
SIMPLE2(SubF16x2, "sub.rn.f16x2")
SIMPLE2(MulF16x2, "mul.rn.f16x2")
SIMPLE2(MinF16x2, "min.f16x2")
SIMPLE2(MaxF16x2, "max.f16x2")
SIMPLE2(MaxNanF16x2, "max.NaN.f16x2")
SIMPLE3(FmaF16x2, "fma.rn.f16x2")
SIMPLE3(FmaReluF16x2, "fma.rn.relu.f16x2")
SIMPLE2_90(AddBf16x2, "add.rn.bf16x2")
SIMPLE2_90(SubBf16x2, "sub.rn.bf16x2")
SIMPLE2_90(MulBf16x2, "mul.rn.bf16x2")
SIMPLE2(MinBf16x2, "min.bf16x2")
SIMPLE2(MaxBf16x2, "max.bf16x2")
SIMPLE2(MaxNanBf16x2, "max.NaN.bf16x2")
SIMPLE3(FmaBf16x2, "fma.rn.bf16x2")
SIMPLE3(FmaReluBf16x2, "fma.rn.relu.bf16x2")

__device__ inline __half2 AsHalves(uint32_t x) {
  __half2 h;
  memcpy(&h, &x, 4);
  return h;
}
__device__ inline __nv_bfloat162 AsBf16s(uint32_t x) {
  __nv_bfloat162 h;
  memcpy(&h, &x, 4);
  return h;
}
template <class T>
__device__ inline uint32_t Bits(T v) {
  static_assert(sizeof(T) == 4);
  uint32_t x;
  memcpy(&x, &v, 4);
  return x;
}
CALL2(Hadd2, "__hadd2(half2)", Bits(__hadd2(AsHalves(a), AsHalves(b))))
CALL2(Hmul2, "__hmul2(half2)", Bits(__hmul2(AsHalves(a), AsHalves(b))))
CALL2(H2div, "__h2div(half2)", Bits(__h2div(AsHalves(a), AsHalves(b))))
CALL2(Hadd2Bf16, "__hadd2(bf162)", Bits(__hadd2(AsBf16s(a), AsBf16s(b))))
CALL2(Hsub2Bf16, "__hsub2(bf162)", Bits(__hsub2(AsBf16s(a), AsBf16s(b))))
CALL2(Hmul2Bf16, "__hmul2(bf162)", Bits(__hmul2(AsBf16s(a), AsBf16s(b))))
CALL2(FastDivide, "__fdividef", Bits(__fdividef(__uint_as_float(a), __uint_as_float(b))))
CALL2(FastPower, "__powf", Bits(__powf(__uint_as_float(a), __uint_as_float(b))))

SIMPLE3(Prmt, "prmt.b32")
SIMPLE3(PrmtF4e, "prmt.b32.f4e")
SIMPLE3(PrmtB4e, "prmt.b32.b4e")
SIMPLE3(PrmtRc8, "prmt.b32.rc8")
SIMPLE3(PrmtEcl, "prmt.b32.ecl")
SIMPLE3(PrmtEcr, "prmt.b32.ecr")
SIMPLE3(PrmtRc16, "prmt.b32.rc16")
OP3(Lop3Xor, "lop3.b32/0x96", 80, "lop3.b32 %0, %1, %2, %3, 0x96;")
OP3(Lop3Majority, "lop3.b32/0xe8", 80, "lop3.b32 %0, %1, %2, %3, 0xe8;")
OP3(Lop3AndOr, "lop3.b32/0xea", 80, "lop3.b32 %0, %1, %2, %3, 0xea;")
OP3(Lop3Select, "lop3.b32/0xca", 80, "lop3.b32 %0, %1, %2, %3, 0xca;")
OP3(Lop3Odd, "lop3.b32/0x1b", 80, "lop3.b32 %0, %1, %2, %3, 0x1b;")
SIMPLE3(Dp4aSs, "dp4a.s32.s32")
SIMPLE3(Dp4aUu, "dp4a.u32.u32")
SIMPLE3(Dp4aSu, "dp4a.s32.u32")
SIMPLE3(Dp4aUs, "dp4a.u32.s32")
SIMPLE3(Dp2aLo, "dp2a.lo.s32.s32")
SIMPLE3(Dp2aHi, "dp2a.hi.u32.s32")
SIMPLE3(ShiftLeftWrap, "shf.l.wrap.b32")
SIMPLE3(ShiftRightWrap, "shf.r.wrap.b32")
SIMPLE3(ShiftLeftClamp, "shf.l.clamp.b32")
SIMPLE3(ShiftRightClamp, "shf.r.clamp.b32")
SIMPLE3(FieldU, "bfe.u32")
SIMPLE3(FieldS, "bfe.s32")
SIMPLE2(ShiftLeft, "shl.b32")
SIMPLE2(ShiftRight, "shr.u32")
SIMPLE2(ShiftRightS, "shr.s32")
SIMPLE2(MulHi, "mul.hi.u32")
SIMPLE2(MulHiS, "mul.hi.s32")
SIMPLE2(MulWide, "mul24.lo.u32")
SIMPLE3(SadU, "sad.u32")
SIMPLE2(DivU, "div.u32")
SIMPLE2(RemS, "rem.s32")
SIMPLE2(CopySign, "copysign.f32")
CALL2(Vadd4, "__vadd4", __vadd4(a, b))
CALL2(Vsub4, "__vsub4", __vsub4(a, b))
CALL2(Vaddss4, "__vaddss4", __vaddss4(a, b))
CALL2(Vsubss4, "__vsubss4", __vsubss4(a, b))
CALL2(Vabsdiffu4, "__vabsdiffu4", __vabsdiffu4(a, b))
CALL2(Vmaxs4, "__vmaxs4", __vmaxs4(a, b))
CALL2(Vminu4, "__vminu4", __vminu4(a, b))
CALL2(Vcmpeq4, "__vcmpeq4", __vcmpeq4(a, b))
CALL2(Vcmpgts4, "__vcmpgts4", __vcmpgts4(a, b))
CALL2(Vcmpltu4, "__vcmpltu4", __vcmpltu4(a, b))
CALL2(Vseteq4, "__vseteq4", __vseteq4(a, b))
CALL2(Vhaddu4, "__vhaddu4", __vhaddu4(a, b))
CALL2(Vavgu4, "__vavgu4", __vavgu4(a, b))

template <class Op>
__global__ void Map3(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, int n) {
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += int(gridDim.x * blockDim.x)) {
    out[i] = Op::F(a[i], b[i], c[i]);
  }
}

struct Operands {
  Words a, b, c;
};

template <class Op>
Words MapOperands(const Operands& in) {
  const DeviceWords a(in.a), b(in.b), c(in.c), out(in.a.size());
  Map3<Op><<<64, 256>>>(a.Get(), b.Get(), c.Get(), out.Get(), int(in.a.size()));
  return out.Read();
}

// Every pair of `v`, or every triple of a part of it.
Operands Grid(const Words& v, int operands) {
  Operands o;
  for (size_t i = 0; i < v.size(); ++i) {
    for (size_t j = 0; j < v.size(); ++j) {
      for (size_t k = 0; k < (operands == 3 ? v.size() : 1); ++k) {
        o.a.push_back(v[i]);
        o.b.push_back(v[j]);
        o.c.push_back(operands == 3 ? v[k] : 0);
      }
    }
  }
  return o;
}

// 65536 triples. Floats of `f`, `per_word` per word: a third near 1, a third any bits, a third spread over exponents.
// Without a format any bits; every fourth third operand is below 64, for shifts and bit fields.
Operands Random(uint64_t seed, const Format* f, int per_word) {
  Rng rng(seed);
  Operands o;
  for (int i = 0; i < 65536; ++i) {
    const Profile profile = i % 3 == 0 ? Profile::kNear : i % 3 == 1 ? Profile::kBits : Profile::kWide;
    for (Words* w : {&o.a, &o.b, &o.c}) {
      uint32_t word = 0;
      if (f == nullptr) {
        word = rng.Next();
      } else {
        for (int part = 0; part < per_word; ++part) word |= Draw(rng, *f, profile) << (16 * part);
      }
      w->push_back(word);
    }
    if (f == nullptr && i % 4 == 0) o.c.back() &= 63;
  }
  return o;
}

template <class Op>
void Case(const Words& specials, const Words& few, uint64_t seed, const Format* f, int per_word) {
  if (Capability() < Op::kMin) return;
  const std::string name = Op::kName;
  const Operands grid = Grid(Op::kOperands == 3 ? few : specials, Op::kOperands);
  PrintCase(name + "/grid", Op::kOperands == 3 ? "in=few^3" : "in=special^2", MapOperands<Op>(grid), 0);
  PrintCase(name + "/random", "seed=" + std::to_string(seed), MapOperands<Op>(Random(seed, f, per_word)), 24);
}
template <class... Ops>
void Cases(const Words& specials, const Words& few, uint64_t seed, const Format* f, int per_word) {
  (Case<Ops>(specials, few, seed, f, per_word), ...);
}

// Pairs whose results are shown: NaN payloads, signs of zero, subnormals, overflow.
template <class Op>
void Shown(const Operands& in, const char* about) {
  if (Capability() >= Op::kMin) PrintCase(std::string(Op::kName) + "/shown", about, MapOperands<Op>(in), 64);
}
template <class... Ops>
void ShownOf(const Operands& in, const char* about) {
  (Shown<Ops>(in, about), ...);
}

Words Doubled(const Words& v) {
  Words out;
  for (size_t i = 0; i < v.size(); ++i) out.push_back(v[i] | v[(i + 1) % v.size()] << 16);
  return out;
}

Words Some(const Words& v, size_t step) {
  Words out;
  for (size_t i = 0; i < v.size(); i += step) out.push_back(v[i]);
  return out;
}

// Errors of a quotient, by 2^26 random pairs whose divisor is in [2^low, 2^high).
template <class Op>
__global__ void MeasureQuotient(int low, int high, unsigned long long* worst) {
  unsigned long long mine = 0;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < 1u << 26; i += gridDim.x * blockDim.x) {
    const uint64_t bits = MixPair(i, 7);
    const uint32_t a = (127u << 23) | (uint32_t(bits) & 0x7fffffu);
    const uint32_t b =
        (uint32_t(127 + low + int((bits >> 56) % uint64_t(high - low))) << 23) | (uint32_t(bits >> 24) & 0x7fffffu);
    const double exact = double(__uint_as_float(a)) / double(__uint_as_float(b));
    const double error = fabs(double(__uint_as_float(Op::F(a, b, 0))) - exact) / ldexp(1.0, ilogb(exact) - 23);
    const unsigned long long key = (static_cast<unsigned long long>(__float_as_uint(float(error))) << 32) | i;
    mine = max(mine, key);
  }
  atomicMax(worst, mine);
}
template <class Op>
void QuotientBound(int low, int high) {
  const DeviceWords worst(2);
  Check(cudaMemset(worst.Get(), 0, 8), "cudaMemset");
  MeasureQuotient<Op><<<132 * 8, 256>>>(low, high, reinterpret_cast<unsigned long long*>(worst.Get()));
  const Words key = worst.Read();
  float ulp;
  std::memcpy(&ulp, &key[1], 4);
  std::printf("bound %s/divisor_2^%d..2^%d n=67108864 ulp=%.4g at=%x\n", Op::kName, low, high, double(ulp), key[0]);
}

}  // namespace

void RunPairCases() {
  const Words f32 = Specials(kF32), f16 = Doubled(Specials(kF16)), bf16 = Doubled(Specials(kBf16));
  Cases<AddF32, AddFtz, AddSat, AddRz, SubF32, MulF32, MulFtz, DivRn, DivFull, DivApprox, FastDivide, FastPower, MinF32,
        MaxF32, MaxNanF32, CopySign, FmaF32, FmaFtz, FmaRz>(f32, Some(f32, 3), 600, &kF32, 1);
  Cases<AddF16x2, AddFtzF16x2, AddSatF16x2, SubF16x2, MulF16x2, MinF16x2, MaxF16x2, MaxNanF16x2, FmaF16x2, FmaReluF16x2,
        Hadd2, Hmul2, H2div>(f16, Some(f16, 3), 601, &kF16, 2);
  Cases<AddBf16x2, SubBf16x2, MulBf16x2, MinBf16x2, MaxBf16x2, MaxNanBf16x2, FmaBf16x2, FmaReluBf16x2, Hadd2Bf16,
        Hsub2Bf16, Hmul2Bf16>(bf16, Some(bf16, 3), 602, &kBf16, 2);
  const Words bits{0, 1, 31, 32, 33, 63, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000, 0x80808080, 0xffffffff, 0x12345678};
  Cases<Prmt, PrmtF4e, PrmtB4e, PrmtRc8, PrmtEcl, PrmtEcr, PrmtRc16, Lop3Xor, Lop3Majority, Lop3AndOr, Lop3Select,
        Lop3Odd, Dp4aSs, Dp4aUu, Dp4aSu, Dp4aUs, Dp2aLo, Dp2aHi, ShiftLeftWrap, ShiftRightWrap, ShiftLeftClamp,
        ShiftRightClamp, FieldU, FieldS, ShiftLeft, ShiftRight, ShiftRightS, MulHi, MulHiS, MulWide, SadU, Vadd4, Vsub4,
        Vaddss4, Vsubss4, Vabsdiffu4, Vmaxs4, Vminu4, Vcmpeq4, Vcmpgts4, Vcmpltu4, Vseteq4, Vhaddu4, Vavgu4>(
      bits, bits, 603, nullptr, 1);
  Words divisors;
  for (uint32_t b : bits) {
    if (b != 0 && b != 0xffffffff) divisors.push_back(b);
  }
  Cases<DivU, RemS>(divisors, divisors, 603, nullptr, 1);

  const Operands f32_shown{{0x7fa12345, 0x7fc12345, 0xffc00001, 0x3f800000, 0x80000000, 0x00000000, 0x00000001,
                            0x00800000, 0x7f7fffff, 0x7f800000, 0x7fc00001, 0x80000000, 0x00000003, 0x3f800001},
                           {0x3f800000, 0x3f800000, 0x3f800000, 0x7fa12345, 0x00000000, 0x80000000, 0x00000001,
                            0x80000001, 0x7f7fffff, 0xff800000, 0x7fc00002, 0x80000000, 0x3f000000, 0x33800000},
                           Words(14, 0x80000000)};
  ShownOf<AddF32, AddFtz, SubF32, MulF32, MulFtz, DivRn, MinF32, MaxF32, MaxNanF32, FmaF32, FmaFtz>(
      f32_shown, "in=a,b,-0_of_pairs.cu");
  const Operands f16_shown{{0x7d237e23, 0x3c00fe01, 0x80000000, 0x00018000, 0x7bff7c00, 0x03ff0003, 0x3c010400},
                           {0x3c003c00, 0x7e013c00, 0x00008000, 0x00018001, 0x7bfffc00, 0x00013800, 0x10000400},
                           Words(7, 0x80008000)};
  ShownOf<AddF16x2, AddFtzF16x2, MulF16x2, MinF16x2, MaxF16x2, MaxNanF16x2, FmaF16x2, FmaReluF16x2>(
      f16_shown, "in=a,b,-0_of_pairs.cu");
  const Operands bf16_shown{{0x7fa17fc1, 0x3f80ffc1, 0x80000000, 0x00018000, 0x7f7f7f80, 0x007f0003, 0x3f810080},
                            {0x3f803f80, 0x7fc13f80, 0x00008000, 0x00018001, 0x7f7fff80, 0x00013f00, 0x3b800080},
                            Words(7, 0x80008000)};
  ShownOf<AddBf16x2, MulBf16x2, MinBf16x2, MaxBf16x2, MaxNanBf16x2, FmaBf16x2, FmaReluBf16x2, Hadd2Bf16, Hmul2Bf16>(
      bf16_shown, "in=a,b,-0_of_pairs.cu");

  for (const auto& range : {std::pair<int, int>{-20, 20}, {-120, -100}, {100, 125}, {126, 127}}) {
    QuotientBound<FastDivide>(range.first, range.second);
    QuotientBound<DivFull>(range.first, range.second);
    QuotientBound<DivApprox>(range.first, range.second);
  }
}

}  // namespace conformance
