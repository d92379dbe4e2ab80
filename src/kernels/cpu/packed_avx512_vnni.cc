// vpdpbusd: each lane of 32 bits adds four products of an unsigned code and a signed token value. A block's sum starts
// at -offset * (sum of its token values), so that codes are used as stored, or with zero points as 64 + v. Sums of a
// block are exact; what follows is packed.h's.
#include "kernels/cpu/packed_avx512_vnni_tile.h"

namespace tactus::kernels {
namespace {

// Columns of a panel at a time. Codes of 512 fill two thirds of the first-level cache, which pays when many tiles pass
// over them. A tile alone takes few: a chunk's scales are read before its codes and should have been fetched by then.
inline constexpr int64_t kShortChunkColumns = 128, kChunkColumns = 256, kLongChunkTiles = 12;
// Tokens of a tile. A block's integer sums and t of its token block fit the registers together, so that a block's end
// touches no memory: vpdpbusd shares its two ports with multiplications, and stores of 64 bytes take two cycles each.
inline constexpr int64_t kTileTokensMax = 3, kTileTokensMaxOfTwoPlanes = 2;
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

template <Codes kCodes, Scales kScales, int kSteps>
TileFn TileOf(int32_t planes, int64_t tokens) {
  constexpr TileFn kOnePlane[] = {RunTile<kCodes, kScales, kSteps, 1, 1>, RunTile<kCodes, kScales, kSteps, 1, 2>,
                                  RunTile<kCodes, kScales, kSteps, 1, 3>};
  constexpr TileFn kTwoPlanes[] = {RunTile<kCodes, kScales, kSteps, 2, 1>, RunTile<kCodes, kScales, kSteps, 2, 2>};
  return planes == 1 ? kOnePlane[tokens - 1] : kTwoPlanes[tokens - 1];
}

template <Codes kCodes, Scales kScales>
TileFn ScaledTileOf(int64_t block, int32_t planes, int64_t tokens) {
  switch (block) {
    case 16:
      return TileOf<kCodes, kScales, 1>(planes, tokens);
    case 32:
      return TileOf<kCodes, kScales, 2>(planes, tokens);
    case 64:
      return TileOf<kCodes, kScales, 4>(planes, tokens);
    default:
      return TileOf<kCodes, kScales, 8>(planes, tokens);
  }
}

template <Codes kCodes>
TileFn BlockTileOf(const PackedMatrix& w, int32_t planes, int64_t tokens) {
  return w.has_minimum ? ScaledTileOf<kCodes, Scales::kMinimum>(w.block, planes, tokens)
                       : ScaledTileOf<kCodes, Scales::kScale>(w.block, planes, tokens);
}

TileFn PickTile(const PackedMatrix& w, int32_t planes, int64_t tokens) {
  if (w.block == 0) return TileOf<Codes::kBytes, Scales::kNone, kTokenSteps>(planes, tokens);
  if (w.code == PackedCode::kU8) return BlockTileOf<Codes::kBytes>(w, planes, tokens);
  return w.has_zeros ? ScaledTileOf<Codes::kZeroed, Scales::kScale>(w.block, planes, tokens)
                     : BlockTileOf<Codes::kNibbles>(w, planes, tokens);
}

inline void LoadScales(const std::byte* from, bool wide, float* to) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 v = wide ? _mm512_load_ps(reinterpret_cast<const float*>(from + 64 * j))
                          : _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32 * j)));
    _mm512_store_ps(to + 16 * j, v);
  }
}

// 64 - z in each byte of a row.
inline void LoadOffsets(const std::byte* from, int32_t* to) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i z = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from + 16 * j)));
    const __m512i offset = _mm512_sub_epi32(_mm512_set1_epi32(kZeroPointOffset), z);
    _mm512_store_si512(to + 16 * j, _mm512_mullo_epi32(offset, _mm512_set1_epi32(0x01010101)));
  }
}

}  // namespace

int64_t TermBytes(const PackedTokens& x, const PackedMatrix& w) {
  const int64_t each = RoundedUp(x.tokens * TermStride(x, w) * 4, kLineBytes);
  return w.has_minimum ? 2 * each : each;
}

TokenTerms PlaceTerms(std::byte* memory, const PackedTokens& x, const PackedMatrix& w) {
  TokenTerms terms;
  terms.stride = TermStride(x, w);
  terms.start = reinterpret_cast<int32_t*>(memory);
  if (w.has_minimum) {
    terms.total = reinterpret_cast<float*>(memory + RoundedUp(x.tokens * terms.stride * 4, kLineBytes));
  }
  return terms;
}

// Sums of 16 columns each become the blocks', neighbours added until one is left.
void FillTerms(const PackedTokens& x, const PackedMatrix& w, int64_t first_token, int64_t tokens,
               const TokenTerms& terms) {
  const int64_t sums_each = BlockColumns(w) / kSumColumns, sum_count = x.sum_count();
  const __m512i factor = _mm512_set1_epi32(w.has_zeros ? -kZeroPointOffset : -w.zero);
  for (int64_t token = first_token; token < first_token + tokens; ++token) {
    for (int64_t i = 0; i < sum_count; i += 16) {
      const int64_t blocks = LeastOf(16, sum_count - i) / sums_each, first = i / sums_each;
      __m512i v = _mm512_maskz_loadu_epi32(FirstLanes(LeastOf(16, sum_count - i)), x.sums + token * sum_count + i);
      for (int64_t each = sums_each; each > 1; each /= 2) {
        v = _mm512_maskz_mov_epi32(
            0xff, _mm512_castsi256_si512(_mm512_cvtepi64_epi32(_mm512_add_epi64(v, _mm512_srli_epi64(v, 32)))));
      }
      const __mmask16 lanes = FirstLanes(blocks);
      const int64_t at = token * terms.stride + first;
      _mm512_mask_storeu_epi32(terms.start + at, lanes, _mm512_mullo_epi32(v, factor));
      if (w.has_minimum) _mm512_mask_storeu_ps(terms.total + at, lanes, _mm512_cvtepi32_ps(v));
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
  for (int64_t i = 0; i < run.tokens * kPanelRows; i += 16) _mm512_store_ps(run.sums + i, _mm512_setzero_ps());

  const int64_t scale_bytes = kPanelRows * (w.wide_scales ? 4 : 2);
  const int32_t planes = x.format.planes;
  ChunkScales scales;
  TilePass t = {};
  t.gap = block_bytes - code_bytes;
  if (w.has_minimum) {
    t.total_offset =
        reinterpret_cast<const std::byte*>(run.terms.total) - reinterpret_cast<const std::byte*>(run.terms.start);
  }
  t.scales = &scales;
  t.x_stride = x.stride;
  t.term_stride = run.terms.stride;
  t.scale_stride = x.scale_count();

  Walk walk;
  walk.units = (w.cols + block - 1) / block;
  walk.unit_bytes = block_bytes;
  walk.steps = block / kSumColumns;
  walk.tokens_max = planes == 1 ? kTileTokensMax : kTileTokensMaxOfTwoPlanes;
  // Scales are read as soon as a chunk begins. Two tiles over codes of 8 bits do better without: measured.
  walk.lead_bytes = scaled && (u4 || run.tokens > 2 * walk.tokens_max) ? kAheadBytes : 0;
  const bool alone = run.tokens <= walk.tokens_max, many = run.tokens > kLongChunkTiles * walk.tokens_max;
  const int64_t columns = alone ? kShortChunkColumns : u4 || many ? kLongChunkColumns : kChunkColumns;
  walk.per_chunk = columns / block;
  const auto begin_chunk = [&](const std::byte* at, int64_t units) {
    t.codes = at;
    for (int64_t b = 0; scaled && b < units; ++b, at += block_bytes) {
      LoadScales(at + code_bytes, w.wide_scales, scales.scale[b]);
      if (w.has_minimum) LoadScales(at + code_bytes + scale_bytes, w.wide_scales, scales.minimum[b]);
      if (w.has_zeros) LoadOffsets(at + code_bytes + scale_bytes, scales.offset[b]);
    }
  };
  walk.Run(run, begin_chunk, [&](int64_t first, int64_t tokens, int64_t unit, int64_t units, const Ahead& ahead) {
    const int64_t token = run.first_token + first;
    t.blocks = units;
    t.x = x.values + token * planes * x.stride + unit * block;
    t.start = run.terms.start + token * t.term_stride + unit;
    t.x_scales = x.scales + token * t.scale_stride + unit * block / kTokenBlock;
    t.y = run.sums + first * kPanelRows;
    t.ahead = ahead;
    PickTile(w, planes, tokens)(t);
  });
}

}  // namespace tactus::kernels
