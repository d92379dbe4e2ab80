// Matrix tiles: four tiles of sums, as in the kernels. Other arithmetic and reads use AVX-512's loops.
#include <cstdint>

#include "compute/ceilings/loops.h"
#include "compute/kernels/simd/tiles.h"

namespace tactus::compute {
namespace {

constexpr int64_t kSums = 4, kColumns = kAmxRowBytes / 4;

void Configure() {
  const TileConfig config = ConfigOf(kAmxRows, kAmxRows, kAmxRowBytes);
  __asm__ volatile(
      "ldtilecfg %0\n\t"
      "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
      "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7"
      :
      : "m"(config));
}

template <bool kInteger>
float Loop(int64_t rounds) {
  Configure();
  for (int64_t r = 0; r < rounds; ++r) {
    if constexpr (kInteger) {
      __asm__ volatile(
          "tdpbsud %%tmm6, %%tmm4, %%tmm0\n\ttdpbsud %%tmm7, %%tmm4, %%tmm1\n\t"
          "tdpbsud %%tmm6, %%tmm5, %%tmm2\n\ttdpbsud %%tmm7, %%tmm5, %%tmm3" ::);
    } else {
      __asm__ volatile(
          "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
          "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::);
    }
  }
  __asm__ volatile("tilerelease");
  return 0;
}

}  // namespace

CeilingLoops AmxLoops() {
  CeilingLoops loops = Avx512Loops();
  loops.int8 = Loop<true>;
  loops.int8_ops_per_round = kSums * kAmxRows * kColumns * 64 * 2;
  loops.bf16 = Loop<false>;
  loops.bf16_flops_per_round = kSums * kAmxRows * kColumns * 32 * 2;
  return loops;
}

}  // namespace tactus::compute
