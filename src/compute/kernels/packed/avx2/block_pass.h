// All blocks of a chunk times four to six rows of tokens, for two vectors of weight rows, in assembly: from the start
// of each block's sums to the addition to y. The sums stay in registers. Compilers store and load the sums of a loop
// (loops.h) several times per block, which costs as much as 32 columns of products.
//
// ymm0-11: sums, two for each row; ymm12, ymm13: weights, at a block's end scales; ymm14: a value; ymm15: a product.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/avx2/pass_macros.h"
#include "compute/kernels/packed/passes.h"

namespace tactus::compute {
namespace {

// clang-format off
#define TACTUS_DOT(value, a, b) \
  "%{vex%} vpdpbusd " value ", %%ymm12, %%ymm" #a "\n\t%{vex%} vpdpbusd " value ", %%ymm13, %%ymm" #b "\n\t"

// ---- one group of columns; rows of x are 128 bytes apart, of 16-bit values 256 ----
#define TACTUS_ROW_VNNI(m, a, b) "vpbroadcastd 128*" #m "(%[x]), %%ymm14\n\t" TACTUS_DOT("%%ymm14", a, b)
#define TACTUS_ROW_WORDS(m, a, b) \
  "vpbroadcastd 256*" #m "(%[x]), %%ymm14\n\t" \
  "vpmaddwd %%ymm14, %%ymm12, %%ymm15\n\tvpmaddwd %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpaddd %%ymm15, %%ymm" #a ", %%ymm" #a "\n\tvpaddd %%ymm14, %%ymm" #b ", %%ymm" #b "\n\t"

// ---- a block's start: the row's term; with wide groups, 256 times the products of their upper bytes more ----
#define TACTUS_START(m, a, b) "vpbroadcastd 32*" #m "(%[t]), %%ymm" #a "\n\tvmovdqa %%ymm" #a ", %%ymm" #b "\n\t"
#define TACTUS_CLEAR(m, a, b) \
  "vpxor %%xmm" #a ", %%xmm" #a ", %%xmm" #a "\n\tvpxor %%xmm" #b ", %%xmm" #b ", %%xmm" #b "\n\t"
#define TACTUS_RAISE(m, a, b) \
  "vpbroadcastd 32*" #m "(%[t]), %%ymm14\n\t" \
  "vpslld $8, %%ymm" #a ", %%ymm" #a "\n\tvpslld $8, %%ymm" #b ", %%ymm" #b "\n\t" \
  "vpaddd %%ymm14, %%ymm" #a ", %%ymm" #a "\n\tvpaddd %%ymm14, %%ymm" #b ", %%ymm" #b "\n\t"
// Group g of a row, [i]: upper bytes, then the first column of the group's, whose codes begin at [at g].
#define TACTUS_GROUP(g, a, b) \
  "movslq 8*" #g "+4(%[i]), %[k]\n\tshl $6, %[k]\n\tadd %[at" #g "], %[k]\n\t" TACTUS_TWO("0", "(%[w], %[k])") \
  "vpbroadcastd 8*" #g "(%[i]), %%ymm14\n\t" TACTUS_DOT("%%ymm14", a, b)
#define TACTUS_NEXT_ROW "add %[wide_stride], %[i]\n\t"
#define TACTUS_WIDE1(m, a, b) TACTUS_GROUP(0, a, b) TACTUS_NEXT_ROW
#define TACTUS_WIDE2(m, a, b) TACTUS_GROUP(0, a, b) TACTUS_GROUP(1, a, b) TACTUS_NEXT_ROW
#define TACTUS_WIDE4(m, a, b) \
  TACTUS_GROUP(0, a, b) TACTUS_GROUP(1, a, b) TACTUS_GROUP(2, a, b) TACTUS_GROUP(3, a, b) TACTUS_NEXT_ROW
#define TACTUS_BEGIN0(N) TACTUS_EACH##N(TACTUS_START)
#define TACTUS_BEGIN_WIDE(N, G) \
  "mov %[wide], %[i]\n\t" TACTUS_EACH##N(TACTUS_CLEAR) TACTUS_EACH##N(TACTUS_WIDE##G) TACTUS_EACH##N(TACTUS_RAISE) \
  "add $8*" #G ", %[wide]\n\t"
#define TACTUS_BEGIN1(N) TACTUS_BEGIN_WIDE(N, 1)
#define TACTUS_BEGIN2(N) TACTUS_BEGIN_WIDE(N, 2)
#define TACTUS_BEGIN4(N) TACTUS_BEGIN_WIDE(N, 4)

#define TACTUS_PASS(ROW, GROUPS, END, N) \
  asm volatile( \
      "1:\n\t" \
      TACTUS_FETCH("%[lines]") TACTUS_BEGIN##GROUPS(N) \
      "mov %[turns], %[k]\n" \
      "2:\n\t" TACTUS_TWO("0", "(%[w])") TACTUS_EACH##N(ROW) \
      "add $4, %[x]\n\t" \
      "add $256, %[w]\n\t" \
      "dec %[k]\n\t" \
      "jnz 2b\n\t" \
      "add %[gap], %[w]\n\t" END(N) \
      "add $4, %[t]\n\t" \
      "decq %[n]\n\t" \
      "jnz 1b\n\t" \
      : [w] "+r"(w), [x] "+r"(x), [t] "+r"(t), [wide] "+r"(wide), [ahead] "+r"(p.ahead->at), [scales] "+m"(scales), \
        [minima] "+m"(minima), [n] "+m"(n), [i] "=&r"(i), [k] "=&r"(k) \
      : [y] "r"(p.y), [gap] "m"(p.gap), [turns] "m"(p.turns), [lines] "m"(p.lines), \
        [wide_stride] "m"(p.wide_stride), [at0] "m"(p.groups_at[0]), [at1] "m"(p.groups_at[1]), \
        [at2] "m"(p.groups_at[2]), [at3] "m"(p.groups_at[3]), [scale_at] "i"(offsetof(TileTerms, scale)), \
        [total_at] "i"(offsetof(TileTerms, total)) \
      : "cc", "memory", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", \
        "ymm11", "ymm12", "ymm13", "ymm14", "ymm15")
#define TACTUS_BY_SCALES(ROW, GROUPS) \
  if constexpr (kScales == BlockScales::kNone) { \
    TACTUS_BY_ROWS(TACTUS_PASS, ROW, GROUPS, TACTUS_END_NONE) \
  } else if constexpr (kScales == BlockScales::kScale) { \
    TACTUS_BY_ROWS(TACTUS_PASS, ROW, GROUPS, TACTUS_END_SCALE) \
  } else { \
    TACTUS_BY_ROWS(TACTUS_PASS, ROW, GROUPS, TACTUS_END_MINIMUM) \
  }
// clang-format on

#define TACTUS_DEFINE_PASS(Name, ROW)                                \
  struct Name {                                                      \
    template <int kRows, BlockScales kScales, int kGroups>           \
    static __attribute__((noinline)) void Run(const BlockPass& p) {  \
      static_assert(kRows >= 4 && kRows <= 6);                       \
      const std::byte *w = p.codes, *x = p.x;                        \
      const auto* t = reinterpret_cast<const std::byte*>(p.terms);   \
      const auto* wide = reinterpret_cast<const std::byte*>(p.wide); \
      const float *scales = p.scales, *minima = p.minima;            \
      int64_t n = p.blocks, i, k;                                    \
      if constexpr (kGroups == 0) {                                  \
        TACTUS_BY_SCALES(ROW, 0)                                     \
      } else if constexpr (kGroups == 1) {                           \
        TACTUS_BY_SCALES(ROW, 1)                                     \
      } else if constexpr (kGroups == 2) {                           \
        TACTUS_BY_SCALES(ROW, 2)                                     \
      } else {                                                       \
        TACTUS_BY_SCALES(ROW, 4)                                     \
      }                                                              \
    }                                                                \
  }

TACTUS_DEFINE_PASS(VnniPass, TACTUS_ROW_VNNI);   // needs AVX-VNNI
TACTUS_DEFINE_PASS(WordPass, TACTUS_ROW_WORDS);  // 16-bit codes and values, so without wide groups

#undef TACTUS_DOT
#undef TACTUS_ROW_VNNI
#undef TACTUS_ROW_WORDS
#undef TACTUS_START
#undef TACTUS_CLEAR
#undef TACTUS_RAISE
#undef TACTUS_GROUP
#undef TACTUS_NEXT_ROW
#undef TACTUS_WIDE1
#undef TACTUS_WIDE2
#undef TACTUS_WIDE4
#undef TACTUS_BEGIN0
#undef TACTUS_BEGIN_WIDE
#undef TACTUS_BEGIN1
#undef TACTUS_BEGIN2
#undef TACTUS_BEGIN4
#undef TACTUS_PASS
#undef TACTUS_BY_SCALES
#undef TACTUS_DEFINE_PASS

}  // namespace
}  // namespace tactus::compute
