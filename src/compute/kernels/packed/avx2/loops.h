// The inner loops of AVX2's widest tiles in assembly: two vectors of weight rows by four to six rows of tokens. Their
// sums, two vectors of weights, one value and one product fill all 16 registers. Compilers copy sums to memory in every
// iteration, or around every loop (docs/measurements/assembly_against_intrinsics.md).
//
// A loop runs from w to end by kGroupBytes and advances x too. Rows of x are kXStride of packed/tile.h apart: 128
// bytes, or 256 for 16-bit values, or 512 for f32. Sums are in memory before and after it: [rows][2] vectors, or in
// y, whose rows are 256 bytes apart.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tactus::compute {
namespace {

// ymm12, ymm13: weights, or even and odd columns of one vector; ymm14: a value; ymm15: a product, or a mask.
#define TACTUS_LOAD(at) "vmovdqa " at "(%[w]), %%ymm12\n\tvmovdqa " at "+32(%[w]), %%ymm13\n\t"
#define TACTUS_LOAD_LOW \
  "vmovdqa %[mask], %%ymm15\n\tvpand (%[w]), %%ymm15, %%ymm12\n\tvpand 32(%[w]), %%ymm15, %%ymm13\n\t"
#define TACTUS_LOAD_HIGH \
  "vmovdqa %[mask], %%ymm15\n\t" TACTUS_LOAD("0") "vpsrlw $4, %%ymm12, %%ymm12\n\tvpsrlw $4, %%ymm13, "  \
                                                  "%%ymm13\n\tvpand %%ymm15, %%ymm12, %%ymm12\n\tvpand " \
                                                  "%%ymm15, %%ymm13, %%ymm13\n\t"
#define TACTUS_MULTIPLY(mul, add, at, a, b)                                                                           \
  "vpbroadcastd " at "(%[x]), %%ymm14\n\t" mul " %%ymm14, %%ymm12, %%ymm15\n\t" mul                                   \
  " %%ymm14, %%ymm13, %%ymm14\n\t" add " %%ymm15, %%ymm" #a ", %%ymm" #a "\n\t" add " %%ymm14, %%ymm" #b ", %%ymm" #b \
  "\n\t"
#define TACTUS_WORDS(at, a, b) TACTUS_MULTIPLY("vpmaddwd", "vpaddd", at, a, b)
#define TACTUS_VNNI(at, a, b)                                                         \
  "vpbroadcastd " at "(%[x]), %%ymm14\n\t%{vex%} vpdpbusd %%ymm14, %%ymm12, %%ymm" #a \
  "\n\t%{vex%} vpdpbusd %%ymm14, %%ymm13, %%ymm" #b "\n\t"
#define TACTUS_FLOATS(at, a, b)                                                  \
  "vbroadcastss " at "(%[x]), %%ymm14\n\tvfmadd231ps %%ymm14, %%ymm12, %%ymm" #a \
  "\n\tvfmadd231ps "                                                             \
  "%%ymm14, %%ymm13, %%ymm" #b "\n\t"
// Even columns by the value at `at`, odd columns by the next.
#define TACTUS_PAIR(at, a)                                                                                            \
  "vpbroadcastd " at "(%[x]), %%ymm14\n\tvpmaddwd %%ymm14, %%ymm12, %%ymm14\n\tvpaddd %%ymm14, %%ymm" #a ", %%ymm" #a \
  "\n\tvpbroadcastd " at                                                                                              \
  "+4(%[x]), %%ymm14\n\tvpmaddwd %%ymm14, %%ymm13, %%ymm14\n\tvpaddd "                                                \
  "%%ymm14, %%ymm" #a ", %%ymm" #a "\n\t"

// ROW for every row, with its address from `at`, and the registers of its sums; rows are `stride` apart.
#define TACTUS_ROWS4(ROW, at, stride) \
  ROW(at, 0, 1) ROW(at "+" stride, 2, 3) ROW(at "+2*" stride, 4, 5) ROW(at "+3*" stride, 6, 7)
#define TACTUS_ROWS5(ROW, at, stride) TACTUS_ROWS4(ROW, at, stride) ROW(at "+4*" stride, 8, 9)
#define TACTUS_ROWS6(ROW, at, stride) TACTUS_ROWS5(ROW, at, stride) ROW(at "+5*" stride, 10, 11)
#define TACTUS_FIRST(at, a, b) TACTUS_PAIR(at, a)
#define TACTUS_SECOND(at, a, b) TACTUS_PAIR(at, b)

#define TACTUS_BODY_VNNI(ROWS) TACTUS_LOAD("0") ROWS(TACTUS_VNNI, "0", "128") "add $4, %[x]\n\t"
#define TACTUS_BODY_WORDS(ROWS) TACTUS_LOAD("0") ROWS(TACTUS_WORDS, "0", "256") "add $4, %[x]\n\t"
#define TACTUS_BODY_VNNI_NIBBLES(ROWS) \
  TACTUS_LOAD_LOW ROWS(TACTUS_VNNI, "0", "128") TACTUS_LOAD_HIGH ROWS(TACTUS_VNNI, "4", "128") "add $8, %[x]\n\t"
#define TACTUS_SPLIT8(at) \
  "vpand " at "(%[w]), %%ymm15, %%ymm12\n\tvmovdqa " at "(%[w]), %%ymm13\n\tvpsrlw $8, %%ymm13, %%ymm13\n\t"
#define TACTUS_BODY_SPLIT8(ROWS)                                                                       \
  "vmovdqa %[mask], %%ymm15\n\t" TACTUS_SPLIT8("0") ROWS(TACTUS_FIRST, "0", "256") TACTUS_SPLIT8("32") \
      ROWS(TACTUS_SECOND, "0", "256") "add $8, %[x]\n\t"
#define TACTUS_SPLIT_LOW(at) TACTUS_SPLIT8(at) "vpand %%ymm15, %%ymm13, %%ymm13\n\t"
#define TACTUS_SPLIT_HIGH(at)                                                                \
  "vmovdqa " at                                                                              \
  "(%[w]), %%ymm13\n\tvpsrlw $4, %%ymm13, %%ymm12\n\tvpsrlw $12, %%ymm13, %%ymm13\n\tvpand " \
  "%%ymm15, %%ymm12, %%ymm12\n\t"
#define TACTUS_BODY_SPLIT4(ROWS)                                                                                    \
  "vmovdqa %[mask], %%ymm15\n\t" TACTUS_SPLIT_LOW("0") ROWS(TACTUS_FIRST, "0", "256") TACTUS_SPLIT_LOW("32")        \
      ROWS(TACTUS_SECOND, "0", "256") TACTUS_SPLIT_HIGH("0") ROWS(TACTUS_FIRST, "8", "256") TACTUS_SPLIT_HIGH("32") \
          ROWS(TACTUS_SECOND, "8", "256") "add $16, %[x]\n\t"
#define TACTUS_BODY_BF16(ROWS) \
  "vmovdqa %[mask], %%ymm15\n\t" TACTUS_LOAD(                                                                    \
      "0") "vpslld $16, %%ymm12, %%ymm12\n\tvpslld $16, %%ymm13, "                                               \
           "%%ymm13\n\t" ROWS(TACTUS_FLOATS, "0", "512") "vpand (%[w]), %%ymm15, "                               \
                                                         "%%ymm12\n\tvpand 32(%[w]), %%ymm15, %%ymm13\n\t" ROWS( \
                                                             TACTUS_FLOATS, "4", "512") "add $8, %[x]\n\t"

#define TACTUS_BODY_F32(ROWS) TACTUS_LOAD("0") ROWS(TACTUS_FLOATS, "0", "512") "add $4, %[x]\n\t"

// Sums of a row, in memory at `at`.
#define TACTUS_LOAD_SUMS(at, a, b) "vmovdqa " at "(%[sums]), %%ymm" #a "\n\tvmovdqa " at "+32(%[sums]), %%ymm" #b "\n\t"
#define TACTUS_STORE_SUMS(at, a, b) \
  "vmovdqa %%ymm" #a ", " at "(%[sums])\n\tvmovdqa %%ymm" #b ", " at "+32(%[sums])\n\t"
#define TACTUS_BEGIN_WHOLE(ROWS) ROWS(TACTUS_LOAD_SUMS, "0", "64")
#define TACTUS_END_WHOLE(ROWS) ROWS(TACTUS_STORE_SUMS, "0", "64")
#define TACTUS_BEGIN_PLACE(ROWS) ROWS(TACTUS_LOAD_SUMS, "0", "256")
#define TACTUS_END_PLACE(ROWS) ROWS(TACTUS_STORE_SUMS, "0", "256")

#define TACTUS_LOOP(BODY, SUMS, ROWS)                                                                            \
  asm volatile(TACTUS_BEGIN_##SUMS(ROWS) "1:\n\t" BODY(                                                          \
                   ROWS) "add $256, %[w]\n\tcmp %[end], %[w]\n\tjne 1b\n\t" TACTUS_END_##SUMS(ROWS)              \
               : [w] "+r"(w), [x] "+r"(x)                                                                        \
               : [end] "r"(end), [sums] "r"(sums), [mask] "m"(mask)                                              \
               : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", \
                 "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15")

// A class with Run<kRows>(w, end, x, mask, sums): the loop body for each 256 bytes of weights. SUMS: WHOLE, or
// PLACE for sums in y.
#define TACTUS_DEFINE_LOOP(Name, BODY, SUMS)                                                                     \
  struct Name {                                                                                                  \
    template <int kRows>                                                                                         \
    static inline __attribute__((always_inline)) void Run(const std::byte* w, const std::byte* end,              \
                                                          const std::byte* x, const __m256i& mask, void* sums) { \
      static_assert(kRows >= 4 && kRows <= 6);                                                                   \
      if constexpr (kRows == 4) {                                                                                \
        TACTUS_LOOP(BODY, SUMS, TACTUS_ROWS4);                                                                   \
      } else if constexpr (kRows == 5) {                                                                         \
        TACTUS_LOOP(BODY, SUMS, TACTUS_ROWS5);                                                                   \
      } else {                                                                                                   \
        TACTUS_LOOP(BODY, SUMS, TACTUS_ROWS6);                                                                   \
      }                                                                                                          \
    }                                                                                                            \
  }

TACTUS_DEFINE_LOOP(WordLoop, TACTUS_BODY_WORDS, WHOLE);          // 2; any
TACTUS_DEFINE_LOOP(SplitByteLoop, TACTUS_BODY_SPLIT8, WHOLE);    // 4; words of 0x00ff
TACTUS_DEFINE_LOOP(SplitNibbleLoop, TACTUS_BODY_SPLIT4, WHOLE);  // 8; words of 0x000f
TACTUS_DEFINE_LOOP(VnniByteLoop, TACTUS_BODY_VNNI, WHOLE);       // 4; any; needs AVX-VNNI
TACTUS_DEFINE_LOOP(VnniNibbleLoop, TACTUS_BODY_VNNI_NIBBLES, WHOLE);
TACTUS_DEFINE_LOOP(Bf16Loop, TACTUS_BODY_BF16, PLACE);  // 2; mask: the upper half of each 32 bits

TACTUS_DEFINE_LOOP(FloatLoop, TACTUS_BODY_F32, PLACE);  // 1 column of f32; any

#undef TACTUS_LOAD
#undef TACTUS_LOAD_LOW
#undef TACTUS_LOAD_HIGH
#undef TACTUS_MULTIPLY
#undef TACTUS_WORDS
#undef TACTUS_VNNI
#undef TACTUS_FLOATS
#undef TACTUS_PAIR
#undef TACTUS_ROWS4
#undef TACTUS_ROWS5
#undef TACTUS_ROWS6
#undef TACTUS_FIRST
#undef TACTUS_SECOND
#undef TACTUS_BODY_VNNI
#undef TACTUS_BODY_WORDS
#undef TACTUS_BODY_VNNI_NIBBLES
#undef TACTUS_SPLIT8
#undef TACTUS_BODY_SPLIT8
#undef TACTUS_SPLIT_LOW
#undef TACTUS_SPLIT_HIGH
#undef TACTUS_BODY_SPLIT4
#undef TACTUS_BODY_BF16
#undef TACTUS_BODY_F32
#undef TACTUS_LOAD_SUMS
#undef TACTUS_STORE_SUMS
#undef TACTUS_BEGIN_WHOLE
#undef TACTUS_END_WHOLE
#undef TACTUS_BEGIN_PLACE
#undef TACTUS_END_PLACE
#undef TACTUS_LOOP
#undef TACTUS_DEFINE_LOOP

}  // namespace
}  // namespace tactus::compute
