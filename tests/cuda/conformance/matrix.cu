// ldmatrix, stmatrix, movmatrix, mma.sync and wgmma: layout of fragments, order and rounding of sums.
#include <algorithm>

#include "cases.h"

namespace conformance {
namespace {

// One product per block. The registers of all lanes are loaded from and stored to memory, so no layout is assumed here.
template <class Op>
__global__ void RunProducts(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d) {
  const uint32_t lane = threadIdx.x % 32, at = blockIdx.x * 32 + lane;
  uint32_t ra[Op::kA], rb[Op::kB], rc[Op::kC];
  for (int i = 0; i < Op::kA; ++i) ra[i] = a[at * Op::kA + i];
  for (int i = 0; i < Op::kB; ++i) rb[i] = b[at * Op::kB + i];
  for (int i = 0; i < Op::kC; ++i) rc[i] = c[at * Op::kC + i];
  Op::Run(ra, rb, rc);
  if (threadIdx.x < 32) {
    for (int i = 0; i < Op::kC; ++i) d[at * Op::kC + i] = rc[i];
  }
}

#define MMA_2_1_4(text)                                                    \
  asm volatile(text " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])            \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]))
#define MMA_4_2_4(text)                                                                \
  asm volatile(text " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define MMA_2_1_2(text) \
  asm volatile(text " {%0, %1}, {%2, %3}, {%4}, {%0, %1};" : "+r"(c[0]), "+r"(c[1]) : "r"(a[0]), "r"(a[1]), "r"(b[0]))
#define MMA_4_2_2(text)                                                \
  asm volatile(text " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};" \
               : "+r"(c[0]), "+r"(c[1])                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

#define DEFINE_MMA(name, a_, b_, c_, text)                                          \
  struct name {                                                                     \
    static constexpr int kA = a_, kB = b_, kC = c_, kThreads = 32;                  \
    static __device__ void Run(const uint32_t* a, const uint32_t* b, uint32_t* c) { \
      MMA_##a_##_##b_##_##c_(text);                                                 \
    }                                                                               \
  };
DEFINE_MMA(Bf16K8, 2, 1, 4, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")
DEFINE_MMA(Bf16K16, 4, 2, 4, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
DEFINE_MMA(F16K8, 2, 1, 4, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
DEFINE_MMA(F16K16, 4, 2, 4, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
DEFINE_MMA(F16K8Half, 2, 1, 2, "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16")
DEFINE_MMA(F16K16Half, 4, 2, 2, "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
DEFINE_MMA(Tf32K4, 2, 1, 4, "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32")
DEFINE_MMA(Tf32K8, 4, 2, 4, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
DEFINE_MMA(S8S8K16, 2, 1, 4, "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32")
DEFINE_MMA(S8S8K32, 4, 2, 4, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
DEFINE_MMA(U8U8K32, 4, 2, 4, "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32")
DEFINE_MMA(S8U8K32, 4, 2, 4, "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32")
DEFINE_MMA(U8S8K32, 4, 2, 4, "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32")
DEFINE_MMA(S8S8K32Sat, 4, 2, 4, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32")

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
#define MMA_FP8(text)
#else
#define MMA_FP8(text) MMA_4_2_4(text)
#endif
#define DEFINE_FP8(name, text)                                                      \
  struct name {                                                                     \
    static constexpr int kA = 4, kB = 2, kC = 4, kThreads = 32;                     \
    static __device__ void Run(const uint32_t* a, const uint32_t* b, uint32_t* c) { \
      MMA_FP8(text);                                                                \
    }                                                                               \
  };
DEFINE_FP8(E4m3E4m3K32, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
DEFINE_FP8(E5m2E5m2K32, "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32")
DEFINE_FP8(E4m3E5m2K32, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32")
DEFINE_FP8(E5m2E4m3K32, "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32")

// wgmma m64n8: the four warps hold the same A and C; B is in shared memory as two core matrices of 8 rows of 16 bytes.
// Only the first warp's sums are kept.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA(text, rest)                                                                                          \
  __shared__ alignas(128) uint32_t tile[64];                                                                       \
  if (threadIdx.x < 32) {                                                                                          \
    for (uint32_t r = 0; r < 2; ++r) tile[r * 32 + threadIdx.x / 4 * 4 + threadIdx.x % 4] = b[r];                  \
  }                                                                                                                \
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                                     \
  __syncthreads();                                                                                                 \
  const uint64_t address = uint64_t(__cvta_generic_to_shared(tile)) >> 4;                                          \
  const uint64_t descriptor = (address & 0x3fffu) | (uint64_t(128 >> 4) << 16) | (uint64_t(128 >> 4) << 32);       \
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                          \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;" text " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p" rest "; }" \
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor));                                     \
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                                                   \
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])::"memory")
#else
#define WGMMA(text, rest)
#endif
#define DEFINE_WGMMA(name, text, rest)                                              \
  struct name {                                                                     \
    static constexpr int kA = 4, kB = 2, kC = 4, kThreads = 128;                    \
    static __device__ void Run(const uint32_t* a, const uint32_t* b, uint32_t* c) { \
      WGMMA(text, rest);                                                            \
    }                                                                               \
  };
DEFINE_WGMMA(WgBf16, "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", ", 1, 1, 0")
DEFINE_WGMMA(WgF16, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", ", 1, 1, 0")
DEFINE_WGMMA(WgTf32, "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32", ", 1, 1")
DEFINE_WGMMA(WgE4m3, "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", ", 1, 1")
DEFINE_WGMMA(WgE5m2, "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e5m2", ", 1, 1")
DEFINE_WGMMA(WgS8, "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8", "")

template <class Op>
Words Run(std::vector<Product>& products) {
  Words a, b, c;
  for (Product& p : products) {
    for (uint32_t w : p.ARegisters()) a.push_back(w);
    for (uint32_t w : p.BRegisters()) b.push_back(w);
    for (uint32_t w : p.CRegisters()) c.push_back(w);
  }
  const DeviceWords da(a), db(b), dc(c), dd(c.size());
  RunProducts<Op><<<unsigned(products.size()), Op::kThreads>>>(da.Get(), db.Get(), dc.Get(), dd.Get());
  return dd.Read();
}

// Returns whether each sum is where the layout places it: products of small integers are exact in any order.
bool LayoutHolds(Product& p, const uint32_t* registers) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int number = 0; number < 4; ++number) {
      const Place at = CPlace(lane, number);
      double expected = Value(p.C(at.row, at.column), p.sum);
      for (int k = 0; k < p.tile.k; ++k) expected += Value(p.A(at.row, k), p.in_a) * Value(p.B(k, at.column), p.in_b);
      const uint32_t bits = p.sum.Bits() == 16 ? (registers[lane * 2 + number / 2] >> (number % 2 * 16)) & 0xffffu
                                               : registers[lane * 4 + number];
      if (Value(bits, p.sum) != expected) return false;
    }
  }
  return true;
}

constexpr int kProducts = 64;

// 64 random products per profile: all registers are hashed, and the first product's are printed lane by lane.
template <class Op>
void RandomCases(const std::string& name, Tile tile, Format fa, Format fb, Format fs, uint64_t seed) {
  const bool integer = fs.mantissa_bits == 0;
  for (int p = 0; p < (integer ? 1 : 5); ++p) {
    const Profile profile = integer ? Profile::kBits : Profile(p);
    Rng rng(seed + uint64_t(p));
    std::vector<Product> products;
    for (int i = 0; i < kProducts; ++i) products.push_back(RandomProduct(rng, tile, fa, fb, fs, profile));
    const Words out = Run<Op>(products);
    std::string about = "seed=" + std::to_string(seed + uint64_t(p));
    if (profile == Profile::kIntegers)
      about += LayoutHolds(products[0], out.data()) ? " layout=holds" : " layout=WRONG";
    PrintCase(name + "/" + Name(profile), about, out);
  }
}

// Products of bytes added to sums near both ends of int32, so that some exceed them.
template <class Op>
void EndsCase(const std::string& name, Tile tile, uint64_t seed) {
  Rng rng(seed);
  std::vector<Product> products;
  for (int i = 0; i < kProducts; ++i) {
    Product p = RandomProduct(rng, tile, kInt8, kInt8, kInt32, Profile::kBits);
    for (uint32_t& c : p.c) c = (c & 1) != 0 ? 0x80000000u + (c >> 16) : 0x7fffffffu - (c >> 16);
    products.push_back(p);
  }
  PrintCase(name + "/ends", "seed=" + std::to_string(seed), Run<Op>(products));
}

// Makes the dot products of one instruction. A term is a power of two, made of two factors.
class Dots {
 public:
  Dots(int k, Format fa, Format fb, Format fs) : k_(k), fa_(fa), fb_(fb), fs_(fs) {}

  struct Term {
    int at;
    uint32_t a, b;
  };
  static int Least(Format f) { return 1 - f.Bias() - f.mantissa_bits; }
  static int Greatest(Format f) { return f.Bias() + (f.has_infinity ? 0 : 1); }
  // 2^e in `f`, subnormal or not, or 0 beyond its range.
  static uint32_t Power(Format f, int e) {
    if (e > Greatest(f) || e < Least(f)) return 0;
    if (e >= 1 - f.Bias()) return uint32_t(e + f.Bias()) << f.mantissa_bits;
    return 1u << (e - Least(f));
  }
  Term P(int at, int e, bool negative = false) const {
    const int half = e >= 0 ? e / 2 : -((1 - e) / 2);
    return {at, Power(fa_, half) | (negative ? fa_.SignBit() : 0), Power(fb_, e - half)};
  }
  uint32_t C(int e, bool negative = false) const { return Power(fs_, e) | (negative ? fs_.SignBit() : 0); }
  void Add(const std::string& name, const std::vector<Term>& terms, uint32_t c) {
    Dot dot{name, Words(size_t(k_)), Words(size_t(k_)), c};
    for (const Term& t : terms) {
      dot.a[size_t(t.at)] = t.a;
      dot.b[size_t(t.at)] = t.b;
    }
    dots_.push_back(dot);
  }
  void AddAll();
  const std::vector<Dot>& Get() const { return dots_; }

 private:
  void AddOrder();
  void AddRounding();
  void AddSpecial();
  void AddSmall();
  std::vector<Term> Fill(int from, int e, bool negative = false) const {
    std::vector<Term> terms;
    for (int i = from; i < k_; ++i) terms.push_back(P(i, e, negative));
    return terms;
  }

  int k_;
  Format fa_, fb_, fs_;
  std::vector<Dot> dots_;
};

// A large term, its negative and a term 2^30 (f16 sums: 2^20) smaller: the small one is lost if it is added before the
// large ones cancel, at any place.
void Dots::AddOrder() {
  const bool half_sum = fs_.Bits() == 16;
  const int high = half_sum ? 14 : std::min({30, Greatest(fa_) + Greatest(fb_)}), low = high - (half_sum ? 20 : 30);
  for (int at = 2; at < k_; ++at) Add("order.pm" + std::to_string(at), {P(0, high), P(1, high, true), P(at, low)}, 0);
  for (int at = 2; at < k_; ++at) Add("order.p_m" + std::to_string(at), {P(0, high), P(1, low), P(at, high, true)}, 0);
  for (int at = 1; at < k_; ++at)
    Add("order.small0_pm" + std::to_string(at), {P(0, low), P(at, high), P((at % (k_ - 1)) + 1, high, true)}, 0);
  for (int at = 1; at < k_; ++at) Add("order.c_m0_" + std::to_string(at), {P(0, high, true), P(at, low)}, C(high));
  for (int at = 0; at < k_ - 1; ++at)
    Add("order.c_m" + std::to_string(at), {P(at, high, true), P(k_ - 1, low)}, C(high));
  for (int at = 1; at < k_; ++at) Add("order.csmall_pm" + std::to_string(at), {P(0, high), P(at, high, true)}, C(low));
}

// How many places below the largest term are kept, and how the sum is rounded to its format.
void Dots::AddRounding() {
  const bool half_sum = fs_.Bits() == 16, bytes = fa_.Bits() == 8;
  const int digits = fs_.mantissa_bits, high = half_sum ? 10 : std::min(24, Greatest(fa_) + Greatest(fb_));
  for (int d = 8; d <= 30; ++d) {
    const std::string n = std::to_string(d);
    Add("keep.pm" + n, {P(0, high), P(1, high, true), P(2, high - d)}, 0);
    Add("keep.pm_neg" + n, {P(0, high), P(1, high, true), P(2, high - d, true)}, 0);
    Add("keep.c_m" + n, {P(0, high, true), P(1, high - d)}, C(high));
    if (C(high - d) != 0) Add("keep.pm_c" + n, {P(0, high), P(1, high, true)}, C(high - d));
    // The large terms are 2.25 times a power of two: does their carry count as a place?
    const uint32_t half_a = 1u << (fa_.mantissa_bits - 1), half_b = 1u << (fb_.mantissa_bits - 1);
    Term great = P(0, high), less = P(1, high, true);
    great.a |= half_a, great.b |= half_b, less.a |= half_a, less.b |= half_b;
    Add("keep.pm_carry" + n, {great, less, P(2, high - d)}, 0);
  }
  for (int d = bytes ? 11 : digits - 2; d <= digits + 6; ++d) {
    const std::string n = std::to_string(d);
    Add("round.c_plus" + n, {P(0, high - d)}, C(high));
    Add("round.c_minus" + n, {P(0, high - d, true)}, C(high));
    Add("round.negc_minus" + n, {P(0, high - d, true)}, C(high, true));
    Add("round.negc_plus" + n, {P(0, high - d)}, C(high, true));
    Add("round.p_plus" + n, {P(0, high), P(1, high - d)}, 0);
    Add("round.p_minus" + n, {P(0, high), P(1, high - d, true)}, 0);
    Add("round.p_plus_c" + n, {P(0, high)}, C(high - d));
    Add("round.two" + n, {P(0, high - d), P(1, high - d)}, C(high));
    Add("round.all" + n, Fill(0, high - d), C(high));
    Add("round.all_neg" + n, Fill(0, high - d, true), C(high));
    // An odd last place and slightly more than half of it: rounding to nearest would round up.
    Add("round.odd" + n, {P(0, high - digits), P(1, high - digits - 1), P(2, high - d)}, C(high));
    Add("round.tie_even" + n, {P(0, high - digits - 1), P(1, high - d)}, C(high));
  }
  // Carries: the sum of many equal terms needs bits above the largest.
  Add("carry.all", Fill(0, high), C(high - digits));
  Add("carry.all_c", Fill(0, high), C(high));
  Add("carry.all_small", Fill(1, high), C(high - digits - 1));
}

void Dots::AddSpecial() {
  const auto infinity = [](Format f) { return ((1u << f.exponent_bits) - 1) << f.mantissa_bits; };
  const auto nan = [](Format f, uint32_t payload) {
    return f.has_infinity ? (((1u << f.exponent_bits) - 1) << f.mantissa_bits) | payload : f.SignBit() - 1;
  };
  const uint32_t one_a = fa_.One(), one_b = fb_.One(), minus_a = one_a | fa_.SignBit();
  const uint32_t quiet_s = infinity(fs_) | (1u << (fs_.mantissa_bits - 1));
  Add("nan.a1", {{0, nan(fa_, 1), one_b}}, 0);
  Add("nan.a_quiet_negative", {{0, nan(fa_, 1u << (fa_.mantissa_bits - 1)) | fa_.SignBit(), one_b}}, 0);
  Add("nan.b1", {{0, one_a, nan(fb_, 1)}}, 0);
  Add("nan.c_signalling", {{0, one_a, one_b}}, infinity(fs_) | 1);
  Add("nan.c_quiet_payload", {{0, one_a, one_b}}, quiet_s | 5);
  Add("nan.c_negative", {{0, one_a, one_b}}, quiet_s | fs_.SignBit() | 5);
  if (fa_.has_infinity && fb_.has_infinity) {
    Add("inf.a", {{0, infinity(fa_), one_b}}, 0);
    Add("inf.a_negative_b", {{0, infinity(fa_), one_b | fb_.SignBit()}}, 0);
    Add("inf.times_zero", {{0, infinity(fa_), 0}}, 0);
    Add("inf.zero_times", {{0, 0, infinity(fb_)}}, 0);
    Add("inf.plus_minus", {{0, infinity(fa_), one_b}, {1, infinity(fa_) | fa_.SignBit(), one_b}}, 0);
    Add("inf.plus_c_minus", {{0, infinity(fa_), one_b}}, infinity(fs_) | fs_.SignBit());
    Add("inf.twice", {{0, infinity(fa_), one_b}, {k_ - 1, infinity(fa_), one_b}}, infinity(fs_));
    Add("inf.and_nan", {{0, infinity(fa_), one_b}, {1, nan(fa_, 1), one_b}}, 0);
  }
  Add("inf.c", {{0, one_a, one_b}}, infinity(fs_));
  Add("inf.c_minus", {{0, one_a, one_b}}, infinity(fs_) | fs_.SignBit());
  Add("zero.all_plus", {}, 0);
  Add("zero.c_minus", {}, fs_.SignBit());
  std::vector<Term> minus;
  for (int i = 0; i < k_; ++i) minus.push_back({i, fa_.SignBit(), one_b});
  Add("zero.products_minus", minus, 0);
  Add("zero.all_minus", minus, fs_.SignBit());
  Add("zero.cancel", {{0, one_a, one_b}, {1, minus_a, one_b}}, 0);
  Add("zero.cancel_c_minus", {{0, one_a, one_b}, {1, minus_a, one_b}}, fs_.SignBit());
  Add("zero.cancel_with_c", {{0, minus_a, one_b}}, fs_.One());
}

// Overflow and subnormals, of the sum's format and of the factors' formats.
void Dots::AddSmall() {
  const uint32_t one_a = fa_.One(), one_b = fb_.One();
  const uint32_t top = ((((1u << fs_.exponent_bits) - 1) << fs_.mantissa_bits) - 1);
  const int last = Greatest(fs_) - fs_.mantissa_bits;  // exponent of the top's last place
  for (int d = -1; d <= 2; ++d) {
    if (last - d <= Greatest(fa_) + Greatest(fb_)) Add("top.plus" + std::to_string(d), {P(0, last - d)}, top);
  }
  const int most = std::min(Greatest(fs_), Greatest(fa_) + Greatest(fb_));
  if (most == Greatest(fs_)) {
    Add("top.pp", {P(0, most), P(1, most)}, 0);
    Add("top.pp_c", {P(0, most)}, C(most));
    Add("top.ppmm", {P(0, most), P(1, most), P(2, most, true), P(3, most, true)}, 0);
    Add("top.pp_m", {P(0, most), P(1, most), P(2, most, true)}, 0);
    Add("top.cpm", {P(0, most), P(1, most, true)}, C(most));
    Add("top.minus_all", Fill(0, most, true), 0);
  }
  if (2 * Greatest(fa_) > Greatest(fs_) + 1) {
    Add("top.product", {P(0, Greatest(fs_) + 1)}, 0);
    Add("top.product_pm", {P(0, Greatest(fs_) + 1), P(1, Greatest(fs_) + 1, true)}, 0);
    Add("top.product_minus_c", {P(0, Greatest(fs_) + 1)}, C(Greatest(fs_), true));
    Add("top.product_far_pm", {P(0, Greatest(fs_) + 60), P(1, Greatest(fs_) + 60, true)}, fs_.One());
  }
  Add("sub.c", {}, 1);
  Add("sub.c_most", {}, (1u << fs_.mantissa_bits) - 1);
  Add("sub.c_negative", {}, 3 | fs_.SignBit());
  Add("sub.a", {{0, 1, one_b}}, 0);
  Add("sub.b", {{0, one_a, 1}}, 0);
  Add("sub.a_great_b", {{0, 3, Power(fb_, Greatest(fb_))}}, 0);
  Add("sub.a_most", {{0, (1u << fa_.mantissa_bits) - 1, one_b}}, 0);
  const int least = Least(fs_);
  for (int d = -2; d <= 3; ++d) {
    if (least - d < Least(fa_) + Least(fb_)) continue;
    Add("sub.product" + std::to_string(d), {P(0, least - d)}, 0);
    Add("sub.product_neg" + std::to_string(d), {P(0, least - d, true)}, 0);
    Add("sub.product_c" + std::to_string(d), {P(0, least - d)}, C(least + 4));
    Add("sub.two" + std::to_string(d), {P(0, least - d), P(1, least - d)}, 0);
  }
}

void Dots::AddAll() {
  AddOrder();
  AddRounding();
  AddSpecial();
  AddSmall();
}

// case NAME terms=PLACE:A*B,... c=C out=D: places that are not named are 0 * 0.
template <class Op>
void DotCases(const std::string& name, Tile tile, Format fa, Format fb, Format fs) {
  Dots dots(tile.k, fa, fb, fs);
  dots.AddAll();
  std::vector<Product> products;
  for (const Dot& dot : dots.Get()) {
    Product p(tile, fa, fb, fs);
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < tile.k; ++k) p.A(row, k) = dot.a[size_t(k)];
    }
    for (int k = 0; k < tile.k; ++k) {
      for (int column = 0; column < 8; ++column) p.B(k, column) = dot.b[size_t(k)];
    }
    std::fill(p.c.begin(), p.c.end(), dot.c);
    products.push_back(p);
  }
  const Words out = Run<Op>(products);
  const size_t size = size_t(32 * Op::kC);
  for (size_t i = 0; i < products.size(); ++i) {
    const Dot& dot = dots.Get()[i];
    const uint32_t* const d = &out[i * size];
    const uint32_t first = fs.Bits() == 16 ? d[0] & 0xffffu : d[0];
    const bool uniform =
        std::all_of(d, d + size, [&](uint32_t w) { return w == (fs.Bits() == 16 ? first | (first << 16) : first); });
    std::printf("case %s/%s terms=", name.c_str(), dot.name.c_str());
    bool any = false;
    for (size_t k = 0; k < dot.a.size(); ++k) {
      if (dot.a[k] == 0 && dot.b[k] == 0) continue;
      // Equal terms up to the last place are printed once.
      size_t to = k;
      while (to + 1 < dot.a.size() && dot.a[to + 1] == dot.a[k] && dot.b[to + 1] == dot.b[k]) ++to;
      std::printf("%s%zu", any ? "," : "", k);
      if (to > k) std::printf("-%zu", to);
      std::printf(":%x*%x", dot.a[k], dot.b[k]);
      any = true;
      k = to;
    }
    std::printf("%s c=%x out=%x%s\n", any ? "" : "none", dot.c, first, uniform ? "" : " uniform=NO");
  }
}

template <class Op>
void FloatCases(const std::string& name, Tile tile, Format fa, Format fb, Format fs, uint64_t seed) {
  RandomCases<Op>(name, tile, fa, fb, fs, seed);
  DotCases<Op>(name, tile, fa, fb, fs);
}

// tf32 operands with bits below their mantissa: does the card round or drop them?
template <class Op>
void LowBitsCase(const std::string& name) {
  Words out;
  for (uint32_t low : {0u, 0x0fffu, 0x1000u, 0x1001u, 0x1fffu}) {
    for (uint32_t odd : {0u, 0x2000u}) {
      Words a(32 * 4, 0), b(32 * 2, 0), c(32 * 4, 0);
      for (size_t lane = 0; lane < 32; lane += 4) {
        a[lane * 4] = 0x3f800000u | odd | low;
        b[lane * 2] = 0x3f800000u;
      }
      const DeviceWords da(a), db(b), dc(c), dd(c.size());
      RunProducts<Op><<<1, Op::kThreads>>>(da.Get(), db.Get(), dc.Get(), dd.Get());
      out.push_back(dd.Read()[0]);
    }
  }
  PrintCase(name, "in=1.0|{0,2000}|{0,fff,1000,1001,1fff}", out);
}

// ---- fragments in shared memory ----

constexpr int kSharedWords = 1024;

#define LDMATRIX_1(text) asm volatile(text " {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory")
#define LDMATRIX_2(text) asm volatile(text " {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory")
#define LDMATRIX_4(text)                                        \
  asm volatile(text " {%0, %1, %2, %3}, [%4];"                  \
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) \
               : "r"(address)                                   \
               : "memory")

// `offsets`: one per lane, in bytes.
template <int kCount, bool kTrans>
__global__ void LoadMatrix(const uint32_t* data, const uint32_t* offsets, uint32_t* out) {
  __shared__ alignas(128) uint32_t shared[kSharedWords];
  for (int i = int(threadIdx.x); i < kSharedWords; i += 32) shared[i] = data[i];
  __syncthreads();
  const uint32_t address = uint32_t(__cvta_generic_to_shared(shared)) + offsets[threadIdx.x];
  uint32_t r[4] = {};
  if constexpr (kCount == 1 && !kTrans) LDMATRIX_1("ldmatrix.sync.aligned.m8n8.x1.shared.b16");
  if constexpr (kCount == 2 && !kTrans) LDMATRIX_2("ldmatrix.sync.aligned.m8n8.x2.shared.b16");
  if constexpr (kCount == 4 && !kTrans) LDMATRIX_4("ldmatrix.sync.aligned.m8n8.x4.shared.b16");
  if constexpr (kCount == 1 && kTrans) LDMATRIX_1("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16");
  if constexpr (kCount == 2 && kTrans) LDMATRIX_2("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16");
  if constexpr (kCount == 4 && kTrans) LDMATRIX_4("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16");
  for (int i = 0; i < kCount; ++i) out[int(threadIdx.x) * kCount + i] = r[i];
}

#define STMATRIX_1(text) asm volatile(text " [%0], {%1};" ::"r"(address), "r"(r[0]) : "memory")
#define STMATRIX_2(text) asm volatile(text " [%0], {%1, %2};" ::"r"(address), "r"(r[0]), "r"(r[1]) : "memory")
#define STMATRIX_4(text) \
  asm volatile(text " [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory")

template <int kCount, bool kTrans>
__global__ void StoreMatrix(const uint32_t* data, const uint32_t* offsets, uint32_t* out) {
  __shared__ alignas(128) uint32_t shared[kSharedWords];
  for (int i = int(threadIdx.x); i < kSharedWords; i += 32) shared[i] = 0;
  __syncthreads();
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const uint32_t address = uint32_t(__cvta_generic_to_shared(shared)) + offsets[threadIdx.x];
  uint32_t r[4] = {};
  for (int i = 0; i < kCount; ++i) r[i] = data[int(threadIdx.x) * kCount + i];
  if constexpr (kCount == 1 && !kTrans) STMATRIX_1("stmatrix.sync.aligned.m8n8.x1.shared.b16");
  if constexpr (kCount == 2 && !kTrans) STMATRIX_2("stmatrix.sync.aligned.m8n8.x2.shared.b16");
  if constexpr (kCount == 4 && !kTrans) STMATRIX_4("stmatrix.sync.aligned.m8n8.x4.shared.b16");
  if constexpr (kCount == 1 && kTrans) STMATRIX_1("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16");
  if constexpr (kCount == 2 && kTrans) STMATRIX_2("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16");
  if constexpr (kCount == 4 && kTrans) STMATRIX_4("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16");
#endif
  __syncthreads();
  for (int i = int(threadIdx.x); i < kSharedWords; i += 32) out[i] = shared[i];
}

__global__ void TransposeInRegisters(const uint32_t* data, uint32_t* out) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(data[threadIdx.x]));
  out[threadIdx.x] = r;
}

template <int kCount, bool kTrans>
void FragmentCases(uint64_t seed) {
  const std::string kind = ".x" + std::to_string(kCount) + (kTrans ? ".trans" : "");
  // Rows one after another; rows 80 bytes apart in a shuffled order; the same row for several lanes.
  for (int order = 0; order < 3; ++order) {
    Rng rng(seed);
    Words data(kSharedWords), offsets(32);
    for (uint32_t& w : data) w = rng.Next();
    for (uint32_t lane = 0; lane < 32; ++lane) {
      offsets[lane] = order == 0 ? lane * 16 : order == 1 ? lane * 7 % 32 * 80 : lane / 3 * 48;
    }
    const std::string about = "seed=" + std::to_string(seed) + " rows=" +
                              (order == 0   ? "16*lane"
                               : order == 1 ? "80*(7*lane%32)"
                                            : "48*(lane/3)");
    const DeviceWords in(data), at(offsets), out(32 * kCount);
    LoadMatrix<kCount, kTrans><<<1, 32>>>(in.Get(), at.Get(), out.Get());
    PrintCase("ldmatrix" + kind + "/" + std::to_string(order), about, out.Read());
    if (order == 2 || Capability() < 90) continue;
    const DeviceWords stored(kSharedWords);
    StoreMatrix<kCount, kTrans><<<1, 32>>>(in.Get(), at.Get(), stored.Get());
    PrintCase("stmatrix" + kind + "/" + std::to_string(order), about + " rest=0", stored.Read(), 128);
  }
}

}  // namespace

void RunMatrixCases() {
  FragmentCases<1, false>(101);
  FragmentCases<2, false>(102);
  FragmentCases<4, false>(103);
  FragmentCases<1, true>(104);
  FragmentCases<2, true>(105);
  FragmentCases<4, true>(106);
  {
    Rng rng(107);
    Words data(32);
    for (uint32_t& w : data) w = rng.Next();
    const DeviceWords in(data), out(32);
    TransposeInRegisters<<<1, 32>>>(in.Get(), out.Get());
    PrintCase("movmatrix.trans", "seed=107", out.Read());
  }

  FloatCases<Bf16K8>("mma.m16n8k8.f32.bf16", {8, 2}, kBf16, kBf16, kF32, 200);
  FloatCases<Bf16K16>("mma.m16n8k16.f32.bf16", {16, 2}, kBf16, kBf16, kF32, 210);
  FloatCases<F16K8>("mma.m16n8k8.f32.f16", {8, 2}, kF16, kF16, kF32, 220);
  FloatCases<F16K16>("mma.m16n8k16.f32.f16", {16, 2}, kF16, kF16, kF32, 230);
  FloatCases<F16K8Half>("mma.m16n8k8.f16.f16", {8, 2}, kF16, kF16, kF16, 240);
  FloatCases<F16K16Half>("mma.m16n8k16.f16.f16", {16, 2}, kF16, kF16, kF16, 250);
  FloatCases<Tf32K4>("mma.m16n8k4.f32.tf32", {4, 1}, kTf32, kTf32, kF32, 260);
  FloatCases<Tf32K8>("mma.m16n8k8.f32.tf32", {8, 1}, kTf32, kTf32, kF32, 270);
  LowBitsCase<Tf32K8>("mma.m16n8k8.f32.tf32/low_bits");
  RandomCases<S8S8K16>("mma.m16n8k16.s32.s8.s8", {16, 4}, kInt8, kInt8, kInt32, 300);
  RandomCases<S8S8K32>("mma.m16n8k32.s32.s8.s8", {32, 4}, kInt8, kInt8, kInt32, 301);
  RandomCases<U8U8K32>("mma.m16n8k32.s32.u8.u8", {32, 4}, kInt8, kInt8, kInt32, 302);
  RandomCases<S8U8K32>("mma.m16n8k32.s32.s8.u8", {32, 4}, kInt8, kInt8, kInt32, 303);
  RandomCases<U8S8K32>("mma.m16n8k32.s32.u8.s8", {32, 4}, kInt8, kInt8, kInt32, 304);
  RandomCases<S8S8K32Sat>("mma.m16n8k32.satfinite.s32.s8.s8", {32, 4}, kInt8, kInt8, kInt32, 305);
  EndsCase<S8S8K32>("mma.m16n8k32.s32.s8.s8", {32, 4}, 311);
  EndsCase<S8S8K32Sat>("mma.m16n8k32.satfinite.s32.s8.s8", {32, 4}, 315);
  if (Capability() >= 89) {
    FloatCases<E4m3E4m3K32>("mma.m16n8k32.f32.e4m3.e4m3", {32, 4}, kE4m3, kE4m3, kF32, 400);
    FloatCases<E5m2E5m2K32>("mma.m16n8k32.f32.e5m2.e5m2", {32, 4}, kE5m2, kE5m2, kF32, 410);
    RandomCases<E4m3E5m2K32>("mma.m16n8k32.f32.e4m3.e5m2", {32, 4}, kE4m3, kE5m2, kF32, 420);
    RandomCases<E5m2E4m3K32>("mma.m16n8k32.f32.e5m2.e4m3", {32, 4}, kE5m2, kE4m3, kF32, 430);
  }
  if (Capability() == 90) {
    LowBitsCase<WgTf32>("wgmma.m64n8k8.f32.tf32/low_bits");
    FloatCases<WgBf16>("wgmma.m64n8k16.f32.bf16", {16, 2}, kBf16, kBf16, kF32, 500);
    FloatCases<WgF16>("wgmma.m64n8k16.f32.f16", {16, 2}, kF16, kF16, kF32, 510);
    FloatCases<WgTf32>("wgmma.m64n8k8.f32.tf32", {8, 1}, kTf32, kTf32, kF32, 520);
    FloatCases<WgE4m3>("wgmma.m64n8k32.f32.e4m3", {32, 4}, kE4m3, kE4m3, kF32, 530);
    FloatCases<WgE5m2>("wgmma.m64n8k32.f32.e5m2", {32, 4}, kE5m2, kE5m2, kF32, 540);
    RandomCases<WgS8>("wgmma.m64n8k32.s32.s8", {32, 4}, kInt8, kInt8, kInt32, 550);
  }
}

}  // namespace conformance
