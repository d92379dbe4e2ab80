// vpdpbusd: each 32-bit lane adds four products of an unsigned code and a signed token value. A block's sum starts at
// -offset * (sum of its token values), so that codes are used as stored, or with zero points as 64 + v. Sums of a block
// are exact; packed/packed.h defines the rest.
#include "compute/kernels/packed/avx512/vnni_tile.h"

namespace tactus::compute {
namespace {

// Columns of a panel per chunk. Codes of 512 columns fill two thirds of the L1 cache, which is best when many tiles use
// them. A single tile uses few: a chunk's scales are read before its codes and must have been prefetched by then.
inline constexpr int64_t kShortChunkColumns = 128, kChunkColumns = 256, kLongChunkTiles = 12;
// Rows of a tile. With up to three, a block's integer sums and y fit the registers together, so that a block's end
// needs no memory; this is best on Zen 5, where a store of 64 bytes takes two cycles. With more, y is in memory between
// blocks. Six are best on Intel's processors, where dot products have a longer latency, and four on Zen 5 where blocks
// begin with wide groups. Up to four rows form one tile everywhere, because reading the weights limits them. For few
// rows every tile unpacks 4-bit codes itself; for more rows the first tile stores them as bytes. All measured.
inline constexpr int64_t kTileRowsMost = 6, kTileRowsOfZen = 3, kTileRowsOfZenWide = 4, kTileRowsOfFew = 4;
inline constexpr int64_t kFewRows = 8, kFewRowsUnscaled = 16;
inline constexpr int32_t kZeroPointOffset = 64;  // codes with zero points are multiplied as 64 + v, in [4, 124]

inline int64_t RoundedUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline __mmask16 FirstLanes(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
inline int64_t BlockColumns(const PackedMatrix& w) {
  return w.block > 0 ? w.block : kTokenBlock;
}
inline int64_t TermStride(const PackedTokens& x, const PackedMatrix& w) {
  return x.sum_count() * kSumColumns / BlockColumns(w);
}

using TileFn = void (*)(const TilePass&);

template <Codes kCodes, Kept kKept, Scales kScales, int kSteps, int kGroups>
TileFn TileOf(int64_t rows) {
  static constexpr TileFn kTiles[] = {
      RunTile<kCodes, kKept, kScales, kSteps, kGroups, 1>, RunTile<kCodes, kKept, kScales, kSteps, kGroups, 2>,
      RunTile<kCodes, kKept, kScales, kSteps, kGroups, 3>, RunTile<kCodes, kKept, kScales, kSteps, kGroups, 4>,
      RunTile<kCodes, kKept, kScales, kSteps, kGroups, 5>, RunTile<kCodes, kKept, kScales, kSteps, kGroups, 6>};
  return kTiles[rows - 1];
}

// wide: TokenFormat::wide of kMixed or kMixedFine.
template <Codes kCodes, Kept kKept, Scales kScales, int kSteps>
TileFn WideTileOf(int32_t wide, int64_t rows) {
  constexpr int kGroups = kSteps == kTokenSteps ? 2 : 1;
  if (wide == 0) return TileOf<kCodes, kKept, kScales, kSteps, 0>(rows);
  if constexpr (kSteps > 1) {
    if (wide < kSteps * kSumColumns / kGroups) return TileOf<kCodes, kKept, kScales, kSteps, 2 * kGroups>(rows);
  }
  return TileOf<kCodes, kKept, kScales, kSteps, kGroups>(rows);
}

template <Codes kCodes, Kept kKept, Scales kScales>
TileFn ScaledTileOf(int64_t block, int32_t wide, int64_t rows) {
  switch (block) {
    case 16:
      return WideTileOf<kCodes, kKept, kScales, 1>(wide, rows);
    case 32:
      return WideTileOf<kCodes, kKept, kScales, 2>(wide, rows);
    case 64:
      return WideTileOf<kCodes, kKept, kScales, 4>(wide, rows);
    default:
      return WideTileOf<kCodes, kKept, kScales, 8>(wide, rows);
  }
}

template <Codes kCodes, Kept kKept>
TileFn BlockTileOf(const PackedMatrix& w, int32_t wide, int64_t rows) {
  return w.has_minimum ? ScaledTileOf<kCodes, kKept, Scales::kMinimum>(w.block, wide, rows)
                       : ScaledTileOf<kCodes, kKept, Scales::kScale>(w.block, wide, rows);
}

template <Kept kKept>
TileFn FourBitTileOf(const PackedMatrix& w, int32_t wide, int64_t rows) {
  return w.has_zeros ? ScaledTileOf<Codes::kZeroed, kKept, Scales::kScale>(w.block, wide, rows)
                     : BlockTileOf<Codes::kNibbles, kKept>(w, wide, rows);
}

// bytes: the codes have been unpacked to bytes.
TileFn PickTile(const PackedMatrix& w, int32_t wide, int64_t rows, bool bytes, Kept kept) {
  if (w.block == 0) return WideTileOf<Codes::kBytes, Kept::kNo, Scales::kNone, kTokenSteps>(wide, rows);
  if (bytes) return BlockTileOf<Codes::kBytes, Kept::kNo>(w, wide, rows);
  return kept == Kept::kYes ? FourBitTileOf<Kept::kYes>(w, wide, rows) : FourBitTileOf<Kept::kNo>(w, wide, rows);
}

inline __m512 LoadHalves(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
}

inline void LoadScales(const std::byte* from, float* to) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) _mm512_store_ps(to + 16 * j, LoadHalves(from + 32 * j));
}

inline void LoadBF16Scales(const std::byte* from, float* to) {
  for (int j = 0; j < 4; ++j) {
    const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32 * j));
    _mm512_store_si512(to + 16 * j, _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
}

inline void MultiplyScales(float unit, float* scales) {
  for (int64_t i = 0; i < kPanelRows; i += 16) {
    _mm512_store_ps(scales + i, _mm512_mul_ps(_mm512_load_ps(scales + i), _mm512_set1_ps(unit)));
  }
}

// Nested scales (part 0) or minima (1) of a token block, whose first block's tail is at `tail`, to [blocks][64].
inline void LoadNestedScales(const PackedMatrix& w, const std::byte* tail, int64_t part, float* to) {
  const int64_t each = w.block_bytes();
  const std::byte* outer = tail + 2 * part * each + kPanelRows * (w.has_minimum ? 2 : 1);
  __m512 times[] = {LoadHalves(outer), LoadHalves(outer + 32), LoadHalves(outer + each), LoadHalves(outer + each + 32)};
  for (__m512& v : times) v = _mm512_mul_ps(v, _mm512_set1_ps(w.scale_unit));
  const std::byte* inner = tail + part * kPanelRows;
  for (int64_t b = 0; b < kTokenBlock / w.block; ++b, inner += each, to += kPanelRows) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(inner + 16 * j));
      _mm512_store_ps(to + 16 * j, _mm512_mul_ps(times[j], _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))));
    }
  }
}

inline void ClearSums(const PanelRun& run) {
  for (int64_t i = 0; i < run.rows * kPanelRows; i += 16) _mm512_store_ps(run.sums + i, _mm512_setzero_ps());
}

// 64 - z in each byte of a row.
inline void LoadOffsets(const std::byte* from, int32_t* to) {
  const __m512i four_times =
      _mm512_setr_epi32(0x00000000, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707,
                        0x08080808, 0x09090909, 0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m128i z = _mm_load_si128(reinterpret_cast<const __m128i*>(from + 16 * j));
    const __m512i spread = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(z), four_times);
    _mm512_store_si512(to + 16 * j, _mm512_sub_epi8(_mm512_set1_epi8(kZeroPointOffset), spread));
  }
}

}  // namespace

int64_t TermBytes(const PackedTokens& x, const PackedMatrix& w) {
  return RoundedUp(x.rows() * TermStride(x, w) * 4, kLineBytes) * (w.has_minimum ? 3 : 2);
}

TokenTerms PlaceTerms(std::byte* memory, const PackedTokens& x, const PackedMatrix& w) {
  TokenTerms terms;
  terms.stride = TermStride(x, w);
  const int64_t each = RoundedUp(x.rows() * terms.stride * 4, kLineBytes);
  terms.start = reinterpret_cast<int32_t*>(memory);
  terms.scale = reinterpret_cast<float*>(memory + each);
  if (w.has_minimum) terms.total = reinterpret_cast<float*>(memory + 2 * each);
  return terms;
}

// Adds neighbouring sums of 16 columns until one per block is left.
void FillTerms(const PackedTokens& x, const PackedMatrix& w, int64_t first_row, int64_t rows, const TokenTerms& terms) {
  const int64_t sums_each = BlockColumns(w) / kSumColumns, sum_count = x.sum_count();
  const __m512i factor = _mm512_set1_epi32(w.has_zeros ? -kZeroPointOffset : -w.zero);
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    for (int64_t i = 0; i < sum_count; i += 16) {
      const int64_t blocks = LeastOf(16, sum_count - i) / sums_each, first = i / sums_each;
      __m512i v = _mm512_maskz_loadu_epi32(FirstLanes(LeastOf(16, sum_count - i)), x.sums + row * sum_count + i);
      for (int64_t each = sums_each; each > 1; each /= 2) {
        v = _mm512_maskz_mov_epi32(
            0xff, _mm512_castsi256_si512(_mm512_cvtepi64_epi32(_mm512_add_epi64(v, _mm512_srli_epi64(v, 32)))));
      }
      const __mmask16 lanes = FirstLanes(blocks);
      const int64_t at = row * terms.stride + first;
      _mm512_mask_storeu_epi32(terms.start + at, lanes, _mm512_mullo_epi32(v, factor));
      // Pairs of blocks of 16 columns share a scale.
      const float* from = x.scales + row * x.scale_count() + first * BlockColumns(w) / x.format.block;
      const __m512 scale =
          BlockColumns(w) >= 32
              ? _mm512_maskz_loadu_ps(lanes, from)
              : _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                      _mm512_maskz_loadu_ps(FirstLanes(blocks / 2), from));
      _mm512_mask_storeu_ps(terms.scale + at, lanes, scale);
      if (w.has_minimum) _mm512_mask_storeu_ps(terms.total + at, lanes, _mm512_mul_ps(_mm512_cvtepi32_ps(v), scale));
    }
  }
}

void SumPanelVnni(const PanelRun& run) {
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const bool scaled = w.block > 0;
  const bool u4 = w.code == PackedCode::kU4;
  const int64_t block = BlockColumns(w);
  const int64_t block_bytes = scaled ? w.block_bytes() : block * kPanelRows;
  const int64_t code_bytes = scaled ? w.code_bytes() : block_bytes;
  const int32_t wide = x.format.wide;
  ClearSums(run);
  ChunkScales scales;
  alignas(64) std::byte kept[kChunkColumns * kPanelRows];
  TilePass t = {};
  const auto from_start = [&run](const float* terms) {
    return reinterpret_cast<const std::byte*>(terms) - reinterpret_cast<const std::byte*>(run.terms.start);
  };
  if (w.has_minimum) t.total_offset = from_start(run.terms.total);
  t.scale_offset = from_start(run.terms.scale);
  t.scales = &scales;
  t.x_stride = x.stride;
  t.term_stride = run.terms.stride;
  t.wide_stride = x.wide_count() * static_cast<int64_t>(sizeof(WideGroup));

  Walk walk;
  walk.units = (w.cols + block - 1) / block;
  walk.unit_bytes = block_bytes;
  walk.steps = block / kSumColumns;
  static const bool intel = __builtin_cpu_is("intel") != 0;
  const bool few = run.rows <= (u4 ? kFewRows : scaled ? kTileRowsOfFew : kFewRowsUnscaled);
  walk.tokens_max = intel ? kTileRowsMost : few ? kTileRowsOfFew : wide > 0 ? kTileRowsOfZenWide : kTileRowsOfZen;
  // Scales are read when a chunk begins. Two tiles over 8-bit codes are faster without: measured.
  walk.lead_bytes = scaled && (u4 || run.rows > 2 * walk.tokens_max) ? kAheadBytes : 0;
  const bool alone = run.rows <= walk.tokens_max, many = run.rows > kLongChunkTiles * walk.tokens_max;
  const bool keep = u4 && !few;
  const int64_t columns = alone ? kShortChunkColumns : many && !keep ? kLongChunkColumns : kChunkColumns;
  walk.per_chunk = columns / block;
  TileFn first_of_chunk[kTileRowsMost], later[kTileRowsMost];
  for (int64_t rows = 1; rows <= walk.tokens_max; ++rows) {
    first_of_chunk[rows - 1] = PickTile(w, wide, rows, !u4, keep ? Kept::kYes : Kept::kNo);
    later[rows - 1] = PickTile(w, wide, rows, true, Kept::kNo);
  }
  const TileFn* tiles = nullptr;
  const auto begin_chunk = [&](const std::byte* at, int64_t units) {
    tiles = first_of_chunk;
    t.codes = at;
    t.gap = block_bytes - code_bytes;
    t.kept = kept;
    if (!scaled) return;
    const std::byte* tail = at + code_bytes;
    if (w.nested_scales) {
      for (int64_t b = 0; b < units; b += kTokenBlock / block) {
        LoadNestedScales(w, tail + b * block_bytes, 0, scales.scale[b]);
        if (w.has_minimum) LoadNestedScales(w, tail + b * block_bytes, 1, scales.minimum[b]);
      }
      return;
    }
    for (int64_t b = 0; b < units; ++b, tail += block_bytes) {
      w.bf16_scales ? LoadBF16Scales(tail, scales.scale[b]) : LoadScales(tail, scales.scale[b]);
      if (w.scale_unit != 1) MultiplyScales(w.scale_unit, scales.scale[b]);
      if (w.has_minimum) LoadScales(tail + kPanelRows * 2, scales.minimum[b]);
      if (w.has_zeros) LoadOffsets(tail + kPanelRows * 2, scales.offset[b]);
    }
  };
  walk.Run(run, begin_chunk, [&](int64_t first, int64_t rows, int64_t unit, int64_t units, const Ahead& ahead) {
    const int64_t row = run.first_row + first;
    t.blocks = units;
    t.x = x.values + row * x.stride + unit * block;
    t.start = run.terms.start + row * t.term_stride + unit;
    if (wide > 0) t.wide = x.wide + row * x.wide_count() + unit * block / x.format.wide;
    t.y = run.sums + first * kPanelRows;
    t.ahead = ahead;
    tiles[rows - 1](t);
    if (!keep) return;
    t.codes = kept;
    t.gap = 0;
    tiles = later;
  });
}

}  // namespace tactus::compute
