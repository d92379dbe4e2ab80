// The assembly of a tile of integer codes over one token block: vnni_tile.h, which alone includes this,
// says what it is for and names its operands. Why not intrinsics: docs/measurements/assembly_against_intrinsics.md.
//
// Registers: t of tokens 0 and 1 in zmm0-7, of token 2 of three in zmm20-23; integer sums of the rows in zmm8-23, four
// each; codes in zmm24-27, at a block's end scales; a broadcast in zmm28; the mask of 4 bits in zmm29. [i] and [k] are
// free between the uses that are in sight. A shape is PLANESxTOKENS.
#pragma once

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
#define TACTUS_ROWS4(at) \
  TACTUS_ROWS3(at) \
  "lea (%[x], %[x_stride], 2), %[i]\n\t" TACTUS_ROW(#at "(%[i], %[x_stride])", 20, 21, 22, 23)

// 16 columns.
#define TACTUS_STEP_BYTES(ROWS) \
  TACTUS_BYTES(0) ROWS(0) TACTUS_BYTES(256) ROWS(4) TACTUS_BYTES(512) ROWS(8) TACTUS_BYTES(768) ROWS(12) \
  "add $1024, %[w]\n\t"
// Codes of 4 bits, taken apart; KEEP writes them as bytes for the tiles to come.
#define TACTUS_KEEP(at) \
  "vmovdqa64 %%zmm24, " #at "+0(%[kept])\n\t" \
  "vmovdqa64 %%zmm25, " #at "+64(%[kept])\n\t" \
  "vmovdqa64 %%zmm26, " #at "+128(%[kept])\n\t" \
  "vmovdqa64 %%zmm27, " #at "+192(%[kept])\n\t"
#define TACTUS_DROP(at)
#define TACTUS_STEP_4(LOW, HIGH, KEEP, ROWS) \
  LOW(0) KEEP(0) ROWS(0) HIGH(0) KEEP(256) ROWS(4) LOW(256) KEEP(512) ROWS(8) HIGH(256) KEEP(768) ROWS(12) \
  "add $512, %[w]\n\t"
#define TACTUS_STEP_NIBBLES(ROWS) TACTUS_STEP_4(TACTUS_LOW, TACTUS_HIGH, TACTUS_DROP, ROWS)
#define TACTUS_STEP_NIBBLES_KEPT(ROWS) \
  TACTUS_STEP_4(TACTUS_LOW, TACTUS_HIGH, TACTUS_KEEP, ROWS) "add $1024, %[kept]\n\t"
#define TACTUS_STEP_ZEROED(ROWS) TACTUS_STEP_4(TACTUS_LOW_ZEROED, TACTUS_HIGH_ZEROED, TACTUS_DROP, ROWS)
#define TACTUS_STEP_ZEROED_KEPT(ROWS) \
  TACTUS_STEP_4(TACTUS_LOW_ZEROED, TACTUS_HIGH_ZEROED, TACTUS_KEEP, ROWS) "add $1024, %[kept]\n\t"

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
#define TACTUS_START_1x4 \
  TACTUS_START_1x3 \
  "lea (%[start], %[term_stride], 8), %[i]\n\t" TACTUS_START("(%[i], %[term_stride], 4)", 20, 21, 22, 23)
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
// One plane's sums by the shift of the token's block.
#define TACTUS_RAISE(address, a, b, c, d) \
  "vpbroadcastd " address ", %%zmm28\n\t" \
  "vpsllvd %%zmm28, %%zmm" #a ", %%zmm" #a "\n\t" \
  "vpsllvd %%zmm28, %%zmm" #b ", %%zmm" #b "\n\t" \
  "vpsllvd %%zmm28, %%zmm" #c ", %%zmm" #c "\n\t" \
  "vpsllvd %%zmm28, %%zmm" #d ", %%zmm" #d "\n\t"
#define TACTUS_RAISE1 \
  "mov %[shift_offset], %[i]\n\t" \
  "add %[start], %[i]\n\t" TACTUS_RAISE("(%[i])", 8, 9, 10, 11)
#define TACTUS_RAISE2 TACTUS_RAISE1 TACTUS_RAISE("(%[i], %[term_stride], 4)", 12, 13, 14, 15)
#define TACTUS_RAISE3 TACTUS_RAISE2 TACTUS_RAISE("(%[i], %[term_stride], 8)", 16, 17, 18, 19)
#define TACTUS_RAISE4 \
  TACTUS_RAISE3 \
  "lea (%[i], %[term_stride], 8), %[i]\n\t" TACTUS_RAISE("(%[i], %[term_stride], 4)", 20, 21, 22, 23)
#define TACTUS_SCALE1 TACTUS_SCALE(8, 9, 10, 11, 0, 1, 2, 3)
#define TACTUS_SCALE2 TACTUS_SCALE1 TACTUS_SCALE(12, 13, 14, 15, 4, 5, 6, 7)
#define TACTUS_SCALE_1x1 TACTUS_RAISE1 TACTUS_SCALE1
#define TACTUS_SCALE_1x2 TACTUS_RAISE2 TACTUS_SCALE2
#define TACTUS_SCALE_1x3 TACTUS_RAISE3 TACTUS_SCALE2 TACTUS_SCALE(16, 17, 18, 19, 20, 21, 22, 23)
// Four tokens' t do not fit: those of the last two rest in memory between blocks.
#define TACTUS_SCALE_REST(at, a, b, c, d) \
  "vcvtdq2ps %%zmm" #a ", %%zmm" #a "\n\t" \
  "vcvtdq2ps %%zmm" #b ", %%zmm" #b "\n\t" \
  "vcvtdq2ps %%zmm" #c ", %%zmm" #c "\n\t" \
  "vcvtdq2ps %%zmm" #d ", %%zmm" #d "\n\t" \
  "vfmadd213ps " #at "+0(%[i]), %%zmm24, %%zmm" #a "\n\t" \
  "vfmadd213ps " #at "+64(%[i]), %%zmm25, %%zmm" #b "\n\t" \
  "vfmadd213ps " #at "+128(%[i]), %%zmm26, %%zmm" #c "\n\t" \
  "vfmadd213ps " #at "+192(%[i]), %%zmm27, %%zmm" #d "\n\t"
#define TACTUS_STORE(at, a, b, c, d) \
  "vmovaps %%zmm" #a ", " #at "+0(%[i])\n\t" \
  "vmovaps %%zmm" #b ", " #at "+64(%[i])\n\t" \
  "vmovaps %%zmm" #c ", " #at "+128(%[i])\n\t" \
  "vmovaps %%zmm" #d ", " #at "+192(%[i])\n\t"
#define TACTUS_SCALE_1x4 \
  TACTUS_RAISE4 TACTUS_SCALE2 \
  "mov %[rest], %[i]\n\t" \
  TACTUS_SCALE_REST(0, 16, 17, 18, 19) TACTUS_SCALE_REST(256, 20, 21, 22, 23)
#define TACTUS_SCALE_2x1 TACTUS_JOIN_2x1 TACTUS_SCALE1
#define TACTUS_SCALE_2x2 TACTUS_JOIN_2x2 TACTUS_SCALE1 TACTUS_SCALE(16, 17, 18, 19, 4, 5, 6, 7)
// t = fma(minimum, sum of the token's values, t).
#define TACTUS_ADD_MINIMUM(address, e, f, g, h) \
  "vbroadcastss " address ", %%zmm28\n\t" \
  "vfmadd231ps %%zmm28, %%zmm24, %%zmm" #e "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm25, %%zmm" #f "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm26, %%zmm" #g "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm27, %%zmm" #h "\n\t"
#define TACTUS_MINIMUM_1x1 TACTUS_ADD_MINIMUM("(%[i])", 0, 1, 2, 3)
#define TACTUS_MINIMUM_1x2 TACTUS_MINIMUM_1x1 TACTUS_ADD_MINIMUM("(%[i], %[term_stride], 4)", 4, 5, 6, 7)
#define TACTUS_MINIMUM_1x3 TACTUS_MINIMUM_1x2 TACTUS_ADD_MINIMUM("(%[i], %[term_stride], 8)", 20, 21, 22, 23)
#define TACTUS_MINIMUM_1x4 \
  TACTUS_MINIMUM_1x2 TACTUS_ADD_MINIMUM("(%[i], %[term_stride], 8)", 16, 17, 18, 19) \
  "lea (%[i], %[term_stride], 8), %[i]\n\t" TACTUS_ADD_MINIMUM("(%[i], %[term_stride], 4)", 20, 21, 22, 23)
#define TACTUS_MINIMUM_2x1 TACTUS_MINIMUM_1x1
#define TACTUS_MINIMUM_2x2 TACTUS_MINIMUM_1x2
#define TACTUS_REST_1x1
#define TACTUS_REST_1x2
#define TACTUS_REST_1x3
#define TACTUS_REST_1x4 "mov %[rest], %[i]\n\t" TACTUS_STORE(0, 16, 17, 18, 19) TACTUS_STORE(256, 20, 21, 22, 23)
#define TACTUS_REST_2x1
#define TACTUS_REST_2x2
// t of a token block starts at 0.
#define TACTUS_ZERO_1x1 TACTUS_CLEAR(0, 1, 2, 3)
#define TACTUS_ZERO_1x2 TACTUS_ZERO_1x1 TACTUS_CLEAR(4, 5, 6, 7)
#define TACTUS_ZERO_1x3 TACTUS_ZERO_1x2 TACTUS_CLEAR(20, 21, 22, 23)
#define TACTUS_ZERO_1x4 \
  TACTUS_ZERO_1x2 "mov %[rest], %[i]\n\t" TACTUS_STORE(0, 0, 0, 0, 0) TACTUS_STORE(256, 0, 0, 0, 0)
#define TACTUS_ZERO_2x1 TACTUS_ZERO_1x1
#define TACTUS_ZERO_2x2 TACTUS_ZERO_1x2
#define TACTUS_ZERO_SCALE(SHAPE) TACTUS_ZERO_##SHAPE
#define TACTUS_ZERO_CONVERT(SHAPE)
#define TACTUS_END_SCALE(SHAPE) TACTUS_FOUR("0") TACTUS_SCALE_##SHAPE TACTUS_REST_##SHAPE
#define TACTUS_END_MINIMUM(SHAPE) \
  TACTUS_FOUR("0") TACTUS_SCALE_##SHAPE \
  TACTUS_FOUR("%c[minimum]") \
  "mov %[total_offset], %[i]\n\t" \
  "add %[start], %[i]\n\t" TACTUS_MINIMUM_##SHAPE TACTUS_REST_##SHAPE
// Without scales t is the sum.
#define TACTUS_CONVERT(a, b, c, d, e, f, g, h) \
  "vcvtdq2ps %%zmm" #a ", %%zmm" #e "\n\t" \
  "vcvtdq2ps %%zmm" #b ", %%zmm" #f "\n\t" \
  "vcvtdq2ps %%zmm" #c ", %%zmm" #g "\n\t" \
  "vcvtdq2ps %%zmm" #d ", %%zmm" #h "\n\t"
#define TACTUS_CONVERT_1x1 TACTUS_CONVERT(8, 9, 10, 11, 0, 1, 2, 3)
#define TACTUS_CONVERT_1x2 TACTUS_CONVERT_1x1 TACTUS_CONVERT(12, 13, 14, 15, 4, 5, 6, 7)
#define TACTUS_CONVERT_1x3 TACTUS_CONVERT_1x2 TACTUS_CONVERT(16, 17, 18, 19, 20, 21, 22, 23)
#define TACTUS_CONVERT_1x4 \
  TACTUS_CONVERT_1x2 TACTUS_CONVERT(16, 17, 18, 19, 16, 17, 18, 19) TACTUS_CONVERT(20, 21, 22, 23, 20, 21, 22, 23)
#define TACTUS_CONVERT_2x1 TACTUS_JOIN_2x1 TACTUS_CONVERT_1x1
#define TACTUS_CONVERT_2x2 TACTUS_JOIN_2x2 TACTUS_CONVERT_1x1 TACTUS_CONVERT(16, 17, 18, 19, 4, 5, 6, 7)
#define TACTUS_END_NONE(SHAPE) TACTUS_CONVERT_##SHAPE

// A token block's end: y = fma(t, scale, y).
#define TACTUS_ADD_Y(address, at, e, f, g, h) \
  "vbroadcastss " address ", %%zmm28\n\t" \
  "vfmadd213ps " #at "+0(%[i]), %%zmm28, %%zmm" #e "\n\t" \
  "vfmadd213ps " #at "+64(%[i]), %%zmm28, %%zmm" #f "\n\t" \
  "vfmadd213ps " #at "+128(%[i]), %%zmm28, %%zmm" #g "\n\t" \
  "vfmadd213ps " #at "+192(%[i]), %%zmm28, %%zmm" #h "\n\t" \
  TACTUS_STORE(at, e, f, g, h)
#define TACTUS_Y_1x1 TACTUS_ADD_Y("(%[k])", 0, 0, 1, 2, 3)
#define TACTUS_Y_1x2 TACTUS_Y_1x1 TACTUS_ADD_Y("(%[k], %[n], 4)", 256, 4, 5, 6, 7)
#define TACTUS_Y_1x3 TACTUS_Y_1x2 TACTUS_ADD_Y("(%[k], %[n], 8)", 512, 20, 21, 22, 23)
#define TACTUS_Y_1x4 \
  TACTUS_Y_1x2 TACTUS_ADD_Y("(%[k], %[n], 8)", 512, 16, 17, 18, 19) \
  "lea (%[k], %[n], 8), %[k]\n\t" TACTUS_ADD_Y("(%[k], %[n], 4)", 768, 20, 21, 22, 23)
#define TACTUS_Y_2x1 TACTUS_Y_1x1
#define TACTUS_Y_2x2 TACTUS_Y_1x2

#define TACTUS_TOKEN_BLOCK(STEP, ROWS, ZERO, START, END, Y) \
  asm volatile( \
      "vpbroadcastd %[mask], %%zmm29\n\t" \
      ZERO \
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
      "dec %k[k]\n\t" \
      "jnz 2b\n\t" \
      "add %[gap], %[w]\n\t" END \
      "add $256, %[scales]\n\t" \
      "add $4, %[start]\n\t" \
      "dec %[n]\n\t" \
      "jnz 1b\n\t" \
      "mov %[y], %[i]\n\t" \
      "mov %[x_scales], %[k]\n\t" \
      "mov %[scale_stride], %[n]\n\t" Y \
      : [w] "+r"(w), [x] "+r"(x), [scales] "+r"(scales), [start] "+r"(start), [n] "+r"(n), \
        [ahead] "+r"(ahead), [kept] "+r"(kept), [i] "=&r"(i), [k] "=&r"(k) \
      : [x_stride] "r"(t.x_stride), [term_stride] "r"(t.term_stride), [lines] "r"(t.ahead.lines), \
        [mask] "m"(mask), [gap] "m"(t.gap), [shift_offset] "m"(t.shift_offset), [total_offset] "m"(t.total_offset), [y] "m"(t.y), [rest] "m"(rest), \
        [x_scales] "m"(x_scales), \
        [scale_stride] "m"(t.scale_stride), [steps] "i"(kSteps), [minimum] "i"(offsetof(ChunkScales, minimum)), \
        [offset] "i"(offsetof(ChunkScales, offset)) \
      : "cc", "memory", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", \
        "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", \
        "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29")
#define TACTUS_SHAPE(STEP, ROWS, END, KIND, SHAPE) \
  TACTUS_TOKEN_BLOCK(STEP, ROWS, TACTUS_ZERO_##KIND(SHAPE), TACTUS_START_##SHAPE, END(SHAPE), TACTUS_Y_##SHAPE)
#define TACTUS_SHAPES(STEP, END, KIND) \
  if constexpr (kPlanes == 1 && kTokens == 1) { \
    TACTUS_SHAPE(STEP, TACTUS_ROWS1, END, KIND, 1x1); \
  } else if constexpr (kPlanes == 1 && kTokens == 2) { \
    TACTUS_SHAPE(STEP, TACTUS_ROWS2, END, KIND, 1x2); \
  } else if constexpr (kPlanes == 1 && kTokens == 3) { \
    TACTUS_SHAPE(STEP, TACTUS_ROWS3, END, KIND, 1x3); \
  } else if constexpr (kPlanes == 1) { \
    TACTUS_SHAPE(STEP, TACTUS_ROWS4, END, KIND, 1x4); \
  } else if constexpr (kTokens == 1) { \
    TACTUS_SHAPE(STEP, TACTUS_ROWS2, END, KIND, 2x1); \
  } else { \
    TACTUS_SHAPE(STEP, TACTUS_ROWS4, END, KIND, 2x2); \
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
