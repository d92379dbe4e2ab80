// Conversions and approximations of one value: bits of special values and of all inputs, and error bounds.
#include "cases.h"

namespace conformance {
namespace {

#if defined(__CUDA_ARCH__)
constexpr int kArch = __CUDA_ARCH__ / 10;
#else
constexpr int kArch = 0;
#endif

// Instructions from 32 bits to 32, to 16 (result in the low half), from 16 to 32, and from 16 to 16. `min` is the least
// compute capability.
#define OP_32_32(name, title, min, text)                         \
  struct name {                                                  \
    static constexpr const char* kName = title;                  \
    static constexpr int kMin = min, kBits = 32;                 \
    static __device__ uint32_t F(uint32_t x) {                   \
      uint32_t d = 0;                                            \
      if constexpr (kArch >= kMin) asm(text : "=r"(d) : "r"(x)); \
      return d;                                                  \
    }                                                            \
  };
#define OP_32_16(name, title, min, text)                         \
  struct name {                                                  \
    static constexpr const char* kName = title;                  \
    static constexpr int kMin = min, kBits = 32;                 \
    static __device__ uint32_t F(uint32_t x) {                   \
      uint16_t d = 0;                                            \
      if constexpr (kArch >= kMin) asm(text : "=h"(d) : "r"(x)); \
      return d;                                                  \
    }                                                            \
  };
#define OP_16_32(name, title, min, text)                                   \
  struct name {                                                            \
    static constexpr const char* kName = title;                            \
    static constexpr int kMin = min, kBits = 16;                           \
    static __device__ uint32_t F(uint32_t x) {                             \
      uint32_t d = 0;                                                      \
      if constexpr (kArch >= kMin) asm(text : "=r"(d) : "h"(uint16_t(x))); \
      return d;                                                            \
    }                                                                      \
  };
#define OP_16_16(name, title, min, text)                                   \
  struct name {                                                            \
    static constexpr const char* kName = title;                            \
    static constexpr int kMin = min, kBits = 16;                           \
    static __device__ uint32_t F(uint32_t x) {                             \
      uint16_t d = 0;                                                      \
      if constexpr (kArch >= kMin) asm(text : "=h"(d) : "h"(uint16_t(x))); \
      return d;                                                            \
    }                                                                      \
  };

OP_32_16(ToBf16, "cvt.rn.bf16.f32", 80, "cvt.rn.bf16.f32 %0, %1;")
OP_32_16(ToBf16Rz, "cvt.rz.bf16.f32", 80, "cvt.rz.bf16.f32 %0, %1;")
OP_32_16(ToBf16Relu, "cvt.rn.relu.bf16.f32", 80, "cvt.rn.relu.bf16.f32 %0, %1;")
OP_32_16(ToF16, "cvt.rn.f16.f32", 80, "cvt.rn.f16.f32 %0, %1;")
OP_32_16(ToF16Rz, "cvt.rz.f16.f32", 80, "cvt.rz.f16.f32 %0, %1;")
OP_32_32(ToTf32, "cvt.rna.tf32.f32", 80, "cvt.rna.tf32.f32 %0, %1;")
OP_32_32(ToTf32Rn, "cvt.rn.tf32.f32", 90, "cvt.rn.tf32.f32 %0, %1;")
OP_32_32(ToBf16x2, "cvt.rn.bf16x2.f32(x,-1.5)", 80, "cvt.rn.bf16x2.f32 %0, %1, 0fBFC00000;")
OP_32_32(ToF16x2, "cvt.rn.f16x2.f32(-1.5,x)", 80, "cvt.rn.f16x2.f32 %0, 0fBFC00000, %1;")
OP_32_16(ToE4m3, "cvt.rn.satfinite.e4m3x2.f32(1.0,x)", 89, "cvt.rn.satfinite.e4m3x2.f32 %0, 0f3F800000, %1;")
OP_32_16(ToE5m2, "cvt.rn.satfinite.e5m2x2.f32(1.0,x)", 89, "cvt.rn.satfinite.e5m2x2.f32 %0, 0f3F800000, %1;")
OP_32_16(ToE4m3Relu, "cvt.rn.satfinite.relu.e4m3x2.f32(1.0,x)", 89,
         "cvt.rn.satfinite.relu.e4m3x2.f32 %0, 0f3F800000, %1;")
OP_32_32(ToS32Rn, "cvt.rni.s32.f32", 80, "cvt.rni.s32.f32 %0, %1;")
OP_32_32(ToS32Rz, "cvt.rzi.s32.f32", 80, "cvt.rzi.s32.f32 %0, %1;")
OP_32_32(ToU32Rn, "cvt.rni.u32.f32", 80, "cvt.rni.u32.f32 %0, %1;")
OP_32_32(ToS8Sat, "cvt.rni.sat.s8.f32", 80, "cvt.rni.sat.s8.f32 %0, %1;")
OP_32_32(FromS32, "cvt.rn.f32.s32", 80, "cvt.rn.f32.s32 %0, %1;")
OP_32_32(FromU32, "cvt.rn.f32.u32", 80, "cvt.rn.f32.u32 %0, %1;")
OP_32_32(RoundInt, "cvt.rni.f32.f32", 80, "cvt.rni.f32.f32 %0, %1;")
OP_16_32(FromF16, "cvt.f32.f16", 80, "cvt.f32.f16 %0, %1;")
OP_16_32(FromBf16, "cvt.f32.bf16", 90, "cvt.f32.bf16 %0, %1;")
OP_16_32(FromE4m3, "cvt.rn.f16x2.e4m3x2", 89, "cvt.rn.f16x2.e4m3x2 %0, %1;")
OP_16_32(FromE5m2, "cvt.rn.f16x2.e5m2x2", 89, "cvt.rn.f16x2.e5m2x2 %0, %1;")
OP_32_16(HalvesToE4m3, "cvt.rn.satfinite.e4m3x2.f16x2", 89, "cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;")
OP_32_16(HalvesToE5m2, "cvt.rn.satfinite.e5m2x2.f16x2", 89, "cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;")
OP_32_32(Popc, "popc.b32", 80, "popc.b32 %0, %1;")
OP_32_32(Clz, "clz.b32", 80, "clz.b32 %0, %1;")
OP_32_32(Find, "bfind.u32", 80, "bfind.u32 %0, %1;")
OP_32_32(Reverse, "brev.b32", 80, "brev.b32 %0, %1;")
OP_32_32(NegF16x2, "neg.f16x2", 80, "neg.f16x2 %0, %1;")
OP_32_32(AbsF32, "abs.f32", 80, "abs.f32 %0, %1;")
OP_32_32(NegF32, "neg.f32", 80, "neg.f32 %0, %1;")
OP_32_32(NegFtzF32, "neg.ftz.f32", 80, "neg.ftz.f32 %0, %1;")

// Those with an exact value for comparison: kFormat is the result's, kLimit the greatest |x| whose error counts.
#define APPROX(name, base, format, limit, expression)                          \
  struct name : base {                                                         \
    static constexpr int kMantissa = format.mantissa_bits;                     \
    static constexpr int kLeast = 1 - ((1 << (format.exponent_bits - 1)) - 1); \
    static constexpr double kLimit = limit;                                    \
    static __device__ double Exact(double x) {                                 \
      return expression;                                                       \
    }                                                                          \
  };
OP_32_32(Ex2Op, "ex2.approx.f32", 80, "ex2.approx.f32 %0, %1;")
OP_32_32(Ex2FtzOp, "ex2.approx.ftz.f32", 80, "ex2.approx.ftz.f32 %0, %1;")
OP_32_32(Lg2Op, "lg2.approx.f32", 80, "lg2.approx.f32 %0, %1;")
OP_32_32(Lg2FtzOp, "lg2.approx.ftz.f32", 80, "lg2.approx.ftz.f32 %0, %1;")
OP_32_32(RcpOp, "rcp.approx.f32", 80, "rcp.approx.f32 %0, %1;")
OP_32_32(RcpFtzOp, "rcp.approx.ftz.f32", 80, "rcp.approx.ftz.f32 %0, %1;")
OP_32_32(RcpRnOp, "rcp.rn.f32", 80, "rcp.rn.f32 %0, %1;")
OP_32_32(RsqrtOp, "rsqrt.approx.f32", 80, "rsqrt.approx.f32 %0, %1;")
OP_32_32(RsqrtFtzOp, "rsqrt.approx.ftz.f32", 80, "rsqrt.approx.ftz.f32 %0, %1;")
OP_32_32(SqrtOp, "sqrt.approx.f32", 80, "sqrt.approx.f32 %0, %1;")
OP_32_32(SqrtFtzOp, "sqrt.approx.ftz.f32", 80, "sqrt.approx.ftz.f32 %0, %1;")
OP_32_32(SqrtRnOp, "sqrt.rn.f32", 80, "sqrt.rn.f32 %0, %1;")
OP_32_32(TanhOp, "tanh.approx.f32", 80, "tanh.approx.f32 %0, %1;")
OP_32_32(SinOp, "sin.approx.f32", 80, "sin.approx.f32 %0, %1;")
OP_32_32(CosOp, "cos.approx.f32", 80, "cos.approx.f32 %0, %1;")
OP_32_32(SinFtzOp, "sin.approx.ftz.f32", 80, "sin.approx.ftz.f32 %0, %1;")
OP_16_16(Ex2F16Op, "ex2.approx.f16", 80, "ex2.approx.f16 %0, %1;")
OP_16_16(Ex2Bf16Op, "ex2.approx.ftz.bf16", 90, "ex2.approx.ftz.bf16 %0, %1;")
OP_16_16(TanhF16Op, "tanh.approx.f16", 80, "tanh.approx.f16 %0, %1;")
OP_16_16(TanhBf16Op, "tanh.approx.bf16", 90, "tanh.approx.bf16 %0, %1;")
OP_32_32(Ex2F16x2, "ex2.approx.f16x2", 80, "ex2.approx.f16x2 %0, %1;")
OP_32_32(Ex2Bf16x2, "ex2.approx.ftz.bf16x2", 90, "ex2.approx.ftz.bf16x2 %0, %1;")
OP_32_32(TanhF16x2, "tanh.approx.f16x2", 80, "tanh.approx.f16x2 %0, %1;")
OP_32_32(TanhBf16x2, "tanh.approx.bf16x2", 90, "tanh.approx.bf16x2 %0, %1;")
constexpr double kAny = 1e300, kPi = 3.14159265358979323846;
APPROX(Ex2, Ex2Op, kF32, kAny, exp2(x))
APPROX(Ex2Ftz, Ex2FtzOp, kF32, kAny, exp2(x))
APPROX(Lg2, Lg2Op, kF32, kAny, log2(x))
APPROX(Lg2Ftz, Lg2FtzOp, kF32, kAny, log2(x))
APPROX(Rcp, RcpOp, kF32, kAny, 1.0 / x)
APPROX(RcpFtz, RcpFtzOp, kF32, kAny, 1.0 / x)
APPROX(RcpRn, RcpRnOp, kF32, kAny, 1.0 / x)
APPROX(Rsqrt, RsqrtOp, kF32, kAny, 1.0 / sqrt(x))
APPROX(RsqrtFtz, RsqrtFtzOp, kF32, kAny, 1.0 / sqrt(x))
APPROX(Sqrt, SqrtOp, kF32, kAny, sqrt(x))
APPROX(SqrtFtz, SqrtFtzOp, kF32, kAny, sqrt(x))
APPROX(SqrtRn, SqrtRnOp, kF32, kAny, sqrt(x))
APPROX(Tanh, TanhOp, kF32, kAny, tanh(x))
APPROX(Sin, SinOp, kF32, kPi, sin(x))
APPROX(Cos, CosOp, kF32, kPi, cos(x))
APPROX(SinFtz, SinFtzOp, kF32, kPi, sin(x))
APPROX(Ex2F16, Ex2F16Op, kF16, kAny, exp2(x))
APPROX(Ex2Bf16, Ex2Bf16Op, kBf16, kAny, exp2(x))
APPROX(TanhF16, TanhF16Op, kF16, kAny, tanh(x))
APPROX(TanhBf16, TanhBf16Op, kBf16, kAny, tanh(x))

// The compiler's functions, without fast-math.
#define FUNCTION(name, call, limit, expression)            \
  struct name##Op {                                        \
    static constexpr const char* kName = #call;            \
    static constexpr int kMin = 80, kBits = 32;            \
    static __device__ uint32_t F(uint32_t bits) {          \
      return __float_as_uint(call(__uint_as_float(bits))); \
    }                                                      \
  };                                                       \
  APPROX(name, name##Op, kF32, limit, expression)
FUNCTION(FastExp, __expf, kAny, exp(x))
FUNCTION(FastLog, __logf, kAny, log(x))
FUNCTION(FastSin, __sinf, kPi, sin(x))
FUNCTION(FastCos, __cosf, kPi, cos(x))
FUNCTION(FastRcp, __frcp_rn, kAny, 1.0 / x)
FUNCTION(FastRsqrt, __frsqrt_rn, kAny, 1.0 / sqrt(x))
FUNCTION(Exp, expf, kAny, exp(x))
FUNCTION(Exp2, exp2f, kAny, exp2(x))
FUNCTION(Log, logf, kAny, log(x))
FUNCTION(Rsqrtf, rsqrtf, kAny, 1.0 / sqrt(x))
FUNCTION(Tanhf, tanhf, kAny, tanh(x))
FUNCTION(Sinf, sinf, kAny, sin(x))
FUNCTION(Cosf, cosf, kAny, cos(x))
FUNCTION(Erff, erff, kAny, erf(x))

template <class Op>
__global__ void Map(const uint32_t* in, uint32_t* out, int n) {
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += int(gridDim.x * blockDim.x))
    out[i] = Op::F(in[i]);
}

template <class Op>
Words MapAll(const Words& in) {
  const DeviceWords from(in), to(in.size());
  Map<Op><<<64, 256>>>(from.Get(), to.Get(), int(in.size()));
  return to.Read();
}

template <class Op>
__global__ void HashAll(unsigned long long* hash) {
  const uint64_t end = uint64_t(1) << Op::kBits, step = uint64_t(gridDim.x) * blockDim.x;
  uint64_t sum = 0;
  for (uint64_t x = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; x < end; x += step) {
    sum += MixPair(uint32_t(x), Op::F(uint32_t(x)));
  }
  atomicAdd(hash, static_cast<unsigned long long>(sum));
}

// Errors of one kind of input, each maximum with its input in the low half.
struct Errors {
  unsigned long long n, exact, bad, ulp, absolute, relative;
};
enum Kind { kNormal, kTinyInput, kTinyResult, kKinds };

template <class Op>
__device__ double Decode(uint32_t bits) {
  if constexpr (Op::kBits == 32) return __uint_as_float(bits);
  if constexpr (Op::kMantissa == 7) return __uint_as_float(bits << 16);
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(uint16_t(bits)));
  return f;
}

template <class Op>
__global__ void MeasureErrors(Errors* errors) {
  const uint64_t end = uint64_t(1) << Op::kBits, step = uint64_t(gridDim.x) * blockDim.x;
  Errors mine[kKinds] = {};
  for (uint64_t bits = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; bits < end; bits += step) {
    const double x = Decode<Op>(uint32_t(bits));
    if (!(fabs(x) <= Op::kLimit) || isinf(x)) continue;
    const double exact = Op::Exact(x), size = fabs(exact);
    if (!(size < ldexp(1.0, 2 - Op::kLeast)) || size == 0) continue;  // NaN, overflow and zero are special values
    const double least = ldexp(1.0, Op::kLeast);
    const int kind = size < least ? kTinyResult : x != 0 && fabs(x) < least ? kTinyInput : kNormal;
    const double y = Decode<Op>(Op::F(uint32_t(bits)));
    const double ulp = ldexp(1.0, max(ilogb(size), Op::kLeast) - Op::kMantissa), error = fabs(y - exact);
    // Constant indices keep the copies of each kind in registers.
    for (int k = 0; k < kKinds; ++k) {
      if (k != kind) continue;
      Errors& e = mine[k];
      ++e.n;
      if (!(error < 1e300)) {
        ++e.bad;
        continue;
      }
      e.exact += error <= 0.5 * ulp;
      const auto keep = [&](unsigned long long& greatest, double v) {
        const unsigned long long key =
            (static_cast<unsigned long long>(__float_as_uint(float(v))) << 32) | uint32_t(bits);
        greatest = max(greatest, key);
      };
      keep(e.ulp, error / ulp);
      keep(e.absolute, error);
      keep(e.relative, error / size);
    }
  }
  for (int k = 0; k < kKinds; ++k) {
    if (mine[k].n == 0) continue;
    atomicAdd(&errors[k].n, mine[k].n);
    atomicAdd(&errors[k].exact, mine[k].exact);
    atomicAdd(&errors[k].bad, mine[k].bad);
    atomicMax(&errors[k].ulp, mine[k].ulp);
    atomicMax(&errors[k].absolute, mine[k].absolute);
    atomicMax(&errors[k].relative, mine[k].relative);
  }
}

constexpr int kBlocks = 132 * 8, kThreads = 256;
constexpr uint32_t kStride = 65537;

template <class Op>
void Unary(const Words& specials, bool quick) {
  if (Capability() < Op::kMin) return;
  const std::string name = Op::kName;
  PrintCase(name + "/special", "in=special", MapAll<Op>(specials), 1000);
  if (Op::kBits == 32) {
    Words strided(65536);
    for (size_t i = 0; i < strided.size(); ++i) strided[i] = uint32_t(i) * kStride;
    PrintCase(name + "/strided", "in=65537*i", MapAll<Op>(strided), 8);
  }
  if (quick && Op::kBits == 32) return;
  const DeviceWords hash(2);
  Check(cudaMemset(hash.Get(), 0, 8), "cudaMemset");
  HashAll<Op><<<kBlocks, kThreads>>>(reinterpret_cast<unsigned long long*>(hash.Get()));
  const Words sum = hash.Read();
  std::printf("all %s bits=%d sum=%08x%08x\n", name.c_str(), Op::kBits, sum[1], sum[0]);
}

template <class Op>
void Approximate(const Words& specials, bool quick) {
  if (Capability() < Op::kMin) return;
  Unary<Op>(specials, quick);
  if (quick && Op::kBits == 32) return;
  const DeviceWords memory(kKinds * sizeof(Errors) / 4);
  Check(cudaMemset(memory.Get(), 0, kKinds * sizeof(Errors)), "cudaMemset");
  MeasureErrors<Op><<<kBlocks, kThreads>>>(reinterpret_cast<Errors*>(memory.Get()));
  const Words raw = memory.Read();
  Errors errors[kKinds];
  std::memcpy(errors, raw.data(), sizeof errors);
  const char* const kinds[] = {"normal", "tiny_input", "tiny_result"};
  for (int k = 0; k < kKinds; ++k) {
    const Errors& e = errors[k];
    if (e.n == 0) continue;
    const auto value = [](unsigned long long key) {
      const uint32_t bits = uint32_t(key >> 32);
      float f;
      std::memcpy(&f, &bits, 4);
      return double(f);
    };
    std::printf("bound %s/%s n=%llu nearest=%.4f%% ulp=%.4g at=%x absolute=%.4g at=%x relative=%.4g at=%x bad=%llu\n",
                Op::kName, kinds[k], e.n, 100.0 * double(e.exact) / double(e.n), value(e.ulp), uint32_t(e.ulp),
                value(e.absolute), uint32_t(e.absolute), value(e.relative), uint32_t(e.relative), e.bad);
  }
}

// Powers of two, small integers and squares, at which an approximation might be exact.
Words RoundArguments() {
  Words v;
  for (int e = -24; e <= 24; ++e) v.push_back(uint32_t(127 + e) << 23);
  for (int i = -130; i <= 130; ++i) {
    const float f = float(i);
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    v.push_back(bits);
  }
  return v;
}

template <class Op>
void Round() {
  if (Capability() >= Op::kMin)
    PrintCase(std::string(Op::kName) + "/round", "in=2^-24..2^24,-130..130", MapAll<Op>(RoundArguments()), 1000);
}

template <class... Ops>
void UnaryOf(const Words& specials, bool quick) {
  (Unary<Ops>(specials, quick), ...);
}
template <class... Ops>
void ApproximateOf(const Words& specials, bool quick) {
  (Approximate<Ops>(specials, quick), ...);
}

// Two 16-bit values per word: each with the bits of 1.0 in f16, or with itself.
Words Pairs(Format f) {
  Words v = Specials(f), out;
  for (uint32_t x : v) {
    out.push_back(x);
    out.push_back(x << 16 | x);
    out.push_back(x << 16);
  }
  return out;
}

}  // namespace

void RunMathCases(bool quick) {
  UnaryOf<ToBf16, ToBf16Rz, ToBf16Relu, ToBf16x2>(NarrowingSpecials(kBf16), quick);
  UnaryOf<ToF16, ToF16Rz, ToF16x2>(NarrowingSpecials(kF16), quick);
  UnaryOf<ToTf32, ToTf32Rn>(NarrowingSpecials(kTf32), quick);
  UnaryOf<ToE4m3, ToE4m3Relu>(NarrowingSpecials(kE4m3), quick);
  UnaryOf<ToE5m2>(NarrowingSpecials(kE5m2), quick);
  UnaryOf<ToS32Rn, ToS32Rz, ToU32Rn, ToS8Sat, RoundInt>(NarrowingSpecials(kF16), quick);
  UnaryOf<FromS32, FromU32, Popc, Clz, Find, Reverse, AbsF32, NegF32, NegFtzF32>(Specials(kF32), quick);
  UnaryOf<FromF16>(Specials(kF16), quick);
  UnaryOf<FromBf16>(Specials(kBf16), quick);
  UnaryOf<FromE4m3>(Specials(kE4m3), quick);
  UnaryOf<FromE5m2>(Specials(kE5m2), quick);
  UnaryOf<HalvesToE4m3, HalvesToE5m2, NegF16x2, Ex2F16x2, TanhF16x2>(Pairs(kF16), quick);
  UnaryOf<Ex2Bf16x2, TanhBf16x2>(Pairs(kBf16), quick);
  const Words specials = Specials(kF32);
  ApproximateOf<Ex2, Ex2Ftz, Lg2, Lg2Ftz, Rcp, RcpFtz, RcpRn, Rsqrt, RsqrtFtz, Sqrt, SqrtFtz, SqrtRn, Tanh, Sin, SinFtz,
                Cos>(specials, quick);
  ApproximateOf<FastExp, FastLog, FastSin, FastCos, FastRcp, FastRsqrt>(specials, quick);
  ApproximateOf<Exp, Exp2, Log, Rsqrtf, Tanhf, Sinf, Cosf, Erff>(specials, quick);
  ApproximateOf<Ex2F16, TanhF16>(Specials(kF16), quick);
  ApproximateOf<Ex2Bf16, TanhBf16>(Specials(kBf16), quick);
  Round<Ex2>();
  Round<Lg2>();
  Round<Rcp>();
  Round<Rsqrt>();
  Round<Sqrt>();
  Round<Tanh>();
  Round<FastExp>();
}

}  // namespace conformance
