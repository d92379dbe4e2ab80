// vdpbf16ps: each f32 lane takes two neighbouring products per step, so lane i holds the columns 2i and 2i + 1 of every 32. The
// instruction rounds to nearest even and treats subnormals as zero. Order otherwise as linear_kernel.h says.
#include "kernels/cpu/avx512_bf16.h"

#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/row_kernel.h"
#include "kernels/cpu/linear_kernel.h"

namespace tactus::kernels {
namespace {

struct WeightsPairs {
  using X = uint16_t;
  using Vec = __m512bh;
  static constexpr int kStep = 32;
  static constexpr int kBytes = 2;
  static Vec LoadW(const uint8_t* p) { return reinterpret_cast<Vec>(_mm512_loadu_si512(p)); }
  static Vec LoadX(const uint16_t* p) { return reinterpret_cast<Vec>(_mm512_loadu_si512(p)); }
  static __mmask32 First(int64_t n) { return static_cast<__mmask32>((uint64_t{1} << n) - 1); }
  static Vec LoadWTail(const uint8_t* p, int64_t n) {
    return reinterpret_cast<Vec>(_mm512_maskz_loadu_epi16(First(n), p));
  }
  static Vec LoadXTail(const uint16_t* p, int64_t n) {
    return reinterpret_cast<Vec>(_mm512_maskz_loadu_epi16(First(n), p));
  }
  static Simd::F Dot(Vec x, Vec w, Simd::F acc) { return _mm512_dpbf16_ps(acc, x, w); }
};

}  // namespace

void LinearAvx512Bf16(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias, float* y,
                      Workspace scratch) {
  if (tokens <= 0 || w.rows <= 0) return;
  const int64_t rounded_bytes = RoundUp(tokens * w.cols * static_cast<int64_t>(sizeof(uint16_t)), 64);
  CheckWorkspace(scratch.size, rounded_bytes + pool.threads() * LinearThreadBytes());
  auto* rounded = reinterpret_cast<uint16_t*>(scratch.data);
  ForElements(pool, tokens * w.cols, [&](int64_t i, int count) {
    uint16_t lanes[Simd::kWidth];
    if (count == Simd::kWidth) return Simd::StoreBF16(rounded + i, Simd::Load(x + i));
    Simd::StoreBF16(lanes, LoadFirst(x + i, count));
    std::memcpy(rounded + i, lanes, static_cast<size_t>(count) * sizeof(uint16_t));
  });
  RunLinear<WeightsPairs>(pool, rounded, tokens, w, false, bias, y, scratch.data + rounded_bytes);
}

}  // namespace tactus::kernels
