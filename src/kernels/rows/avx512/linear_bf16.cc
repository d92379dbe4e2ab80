// vdpbf16ps: each f32 lane takes two neighbouring products per step, so lane i holds the columns 2i and 2i + 1 of
// every 32. The instruction rounds to nearest even and treats subnormals as zero. Order otherwise as linear_kernel.h
// says.
#include "kernels/rows/avx512/linear_bf16.h"

#include "kernels/rows/linear_kernel.h"
#include "kernels/rows/row_kernel.h"
#include "kernels/simd/avx512.h"

namespace tactus::kernels {
namespace {

struct WeightsPairs {
  using X = uint16_t;
  using Vec = __m512bh;
  static constexpr int kStep = 32;
  static constexpr int kBytes = 2;
  static constexpr int64_t kChunk = 2 * kLinearChunk;  // as many bytes as f32
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

void LinearAvx512Bf16(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias,
                      float* y, Workspace scratch) {
  if (tokens <= 0 || w.rows <= 0) return;
  const int64_t packed_bytes =
      RoundUp(tokens * PackedColumns<WeightsPairs>(w.cols) * static_cast<int64_t>(sizeof(uint16_t)), 64);
  std::byte* aligned = AlignedWorkspace(scratch, packed_bytes + pool.threads() * LinearThreadBytes());
  auto* packed = reinterpret_cast<uint16_t*>(aligned);
  PackTokens<WeightsPairs>(pool, x, tokens, w.cols, packed, [](const float* from, int n, uint16_t* to) {
    const int low = n < Simd::kWidth ? n : Simd::kWidth;
    Simd::StoreBF16(to, LoadFirst(from, low));
    Simd::StoreBF16(to + Simd::kWidth, n > low ? LoadFirst(from + low, n - low) : Simd::Zero());
  });
  RunLinear<WeightsPairs, true>(pool, packed, tokens, w, false, bias, y, aligned + packed_bytes);
}

}  // namespace tactus::kernels
