#include <immintrin.h>

#include <initializer_list>

#include "compute/ceilings/loops.h"
#include "compute/kernels/kernel_set.h"

namespace tactus::compute {
namespace {
struct Vec {
  using F = __m512;
  static constexpr int kWidth = 16;
  static F Set1(float v) { return _mm512_set1_ps(v); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static float First(F v) { return _mm512_cvtss_f32(v); }
};
}  // namespace
#include "compute/ceilings/f32_loop.inc"
#include "compute/ceilings/read_loop.inc"
namespace {

float Bf16Loop(int64_t rounds) {
  Vec::F acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = Vec::Set1(static_cast<float>(i));
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80)),
             b = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3c00));
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) acc[0] = Vec::Add(acc[0], acc[i]);
  return Vec::First(acc[0]);
}

// One block of assembly: the compiler would fold integer rounds into one product, or move sums between registers and
// memory and halve the ceiling.
constexpr int kInt8Chains = 12;

// One block of assembly over registers, so that the compiler neither merges the identical rounds (integer sums would
// become one product) nor inserts moves.
constexpr int kIntegerChains = 12;
float Int8Loop(int64_t rounds) {
  __m512i s0 = _mm512_set1_epi32(1), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0,
          s10 = s0, s11 = s0;
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
  for (int64_t r = 0; r < rounds; ++r) {
    __asm__ volatile(
        "vpdpbusd %13, %12, %0\n\tvpdpbusd %13, %12, %1\n\tvpdpbusd %13, %12, %2\n\tvpdpbusd %13, %12, %3\n\t"
        "vpdpbusd %13, %12, %4\n\tvpdpbusd %13, %12, %5\n\tvpdpbusd %13, %12, %6\n\tvpdpbusd %13, %12, %7\n\t"
        "vpdpbusd %13, %12, %8\n\tvpdpbusd %13, %12, %9\n\tvpdpbusd %13, %12, %10\n\tvpdpbusd %13, %12, %11"
        : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9), "+v"(s10),
          "+v"(s11)
        : "v"(a), "v"(b));
  }
  for (const __m512i s : {s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11}) s0 = _mm512_add_epi32(s0, s);
  return static_cast<float>(_mm_cvtsi128_si32(_mm512_castsi512_si128(s0)));
}

}  // namespace

CeilingLoops Avx512Loops() {
  const bool bf16 = CpuHasAvx512Bf16(), vnni = CpuHasAvx512Vnni();
  return {F32Loop,  2 * kChains * Vec::kWidth, bf16 ? Bf16Loop : nullptr,    4 * kChains * Vec::kWidth,
          ReadLoop, vnni ? Int8Loop : nullptr, 8 * kInt8Chains * Vec::kWidth};
}

}  // namespace tactus::compute
