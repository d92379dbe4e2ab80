// The inner loops of AVX2's widest tiles in assembly: two vectors of weight rows by four to six rows of tokens. Their
// sums, two vectors of weights, one value and one product fill all 16 registers. Compilers keep the sums there, but
// copy them to memory in every iteration (docs/measurements/assembly_against_intrinsics.md).
//
// A loop runs from w to end by kGroupBytes and advances x too. Rows of x are kXStride of packed/tile.h apart: 128
// bytes, or 256 for 16-bit values, or 512 for f32.
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
#define TACTUS_LOAD_HIGH                                                                                 \
  "vmovdqa %[mask], %%ymm15\n\t" TACTUS_LOAD("0") "vpsrlw $4, %%ymm12, %%ymm12\n\tvpsrlw $4, %%ymm13, "  \
                                                  "%%ymm13\n\tvpand %%ymm15, %%ymm12, %%ymm12\n\tvpand " \
                                                  "%%ymm15, %%ymm13, %%ymm13\n\t"
#define TACTUS_MULTIPLY(mul, add, at, m)                                                                            \
  "vpbroadcastd " at "(%[x]), %%ymm14\n\t" mul " %%ymm14, %%ymm12, %%ymm15\n\t" mul                                 \
  " %%ymm14, %%ymm13, %%ymm14\n\t" add " %%ymm15, %[a" #m "0], %[a" #m "0]\n\t" add " %%ymm14, %[a" #m "1], %[a" #m \
  "1]\n\t"
#define TACTUS_BYTES(at, m) TACTUS_MULTIPLY("vpmaddubsw", "vpaddw", at, m)
#define TACTUS_WORDS(at, m) TACTUS_MULTIPLY("vpmaddwd", "vpaddd", at, m)
#define TACTUS_VNNI(at, m)                                                          \
  "vpbroadcastd " at "(%[x]), %%ymm14\n\t%{vex%} vpdpbusd %%ymm14, %%ymm12, %[a" #m \
  "0]\n\t%{vex%} vpdpbusd %%ymm14, %%ymm13, %[a" #m "1]\n\t"
#define TACTUS_FLOATS(at, m)                                                                        \
  "vbroadcastss " at "(%[x]), %%ymm14\n\tvfmadd231ps %%ymm14, %%ymm12, %[a" #m "0]\n\tvfmadd231ps " \
  "%%ymm14, %%ymm13, %[a" #m "1]\n\t"
// Even columns by the value at `at`, odd columns by the next, added to vector v.
#define TACTUS_PAIR(at, m, v)                                                                             \
  "vpbroadcastd " at "(%[x]), %%ymm14\n\tvpmaddwd %%ymm14, %%ymm12, %%ymm14\n\tvpaddd %%ymm14, %[a" #m #v \
  "], %[a" #m #v "]\n\tvpbroadcastd " at                                                                  \
  "+4(%[x]), %%ymm14\n\tvpmaddwd %%ymm14, %%ymm13, %%ymm14\n\tvpaddd %%ymm14, %[a" #m #v "], %[a" #m #v "]\n\t"

// ROW for every row, with its address from `at`; rows are `stride` apart.
#define TACTUS_ROWS4(ROW, at, stride) ROW(at, 0) ROW(at "+" stride, 1) ROW(at "+2*" stride, 2) ROW(at "+3*" stride, 3)
#define TACTUS_ROWS5(ROW, at, stride) TACTUS_ROWS4(ROW, at, stride) ROW(at "+4*" stride, 4)
#define TACTUS_ROWS6(ROW, at, stride) TACTUS_ROWS5(ROW, at, stride) ROW(at "+5*" stride, 5)
#define TACTUS_FIRST(at, m) TACTUS_PAIR(at, m, 0)
#define TACTUS_SECOND(at, m) TACTUS_PAIR(at, m, 1)

#define TACTUS_BODY_BYTES(ROWS) TACTUS_LOAD("0") ROWS(TACTUS_BYTES, "0", "128") "add $4, %[x]\n\t"
#define TACTUS_BODY_VNNI(ROWS) TACTUS_LOAD("0") ROWS(TACTUS_VNNI, "0", "128") "add $4, %[x]\n\t"
#define TACTUS_BODY_WORDS(ROWS) TACTUS_LOAD("0") ROWS(TACTUS_WORDS, "0", "256") "add $4, %[x]\n\t"
#define TACTUS_BODY_NIBBLES(ROWS) \
  TACTUS_LOAD_LOW ROWS(TACTUS_BYTES, "0", "128") TACTUS_LOAD_HIGH ROWS(TACTUS_BYTES, "4", "128") "add $8, %[x]\n\t"
#define TACTUS_BODY_VNNI_NIBBLES(ROWS) \
  TACTUS_LOAD_LOW ROWS(TACTUS_VNNI, "0", "128") TACTUS_LOAD_HIGH ROWS(TACTUS_VNNI, "4", "128") "add $8, %[x]\n\t"
#define TACTUS_SPLIT8(at) \
  "vpand " at "(%[w]), %%ymm15, %%ymm12\n\tvmovdqa " at "(%[w]), %%ymm13\n\tvpsrlw $8, %%ymm13, %%ymm13\n\t"
#define TACTUS_BODY_SPLIT8(ROWS)                                                                       \
  "vmovdqa %[mask], %%ymm15\n\t" TACTUS_SPLIT8("0") ROWS(TACTUS_FIRST, "0", "256") TACTUS_SPLIT8("32") \
      ROWS(TACTUS_SECOND, "0", "256") "add $8, %[x]\n\t"
#define TACTUS_SPLIT_LOW(at) TACTUS_SPLIT8(at) "vpand %%ymm15, %%ymm13, %%ymm13\n\t"
#define TACTUS_SPLIT_HIGH(at)                                                                              \
  "vmovdqa " at "(%[w]), %%ymm13\n\tvpsrlw $4, %%ymm13, %%ymm12\n\tvpsrlw $12, %%ymm13, %%ymm13\n\tvpand " \
  "%%ymm15, %%ymm12, %%ymm12\n\t"
#define TACTUS_BODY_SPLIT4(ROWS)                                                                                    \
  "vmovdqa %[mask], %%ymm15\n\t" TACTUS_SPLIT_LOW("0") ROWS(TACTUS_FIRST, "0", "256") TACTUS_SPLIT_LOW("32")        \
      ROWS(TACTUS_SECOND, "0", "256") TACTUS_SPLIT_HIGH("0") ROWS(TACTUS_FIRST, "8", "256") TACTUS_SPLIT_HIGH("32") \
          ROWS(TACTUS_SECOND, "8", "256") "add $16, %[x]\n\t"
#define TACTUS_BODY_BF16(ROWS)                                                                                   \
  "vmovdqa %[mask], %%ymm15\n\t" TACTUS_LOAD(                                                                    \
      "0") "vpslld $16, %%ymm12, %%ymm12\n\tvpslld $16, %%ymm13, "                                               \
           "%%ymm13\n\t" ROWS(TACTUS_FLOATS, "0", "512") "vpand (%[w]), %%ymm15, "                               \
                                                         "%%ymm12\n\tvpand 32(%[w]), %%ymm15, %%ymm13\n\t" ROWS( \
                                                             TACTUS_FLOATS, "4", "512") "add $8, %[x]\n\t"

#define TACTUS_BODY_F32(ROWS) TACTUS_LOAD("0") ROWS(TACTUS_FLOATS, "0", "512") "add $4, %[x]\n\t"

#define TACTUS_SUM(m) [a##m##0] "+x"(a[m][0]), [a##m##1] "+x"(a[m][1])
#define TACTUS_LOOP(BODY, ROWS, ...)                                              \
  asm volatile("1:\n\t" BODY(ROWS) "add $256, %[w]\n\tcmp %[end], %[w]\n\tjne 1b" \
               : [w] "+r"(w), [x] "+r"(x), __VA_ARGS__                            \
               : [end] "r"(end), [mask] "m"(mask)                                 \
               : "memory", "cc", "ymm12", "ymm13", "ymm14", "ymm15")

// A class with Run<kRows>(w, end, x, mask, sums): the loop body for each 256 bytes of weights.
#define TACTUS_DEFINE_LOOP(Name, BODY)                                                                              \
  struct Name {                                                                                                     \
    template <int kRows, class Vector>                                                                              \
    static inline __attribute__((always_inline)) void Run(const std::byte* w, const std::byte* end,                 \
                                                          const std::byte* x, const __m256i& mask,                  \
                                                          Vector (&a)[kRows][2]) {                                  \
      static_assert(kRows >= 4 && kRows <= 6);                                                                      \
      if constexpr (kRows == 4) {                                                                                   \
        TACTUS_LOOP(BODY, TACTUS_ROWS4, TACTUS_SUM(0), TACTUS_SUM(1), TACTUS_SUM(2), TACTUS_SUM(3));                \
      } else if constexpr (kRows == 5) {                                                                            \
        TACTUS_LOOP(BODY, TACTUS_ROWS5, TACTUS_SUM(0), TACTUS_SUM(1), TACTUS_SUM(2), TACTUS_SUM(3), TACTUS_SUM(4)); \
      } else {                                                                                                      \
        TACTUS_LOOP(BODY, TACTUS_ROWS6, TACTUS_SUM(0), TACTUS_SUM(1), TACTUS_SUM(2), TACTUS_SUM(3), TACTUS_SUM(4),  \
                    TACTUS_SUM(5));                                                                                 \
      }                                                                                                             \
    }                                                                                                               \
  }

TACTUS_DEFINE_LOOP(ByteLoop, TACTUS_BODY_BYTES);          // 4 columns; mask: any
TACTUS_DEFINE_LOOP(NibbleLoop, TACTUS_BODY_NIBBLES);      // 8; mask: bytes of 0x0f
TACTUS_DEFINE_LOOP(WordLoop, TACTUS_BODY_WORDS);          // 2; any
TACTUS_DEFINE_LOOP(SplitByteLoop, TACTUS_BODY_SPLIT8);    // 4; words of 0x00ff
TACTUS_DEFINE_LOOP(SplitNibbleLoop, TACTUS_BODY_SPLIT4);  // 8; words of 0x000f
TACTUS_DEFINE_LOOP(VnniByteLoop, TACTUS_BODY_VNNI);       // as ByteLoop; needs AVX-VNNI
TACTUS_DEFINE_LOOP(VnniNibbleLoop, TACTUS_BODY_VNNI_NIBBLES);
TACTUS_DEFINE_LOOP(Bf16Loop, TACTUS_BODY_BF16);  // 2; mask: the upper half of each 32 bits

TACTUS_DEFINE_LOOP(FloatLoop, TACTUS_BODY_F32);  // 1 column of f32; any

#undef TACTUS_LOAD
#undef TACTUS_LOAD_LOW
#undef TACTUS_LOAD_HIGH
#undef TACTUS_MULTIPLY
#undef TACTUS_BYTES
#undef TACTUS_WORDS
#undef TACTUS_VNNI
#undef TACTUS_FLOATS
#undef TACTUS_PAIR
#undef TACTUS_ROWS4
#undef TACTUS_ROWS5
#undef TACTUS_ROWS6
#undef TACTUS_FIRST
#undef TACTUS_SECOND
#undef TACTUS_BODY_BYTES
#undef TACTUS_BODY_VNNI
#undef TACTUS_BODY_WORDS
#undef TACTUS_BODY_NIBBLES
#undef TACTUS_BODY_VNNI_NIBBLES
#undef TACTUS_SPLIT8
#undef TACTUS_BODY_SPLIT8
#undef TACTUS_SPLIT_LOW
#undef TACTUS_SPLIT_HIGH
#undef TACTUS_BODY_SPLIT4
#undef TACTUS_BODY_BF16
#undef TACTUS_BODY_F32
#undef TACTUS_SUM
#undef TACTUS_LOOP
#undef TACTUS_DEFINE_LOOP

}  // namespace
}  // namespace tactus::compute
