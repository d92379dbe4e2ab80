// AVX-VNNI's vpdpbusd on vectors of 32 bytes: four products of an unsigned code and a signed value per lane and
// instruction, exactly. The set "avxvnni" is the AVX2 set with these products.
#include "compute/kernels/packed/avx2/dots.h"
#include "compute/kernels/packed/bf16_tile.h"
#include "compute/kernels/packed/chunks.h"
#include "compute/kernels/packed/kernel.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/packed/unrounded.h"

namespace tactus::compute {
namespace {

struct DotsVnni : BaseAvx2 {
  static constexpr bool kMerged = false;
  static constexpr int64_t kGroupColumns = 4, kXBytes = 4;
  static constexpr Opened kOpened = Opened::kNot;
  // Eight or more sums hide the instruction's latency.
  static constexpr int VectorsOf(int rows) { return rows == 1 ? 8 : rows <= 3 ? 4 : 2; }
  using Codes = __m256i;
  using X = __m256i;
  static Codes Prepare(__m256i v) { return v; }
  static X LoadX(const std::byte* p) { return Spread4(p); }
  template <bool kU4, int kRows>
  static void Loop(const std::byte* w, const std::byte* end, const std::byte* x, Int (&sums)[kRows][2]) {
    if constexpr (kU4) {
      VnniNibbleLoop::Run<kRows>(w, end, x, _mm256_set1_epi8(0xf), sums);
    } else {
      VnniByteLoop::Run<kRows>(w, end, x, _mm256_setzero_si256(), sums);
    }
  }
  static Int Dot(Int sum, Codes w, X x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  static constexpr bool kOpensZeros = true;
  static __m256i Zeroed(__m256i codes, __m256i centre) {
    return _mm256_add_epi8(_mm256_slli_epi16(codes, 2), centre);  // codes below 16: no bit leaves its byte
  }
  static constexpr bool HasPass(int rows) { return rows >= 4; }
  template <int kTokens, BlockScales kScales, int kGroups>
  static void Pass(const BlockPass& pass) {
    VnniPass::Run<kTokens, kScales, kGroups>(pass);
  }
};

SumPanelFn Pick(const PackedTokens& x, const PackedMatrix&) {
  if (x.format.values == TokenValues::kF32) return SumPanelUnrounded<DotsVnni>;
  return x.format.integer() ? SumPanelInt<DotsVnni, DotsVnni, DotsVnni> : SumPanelBf16<DotsVnni>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(AvxVnni, Pick)

}  // namespace tactus::compute
