// vpdpbusd: each lane of 32 bits adds four products of an unsigned code and a signed token value. A block's sum starts at
// -zero * (sum of its token values), so that codes are used as stored. Sums of a block are exact; what follows is packed.h's.
#include "kernels/cpu/packed_avx512_tile.h"

namespace tactus::kernels {
namespace {

inline constexpr int64_t kSumColumns = 16;     // columns of one entry of PackedTokens::sums
inline constexpr int64_t kChunkCodes = 16384;  // bytes of codes in a chunk, about: a third of the first-level cache

// One tile's pass over `blocks` blocks.
struct TilePass {
  const std::byte* w;       // first block
  int64_t blocks, block_bytes;
  int64_t sums_per_block;   // block / 16
  int32_t zero;
  bool scaled, wide, has_minimum;   // scaled: scales follow each block's codes
  const std::byte* x;       // first row's values at the first block
  int64_t x_stride;
  const float* x_scales;    // first row's, at index 0 of the row
  int64_t scale_stride;
  int64_t first_block, block_shift;  // token block = weight block >> block_shift
  const int32_t* x_sums;    // first row's at the first block
  int64_t sum_stride;
  float* y;                 // [rows][64]
  Ahead ahead;
};

inline __m512 LoadScales(const std::byte* p, int64_t vector, bool wide) {
  if (wide) return _mm512_loadu_ps(p + vector * 64);
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p + vector * 32)));
}

// Four bytes of a token row, `quad` 4-column groups from p, in every lane. Rows 3 to 5 are addressed from the fourth.
inline __attribute__((always_inline)) __m512i Spread(const std::byte* p0, const std::byte* p3, int64_t stride, int m, int quad) {
  int32_t four;
  __builtin_memcpy(&four, (m < 3 ? p0 : p3) + (m % 3) * stride + 4 * quad, 4);
  return _mm512_set1_epi32(four);
}

template <bool kU4, int kRows>
__attribute__((noinline)) void RunTile(TilePass t) {
  const __m512i low_bits = _mm512_set1_epi8(0x0f);
  const std::byte* x0 = t.x;
  const std::byte* x3 = t.x + 3 * t.x_stride;
  for (int64_t b = 0; b < t.blocks; ++b) {
    __m512i acc[kRows][4];
    int32_t of_block[kRows];
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      const int32_t* sums = t.x_sums + m * t.sum_stride;
      int32_t sum = sums[0];
      for (int64_t i = 1; i < t.sums_per_block; ++i) sum += sums[i];
      of_block[m] = sum;
      const __m512i start = _mm512_set1_epi32(-t.zero * sum);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) acc[m][j] = start;
    }
    t.x_sums += t.sums_per_block;
    for (int64_t s = 0; s < t.sums_per_block; ++s) {
      t.ahead.Step();
      if constexpr (kU4) {
#pragma GCC unroll 4
        for (int half = 0; half < 4; ++half) {
          __m512i codes[4];
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) {
            const __m512i raw = _mm512_load_si512(t.w + (half / 2) * 256 + 64 * j);
            codes[j] = _mm512_and_si512(half % 2 == 0 ? raw : _mm512_srli_epi16(raw, 4), low_bits);
          }
#pragma GCC unroll 6
          for (int m = 0; m < kRows; ++m) {
            const __m512i x = Spread(x0, x3, t.x_stride, m, half);
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) acc[m][j] = _mm512_dpbusd_epi32(acc[m][j], codes[j], x);
          }
        }
        t.w += 512;
      } else {
#pragma GCC unroll 4
        for (int group = 0; group < 4; ++group) {
          __m512i codes[4];
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) codes[j] = _mm512_load_si512(t.w + group * 256 + 64 * j);
#pragma GCC unroll 6
          for (int m = 0; m < kRows; ++m) {
            const __m512i x = Spread(x0, x3, t.x_stride, m, group);
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) acc[m][j] = _mm512_dpbusd_epi32(acc[m][j], codes[j], x);
          }
        }
        t.w += 1024;
      }
      x0 += kSumColumns;
      x3 += kSumColumns;
    }
    const float* x_scale = t.x_scales + ((t.first_block + b) >> t.block_shift);
    if (!t.scaled) {
#pragma GCC unroll 6
      for (int m = 0; m < kRows; ++m) {
        const __m512 scale = _mm512_set1_ps(x_scale[m * t.scale_stride]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          float* y = t.y + m * kPanelRows + 16 * j;
          _mm512_store_ps(y, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[m][j]), scale, _mm512_load_ps(y)));
        }
      }
      continue;
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512 w_scale = LoadScales(t.w, j, t.wide);
#pragma GCC unroll 6
      for (int m = 0; m < kRows; ++m) {
        float* y = t.y + m * kPanelRows + 16 * j;
        const __m512 scale = _mm512_mul_ps(w_scale, _mm512_set1_ps(x_scale[m * t.scale_stride]));
        _mm512_store_ps(y, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[m][j]), scale, _mm512_load_ps(y)));
      }
    }
    t.w += t.wide ? 256 : 128;
    if (!t.has_minimum) continue;
    float x_total[kRows];
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) x_total[m] = x_scale[m * t.scale_stride] * static_cast<float>(of_block[m]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512 minimum = LoadScales(t.w, j, t.wide);
#pragma GCC unroll 6
      for (int m = 0; m < kRows; ++m) {
        float* y = t.y + m * kPanelRows + 16 * j;
        _mm512_store_ps(y, _mm512_fmadd_ps(minimum, _mm512_set1_ps(x_total[m]), _mm512_load_ps(y)));
      }
    }
    t.w += t.wide ? 256 : 128;
  }
}

template <bool kU4>
void RunTileOf(int64_t rows, const TilePass& t) {
  switch (rows) {
    case 1:
      return RunTile<kU4, 1>(t);
    case 2:
      return RunTile<kU4, 2>(t);
    case 3:
      return RunTile<kU4, 3>(t);
    case 4:
      return RunTile<kU4, 4>(t);
    case 5:
      return RunTile<kU4, 5>(t);
    default:
      return RunTile<kU4, 6>(t);
  }
}

inline int64_t ShiftOf(int64_t ratio) {
  int64_t shift = 0;
  while ((int64_t{1} << shift) < ratio) ++shift;
  return shift;
}

}  // namespace

void SumPanelVnni(const PanelRun& run) {
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const bool u4 = w.code == PackedCode::kU4, scaled = w.block > 0;
  const int64_t block = scaled ? w.block : kTokenBlockMax;
  const int64_t scale_stride = x.scale_count(), sum_stride = x.sum_count();
  TilePass t = {};
  t.block_bytes = scaled ? w.block_bytes() : block * kPanelRows;
  t.sums_per_block = block / kSumColumns;
  t.zero = w.zero;
  t.scaled = scaled;
  t.wide = w.wide_scales;
  t.has_minimum = w.has_minimum;
  t.x_stride = x.stride;
  t.scale_stride = scale_stride;
  t.block_shift = ShiftOf(x.format.block / block);
  t.sum_stride = sum_stride;
  for (int64_t i = 0; i < run.rows * kPanelRows; i += 16) _mm512_store_ps(run.sums + i, _mm512_setzero_ps());

  Walk walk;
  walk.units = (w.cols + block - 1) / block;
  walk.unit_bytes = t.block_bytes;
  walk.steps = t.sums_per_block;
  const int64_t per_chunk = kChunkCodes / t.block_bytes;
  walk.per_chunk = per_chunk > 0 ? per_chunk : 1;
  walk.Run(run, [&](int64_t first, int64_t rows, const std::byte* at, int64_t unit, int64_t units, const Ahead& ahead) {
    const int64_t row = run.first_row + first;
    t.w = at;
    t.blocks = units;
    t.first_block = unit;
    t.x = x.values + row * x.stride + unit * block;
    t.x_scales = x.scales + row * scale_stride;
    t.x_sums = x.sums + row * sum_stride + unit * t.sums_per_block;
    t.y = run.sums + first * kPanelRows;
    t.ahead = ahead;
    u4 ? RunTileOf<true>(rows, t) : RunTileOf<false>(rows, t);
  });
}

}  // namespace tactus::kernels
