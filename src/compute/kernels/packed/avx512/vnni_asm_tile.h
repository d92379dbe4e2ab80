// The assembly of a whole tile: a block's end, and the loop around blocks. Only vnni_tile.h includes it, after
// vnni_asm.h, whose conventions apply here.
#pragma once

// clang-format off
// ---- a block's end ----

#define TACTUS_FROM_START(offset) "mov %[" offset "], %[k]\n\tadd %[start], %[k]\n\t"
#define TACTUS_SCALES(from) "mov %[scales], %[i]\n\t" TACTUS_LOAD(from, "(%[i])", 24, 25, 26, 27)
#define TACTUS_CONVERT(a, b, c, d) \
  "vcvtdq2ps %%zmm" #a ", %%zmm" #a "\n\t" \
  "vcvtdq2ps %%zmm" #b ", %%zmm" #b "\n\t" \
  "vcvtdq2ps %%zmm" #c ", %%zmm" #c "\n\t" \
  "vcvtdq2ps %%zmm" #d ", %%zmm" #d "\n\t"
// y = fma(float(sum) * x_scale, scale, y), with y in registers or in memory.
#define TACTUS_TIMES(address, a, b, c, d) \
  "vbroadcastss " address ", %%zmm28\n\t" TACTUS_CONVERT(a, b, c, d) TACTUS_FOUR("vmulps %%zmm28", a, b, c, d)
#define TACTUS_SCALE(address, a, b, c, d, e, f, g, h, o) \
  TACTUS_TIMES(address, a, b, c, d) \
  "vfmadd231ps %%zmm" #a ", %%zmm24, %%zmm" #e "\n\t" \
  "vfmadd231ps %%zmm" #b ", %%zmm25, %%zmm" #f "\n\t" \
  "vfmadd231ps %%zmm" #c ", %%zmm26, %%zmm" #g "\n\t" \
  "vfmadd231ps %%zmm" #d ", %%zmm27, %%zmm" #h "\n\t"
#define TACTUS_SCALE_REST(address, a, b, c, d, e, f, g, h, o) \
  TACTUS_TIMES(address, a, b, c, d) \
  "vfmadd213ps " #o "+0(%[y]), %%zmm24, %%zmm" #a "\n\t" \
  "vfmadd213ps " #o "+64(%[y]), %%zmm25, %%zmm" #b "\n\t" \
  "vfmadd213ps " #o "+128(%[y]), %%zmm26, %%zmm" #c "\n\t" \
  "vfmadd213ps " #o "+192(%[y]), %%zmm27, %%zmm" #d "\n\t"
// y = fma(minimum, total, y).
#define TACTUS_MINIMUM(address, a, b, c, d, e, f, g, h, o) \
  "vbroadcastss " address ", %%zmm28\n\t" \
  "vfmadd231ps %%zmm28, %%zmm24, %%zmm" #e "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm25, %%zmm" #f "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm26, %%zmm" #g "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm27, %%zmm" #h "\n\t"
// y = fma(float(sum), x_scale, y).
#define TACTUS_WHOLE(address, a, b, c, d, e, f, g, h, o) \
  "vbroadcastss " address ", %%zmm28\n\t" TACTUS_CONVERT(a, b, c, d) \
  "vfmadd231ps %%zmm28, %%zmm" #a ", %%zmm" #e "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm" #b ", %%zmm" #f "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm" #c ", %%zmm" #g "\n\t" \
  "vfmadd231ps %%zmm28, %%zmm" #d ", %%zmm" #h "\n\t"
#define TACTUS_WHOLE_REST(address, a, b, c, d, e, f, g, h, o) \
  "vbroadcastss " address ", %%zmm28\n\t" TACTUS_CONVERT(a, b, c, d) \
  "vfmadd213ps " #o "+0(%[y]), %%zmm28, %%zmm" #a "\n\t" \
  "vfmadd213ps " #o "+64(%[y]), %%zmm28, %%zmm" #b "\n\t" \
  "vfmadd213ps " #o "+128(%[y]), %%zmm28, %%zmm" #c "\n\t" \
  "vfmadd213ps " #o "+192(%[y]), %%zmm28, %%zmm" #d "\n\t"
#define TACTUS_LEAVE_Y(address, a, b, c, d, e, f, g, h, o) TACTUS_STORE(#o, "(%[y])", a, b, c, d)
// Location of y, by the number of rows.
#define TACTUS_IN_REGISTERS(DO, REST) DO
#define TACTUS_IN_MEMORY(DO, REST) REST
#define TACTUS_Y1 TACTUS_IN_REGISTERS
#define TACTUS_Y2 TACTUS_IN_REGISTERS
#define TACTUS_Y3 TACTUS_IN_REGISTERS
#define TACTUS_Y4 TACTUS_IN_MEMORY
#define TACTUS_Y5 TACTUS_IN_MEMORY
#define TACTUS_Y6 TACTUS_IN_MEMORY
#define TACTUS_NOTHING(address, a, b, c, d, e, f, g, h, o)
#define TACTUS_LEAVE(N) TACTUS_TERMS(N, TACTUS_Y##N(TACTUS_NOTHING, TACTUS_LEAVE_Y), "%[k]")
#define TACTUS_END_NONE(N) \
  TACTUS_FROM_START("scale_offset") TACTUS_TERMS(N, TACTUS_Y##N(TACTUS_WHOLE, TACTUS_WHOLE_REST), "%[k]") TACTUS_LEAVE(N)
#define TACTUS_END_SCALED(N) \
  TACTUS_SCALES("0") TACTUS_FROM_START("scale_offset") \
  TACTUS_TERMS(N, TACTUS_Y##N(TACTUS_SCALE, TACTUS_SCALE_REST), "%[k]")
#define TACTUS_END_SCALE(N) TACTUS_END_SCALED(N) TACTUS_LEAVE(N)
#define TACTUS_END_MINIMUM(N) \
  TACTUS_END_SCALED(N) TACTUS_SCALES("8192") TACTUS_FROM_START("total_offset") \
  TACTUS_TERMS(N, TACTUS_MINIMUM, "%[k]") TACTUS_LEAVE(N)

// ---- a tile ----

#define TACTUS_LOAD_Y(a, e, f, g, h) TACTUS_LOAD(#a, "(%[y])", e, f, g, h)
#define TACTUS_STORE_Y(a, e, f, g, h) TACTUS_STORE(#a, "(%[y])", e, f, g, h)
#define TACTUS_MOVE1(MOVE) MOVE(0, 0, 1, 2, 3)
#define TACTUS_MOVE2(MOVE) TACTUS_MOVE1(MOVE) MOVE(256, 4, 5, 6, 7)
#define TACTUS_MOVE3(MOVE) TACTUS_MOVE2(MOVE) MOVE(512, 20, 21, 22, 23)
#define TACTUS_MOVE4(MOVE)
#define TACTUS_MOVE5(MOVE)
#define TACTUS_MOVE6(MOVE)
#define TACTUS_TILE(CODES, KEEP, RAISE, END, GROUPS, N) \
  asm volatile( \
      "vpbroadcastd %[masks], %%zmm29\n\t" \
      "vpbroadcastd 4+%[masks], %%zmm30\n\t" \
      TACTUS_MOVE##N(TACTUS_LOAD_Y) \
      "1:\n\t" TACTUS_START##GROUPS(CODES, RAISE, N) \
      "mov %[turns], %k[k]\n" \
      "2:\n\t" TACTUS_STEP(CODES, KEEP, N) \
      "dec %k[k]\n\t" \
      "jnz 2b\n\t" \
      "add %[gap], %[w]\n\t" END(N) \
      "addq $256, %[scales]\n\t" \
      "add $4, %[start]\n\t" \
      "decq %[n]\n\t" \
      "jnz 1b\n\t" \
      TACTUS_MOVE##N(TACTUS_STORE_Y) \
      : [w] "+r"(w), [x] "+r"(x), [scales] "+m"(scales), [start] "+r"(start), [wide] "+r"(wide), [n] "+m"(n), \
        [ahead] "+r"(ahead), [kept] "+r"(kept), [i] "=&r"(i), [k] "=&r"(k) \
      : [x_stride] "r"(t.x_stride), [term_stride] "r"(t.term_stride), [wide_stride] "r"(t.wide_stride), \
        [y] "r"(t.y), [lines] "m"(t.ahead.lines), [masks] "m"(masks), [gap] "m"(t.gap), \
        [scale_offset] "m"(t.scale_offset), [total_offset] "m"(t.total_offset), [turns] "i"(kSteps), \
        [unit] "i"(kUnitBytes) \
      : "cc", "memory", "k1", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", \
        "zmm10", "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", \
        "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30")
#define TACTUS_BY_ROWS(CODES, KEEP, RAISE, END, GROUPS) \
  if constexpr (kRows == 1) { \
    TACTUS_TILE(CODES, KEEP, RAISE, END, GROUPS, 1); \
  } else if constexpr (kRows == 2) { \
    TACTUS_TILE(CODES, KEEP, RAISE, END, GROUPS, 2); \
  } else if constexpr (kRows == 3) { \
    TACTUS_TILE(CODES, KEEP, RAISE, END, GROUPS, 3); \
  } else if constexpr (kRows == 4) { \
    TACTUS_TILE(CODES, KEEP, RAISE, END, GROUPS, 4); \
  } else if constexpr (kRows == 5) { \
    TACTUS_TILE(CODES, KEEP, RAISE, END, GROUPS, 5); \
  } else { \
    TACTUS_TILE(CODES, KEEP, RAISE, END, GROUPS, 6); \
  }
#define TACTUS_BY_GROUPS(CODES, KEEP, RAISE, END) \
  if constexpr (kGroups == 0) { \
    TACTUS_BY_ROWS(CODES, KEEP, RAISE, END, 0) \
  } else if constexpr (kGroups == 1) { \
    TACTUS_BY_ROWS(CODES, KEEP, RAISE, END, 1) \
  } else if constexpr (kGroups == 2) { \
    TACTUS_BY_ROWS(CODES, KEEP, RAISE, END, 2) \
  } else { \
    TACTUS_BY_ROWS(CODES, KEEP, RAISE, END, 4) \
  }
#define TACTUS_TILES(CODES, KEEP) \
  if constexpr (kScales == Scales::kNone) { \
    TACTUS_BY_GROUPS(CODES, KEEP, TACTUS_RAISE_AND_ADD, TACTUS_END_NONE) \
  } else if constexpr (kScales == Scales::kScale) { \
    TACTUS_BY_GROUPS(CODES, KEEP, TACTUS_RAISE_AND_ADD, TACTUS_END_SCALE) \
  } else { \
    TACTUS_BY_GROUPS(CODES, KEEP, TACTUS_RAISE, TACTUS_END_MINIMUM) \
  }
// clang-format on
