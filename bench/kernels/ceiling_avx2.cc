#include <immintrin.h>

#include "ceiling.h"

namespace tactus::bench {
namespace {
struct Vec {
  using F = __m256;
  static constexpr int kWidth = 8;
  static F Set1(float v) { return _mm256_set1_ps(v); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static float First(F v) { return _mm256_cvtss_f32(v); }
};
}  // namespace
#include "ceiling_loops.inc"

CeilingLoops Avx2Loops() {
  return {F32Loop, 2 * kChains * Vec::kWidth, nullptr, 0, ReadLoop};
}

}  // namespace tactus::bench
