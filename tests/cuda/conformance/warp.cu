// Warp operations (shuffles, votes, reductions), and memory: cp.async and atomics.
#include "cases.h"

namespace conformance {
namespace {

constexpr uint32_t kAll = 0xffffffffu;

// ---- shuffles ----

enum class Shuffle { kUp, kDown, kXor, kIndex };

// The value, and whether its source lane was in range, from PTX's predicate. `by` is per lane.
template <Shuffle kMode>
__global__ void RunShuffle(const uint32_t* in, const uint32_t* by, uint32_t clamp, uint32_t* out) {
  const uint32_t lane = threadIdx.x, v = in[lane], b = by[lane];
  uint32_t d = 0, inside = 0;
#define SHUFFLE(mode)                                                                                         \
  asm volatile("{ .reg .pred p; shfl.sync." mode ".b32 %0|p, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, p; }" \
               : "=r"(d), "=r"(inside)                                                                        \
               : "r"(v), "r"(b), "r"(clamp))
  if constexpr (kMode == Shuffle::kUp) SHUFFLE("up");
  if constexpr (kMode == Shuffle::kDown) SHUFFLE("down");
  if constexpr (kMode == Shuffle::kXor) SHUFFLE("bfly");
  if constexpr (kMode == Shuffle::kIndex) SHUFFLE("idx");
  out[lane] = d;
  const uint32_t insides = __ballot_sync(kAll, inside != 0);
  if (lane == 0) out[32] = insides;
}

// The same with the compiler's functions, whose widths become PTX's clamps.
template <Shuffle kMode>
__global__ void CallShuffle(const uint32_t* in, const uint32_t* by, int width, uint32_t* out) {
  const uint32_t lane = threadIdx.x, v = in[lane], b = by[lane];
  uint32_t d = 0;
  if constexpr (kMode == Shuffle::kUp) d = __shfl_up_sync(kAll, v, b, width);
  if constexpr (kMode == Shuffle::kDown) d = __shfl_down_sync(kAll, v, b, width);
  if constexpr (kMode == Shuffle::kXor) d = __shfl_xor_sync(kAll, v, int(b), width);
  if constexpr (kMode == Shuffle::kIndex) d = __shfl_sync(kAll, v, int(b), width);
  out[lane] = d;
}

template <Shuffle kMode>
void ShuffleCases(const char* mode, uint64_t seed) {
  Rng rng(seed);
  Words in(32);
  for (uint32_t& w : in) w = rng.Next() & 0xffffu;
  const DeviceWords values(in);
  for (int width = 32; width >= 2; width /= 2) {
    // The last two: a different amount per lane; lanes beyond the warp.
    for (uint32_t by : {0u, 1u, 3u, 16u, 31u, 33u, 1000u, 1001u}) {
      Words each(32, by);
      for (uint32_t lane = 0; lane < 32 && by >= 1000; ++lane) each[lane] = by == 1000 ? lane * 5 % 32 : lane * 11 + 40;
      const DeviceWords amounts(each), out(33), called(32);
      const uint32_t segment = uint32_t(32 - width) << 8, clamp = segment | (kMode == Shuffle::kUp ? 0 : 31);
      RunShuffle<kMode><<<1, 32>>>(values.Get(), amounts.Get(), clamp, out.Get());
      CallShuffle<kMode><<<1, 32>>>(values.Get(), amounts.Get(), width, called.Get());
      const Words ptx = out.Read(), c = called.Read();
      const bool same = std::memcmp(ptx.data(), c.data(), 32 * 4) == 0;
      PrintCase(std::string("shfl.") + mode + "/w" + std::to_string(width) + ".by" +
                    (by == 1000   ? "5*lane%32"
                     : by == 1001 ? "11*lane+40"
                                  : std::to_string(by)),
                "seed=" + std::to_string(seed) + (same ? " call=same" : " call=DIFFERS"), ptx);
    }
  }
}

// ---- votes, matches, reductions ----

__global__ void RunVotes(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, v = in[lane];
  uint32_t* const o = out + lane * 12;
  int same = 0;
  o[0] = __ballot_sync(kAll, v & 1);
  o[1] = uint32_t(__any_sync(kAll, v == 3));
  o[2] = uint32_t(__all_sync(kAll, v < 8));
  o[3] = __match_any_sync(kAll, v);
  o[4] = __match_all_sync(kAll, v, &same);
  o[5] = uint32_t(same);
  o[6] = __match_any_sync(kAll, uint64_t(v) << 32);
  o[7] = __reduce_add_sync(kAll, v * 0x10000001u);
  o[8] = __reduce_min_sync(kAll, v);
  o[9] = uint32_t(__reduce_max_sync(kAll, int(v) - 4));
  o[10] = __reduce_xor_sync(kAll, v << lane);
  o[11] = __reduce_and_sync(kAll, v | 0x100u) | __reduce_or_sync(kAll, v << 16);
}

// Two halves of the warp, split by a branch, each with its own mask.
__global__ void RunHalves(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, v = in[lane];
  uint32_t* const o = out + lane * 6;
  const auto work = [&](uint32_t mask) {
    o[0] = __ballot_sync(mask, v & 1);
    o[1] = __match_any_sync(mask, v);
    o[2] = __reduce_add_sync(mask, v);
    o[3] = __reduce_max_sync(mask, v);
    o[4] = __shfl_xor_sync(mask, v, 1);
    int same = 0;
    o[5] = __match_all_sync(mask, v & 0, &same) + uint32_t(same);
  };
  if (lane % 4 < 2) {
    work(0x33333333u);
  } else {
    work(0xccccccccu);
  }
}

__global__ void MatchFloats(const uint32_t* in, uint32_t* out) {
  out[threadIdx.x] = __match_any_sync(kAll, __uint_as_float(in[threadIdx.x]));
}

// ---- cp.async ----

constexpr int kCopyWords = 16;

#define CP_ASYNC(kind, size)                                                                                \
  asm volatile("cp.async." kind ".shared.global [%0], [%1], " size ", %2;" ::"r"(to), "l"(from), "r"(bytes) \
               : "memor"                                                                                    \
                 "y")

// Copies to the third word of shared memory filled with a5 (16 bytes: to the fifth).
__global__ void CopyAsync(const uint32_t* data, int size, bool through_l2, uint32_t bytes, uint32_t* out) {
  __shared__ alignas(128) uint32_t shared[kCopyWords];
  for (int i = 0; i < kCopyWords; ++i) shared[i] = 0xa5a5a5a5u;
  const int word = size == 16 ? 4 : 2;
  const uint32_t to = uint32_t(__cvta_generic_to_shared(shared + word));
  const uint64_t from = uint64_t(__cvta_generic_to_global(data + word));
  if (size == 4) CP_ASYNC("ca", "4");
  if (size == 8) CP_ASYNC("ca", "8");
  if (size == 16 && !through_l2) CP_ASYNC("ca", "16");
  if (size == 16 && through_l2) CP_ASYNC("cg", "16");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  for (int i = 0; i < kCopyWords; ++i) out[i] = shared[i];
}

// ---- atomics ----

enum class Add { kAtomGlobal, kRedGlobal, kShared };
enum class Type { kF32, kF16x2, kBf16x2, kF16, kBf16 };

// One thread per block adds `n` values one after another, so the order is known. Outputs what each atomic returned,
// then the sum.
template <Add kWhere, Type kType>
__global__ void AddOneByOne(const uint32_t* inputs, int n, uint32_t* sums, uint32_t* outputs) {
  __shared__ uint32_t shared;
  const uint32_t* const in = inputs + int(blockIdx.x) * n;
  uint32_t* const out = outputs + int(blockIdx.x) * n;
  uint32_t* const sum = kWhere == Add::kShared ? &shared : sums + blockIdx.x;
  *sum = in[0];
  __threadfence();
  for (int i = 1; i < n; ++i) {
    uint32_t before = 0;
    const uint32_t v = in[i];
    const uint16_t h = uint16_t(v);
    uint16_t before16 = 0;
    if constexpr (kWhere == Add::kShared && kType == Type::kF32) {
      before = __float_as_uint(atomicAdd(reinterpret_cast<float*>(sum), __uint_as_float(v)));
    } else if constexpr (kType == Type::kF32 && kWhere == Add::kAtomGlobal) {
      asm volatile("atom.global.add.f32 %0, [%1], %2;" : "=r"(before) : "l"(sum), "r"(v) : "memory");
    } else if constexpr (kType == Type::kF32 && kWhere == Add::kRedGlobal) {
      asm volatile("red.global.add.f32 [%0], %1;" ::"l"(sum), "r"(v) : "memory");
    } else if constexpr (kType == Type::kF16x2 && kWhere == Add::kAtomGlobal) {
      asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(before) : "l"(sum), "r"(v) : "memory");
    } else if constexpr (kType == Type::kF16x2 && kWhere == Add::kRedGlobal) {
      asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(sum), "r"(v) : "memory");
    } else if constexpr (kType == Type::kF16) {
      asm volatile("atom.global.add.noftz.f16 %0, [%1], %2;" : "=h"(before16) : "l"(sum), "h"(h) : "memory");
      before = before16;
    }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if constexpr (kType == Type::kBf16x2 && kWhere == Add::kAtomGlobal) {
      asm volatile("atom.global.add.noftz.bf16x2 %0, [%1], %2;" : "=r"(before) : "l"(sum), "r"(v) : "memory");
    } else if constexpr (kType == Type::kBf16x2 && kWhere == Add::kRedGlobal) {
      asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(sum), "r"(v) : "memory");
    } else if constexpr (kType == Type::kBf16) {
      asm volatile("atom.global.add.noftz.bf16 %0, [%1], %2;" : "=h"(before16) : "l"(sum), "h"(h) : "memory");
      before = before16;
    }
#endif
    __threadfence();
    if (kWhere == Add::kRedGlobal) before = *reinterpret_cast<volatile uint32_t*>(sum);  // after the addition
    out[i - 1] = before;
  }
  out[n - 1] = *reinterpret_cast<volatile uint32_t*>(sum);
}

template <Add kWhere, Type kType>
void AddCases(const std::string& name, Format f, bool two, uint64_t seed, int min = 80) {
  if (Capability() < min) return;
  const auto run = [&](const std::string& what, const std::string& about, const Words& in) {
    const DeviceWords values(in), at(1), out(in.size());
    AddOneByOne<kWhere, kType><<<1, 1>>>(values.Get(), int(in.size()), at.Get(), out.Get());
    PrintCase(name + "/" + what, about, out.Read());
  };
  for (Profile p : {Profile::kNear, Profile::kTiny}) {
    Rng rng(seed + uint64_t(p));
    Words in(32);
    for (uint32_t& w : in) {
      w = Draw(rng, f, p);
      if (two) w |= Draw(rng, f, p) << 16;
    }
    run(Name(p), "seed=" + std::to_string(seed + uint64_t(p)), in);
  }
  // The memory's content after adding one value to another.
  const auto pairs = [&](const Words& in) {
    const size_t n = in.size() / 2;
    const DeviceWords values(in), at(n), out(in.size());
    AddOneByOne<kWhere, kType><<<unsigned(n), 1>>>(values.Get(), 2, at.Get(), out.Get());
    const Words both = out.Read();
    Words after;
    for (size_t i = 0; i < n; ++i) after.push_back(both[2 * i + 1]);
    return after;
  };
  Words all;
  for (uint32_t memory : Specials(f)) {
    for (uint32_t added : Specials(f)) {
      all.push_back(memory | (two ? added << 16 : 0));
      all.push_back(added | (two ? memory << 16 : 0));
    }
  }
  PrintCase(name + "/special", "in=special^2", pairs(all), 0);
  const uint32_t least = 1, one = f.One(), minus = f.SignBit(), normal = 1u << f.mantissa_bits;
  const uint32_t nan = (((1u << f.exponent_bits) - 1) << f.mantissa_bits) | 1;
  const Words few = pairs({least, 0,     0,     least, least,  least,         minus,  minus,
                           0,     minus, minus, 0,     normal, minus | least, normal, minus | (normal + 1),
                           nan,   one,   one,   nan});
  PrintCase(name + "/few", "in=least+0,0+least,2*least,-0+-0,0+-0,-0+0,normal-least,normal-(normal+1),nan+1,1+nan",
            few);
}

// 8 blocks of 256 threads: sums, extremes and bit operations, which do not depend on the order.
__global__ void AtomicsTogether(uint32_t* o) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, v = i * 2654435761u;
  atomicAdd(&o[0], v);
  atomicMax(&o[1], v);
  atomicMin(&o[2], v);
  atomicMax(reinterpret_cast<int*>(&o[3]), int(v));
  atomicXor(&o[4], v);
  atomicOr(&o[5], v & 0xffffu);
  atomicInc(&o[6], 99);
  atomicDec(&o[7], 99);
  atomicAdd(reinterpret_cast<float*>(&o[8]), 1.0f);
  atomicAdd(reinterpret_cast<unsigned long long*>(&o[10]), static_cast<unsigned long long>(v));
}

}  // namespace

void RunWarpCases() {
  ShuffleCases<Shuffle::kUp>("up", 1);
  ShuffleCases<Shuffle::kDown>("down", 2);
  ShuffleCases<Shuffle::kXor>("bfly", 3);
  ShuffleCases<Shuffle::kIndex>("idx", 4);
  for (uint64_t seed = 10; seed < 13; ++seed) {
    Rng rng(seed);
    Words in(32);
    for (uint32_t& w : in) w = seed == 12 ? 5 : rng.Below(8);
    const DeviceWords values(in), out(32 * 12), halves(32 * 6);
    RunVotes<<<1, 32>>>(values.Get(), out.Get());
    PrintCase("votes", "seed=" + std::to_string(seed), out.Read(), 48);
    RunHalves<<<1, 32>>>(values.Get(), halves.Get());
    PrintCase("votes_of_halves", "seed=" + std::to_string(seed), halves.Read(), 48);
  }
  Words floats;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t of[] = {0, 0x80000000, 0x7fc00000, 0x7fc00001, 1, 0x3f800000};
    floats.push_back(of[lane % 6]);
  }
  const DeviceWords in(floats), out(32);
  MatchFloats<<<1, 32>>>(in.Get(), out.Get());
  PrintCase("match_any.f32", "in=0,-0,7fc00000,7fc00001,1,1.0", out.Read());
}

void RunMemoryCases() {
  Rng rng(20);
  Words data(kCopyWords);
  for (uint32_t& w : data) w = rng.Next();
  const DeviceWords source(data);
  for (int size : {4, 8, 16, 17}) {
    const bool l2 = size == 17;
    const int bytes = l2 ? 16 : size;
    for (int from = 0; from <= bytes; ++from) {
      const DeviceWords out(kCopyWords);
      CopyAsync<<<1, 1>>>(source.Get(), bytes, l2, uint32_t(from), out.Get());
      PrintCase(
          std::string("cp.async.") + (l2 ? "cg" : "ca") + "." + std::to_string(bytes) + "/" + std::to_string(from),
          "seed=20", out.Read());
    }
  }
  AddCases<Add::kAtomGlobal, Type::kF32>("atom.global.add.f32", kF32, false, 30);
  AddCases<Add::kRedGlobal, Type::kF32>("red.global.add.f32", kF32, false, 30);
  AddCases<Add::kShared, Type::kF32>("atomicAdd.shared.f32", kF32, false, 30);
  AddCases<Add::kAtomGlobal, Type::kF16x2>("atom.global.add.noftz.f16x2", kF16, true, 40);
  AddCases<Add::kRedGlobal, Type::kF16x2>("red.global.add.noftz.f16x2", kF16, true, 40);
  AddCases<Add::kAtomGlobal, Type::kF16>("atom.global.add.noftz.f16", kF16, false, 40);
  AddCases<Add::kAtomGlobal, Type::kBf16x2>("atom.global.add.noftz.bf16x2", kBf16, true, 50, 90);
  AddCases<Add::kRedGlobal, Type::kBf16x2>("red.global.add.noftz.bf16x2", kBf16, true, 50, 90);
  AddCases<Add::kAtomGlobal, Type::kBf16>("atom.global.add.noftz.bf16", kBf16, false, 50, 90);
  const DeviceWords o(12);
  Check(cudaMemset(o.Get(), 0, 48), "cudaMemset");
  AtomicsTogether<<<8, 256>>>(o.Get());
  PrintCase("atomics_together", "in=2048_threads", o.Read());
}

}  // namespace conformance
