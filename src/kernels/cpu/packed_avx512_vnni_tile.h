// One tile of integer codes: up to 3 tokens, or 2 of two planes, times 64 rows of weights, over the token blocks of a
// chunk. Included by packed_avx512_vnni.cc alone.
//
// A token block is one piece of assembly. GCC 12 keeps addresses of such loops in vector registers, so that the next
// block's loads wait for this one's arithmetic, and moves and spills sums: 10 % slower than the same in assembly.
// Registers: t of tokens 0 and 1 zmm0-7, of token 2 zmm20-23; integer sums of the rows zmm8-23, four each; codes
// zmm24-27, or scales at a block's end; a broadcast zmm28; the mask of nibbles zmm29.
#pragma once

#include "kernels/cpu/packed_avx512_tile.h"

namespace tactus::kernels {
namespace {

inline constexpr int64_t kSumColumns = 16;  // columns of one entry of PackedTokens::sums
inline constexpr int64_t kTokenSteps = kTokenBlock / kSumColumns;
inline constexpr int64_t kLongChunkColumns = 512;  // of a panel at a time, at most
inline constexpr int64_t kChunkBlocks = kLongChunkColumns / 16;
inline constexpr int64_t kGroupBytes = kPanelRows * 4;  // 4 columns of codes of 8 bits, or 8 of 4

// How codes of a chunk lie: as bytes, as pairs of 4 bits, or as those with zero points.
enum class Codes { kBytes, kNibbles, kZeroed };

// What a block's scales are: none (the row's comes at the end: Finish in packed_avx512.cc), scales, or also minima.
enum class Scales { kNone, kScale, kMinimum };

// A chunk's scales and minima as f32, and its zero points as 64 - z in each byte of a row.
struct alignas(64) ChunkScales {
  float scale[kChunkBlocks][kPanelRows];
  float minimum[kChunkBlocks][kPanelRows];
  int32_t offset[kChunkBlocks][kPanelRows];
};

// One tile's pass over the blocks of a chunk, whose first is also the first of a token block.
struct TilePass {
  const std::byte* codes;  // first block's
  int64_t gap;             // bytes between the end of one block's codes and the next one's
  int64_t blocks;
  const ChunkScales* scales;
  const std::byte* x;     // values at the chunk
  int64_t x_stride;       // of rows
  const int32_t* start;   // at the chunk
  int64_t total_offset;   // bytes from an entry of start to that of total (packed_avx512.h); with minima
  int64_t term_stride;    // of tokens, as the next two
  const float* x_scales;  // at the chunk
  int64_t scale_stride;
  float* y;  // [tokens][64]
  Ahead ahead;
};

// clang-format off
#define TACTUS_BYTES(at) \
  "vmovdqa64 " #at "+0(%[w]), %%zmm24\n\t" \
  "vmovdqa64 " #at "+64(%[w]), %%zmm25\n\t" \
  "vmovdqa64 " #at "+128(%[w]), %%zmm26\n\t" \
  "vmovdqa64 " #at "+192(%[w]), %%zmm27\n\t"
#define TACTUS_LOW(at) \
  "vpandd " #at "+0(%[w]), %%zmm29, %%zmm24\n\t" \
  "vpandd " #at "+64(%[w]), %%zmm29, %%zmm25\n\t" \
  "vpandd " #at "+128(%[w]), %%zmm29, %%zmm26\n\t" \
  "vpandd " #at "+192(%[w]), %%zmm29, %%zmm27\n\t"
#define TACTUS_MASK \
  "vpandd %%zmm24, %%zmm29, %%zmm24\n\t" \
  "vpandd %%zmm25, %%zmm29, %%zmm25\n\t" \
  "vpandd %%zmm26, %%zmm29, %%zmm26\n\t" \
  "vpandd %%zmm27, %%zmm29, %%zmm27\n\t"
#define TACTUS_SHIFT(how, at) \
  how ", " #at "+0(%[w]), %%zmm24\n\t" \
  how ", " #at "+64(%[w]), %%zmm25\n\t" \
  how ", " #at "+128(%[w]), %%zmm26\n\t" \
  how ", " #at "+192(%[w]), %%zmm27\n\t" TACTUS_MASK
#define TACTUS_HIGH(at) TACTUS_SHIFT("vpsrlw $4", at)
#define TACTUS_OFFSETS \
  "vpaddb %c[offset]+0(%[scales]), %%zmm24, %%zmm24\n\t" \
  "vpaddb %c[offset]+64(%[scales]), %%zmm25, %%zmm25\n\t" \
  "vpaddb %c[offset]+128(%[scales]), %%zmm26, %%zmm26\n\t" \
  "vpaddb %c[offset]+192(%[scales]), %%zmm27, %%zmm27\n\t"
#define TACTUS_LOW_ZEROED(at) TACTUS_SHIFT("vpsllw $2", at) TACTUS_OFFSETS
#define TACTUS_HIGH_ZEROED(at) TACTUS_SHIFT("vpsrlw $2", at) TACTUS_OFFSETS

// Four columns of a row of tokens times the codes.
#define TACTUS_ROW(address, a, b, c, d) \
  "vpbroadcastd " address ", %%zmm28\n\t" \
  "vpdpbusd %%zmm28, %%zmm24, %%zmm" #a "\n\t" \
  "vpdpbusd %%zmm28, %%zmm25, %%zmm" #b "\n\t" \
  "vpdpbusd %%zmm28, %%zmm26, %%zmm" #c "\n\t" \
  "vpdpbusd %%zmm28, %%zmm27, %%zmm" #d "\n\t"
#define TACTUS_ROWS1(at) TACTUS_ROW(#at "(%[x])", 8, 9, 10, 11)
#define TACTUS_ROWS2(at) TACTUS_ROWS1(at) TACTUS_ROW(#at "(%[x], %[x_stride])", 12, 13, 14, 15)
#define TACTUS_ROWS3(at) TACTUS_ROWS2(at) TACTUS_ROW(#at "(%[x], %[x_stride], 2)", 16, 17, 18, 19)
#define TACTUS_ROWS4(at) TACTUS_ROWS3(at) TACTUS_ROW(#at "(%[x3])", 20, 21, 22, 23)

// 16 columns.
#define TACTUS_STEP_BYTES(ROWS) \
  TACTUS_BYTES(0) ROWS(0) TACTUS_BYTES(256) ROWS(4) TACTUS_BYTES(512) ROWS(8) TACTUS_BYTES(768) ROWS(12) \
  "add $1024, %[w]\n\t"
#define TACTUS_STEP_NIBBLES(ROWS) \
  TACTUS_LOW(0) ROWS(0) TACTUS_HIGH(0) ROWS(4) TACTUS_LOW(256) ROWS(8) TACTUS_HIGH(256) ROWS(12) \
  "add $512, %[w]\n\t"
#define TACTUS_STEP_ZEROED(ROWS) \
  TACTUS_LOW_ZEROED(0) ROWS(0) TACTUS_HIGH_ZEROED(0) ROWS(4) \
  TACTUS_LOW_ZEROED(256) ROWS(8) TACTUS_HIGH_ZEROED(256) ROWS(12) \
  "add $512, %[w]\n\t"

// Where a block's sums start: a plane alone or the lower one at the token's term, the higher one at 0.
#define TACTUS_START(address, a, b, c, d) \
  "vpbroadcastd " address ", %%zmm" #a "\n\t" \
  "vmovdqa64 %%zmm" #a ", %%zmm" #b "\n\t" \
  "vmovdqa64 %%zmm" #a ", %%zmm" #c "\n\t" \
  "vmovdqa64 %%zmm" #a ", %%zmm" #d "\n\t"
#define TACTUS_CLEAR(a, b, c, d) \
  "vpxord %%xmm" #a ", %%xmm" #a ", %%xmm" #a "\n\t" \
  "vpxord %%xmm" #b ", %%xmm" #b ", %%xmm" #b "\n\t" \
  "vpxord %%xmm" #c ", %%xmm" #c ", %%xmm" #c "\n\t" \
  "vpxord %%xmm" #d ", %%xmm" #d ", %%xmm" #d "\n\t"
#define TACTUS_START_1x1 TACTUS_START("(%[start])", 8, 9, 10, 11)
#define TACTUS_START_1x2 TACTUS_START_1x1 TACTUS_START("(%[start], %[term_stride], 4)", 12, 13, 14, 15)
#define TACTUS_START_1x3 TACTUS_START_1x2 TACTUS_START("(%[start], %[term_stride], 8)", 16, 17, 18, 19)
#define TACTUS_START_2x1 TACTUS_CLEAR(8, 9, 10, 11) TACTUS_START("(%[start])", 12, 13, 14, 15)
#define TACTUS_START_2x2 \
  TACTUS_START_2x1 TACTUS_CLEAR(16, 17, 18, 19) TACTUS_START("(%[start], %[term_stride], 4)", 20, 21, 22, 23)

// A block's end. Planes as integers together:
#define TACTUS_JOIN(a, b, c, d, e, f, g, h) \
  "vpslld $8, %%zmm" #a ", %%zmm" #a "\n\t" \
  "vpslld $8, %%zmm" #b ", %%zmm" #b "\n\t" \
  "vpslld $8, %%zmm" #c ", %%zmm" #c "\n\t" \
  "vpslld $8, %%zmm" #d ", %%zmm" #d "\n\t" \
  "vpaddd %%zmm" #a ", %%zmm" #e ", %%zmm" #a "\n\t" \
  "vpaddd %%zmm" #b ", %%zmm" #f ", %%zmm" #b "\n\t" \
  "vpaddd %%zmm" #c ", %%zmm" #g ", %%zmm" #c "\n\t" \
  "vpaddd %%zmm" #d ", %%zmm" #h ", %%zmm" #d "\n\t"
#define TACTUS_JOIN_2x1 TACTUS_JOIN(8, 9, 10, 11, 12, 13, 14, 15)
#define TACTUS_JOIN_2x2 TACTUS_JOIN_2x1 TACTUS_JOIN(16, 17, 18, 19, 20, 21, 22, 23)
// Sums (first four) into t (last four): t = fma(float(sum), scale, t).
#define TACTUS_SCALE(a, b, c, d, e, f, g, h) \
  "vcvtdq2ps %%zmm" #a ", %%zmm" #a "\n\t" \
  "vcvtdq2ps %%zmm" #b ", %%zmm" #b "\n\t" \
  "vcvtdq2ps %%zmm" #c ", %%zmm" #c "\n\t" \
  "vcvtdq2ps %%zmm" #d ", %%zmm" #d "\n\t" \
  "vfmadd231ps %%zmm" #a ", %%zmm24, %%zmm" #e "\n\t" \
  "vfmadd231ps %%zmm" #b ", %%zmm25, %%zmm" #f "\n\t" \
  "vfmadd231ps %%zmm" #c ", %%zmm26, %%zmm" #g "\n\t" \
  "vfmadd231ps %%zmm" #d ", %%zmm27, %%zmm" #h "\n\t"
#define TACTUS_FOUR(from) \
  "vmovaps " from "+0(%[scales]), %%zmm24\n\t" \
  "vmovaps " from "+64(%[scales]), %%zmm25\n\t" \
  "vmovaps " from "+128(%[scales]), %%zmm26\n\t" \
  "vmovaps " from "+192(%[scales]), %%zmm27\n\t"
#define TACTUS_SCALE_1x1 TACTUS_SCALE(8, 9, 10, 11, 0, 1, 2, 3)
#define TACTUS_SCALE_1x2 TACTUS_SCALE_1x1 TACTUS_SCALE(12, 13, 14, 15, 4, 5, 6, 7)
#define TACTUS_SCALE_1x3 TACTUS_SCALE_1x2 TACTUS_SCALE(16, 17, 18, 19, 20, 21, 22, 23)
#define TACTUS_SCALE_2x1 TACTUS_JOIN_2x1 TACTUS_SCALE_1x1
#define TACTUS_SCALE_2x2 TACTUS_JOIN_2x2 TACTUS_SCALE_1x1 TACTUS_SCALE(16, 17, 18, 19, 4, 5, 6, 7)
// t = fma(minimum, sum of the token's values, t).
#define TACTUS_ADD_MINIMUM(address, e, f, g, h) \
  "vbroadcastss " address ", %%zmm28\n\t" \
  "vfmadd231ps %%zmm28, %%zmm24, %%zmm" #e "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm25, %%zmm" #f "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm26, %%zmm" #g "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm27, %%zmm" #h "\n\t"
#define TACTUS_MINIMUM1 TACTUS_ADD_MINIMUM("(%[i])", 0, 1, 2, 3)
#define TACTUS_MINIMUM2 TACTUS_MINIMUM1 TACTUS_ADD_MINIMUM("(%[i], %[term_stride], 4)", 4, 5, 6, 7)
#define TACTUS_MINIMUM3 TACTUS_MINIMUM2 TACTUS_ADD_MINIMUM("(%[i], %[term_stride], 8)", 20, 21, 22, 23)
#define TACTUS_END_SCALE(SCALE, MINIMUM) TACTUS_FOUR("0") SCALE
#define TACTUS_END_MINIMUM(SCALE, MINIMUM) \
  TACTUS_END_SCALE(SCALE, MINIMUM) \
  TACTUS_FOUR("%c[minimum]") \
  "mov %[total_offset], %[i]\n\t" \
  "add %[start], %[i]\n\t" MINIMUM
// Without scales t is the sum.
#define TACTUS_CONVERT(a, b, c, d, e, f, g, h) \
  "vcvtdq2ps %%zmm" #a ", %%zmm" #e "\n\t" \
  "vcvtdq2ps %%zmm" #b ", %%zmm" #f "\n\t" \
  "vcvtdq2ps %%zmm" #c ", %%zmm" #g "\n\t" \
  "vcvtdq2ps %%zmm" #d ", %%zmm" #h "\n\t"
#define TACTUS_CONVERT_1x1 TACTUS_CONVERT(8, 9, 10, 11, 0, 1, 2, 3)
#define TACTUS_CONVERT_1x2 TACTUS_CONVERT_1x1 TACTUS_CONVERT(12, 13, 14, 15, 4, 5, 6, 7)
#define TACTUS_CONVERT_1x3 TACTUS_CONVERT_1x2 TACTUS_CONVERT(16, 17, 18, 19, 20, 21, 22, 23)
#define TACTUS_CONVERT_2x1 TACTUS_JOIN_2x1 TACTUS_CONVERT_1x1
#define TACTUS_CONVERT_2x2 TACTUS_JOIN_2x2 TACTUS_CONVERT_1x1 TACTUS_CONVERT(16, 17, 18, 19, 4, 5, 6, 7)
#define TACTUS_END_NONE(CONVERT, MINIMUM) CONVERT

// A token block's end: y = fma(t, scale, y).
#define TACTUS_ADD_Y(address, at, e, f, g, h) \
  "vbroadcastss " address ", %%zmm28\n\t" \
  "vfmadd213ps " #at "+0(%[i]), %%zmm28, %%zmm" #e "\n\t" \
  "vfmadd213ps " #at "+64(%[i]), %%zmm28, %%zmm" #f "\n\t" \
  "vfmadd213ps " #at "+128(%[i]), %%zmm28, %%zmm" #g "\n\t" \
  "vfmadd213ps " #at "+192(%[i]), %%zmm28, %%zmm" #h "\n\t" \
  "vmovaps %%zmm" #e ", " #at "+0(%[i])\n\t" \
  "vmovaps %%zmm" #f ", " #at "+64(%[i])\n\t" \
  "vmovaps %%zmm" #g ", " #at "+128(%[i])\n\t" \
  "vmovaps %%zmm" #h ", " #at "+192(%[i])\n\t"
#define TACTUS_Y1 TACTUS_ADD_Y("(%[k])", 0, 0, 1, 2, 3)
#define TACTUS_Y2 TACTUS_Y1 TACTUS_ADD_Y("(%[k], %[n], 4)", 256, 4, 5, 6, 7)
#define TACTUS_Y3 TACTUS_Y2 TACTUS_ADD_Y("(%[k], %[n], 8)", 512, 20, 21, 22, 23)

#define TACTUS_TOKEN_BLOCK(STEP, ROWS, START, END, SCALE, MINIMUM, Y) \
  asm volatile( \
      "vpbroadcastd %[mask], %%zmm29\n\t" \
      TACTUS_CLEAR(0, 1, 2, 3) TACTUS_CLEAR(4, 5, 6, 7) TACTUS_CLEAR(20, 21, 22, 23) \
      "1:\n\t" START \
      "mov %[steps], %k[k]\n" \
      "2:\n\t" \
      "mov %[lines], %[i]\n\t" \
      "test %[i], %[i]\n\t" \
      "jz 4f\n" \
      "3:\n\t" \
      "prefetcht0 (%[ahead])\n\t" \
      "add $64, %[ahead]\n\t" \
      "dec %[i]\n\t" \
      "jnz 3b\n" \
      "4:\n\t" STEP(ROWS) \
      "add $16, %[x]\n\t" \
      "add $16, %[x3]\n\t" \
      "dec %k[k]\n\t" \
      "jnz 2b\n\t" \
      "add %[gap], %[w]\n\t" END(SCALE, MINIMUM) \
      "add $256, %[scales]\n\t" \
      "add $4, %[start]\n\t" \
      "dec %[n]\n\t" \
      "jnz 1b\n\t" \
      "mov %[y], %[i]\n\t" \
      "mov %[x_scales], %[k]\n\t" \
      "mov %[scale_stride], %[n]\n\t" Y \
      : [w] "+r"(w), [x] "+r"(x), [x3] "+r"(x3), [scales] "+r"(scales), [start] "+r"(start), [n] "+r"(n), \
        [ahead] "+r"(ahead), [i] "=&r"(i), [k] "=&r"(k) \
      : [x_stride] "r"(t.x_stride), [term_stride] "r"(t.term_stride), [lines] "r"(t.ahead.lines), \
        [mask] "m"(mask), [gap] "m"(t.gap), [total_offset] "m"(t.total_offset), [y] "m"(t.y), [x_scales] "m"(x_scales), \
        [scale_stride] "m"(t.scale_stride), [steps] "i"(kSteps), [minimum] "i"(offsetof(ChunkScales, minimum)), \
        [offset] "i"(offsetof(ChunkScales, offset)) \
      : "cc", "memory", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", \
        "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", \
        "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29")
#define TACTUS_SHAPE(STEP, ROWS, END, KIND, PLANES, TOKENS) \
  TACTUS_TOKEN_BLOCK(STEP, TACTUS_ROWS##ROWS, TACTUS_START_##PLANES##x##TOKENS, END, TACTUS_##KIND##_##PLANES##x##TOKENS, TACTUS_MINIMUM##TOKENS, TACTUS_Y##TOKENS)
#define TACTUS_SHAPES(STEP, END, KIND) \
  if constexpr (kPlanes == 1 && kTokens == 1) { \
    TACTUS_SHAPE(STEP, 1, END, KIND, 1, 1); \
  } else if constexpr (kPlanes == 1 && kTokens == 2) { \
    TACTUS_SHAPE(STEP, 2, END, KIND, 1, 2); \
  } else if constexpr (kPlanes == 1) { \
    TACTUS_SHAPE(STEP, 3, END, KIND, 1, 3); \
  } else if constexpr (kTokens == 1) { \
    TACTUS_SHAPE(STEP, 2, END, KIND, 2, 1); \
  } else { \
    TACTUS_SHAPE(STEP, 4, END, KIND, 2, 2); \
  }
#define TACTUS_ENDS(STEP) \
  if constexpr (kScales == Scales::kNone) { \
    TACTUS_SHAPES(STEP, TACTUS_END_NONE, CONVERT) \
  } else if constexpr (kScales == Scales::kScale) { \
    TACTUS_SHAPES(STEP, TACTUS_END_SCALE, SCALE) \
  } else { \
    TACTUS_SHAPES(STEP, TACTUS_END_MINIMUM, SCALE) \
  }
// clang-format on

// A block is kSteps x 16 columns; without scales it is a token block.
template <Codes kCodes, Scales kScales, int kSteps, int kPlanes, int kTokens>
__attribute__((noinline)) void RunTile(const TilePass& t) {
  static_assert(kTokens * kPlanes <= 4 && kTokens <= 3);
  const std::byte* w = t.codes;
  const std::byte* x = t.x;
  const std::byte* x3 = t.x + 3 * t.x_stride;
  const auto* scales = reinterpret_cast<const std::byte*>(t.scales);
  const int32_t* start = t.start;
  const float* x_scales = t.x_scales;
  uintptr_t ahead = t.ahead.at;
  const uint32_t mask = kCodes == Codes::kZeroed ? 0x3c3c3c3c : 0x0f0f0f0f;
  for (int64_t left = t.blocks; left > 0; left -= kTokenSteps / kSteps, ++x_scales) {
    int64_t n = LeastOf(left, kTokenSteps / kSteps), i, k;
    if constexpr (kCodes == Codes::kBytes) {
      TACTUS_ENDS(TACTUS_STEP_BYTES)
    } else if constexpr (kCodes == Codes::kNibbles) {
      TACTUS_ENDS(TACTUS_STEP_NIBBLES)
    } else {
      TACTUS_ENDS(TACTUS_STEP_ZEROED)
    }
  }
}

#undef TACTUS_ADD_MINIMUM
#undef TACTUS_ADD_Y
#undef TACTUS_BYTES
#undef TACTUS_CLEAR
#undef TACTUS_CONVERT
#undef TACTUS_CONVERT_1x1
#undef TACTUS_CONVERT_1x2
#undef TACTUS_CONVERT_1x3
#undef TACTUS_CONVERT_2x1
#undef TACTUS_CONVERT_2x2
#undef TACTUS_ENDS
#undef TACTUS_END_MINIMUM
#undef TACTUS_END_NONE
#undef TACTUS_END_SCALE
#undef TACTUS_FOUR
#undef TACTUS_HIGH
#undef TACTUS_HIGH_ZEROED
#undef TACTUS_JOIN
#undef TACTUS_JOIN_2x1
#undef TACTUS_JOIN_2x2
#undef TACTUS_LOW
#undef TACTUS_LOW_ZEROED
#undef TACTUS_MASK
#undef TACTUS_MINIMUM1
#undef TACTUS_MINIMUM2
#undef TACTUS_MINIMUM3
#undef TACTUS_OFFSETS
#undef TACTUS_ROW
#undef TACTUS_ROWS1
#undef TACTUS_ROWS2
#undef TACTUS_ROWS3
#undef TACTUS_ROWS4
#undef TACTUS_SCALE
#undef TACTUS_SCALE_1x1
#undef TACTUS_SCALE_1x2
#undef TACTUS_SCALE_1x3
#undef TACTUS_SCALE_2x1
#undef TACTUS_SCALE_2x2
#undef TACTUS_SHAPE
#undef TACTUS_SHAPES
#undef TACTUS_SHIFT
#undef TACTUS_START
#undef TACTUS_START_1x1
#undef TACTUS_START_1x2
#undef TACTUS_START_1x3
#undef TACTUS_START_2x1
#undef TACTUS_START_2x2
#undef TACTUS_STEP_BYTES
#undef TACTUS_STEP_NIBBLES
#undef TACTUS_STEP_ZEROED
#undef TACTUS_TOKEN_BLOCK
#undef TACTUS_Y1
#undef TACTUS_Y2
#undef TACTUS_Y3

}  // namespace
}  // namespace tactus::kernels
