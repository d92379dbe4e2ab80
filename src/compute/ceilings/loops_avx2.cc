#include <immintrin.h>

#include <initializer_list>

#include "compute/ceilings/loops.h"

namespace tactus::compute {
namespace {
struct Vec {
  using F = __m256;
  static constexpr int kWidth = 8;
  static F Set1(float v) { return _mm256_set1_ps(v); }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static float First(F v) { return _mm256_cvtss_f32(v); }
};

// Sums in the remaining of 16 registers: 12, or 10 where a second instruction adds the result. In assembly, so that the
// compiler neither merges the identical rounds nor moves sums to memory.
constexpr int kSums = 12, kAddedSums = 10;

#define TACTUS_SUMS(type, one) \
  type s0 = one, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0
#define TACTUS_OUT                                                                                               \
  "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5), "+x"(s6), "+x"(s7), "+x"(s8), "+x"(s9), "+x"(s10), \
      "+x"(s11)
#define TACTUS_12(op) op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)
#define TACTUS_10(op) op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9)

float F32Fused(int64_t rounds) {
  TACTUS_SUMS(__m256, _mm256_set1_ps(1));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
#define TACTUS_OP(i) "vfmadd231ps %13, %12, %" #i "\n\t"
  for (int64_t r = 0; r < rounds; ++r) asm volatile(TACTUS_12(TACTUS_OP) : TACTUS_OUT : "x"(a), "x"(b));
#undef TACTUS_OP
  for (const __m256 s : {s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11}) s0 = _mm256_add_ps(s0, s);
  return _mm256_cvtss_f32(s0);
}

float FirstOf(__m256i v) {
  return static_cast<float>(_mm_cvtsi128_si32(_mm256_castsi256_si128(v)));
}

// 8-bit codes, widened: 16 products by vpmaddwd and vpaddd.
float WideLoop(int64_t rounds) {
  TACTUS_SUMS(__m256i, _mm256_set1_epi32(1));
  const __m256i a = _mm256_set1_epi16(3), b = _mm256_set1_epi16(-5);
#define TACTUS_OP(i) "vpmaddwd %13, %12, %%ymm15\n\tvpaddd %%ymm15, %" #i ", %" #i "\n\t"
  for (int64_t r = 0; r < rounds; ++r) asm volatile(TACTUS_10(TACTUS_OP) : TACTUS_OUT : "x"(a), "x"(b) : "ymm15");
#undef TACTUS_OP
  for (const __m256i s : {s1, s2, s3, s4, s5, s6, s7, s8, s9}) s0 = _mm256_add_epi32(s0, s);
  return FirstOf(s0);
}

// 4-bit codes: 32 products by vpmaddubsw and vpaddw, widened once per eight of them.
float NibbleLoop(int64_t rounds) {
  TACTUS_SUMS(__m256i, _mm256_set1_epi32(1));
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5);
#define TACTUS_OP(i) "vpmaddubsw %13, %12, %%ymm15\n\tvpaddw %%ymm15, %" #i ", %" #i "\n\t"
#define TACTUS_WIDEN(i) "vpmaddwd %" #i ", %12, %%ymm15\n\tvpaddd %%ymm15, %" #i ", %" #i "\n\t"
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < 8; ++i) asm volatile(TACTUS_10(TACTUS_OP) : TACTUS_OUT : "x"(a), "x"(b) : "ymm15");
    asm volatile(TACTUS_10(TACTUS_WIDEN) : TACTUS_OUT : "x"(a), "x"(b) : "ymm15");
  }
#undef TACTUS_OP
#undef TACTUS_WIDEN
  for (const __m256i s : {s1, s2, s3, s4, s5, s6, s7, s8, s9}) s0 = _mm256_add_epi32(s0, s);
  return FirstOf(s0);
}

float VnniLoop(int64_t rounds) {
  TACTUS_SUMS(__m256i, _mm256_set1_epi32(1));
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5);
#define TACTUS_OP(i) "%{vex%} vpdpbusd %13, %12, %" #i "\n\t"
  for (int64_t r = 0; r < rounds; ++r) asm volatile(TACTUS_12(TACTUS_OP) : TACTUS_OUT : "x"(a), "x"(b));
#undef TACTUS_OP
  for (const __m256i s : {s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11}) s0 = _mm256_add_epi32(s0, s);
  return FirstOf(s0);
}
}  // namespace
#include "compute/ceilings/read_loop.inc"

CeilingLoops Avx2Loops() {
  CeilingLoops loops = {F32Fused, 2 * kSums * 8, nullptr, 0, ReadLoop, WideLoop, 2 * kAddedSums * 16};
  loops.int4 = NibbleLoop;
  loops.int4_ops_per_round = 8 * 2 * kAddedSums * 32;
  loops.int8_takes_16 = true;
  return loops;
}

CeilingLoops AvxVnniLoops() {
  return {F32Fused, 2 * kSums * 8, nullptr, 0, ReadLoop, VnniLoop, 2 * kSums * 32};
}

}  // namespace tactus::compute
