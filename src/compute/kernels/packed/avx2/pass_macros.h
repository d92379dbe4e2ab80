// The macros that block_pass.h and byte_pass.h share: one instruction sequence for each row of a tile, and a block's
// end. Operands: w, x, t (TileTerms), y, i by register, scales and minima in memory; ymm0-11: sums, two for each row.
#pragma once

// clang-format off
// DO for each row: its number, and the registers of its sums.
#define TACTUS_EACH4(DO) DO(0, 0, 1) DO(1, 2, 3) DO(2, 4, 5) DO(3, 6, 7)
#define TACTUS_EACH5(DO) TACTUS_EACH4(DO) DO(4, 8, 9)
#define TACTUS_EACH6(DO) TACTUS_EACH5(DO) DO(5, 10, 11)
#define TACTUS_TWO(at, from) "vmovdqa " at from ", %%ymm12\n\tvmovdqa " at "+32" from ", %%ymm13\n\t"

// ---- a block's end: y = fma(float(sum) * x_scale, scale, y), without scales fma(float(sum), x_scale, y) ----
#define TACTUS_CONVERT(m, a, b) \
  "vbroadcastss %c[scale_at]+32*" #m "(%[t]), %%ymm14\n\t" \
  "vcvtdq2ps %%ymm" #a ", %%ymm" #a "\n\tvcvtdq2ps %%ymm" #b ", %%ymm" #b "\n\t"
#define TACTUS_ADD_Y(m, a, b, c, d) \
  "vfmadd213ps 256*" #m "(%[y]), %%ymm" #c ", %%ymm" #a "\n\tvfmadd213ps 256*" #m "+32(%[y]), %%ymm" #d ", %%ymm" #b \
  "\n\t"
#define TACTUS_STORE(m, a, b) "vmovaps %%ymm" #a ", 256*" #m "(%[y])\n\tvmovaps %%ymm" #b ", 256*" #m "+32(%[y])\n\t"
#define TACTUS_SCALED(m, a, b) \
  TACTUS_CONVERT(m, a, b) "vmulps %%ymm14, %%ymm" #a ", %%ymm" #a "\n\tvmulps %%ymm14, %%ymm" #b ", %%ymm" #b "\n\t" \
  TACTUS_ADD_Y(m, a, b, 12, 13)
#define TACTUS_MINIMUM(m, a, b) \
  "vbroadcastss %c[total_at]+32*" #m "(%[t]), %%ymm14\n\t" \
  "vfmadd231ps %%ymm14, %%ymm12, %%ymm" #a "\n\tvfmadd231ps %%ymm14, %%ymm13, %%ymm" #b "\n\t" TACTUS_STORE(m, a, b)
#define TACTUS_NONE_ROW(m, a, b) TACTUS_CONVERT(m, a, b) TACTUS_ADD_Y(m, a, b, 14, 14) TACTUS_STORE(m, a, b)
#define TACTUS_SCALE_ROW(m, a, b) TACTUS_SCALED(m, a, b) TACTUS_STORE(m, a, b)
#define TACTUS_END_NONE(N) TACTUS_EACH##N(TACTUS_NONE_ROW)
#define TACTUS_END_SCALE(N) \
  "mov %[scales], %[i]\n\t" TACTUS_TWO("0", "(%[i])") "addq $256, %[scales]\n\t" TACTUS_EACH##N(TACTUS_SCALE_ROW)
#define TACTUS_END_MINIMUM(N) \
  "mov %[scales], %[i]\n\t" TACTUS_TWO("0", "(%[i])") "addq $256, %[scales]\n\t" TACTUS_EACH##N(TACTUS_SCALED) \
  "mov %[minima], %[i]\n\t" TACTUS_TWO("0", "(%[i])") "addq $256, %[minima]\n\t" TACTUS_EACH##N(TACTUS_MINIMUM)
// ---- the next data: `lines` lines, a few at a time; labels 3 and 4 ----
#define TACTUS_FETCH(lines) \
  "mov " lines ", %[i]\n\ttest %[i], %[i]\n\tjz 4f\n" \
  "3:\n\tprefetcht0 (%[ahead])\n\tadd $64, %[ahead]\n\tdec %[i]\n\tjnz 3b\n" \
  "4:\n\t"

// PASS(arguments, rows) for kRows.
#define TACTUS_BY_ROWS(PASS, ...) \
  if constexpr (kRows == 4) { \
    PASS(__VA_ARGS__, 4); \
  } else if constexpr (kRows == 5) { \
    PASS(__VA_ARGS__, 5); \
  } else { \
    PASS(__VA_ARGS__, 6); \
  }
// clang-format on
