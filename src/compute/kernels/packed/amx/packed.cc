// Products of packed weights by matrix tiles, for the set "amx" (compiled for AMX-TILE, AMX-INT8, AMX-BF16 and
// AVX-512). bf16 always uses tiles. Integer sums have the same bits either way, so few tokens run on AVX-512, and so do
// all where that is faster. f32 tokens always run there.
#include "compute/kernels/packed/amx/tile.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/simd/amx.h"
#include "compute/kernels/simd/avx512.h"

namespace tactus::compute {
namespace {

// Token rows from which tiles are faster than AVX-512, by columns per scale and with wide groups: measured
// (docs/internals/arm_amx.md). A tile of 16 columns wastes three quarters of the product.
int64_t LeastTileRows(const PackedMatrix& w, bool wide) {
  constexpr int64_t kNever = INT64_MAX;
  if (w.block == 0 || w.block >= 64) return 16;
  if (w.block == 16) return wide ? kNever : 128;
  if (!wide) return 32;
  return w.has_minimum ? 128 : 64;
}

bool TakesTiles(const PackedTokens& x, const PackedMatrix& w) {
  if (!x.format.integer()) return x.format.values == TokenValues::kBF16;
  return x.rows() >= LeastTileRows(w, x.format.wide > 0);
}

struct AmxLanes {
  using Bytes = __m512i;
  using F = __m512;
  static Bytes LoadBytes(const std::byte* p) { return _mm512_load_si512(p); }
  static void StoreBytes(std::byte* p, Bytes v) { _mm512_store_si512(p, v); }
  static Bytes Spread(int8_t v) { return _mm512_set1_epi8(v); }
  // Each of 16 bytes four times.
  static Bytes FourTimes(const std::byte* p) {
    const __m512i four_times = _mm512_setr_epi32(0x00000000, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505,
                                                 0x06060606, 0x07070707, 0x08080808, 0x09090909, 0x0a0a0a0a, 0x0b0b0b0b,
                                                 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), four_times);
  }
  static Bytes LowNibbles(Bytes v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
  static Bytes HighNibbles(Bytes v) { return LowNibbles(_mm512_srli_epi16(v, 4)); }
  static Bytes TimesFour(Bytes nibbles) { return _mm512_slli_epi16(nibbles, 2); }
  static Bytes SubBytes(Bytes a, Bytes b) { return _mm512_sub_epi8(a, b); }
  static __m512i LoadInt(const int32_t* p) { return _mm512_load_si512(p); }
  static __m512i AddInt(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
  static __m512i ShiftLeft8(__m512i v) { return _mm512_slli_epi32(v, 8); }
  static F ToFloat(__m512i v) { return _mm512_cvtepi32_ps(v); }
  static F Set1(float v) { return _mm512_set1_ps(v); }
  static F Load(const float* p) { return _mm512_load_ps(p); }
  static void Store(float* p, F v) { _mm512_store_ps(p, v); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F MulAdd(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
};

void SumPanelAmx(const PanelRun& run) {
  const PackedTokens& x = *run.x;
  if (TakesTiles(x, *run.w)) return SumPanelByTiles<AmxTiles, AmxLanes>(run);
  x.format.values == TokenValues::kF32 ? SumPanelUnrounded(run) : SumPanelVnni(run);
}

// Tiles multiply faster than the shared cache delivers, so a pass's tokens fit the core's own, beside weights and sums.
constexpr Multiplier kTiles = {SumPanelAmx, TakesTiles, 2 * kAmxRows, int64_t{1} << 20};

}  // namespace

void LinearPackedAmx(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs,
                     Workspace scratch) {
  LinearPackedBy512(kTiles, pool, x, outputs, scratch);
}

void GatedPackedAmx(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,
                    const PackedMatrix& up, const float* up_bias, float* inner, const PackedTokens& out,
                    Workspace scratch) {
  GatedPackedBy512(kTiles, pool, x, gate, gate_bias, up, up_bias, inner, out, scratch);
}

}  // namespace tactus::compute
