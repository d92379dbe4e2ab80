// Passes (block_pass.h) of products of bytes: vpmaddubsw adds them in 16 bits for a part of a block, at most as many
// columns as cannot overflow, and each part's sums are widened once. ymm0-11 are a part's sums; the block's are in
// memory between its parts.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/avx2/pass_macros.h"
#include "compute/kernels/packed/passes.h"

namespace tactus::compute {
namespace {

// clang-format off
// A part, two groups of columns at a time; rows of x are 128 bytes apart.
#define TACTUS_FIRST_BYTES(m, a, b) \
  "vpbroadcastd 128*" #m "(%[x]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm" #a "\n\tvpmaddubsw %%ymm14, %%ymm13, %%ymm" #b "\n\t"
#define TACTUS_BYTES_AT(at, m, a, b) \
  "vpbroadcastd " at "+128*" #m "(%[x]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm15\n\tvpmaddubsw %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpaddw %%ymm15, %%ymm" #a ", %%ymm" #a "\n\tvpaddw %%ymm14, %%ymm" #b ", %%ymm" #b "\n\t"
#define TACTUS_BYTES_LOW(m, a, b) TACTUS_BYTES_AT("0", m, a, b)
#define TACTUS_BYTES_HIGH(m, a, b) TACTUS_BYTES_AT("4", m, a, b)
#define TACTUS_PART(N, label) \
  TACTUS_TWO("0", "(%[w])") TACTUS_EACH##N(TACTUS_FIRST_BYTES) \
  TACTUS_TWO("256", "(%[w])") TACTUS_EACH##N(TACTUS_BYTES_HIGH) \
  "add $8, %[x]\n\tadd $512, %[w]\n\tmov %c[turns](%[s]), %[k]\n\ttest %[k], %[k]\n\tjz " label "1f\n" \
  label "0:\n\t" \
  TACTUS_TWO("0", "(%[w])") TACTUS_EACH##N(TACTUS_BYTES_LOW) \
  TACTUS_TWO("256", "(%[w])") TACTUS_EACH##N(TACTUS_BYTES_HIGH) \
  "add $8, %[x]\n\tadd $512, %[w]\n\tdec %[k]\n\tjnz " label "0b\n" \
  label "1:\n\tmov %c[factors](%[s]), %[k]\n\t"
// Widened, plus the row's term; or the term times zero points, [64] of the block; or the sums of the parts before.
#define TACTUS_WIDEN(a, b) \
  "vpmaddwd (%[k]), %%ymm" #a ", %%ymm" #a "\n\tvpmaddwd (%[k]), %%ymm" #b ", %%ymm" #b "\n\t"
#define TACTUS_WIDEN_TERM(m, a, b) \
  TACTUS_WIDEN(a, b) "vpbroadcastd 32*" #m "(%[t]), %%ymm14\n\t" \
  "vpaddd %%ymm14, %%ymm" #a ", %%ymm" #a "\n\tvpaddd %%ymm14, %%ymm" #b ", %%ymm" #b "\n\t"
#define TACTUS_WIDEN_ZERO(m, a, b) \
  TACTUS_WIDEN(a, b) "vpbroadcastd 32*" #m "(%[t]), %%ymm14\n\t" \
  "vpmaddwd %%ymm14, %%ymm12, %%ymm15\n\tvpmaddwd %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpaddd %%ymm15, %%ymm" #a ", %%ymm" #a "\n\tvpaddd %%ymm14, %%ymm" #b ", %%ymm" #b "\n\t"
#define TACTUS_WIDEN_SUM(m, a, b) \
  TACTUS_WIDEN(a, b) "vpaddd %c[sums]+64*" #m "(%[s]), %%ymm" #a ", %%ymm" #a "\n\t" \
  "vpaddd %c[sums]+64*" #m "+32(%[s]), %%ymm" #b ", %%ymm" #b "\n\t"
#define TACTUS_KEEP_SUM(m, a, b) \
  "vmovdqa %%ymm" #a ", %c[sums]+64*" #m "(%[s])\n\tvmovdqa %%ymm" #b ", %c[sums]+64*" #m "+32(%[s])\n\t"
#define TACTUS_TERMS_TERM(N) TACTUS_EACH##N(TACTUS_WIDEN_TERM)
#define TACTUS_TERMS_ZERO(N) \
  "mov %c[zeros](%[s]), %[i]\n\t" TACTUS_TWO("0", "(%[i])") "addq $256, %c[zeros](%[s])\n\t" \
  TACTUS_EACH##N(TACTUS_WIDEN_ZERO)
// Group g of a row, [i], as TACTUS_GROUP; codes begin at [at g], counted from the end of the block's.
#define TACTUS_UPPER(g, a, b) \
  "movslq 8*" #g "+4(%[i]), %[k]\n\tshl $6, %[k]\n\tadd %c[at]+8*" #g "(%[s]), %[k]\n\t" \
  TACTUS_TWO("0", "(%[w], %[k])") "vpbroadcastd 8*" #g "(%[i]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm12\n\tvpmaddubsw %%ymm14, %%ymm13, %%ymm13\n\t" \
  "vpmaddwd %%ymm15, %%ymm12, %%ymm12\n\tvpmaddwd %%ymm15, %%ymm13, %%ymm13\n\t" \
  "vpaddd %%ymm12, %%ymm" #a ", %%ymm" #a "\n\tvpaddd %%ymm13, %%ymm" #b ", %%ymm" #b "\n\t"
#define TACTUS_NEXT_UPPER "add %c[wide_stride](%[s]), %[i]\n\t"
#define TACTUS_UPPER1(m, a, b) TACTUS_UPPER(0, a, b) TACTUS_NEXT_UPPER
#define TACTUS_UPPER2(m, a, b) TACTUS_UPPER(0, a, b) TACTUS_UPPER(1, a, b) TACTUS_NEXT_UPPER
#define TACTUS_UPPER4(m, a, b) \
  TACTUS_UPPER(0, a, b) TACTUS_UPPER(1, a, b) TACTUS_UPPER(2, a, b) TACTUS_UPPER(3, a, b) TACTUS_NEXT_UPPER
#define TACTUS_UPPERS0(N)
#define TACTUS_UPPERS(N, G) \
  "mov %c[wide](%[s]), %[i]\n\tvmovdqa 32(%[k]), %%ymm15\n\t" TACTUS_EACH##N(TACTUS_UPPER##G) "addq $8*" #G ", %c[wide](%[s])\n\t"
#define TACTUS_UPPERS1(N) TACTUS_UPPERS(N, 1)
#define TACTUS_UPPERS2(N) TACTUS_UPPERS(N, 2)
#define TACTUS_UPPERS4(N) TACTUS_UPPERS(N, 4)

#define TACTUS_BYTE_PASS(TERMS, GROUPS, END, N) \
  asm volatile( \
      "1:\n\t" \
      TACTUS_FETCH("%c[lines](%[s])") TACTUS_PART(N, "1") TACTUS_TERMS_##TERMS(N) \
      "mov %c[more](%[s]), %[i]\n\t" \
      "test %[i], %[i]\n\t" \
      "jz 6f\n" \
      "5:\n\t" TACTUS_EACH##N(TACTUS_KEEP_SUM) TACTUS_PART(N, "2") TACTUS_EACH##N(TACTUS_WIDEN_SUM) \
      "dec %[i]\n\t" \
      "jnz 5b\n" \
      "6:\n\t" TACTUS_UPPERS##GROUPS(N) \
      "add %c[gap](%[s]), %[w]\n\t" END(N) \
      "add $4, %[t]\n\t" \
      "decq %c[blocks](%[s])\n\t" \
      "jnz 1b\n\t" \
      : [w] "+r"(w), [x] "+r"(x), [t] "+r"(t), [ahead] "+r"(p.ahead->at), [scales] "+m"(scales), \
        [minima] "+m"(minima), [i] "=&r"(i), [k] "=&r"(k) \
      : [y] "r"(p.y), [s] "r"(&s), [scale_at] "i"(offsetof(TileTerms, scale)), \
        [total_at] "i"(offsetof(TileTerms, total)), [turns] "i"(offsetof(BytePassState, turns)), \
        [factors] "i"(offsetof(BytePassState, factors)), \
        [sums] "i"(offsetof(BytePassState, sums)), [zeros] "i"(offsetof(BytePassState, zeros)), \
        [wide] "i"(offsetof(BytePassState, wide)), [wide_stride] "i"(offsetof(BytePassState, wide_stride)), \
        [at] "i"(offsetof(BytePassState, groups_at)), [lines] "i"(offsetof(BytePassState, lines)), \
        [more] "i"(offsetof(BytePassState, more_parts)), [gap] "i"(offsetof(BytePassState, gap)), \
        [blocks] "i"(offsetof(BytePassState, blocks)) \
      : "cc", "memory", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", \
        "ymm11", "ymm12", "ymm13", "ymm14", "ymm15")
// Zero points are the one form without minima, and formats without scales have codes of 8 bits.
#define TACTUS_BYTES_BY_SCALES(GROUPS) \
  if constexpr (kScales == BlockScales::kMinimum) { \
    TACTUS_BY_ROWS(TACTUS_BYTE_PASS, TERM, GROUPS, TACTUS_END_MINIMUM) \
  } else if (p.zeros != nullptr) { \
    TACTUS_BY_ROWS(TACTUS_BYTE_PASS, ZERO, GROUPS, TACTUS_END_SCALE) \
  } else { \
    TACTUS_BY_ROWS(TACTUS_BYTE_PASS, TERM, GROUPS, TACTUS_END_SCALE) \
  }
// clang-format on

#define TACTUS_16(v) v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v
alignas(32) inline constexpr int16_t kPassFactors[2][32] = {{TACTUS_16(1), TACTUS_16(256)},
                                                            {TACTUS_16(4), TACTUS_16(1024)}};  // with zero points
#undef TACTUS_16

// What BytePass reads by its address.
struct BytePassState {
  alignas(32) int32_t sums[6][16];
  const int16_t* factors;     // [16] of a part's sums, [16] of upper bytes' sums
  int64_t turns, more_parts;  // pairs of groups of a part, and parts of a block, after the first
  int64_t blocks, gap, lines, wide_stride, groups_at[4];
  const int32_t* zeros;
  const WideGroup* wide;

  BytePassState(const BlockPass& p, int64_t part_columns) : blocks(p.blocks), gap(p.gap), lines(p.lines) {
    const int64_t columns = p.turns * 4, part = part_columns < columns ? part_columns : columns;
    factors = kPassFactors[p.zeros != nullptr];
    turns = part / 8 - 1;
    more_parts = columns / part - 1;
    wide_stride = p.wide_stride;
    for (int g = 0; g < 4; ++g) groups_at[g] = p.groups_at[g] - p.turns * kGroupBytes;
    zeros = p.zeros;
    wide = p.wide;
  }
};

// kPart: columns whose products are added in 16 bits. Codes of a byte, in blocks with scales.
template <int64_t kPart>
struct BytePass {
  template <int kRows, BlockScales kScales, int kGroups>
  static __attribute__((noinline)) void Run(const BlockPass& p) {
    static_assert(kRows >= 4 && kRows <= 6 && kScales != BlockScales::kNone);
    BytePassState s(p, kPart);
    const std::byte *w = p.codes, *x = p.x;
    const auto* t = reinterpret_cast<const std::byte*>(p.terms);
    const float *scales = p.scales, *minima = p.minima;
    int64_t i, k;
    if constexpr (kGroups == 0) {
      TACTUS_BYTES_BY_SCALES(0)
    } else if constexpr (kGroups == 1) {
      TACTUS_BYTES_BY_SCALES(1)
    } else if constexpr (kGroups == 2) {
      TACTUS_BYTES_BY_SCALES(2)
    } else {
      TACTUS_BYTES_BY_SCALES(4)
    }
  }
};

#undef TACTUS_FIRST_BYTES
#undef TACTUS_BYTES_AT
#undef TACTUS_BYTES_LOW
#undef TACTUS_BYTES_HIGH
#undef TACTUS_PART
#undef TACTUS_WIDEN
#undef TACTUS_WIDEN_TERM
#undef TACTUS_WIDEN_ZERO
#undef TACTUS_WIDEN_SUM
#undef TACTUS_KEEP_SUM
#undef TACTUS_TERMS_TERM
#undef TACTUS_TERMS_ZERO
#undef TACTUS_UPPER
#undef TACTUS_NEXT_UPPER
#undef TACTUS_UPPER1
#undef TACTUS_UPPER2
#undef TACTUS_UPPER4
#undef TACTUS_UPPERS0
#undef TACTUS_UPPERS
#undef TACTUS_UPPERS1
#undef TACTUS_UPPERS2
#undef TACTUS_UPPERS4
#undef TACTUS_BYTE_PASS
#undef TACTUS_BYTES_BY_SCALES

}  // namespace
}  // namespace tactus::compute
