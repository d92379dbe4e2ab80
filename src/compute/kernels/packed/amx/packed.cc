// Products of packed weights by matrix tiles, for the set "amx" (compiled for AMX-TILE, AMX-INT8, AMX-BF16 and
// AVX-512). bf16 always uses tiles. Integer sums have the same bits either way, so they run where they are faster: on
// AVX-512, except for 16-bit tokens over weights with one scale per row (docs/internals/arm_amx.md). f32 tokens always
// run on AVX-512.
#include "compute/kernels/packed/amx/tile.h"
#include "compute/kernels/packed/kernel.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/simd/avx512.h"

namespace tactus::compute {
namespace {

constexpr int64_t kLeastTileRows = 16;

// GCC's intrinsics paste the tile's number as text, which fails for a template parameter, so the instructions are
// written out. Volatile and with memory as an operand, they keep their order.
struct AmxTiles {
  static void Configure(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" : : "m"(config)); }
  static void Release() { __asm__ volatile("tilerelease"); }
  template <int kTile>
  static void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void Load(const std::byte* p, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void Store(std::byte* p, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <bool kInteger, int kSum, int kA, int kB>
  static void Dot() {
    if constexpr (kInteger) {
      __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
    } else {
      __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
    }
  }
};

SumPanelFn Pick(const PackedTokens&, const PackedMatrix&) {
  return SumPanelByTiles<AmxTiles>;
}

bool TakesTiles(const PackedTokens& x) {
  if (!x.format.integer()) return x.format.values == TokenValues::kBF16;
  return x.format.parts == 2 && x.format.block == kTokenBlock && x.rows() >= kLeastTileRows;
}

}  // namespace

void LinearPackedAmx(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs,
                     Workspace scratch) {
  TakesTiles(x) ? LinearPackedBy(Pick, pool, x, outputs) : Avx512Ops().linear_packed(pool, x, outputs, scratch);
}

void GatedPackedAmx(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,
                    const PackedMatrix& up, const float* up_bias, float* inner, const PackedTokens& out,
                    Workspace scratch) {
  if (TakesTiles(x)) return GatedPackedBy(Pick, pool, x, gate, gate_bias, up, up_bias, out);
  Avx512Ops().gated_packed(pool, x, gate, gate_bias, up, up_bias, inner, out, scratch);
}

}  // namespace tactus::compute
