// vdpbf16ps over panels: lane n of a vector is row n's sum over the column pairs in ascending order, for any tile; no
// lanes are added at the end. The instruction rounds to nearest even and treats subnormals as zero.
#include "compute/kernels/packed/avx512/tile.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kPairsPerUnit = 4;
inline constexpr int64_t kPairBytes = kPanelRows * 4;
inline constexpr int64_t kChunkUnits = 16;  // 16 KiB of weights

struct TilePass {
  const std::byte* w;
  int64_t pairs;
  const std::byte* x;  // first row, from the first pair
  int64_t x_stride;
  float* y;    // [rows][64]
  bool first;  // y has no values yet
  Ahead ahead;
};

template <int kRows>
inline __attribute__((always_inline)) void AddPair(const std::byte* w, const std::byte* x0, const std::byte* x3,
                                                   int64_t stride, __m512 (&acc)[kRows][4]) {
  __m512bh rows[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) rows[j] = reinterpret_cast<__m512bh>(_mm512_load_si512(w + 64 * j));
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
    int32_t both;
    __builtin_memcpy(&both, (m < 3 ? x0 : x3) + (m % 3) * stride, 4);
    const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[m][j] = _mm512_dpbf16_ps(acc[m][j], x, rows[j]);
  }
}

template <int kRows>
__attribute__((noinline)) void RunTile(TilePass t) {
  __m512 acc[kRows][4];
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      acc[m][j] = t.first ? _mm512_setzero_ps() : _mm512_load_ps(t.y + m * kPanelRows + 16 * j);
    }
  }
  const std::byte* x0 = t.x;
  const std::byte* x3 = t.x + 3 * t.x_stride;
  int64_t p = 0;
  for (; p + kPairsPerUnit <= t.pairs; p += kPairsPerUnit) {
    t.ahead.Step();
#pragma GCC unroll 4
    for (int i = 0; i < kPairsPerUnit; ++i)
      AddPair<kRows>(t.w + i * kPairBytes, x0 + 4 * i, x3 + 4 * i, t.x_stride, acc);
    t.w += kPairsPerUnit * kPairBytes;
    x0 += 4 * kPairsPerUnit;
    x3 += 4 * kPairsPerUnit;
  }
  for (; p < t.pairs; ++p, t.w += kPairBytes, x0 += 4, x3 += 4) AddPair<kRows>(t.w, x0, x3, t.x_stride, acc);
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_store_ps(t.y + m * kPanelRows + 16 * j, acc[m][j]);
  }
}

void RunTileOf(int64_t rows, const TilePass& t) {
  switch (rows) {
    case 1:
      return RunTile<1>(t);
    case 2:
      return RunTile<2>(t);
    case 3:
      return RunTile<3>(t);
    case 4:
      return RunTile<4>(t);
    case 5:
      return RunTile<5>(t);
    default:
      return RunTile<6>(t);
  }
}

}  // namespace

void SumPanelBf16(const PanelRun& run) {
  const PackedTokens& x = *run.x;
  const int64_t pairs = (run.w->cols + 1) / 2;
  TilePass t = {};
  t.x_stride = x.stride;
  Walk walk;
  walk.units = (pairs + kPairsPerUnit - 1) / kPairsPerUnit;
  walk.unit_bytes = kPairsPerUnit * kPairBytes;
  walk.per_chunk = kChunkUnits;
  walk.steps = 1;
  walk.tokens_max = kTileTokens;
  const std::byte* chunk = nullptr;
  const auto begin_chunk = [&](const std::byte* at, int64_t) { chunk = at; };
  walk.Run(run, begin_chunk, [&](int64_t first, int64_t tokens, int64_t unit, int64_t units, const Ahead& ahead) {
    t.w = chunk;
    t.pairs = LeastOf(units * kPairsPerUnit, pairs - unit * kPairsPerUnit);
    t.x = x.values + (run.first_row + first) * x.stride + unit * kPairsPerUnit * 4;
    t.y = run.sums + first * kPanelRows;
    t.first = unit == 0;
    t.ahead = ahead;
    RunTileOf(tokens, t);
  });
}

}  // namespace tactus::compute
