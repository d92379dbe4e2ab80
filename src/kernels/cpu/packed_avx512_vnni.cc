// vpdpbusd: each lane of 32 bits adds four products of an unsigned code and a signed token value. A block's sum starts
// at -zero * (sum of its token values), so that codes are used as stored. Sums of a block are exact; what follows is
// packed.h's.
#include "kernels/cpu/packed_avx512_tile.h"

namespace tactus::kernels {
namespace {

inline constexpr int64_t kSumColumns = 16;  // columns of one entry of PackedTokens::sums
// Columns of a panel at a time. Codes of 512 fill two thirds of the first-level cache, which pays when many tiles pass
// over them. A tile alone takes few: a chunk's scales are read before its codes and should have been fetched by then.
inline constexpr int64_t kShortChunkColumns = 128, kChunkColumns = 256, kLongChunkColumns = 512, kLongChunkTiles = 12;
inline constexpr int64_t kChunkBlocks = kLongChunkColumns / 16;
inline constexpr int64_t kGroupBytes = kPanelRows * 4;  // 4 columns of codes of 8 bits, or 8 of 4
// Sums and values of 3 x 64 fit the registers together, so that a block's end touches no memory: vpdpbusd shares its
// two ports with multiplications, and stores of 64 bytes take two cycles each.
inline constexpr int kRowsMax = 3, kTallRows = 4;

// A chunk's scales and minima as f32.
struct alignas(64) ChunkScales {
  float scale[kChunkBlocks][kPanelRows];
  float minimum[kChunkBlocks][kPanelRows];
};

// One tile's pass over the blocks of a chunk. Token rows are strides apart.
struct TilePass {
  const std::byte* codes;  // first block's
  int64_t gap;             // bytes between the end of one block's codes and the next one's
  int64_t blocks;
  const ChunkScales* scales;
  bool has_minimum;
  const std::byte* x;  // values at the chunk
  int64_t x_stride;
  const int32_t* start;  // at the chunk
  const float* total;    // at the chunk; with minima
  int64_t term_stride;
  const float* x_scales;  // at the chunk
  int64_t scale_stride;
  float* y;  // [rows][64]
  Ahead ahead;
};

// 16 columns of codes of 8 bits, or with kU4 of 4, from w, times kRows token rows from x. In assembly because GCC 12
// otherwise keeps addresses in vector registers and loads every weight once per row.
#define TACTUS_LOAD(at)     \
  "vmovdqa64 " #at          \
  "+0(%[w]), %%zmm28\n\t"   \
  "vmovdqa64 " #at          \
  "+64(%[w]), %%zmm29\n\t"  \
  "vmovdqa64 " #at          \
  "+128(%[w]), %%zmm30\n\t" \
  "vmovdqa64 " #at "+192(%[w]), %%zmm31\n\t"
#define TACTUS_LOAD_LOW(at)         \
  "vpandd " #at                     \
  "+0(%[w]), %[low], %%zmm28\n\t"   \
  "vpandd " #at                     \
  "+64(%[w]), %[low], %%zmm29\n\t"  \
  "vpandd " #at                     \
  "+128(%[w]), %[low], %%zmm30\n\t" \
  "vpandd " #at "+192(%[w]), %[low], %%zmm31\n\t"
#define TACTUS_LOAD_HIGH(at)            \
  "vpsrlw $4, " #at                     \
  "+0(%[w]), %%zmm28\n\t"               \
  "vpsrlw $4, " #at                     \
  "+64(%[w]), %%zmm29\n\t"              \
  "vpsrlw $4, " #at                     \
  "+128(%[w]), %%zmm30\n\t"             \
  "vpsrlw $4, " #at                     \
  "+192(%[w]), %%zmm31\n\t"             \
  "vpandd %%zmm28, %[low], %%zmm28\n\t" \
  "vpandd %%zmm29, %[low], %%zmm29\n\t" \
  "vpandd %%zmm30, %[low], %%zmm30\n\t" \
  "vpandd %%zmm31, %[low], %%zmm31\n\t"
#define TACTUS_ROW(at, row, m)        \
  "vpbroadcastd " #at "(%[x]" row     \
  "), %%zmm27\n\t"                    \
  "vpdpbusd %%zmm27, %%zmm28, %[a" #m \
  "0]\n\t"                            \
  "vpdpbusd %%zmm27, %%zmm29, %[a" #m \
  "1]\n\t"                            \
  "vpdpbusd %%zmm27, %%zmm30, %[a" #m \
  "2]\n\t"                            \
  "vpdpbusd %%zmm27, %%zmm31, %[a" #m "3]\n\t"
#define TACTUS_ROWS1(at) TACTUS_ROW(at, "", 0)
#define TACTUS_ROWS2(at) TACTUS_ROWS1(at) TACTUS_ROW(at, ", %[s]", 1)
#define TACTUS_ROWS3(at) TACTUS_ROWS2(at) TACTUS_ROW(at, ", %[s], 2", 2)
#define TACTUS_STEP_U8(ROWS) \
  TACTUS_LOAD(0) ROWS(0) TACTUS_LOAD(256) ROWS(4) TACTUS_LOAD(512) ROWS(8) TACTUS_LOAD(768) ROWS(12)
#define TACTUS_STEP_U4(ROWS) \
  TACTUS_LOAD_LOW(0) ROWS(0) TACTUS_LOAD_HIGH(0) ROWS(4) TACTUS_LOAD_LOW(256) ROWS(8) TACTUS_LOAD_HIGH(256) ROWS(12)
#define TACTUS_ACC(m) \
  [a##m##0] "+v"(acc[m][0]), [a##m##1] "+v"(acc[m][1]), [a##m##2] "+v"(acc[m][2]), [a##m##3] "+v"(acc[m][3])
#define TACTUS_RUN(STEP, ROWS, ...)                                      \
  asm volatile(STEP(ROWS)                                                \
               : __VA_ARGS__                                             \
               : [w] "r"(w), [x] "r"(x), [s] "r"(stride), [low] "v"(low) \
               : "memory", "zmm27", "zmm28", "zmm29", "zmm30", "zmm31")
#define TACTUS_STEP(ROWS, ...)                     \
  if constexpr (kU4) {                             \
    TACTUS_RUN(TACTUS_STEP_U4, ROWS, __VA_ARGS__); \
  } else {                                         \
    TACTUS_RUN(TACTUS_STEP_U8, ROWS, __VA_ARGS__); \
  }
template <bool kU4, int kRows>
inline __attribute__((always_inline)) void AddStep(const std::byte* w, const std::byte* x, int64_t stride, __m512i low,
                                                   __m512i (&acc)[kRows][4]) {
  if constexpr (kRows == 1) {
    TACTUS_STEP(TACTUS_ROWS1, TACTUS_ACC(0))
  } else if constexpr (kRows == 2) {
    TACTUS_STEP(TACTUS_ROWS2, TACTUS_ACC(0), TACTUS_ACC(1))
  } else {
    static_assert(kRows == 3);
    TACTUS_STEP(TACTUS_ROWS3, TACTUS_ACC(0), TACTUS_ACC(1), TACTUS_ACC(2))
  }
}

#undef TACTUS_LOAD
#undef TACTUS_LOAD_LOW
#undef TACTUS_LOAD_HIGH
#undef TACTUS_ROW
#undef TACTUS_ROWS1
#undef TACTUS_ROWS2
#undef TACTUS_ROWS3
#undef TACTUS_STEP_U8
#undef TACTUS_STEP_U4
#undef TACTUS_ACC
#undef TACTUS_RUN
#undef TACTUS_STEP

// A block is kSteps x 16 columns. kScaled: weights have a scale per block; else the row's comes at the end (Finish in
// packed_avx512.cc).
template <bool kU4, bool kScaled, int kSteps, int kRows>
__attribute__((noinline)) void RunTile(const TilePass& t) {
  __m512 y[kRows][4];
#pragma GCC unroll 3
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) y[m][j] = _mm512_load_ps(t.y + m * kPanelRows + 16 * j);
  }
  constexpr int kBlocksPerScale = kSteps == 1 ? 2 : 1;  // token blocks are 32 columns or more
  const std::byte* w = t.codes;
  const std::byte* x = t.x;
  const int64_t stride = t.x_stride;
  const __m512i low = _mm512_set1_epi8(0x0f);
  Ahead ahead = t.ahead;
  for (int64_t b = 0; b < t.blocks; ++b) {
    __m512i acc[kRows][4];
#pragma GCC unroll 3
    for (int m = 0; m < kRows; ++m) {
      const __m512i start = _mm512_set1_epi32(t.start[m * t.term_stride + b]);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) acc[m][j] = start;
    }
#pragma GCC unroll 1
    for (int s = 0; s < kSteps; ++s, w += (kU4 ? 2 : 4) * kGroupBytes, x += kSumColumns) {
      ahead.Step();
      AddStep<kU4, kRows>(w, x, stride, low, acc);
    }
    w += t.gap;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 3
      for (int m = 0; m < kRows; ++m) {
        __m512 scale = _mm512_set1_ps(t.x_scales[m * t.scale_stride + b / kBlocksPerScale]);
        if constexpr (kScaled) scale = _mm512_mul_ps(_mm512_load_ps(&t.scales->scale[b][16 * j]), scale);
        y[m][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[m][j]), scale, y[m][j]);
      }
    }
    if (kScaled && t.has_minimum) {
#pragma GCC unroll 3
      for (int m = 0; m < kRows; ++m) {
        const __m512 total = _mm512_set1_ps(t.total[m * t.term_stride + b]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j)
          y[m][j] = _mm512_fmadd_ps(_mm512_load_ps(&t.scales->minimum[b][16 * j]), total, y[m][j]);
      }
    }
  }
#pragma GCC unroll 3
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_store_ps(t.y + m * kPanelRows + 16 * j, y[m][j]);
  }
}

// As RunTile for four token rows and weights of one block per row: the ends of token blocks are so rare that y may rest
// in memory.
__attribute__((noinline)) void RunTallTile(const TilePass& t) {
  constexpr int kRows = kTallRows;
  const std::byte* w = t.codes;
  const std::byte* x0 = t.x;
  const std::byte* x2 = t.x + 2 * t.x_stride;
  const int64_t stride = t.x_stride;
  Ahead ahead = t.ahead;
  for (int64_t b = 0; b < t.blocks; ++b) {
    __m512i acc[kRows][4];
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const __m512i start = _mm512_set1_epi32(t.start[m * t.term_stride + b]);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) acc[m][j] = start;
    }
#pragma GCC unroll 1
    for (int s = 0; s < kTokenBlockMax / kSumColumns; ++s, w += 4 * kGroupBytes, x0 += kSumColumns, x2 += kSumColumns) {
      ahead.Step();
#pragma GCC unroll 4
      for (int group = 0; group < 4; ++group) {
        __m512i codes[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) codes[j] = _mm512_load_si512(w + group * kGroupBytes + 64 * j);
#pragma GCC unroll 4
        for (int m = 0; m < kRows; ++m) {
          int32_t four;
          __builtin_memcpy(&four, (m < 2 ? x0 : x2) + (m % 2) * stride + 4 * group, 4);
          const __m512i spread = _mm512_set1_epi32(four);
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) acc[m][j] = _mm512_dpbusd_epi32(acc[m][j], codes[j], spread);
        }
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const __m512 scale = _mm512_set1_ps(t.x_scales[m * t.scale_stride + b]);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        float* y = t.y + m * kPanelRows + 16 * j;
        _mm512_store_ps(y, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[m][j]), scale, _mm512_load_ps(y)));
      }
    }
  }
}

inline int64_t RoundedUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline __mmask16 FirstLanes(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
inline int64_t BlockColumns(const PackedMatrix& w) {
  return w.block > 0 ? w.block : kTokenBlockMax;
}
inline int64_t TermStride(const PackedTokens& x, const PackedMatrix& w) {
  return x.sum_count() * kSumColumns / BlockColumns(w);
}

using TileFn = void (*)(const TilePass&);

template <bool kU4, bool kScaled, int kSteps>
TileFn TileOf(int64_t rows) {
  constexpr TileFn kTiles[] = {RunTile<kU4, kScaled, kSteps, 1>, RunTile<kU4, kScaled, kSteps, 2>,
                               RunTile<kU4, kScaled, kSteps, 3>};
  return kTiles[rows - 1];
}

template <bool kU4>
TileFn ScaledTileOf(int64_t block, int64_t rows) {
  switch (block) {
    case 16:
      return TileOf<kU4, true, 1>(rows);
    case 32:
      return TileOf<kU4, true, 2>(rows);
    case 64:
      return TileOf<kU4, true, 4>(rows);
    default:
      return TileOf<kU4, true, 8>(rows);
  }
}

inline void LoadScales(const std::byte* from, bool wide, float* to) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 v = wide ? _mm512_load_ps(from + 64 * j)
                          : _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32 * j)));
    _mm512_store_ps(to + 16 * j, v);
  }
}

}  // namespace

int64_t TermBytes(const PackedTokens& x, const PackedMatrix& w) {
  const int64_t each = RoundedUp(x.tokens * x.format.planes * TermStride(x, w) * 4, kLineBytes);
  return w.has_minimum ? 2 * each : each;
}

RowTerms PlaceTerms(std::byte* memory, const PackedTokens& x, const PackedMatrix& w) {
  RowTerms terms;
  terms.stride = TermStride(x, w);
  terms.start = reinterpret_cast<int32_t*>(memory);
  if (w.has_minimum) {
    terms.total =
        reinterpret_cast<float*>(memory + RoundedUp(x.tokens * x.format.planes * terms.stride * 4, kLineBytes));
  }
  return terms;
}

// Sums of 16 columns each become the blocks', neighbours added until one is left.
void FillTerms(const PackedTokens& x, const PackedMatrix& w, int64_t first_row, int64_t rows, const RowTerms& terms) {
  const int64_t sums_each = BlockColumns(w) / kSumColumns, sum_count = x.sum_count();
  const bool halves = w.block == 16;  // two blocks under one scale
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    for (int64_t i = 0; i < sum_count; i += 16) {
      const int64_t blocks = LeastOf(16, sum_count - i) / sums_each, first = i / sums_each;
      __m512i v = _mm512_maskz_loadu_epi32(FirstLanes(LeastOf(16, sum_count - i)), x.sums + row * sum_count + i);
      for (int64_t each = sums_each; each > 1; each /= 2) {
        v = _mm512_maskz_mov_epi32(
            0xff, _mm512_castsi256_si512(_mm512_cvtepi64_epi32(_mm512_add_epi64(v, _mm512_srli_epi64(v, 32)))));
      }
      const __mmask16 lanes = FirstLanes(blocks);
      _mm512_mask_storeu_epi32(terms.start + row * terms.stride + first, lanes,
                               _mm512_mullo_epi32(v, _mm512_set1_epi32(-w.zero)));
      if (!w.has_minimum) continue;
      const float* scales = x.scales + row * x.scale_count();
      __m512 scale;
      if (halves) {
        const __m512i index =
            _mm512_srli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 1);
        scale = _mm512_permutexvar_ps(index, _mm512_maskz_loadu_ps(FirstLanes((blocks + 1) / 2), scales + first / 2));
      } else {
        scale = _mm512_maskz_loadu_ps(lanes, scales + first);
      }
      _mm512_mask_storeu_ps(terms.total + row * terms.stride + first, lanes,
                            _mm512_mul_ps(scale, _mm512_cvtepi32_ps(v)));
    }
  }
}

void SumPanelVnni(const PanelRun& run) {
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const bool scaled = w.block > 0;
  const bool u4 = w.code == PackedCode::kU4;  // taken apart in registers: that has ports of its own
  const int64_t block = BlockColumns(w);
  const int64_t block_bytes = scaled ? w.block_bytes() : block * kPanelRows;
  const int64_t code_bytes = scaled ? w.code_bytes() : block_bytes;
  for (int64_t i = 0; i < run.rows * kPanelRows; i += 16) _mm512_store_ps(run.sums + i, _mm512_setzero_ps());

  const int64_t scale_bytes = kPanelRows * (w.wide_scales ? 4 : 2);
  ChunkScales scales;
  TilePass t = {};
  t.gap = block_bytes - code_bytes;
  t.has_minimum = w.has_minimum;
  t.scales = &scales;
  t.x_stride = x.stride;
  t.term_stride = run.terms.stride;
  t.scale_stride = x.scale_count();
  const int scale_shift = __builtin_ctz(static_cast<unsigned>(x.format.block));

  Walk walk;
  walk.units = (w.cols + block - 1) / block;
  walk.unit_bytes = block_bytes;
  walk.steps = block / kSumColumns;
  // Scales are read as soon as a chunk begins. Two tiles over codes of 8 bits do better without: measured.
  walk.lead_bytes = scaled && (u4 || run.rows > 2 * kRowsMax) ? kAheadBytes : 0;
  walk.rows_max = scaled ? kRowsMax : kTallRows;
  const bool alone = run.rows <= walk.rows_max, many = run.rows > kLongChunkTiles * kRowsMax;
  const int64_t columns = alone ? kShortChunkColumns : u4 || many ? kLongChunkColumns : kChunkColumns;
  walk.per_chunk = columns / block;
  const auto begin_chunk = [&](const std::byte* at, int64_t units) {
    t.codes = at;
    for (int64_t b = 0; scaled && b < units; ++b, at += block_bytes) {
      LoadScales(at + code_bytes, w.wide_scales, scales.scale[b]);
      if (w.has_minimum) LoadScales(at + code_bytes + scale_bytes, w.wide_scales, scales.minimum[b]);
    }
  };
  walk.Run(run, begin_chunk, [&](int64_t first, int64_t rows, int64_t unit, int64_t units, const Ahead& ahead) {
    const int64_t row = run.first_row + first;
    t.blocks = units;
    t.x = x.values + row * x.stride + unit * block;
    t.start = run.terms.start + row * t.term_stride + unit;
    if (w.has_minimum) t.total = run.terms.total + row * t.term_stride + unit;
    t.x_scales = x.scales + row * t.scale_stride + ((unit * block) >> scale_shift);
    t.y = run.sums + first * kPanelRows;
    t.ahead = ahead;
    if (rows == kTallRows) return RunTallTile(t);
    const TileFn tile_fn = !scaled ? TileOf<false, false, kTokenBlockMax / kSumColumns>(rows)
                           : u4    ? ScaledTileOf<true>(block, rows)
                                   : ScaledTileOf<false>(block, rows);
    tile_fn(t);
  });
}

}  // namespace tactus::kernels
