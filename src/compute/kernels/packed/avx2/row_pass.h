// All blocks of a chunk of 4-bit codes times one row of tokens, for a whole panel, in assembly. Products of a part of a
// block are added in 16 bits, then widened once (byte_pass.h); codes are taken apart in registers.
//
// ymm0-7: sums of the panel's eight vectors of rows; ymm8, ymm9: codes; ymm12, ymm13: values; ymm15: mask of nibbles.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/avx2/byte_pass.h"
#include "compute/kernels/packed/avx2/pass_macros.h"
#include "compute/kernels/packed/tile_run.h"

namespace tactus::compute {
namespace {

// What NibbleRowPass reads by its address.
struct RowPassState {
  alignas(32) int32_t sums[kPanelRows];
  int64_t turns, more_parts;  // eight columns each of a part, and parts of a block, after the first
  int64_t blocks, gap, lines;
  int64_t groups_at[4];  // bytes from the end of a block's codes to those of the columns of its wide groups
  const int16_t* factors;
  const float *scales, *minima;
  const int32_t* zeros;
  const WideGroup* wide;
};

// clang-format off
#define TACTUS_ROW_VECTORS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define TACTUS_ROW_VALUES "vpbroadcastd (%[x]), %%ymm12\n\tvpbroadcastd 4(%[x]), %%ymm13\n\t"
#define TACTUS_ROW_NIBBLES(v) \
  "vmovdqa 32*" #v "(%[w]), %%ymm8\n\tvpand %%ymm15, %%ymm8, %%ymm9\n\tvpsrlw $4, %%ymm8, %%ymm8\n\t" \
  "vpand %%ymm15, %%ymm8, %%ymm8\n\tvpmaddubsw %%ymm13, %%ymm8, %%ymm8\n\t"
#define TACTUS_ROW_FIRST(v) \
  TACTUS_ROW_NIBBLES(v) "vpmaddubsw %%ymm12, %%ymm9, %%ymm" #v "\n\tvpaddw %%ymm8, %%ymm" #v ", %%ymm" #v "\n\t"
#define TACTUS_ROW_NEXT(v) \
  TACTUS_ROW_NIBBLES(v) "vpmaddubsw %%ymm12, %%ymm9, %%ymm9\n\tvpaddw %%ymm8, %%ymm" #v ", %%ymm" #v "\n\t" \
  "vpaddw %%ymm9, %%ymm" #v ", %%ymm" #v "\n\t"
// Eight columns are four lines; as many are prefetched, because more at once would wait for each other.
#define TACTUS_ROW_ADVANCE \
  "prefetcht0 (%[ahead])\n\tprefetcht0 64(%[ahead])\n\tprefetcht0 128(%[ahead])\n\tprefetcht0 192(%[ahead])\n\t" \
  "add $8, %[x]\n\tadd $256, %[w]\n\tadd $256, %[ahead]\n\t"
#define TACTUS_ROW_PART(label) \
  TACTUS_ROW_VALUES TACTUS_ROW_VECTORS(TACTUS_ROW_FIRST) TACTUS_ROW_ADVANCE \
  "mov %c[turns](%[s]), %[k]\n\ttest %[k], %[k]\n\tjz " label "1f\n" \
  label "0:\n\t" \
  TACTUS_ROW_VALUES TACTUS_ROW_VECTORS(TACTUS_ROW_NEXT) TACTUS_ROW_ADVANCE "dec %[k]\n\tjnz " label "0b\n" \
  label "1:\n\tmov %c[factors](%[s]), %[k]\n\t"
#define TACTUS_ROW_WIDENED(v) "vpmaddwd (%[k]), %%ymm" #v ", %%ymm" #v "\n\t"
#define TACTUS_ROW_WIDEN_TERM(v) TACTUS_ROW_WIDENED(v) "vpaddd %%ymm14, %%ymm" #v ", %%ymm" #v "\n\t"
#define TACTUS_ROW_WIDEN_ZERO(v) \
  TACTUS_ROW_WIDENED(v) "vpmaddwd 32*" #v "(%[i]), %%ymm14, %%ymm8\n\tvpaddd %%ymm8, %%ymm" #v ", %%ymm" #v "\n\t"
#define TACTUS_ROW_WIDEN_SUM(v) \
  TACTUS_ROW_WIDENED(v) "vpaddd %c[sums]+32*" #v "(%[s]), %%ymm" #v ", %%ymm" #v "\n\t"
#define TACTUS_ROW_KEEP_SUM(v) "vmovdqa %%ymm" #v ", %c[sums]+32*" #v "(%[s])\n\t"
#define TACTUS_ROW_TERMS_TERM "vpbroadcastd (%[t]), %%ymm14\n\t" TACTUS_ROW_VECTORS(TACTUS_ROW_WIDEN_TERM)
#define TACTUS_ROW_TERMS_ZERO \
  "vpbroadcastd (%[t]), %%ymm14\n\tmov %c[zeros](%[s]), %[i]\n\t" TACTUS_ROW_VECTORS(TACTUS_ROW_WIDEN_ZERO) \
  "addq $256, %c[zeros](%[s])\n\t"
// Wide group g: the codes of four columns, low or high nibbles, by upper bytes.
#define TACTUS_ROW_UPPER(v) \
  "vmovdqa 32*" #v "(%[w], %[k]), %%ymm8\n\tvpsrlw %%xmm12, %%ymm8, %%ymm8\n\tvpand %%ymm15, %%ymm8, %%ymm8\n\t" \
  "vpmaddubsw %%ymm13, %%ymm8, %%ymm8\n\tvpmaddwd %%ymm14, %%ymm8, %%ymm8\n\t" \
  "vpaddd %%ymm8, %%ymm" #v ", %%ymm" #v "\n\t"
#define TACTUS_ROW_GROUP(g) \
  "movslq 8*" #g "+4(%[i]), %[k]\n\tmov %k[k], %k[j]\n\tand $4, %k[j]\n\tvmovd %k[j], %%xmm12\n\t" \
  "and $-8, %[k]\n\tshl $5, %[k]\n\tadd %c[at]+8*" #g "(%[s]), %[k]\n\tvpbroadcastd 8*" #g "(%[i]), %%ymm13\n\t" \
  TACTUS_ROW_VECTORS(TACTUS_ROW_UPPER)
#define TACTUS_ROW_GROUPS0
#define TACTUS_ROW_GROUPS(N, ALL) \
  "mov %c[wide](%[s]), %[i]\n\tvmovdqa 32(%[k]), %%ymm14\n\t" ALL "addq $8*" #N ", %c[wide](%[s])\n\t"
#define TACTUS_ROW_GROUPS1 TACTUS_ROW_GROUPS(1, TACTUS_ROW_GROUP(0))
#define TACTUS_ROW_GROUPS2 TACTUS_ROW_GROUPS(2, TACTUS_ROW_GROUP(0) TACTUS_ROW_GROUP(1))
#define TACTUS_ROW_GROUPS4 TACTUS_ROW_GROUPS(4, TACTUS_ROW_GROUP(0) TACTUS_ROW_GROUP(1) TACTUS_ROW_GROUP(2) TACTUS_ROW_GROUP(3))
// y = fma(float(sum) * x_scale, scale, y), then fma(minimum, total, y)
#define TACTUS_ROW_ADD_Y(v) \
  "vcvtdq2ps %%ymm" #v ", %%ymm" #v "\n\tvmovaps 32*" #v "(%[y]), %%ymm8\n\t" \
  "vmulps %%ymm14, %%ymm" #v ", %%ymm" #v "\n\tvfmadd231ps 32*" #v "(%[i]), %%ymm" #v ", %%ymm8\n\t"
#define TACTUS_ROW_SCALE(v) TACTUS_ROW_ADD_Y(v) "vmovaps %%ymm8, 32*" #v "(%[y])\n\t"
#define TACTUS_ROW_MINIMUM(v) TACTUS_ROW_ADD_Y(v) "vfmadd231ps 32*" #v "(%[j]), %%ymm13, %%ymm8\n\tvmovaps %%ymm8, 32*" #v "(%[y])\n\t"
#define TACTUS_ROW_SCALES \
  "mov %c[scales](%[s]), %[i]\n\taddq $256, %c[scales](%[s])\n\tvbroadcastss %c[scale_at](%[t]), %%ymm14\n\t"
#define TACTUS_ROW_END_SCALE TACTUS_ROW_SCALES TACTUS_ROW_VECTORS(TACTUS_ROW_SCALE)
#define TACTUS_ROW_END_MINIMUM \
  TACTUS_ROW_SCALES "mov %c[minima](%[s]), %[j]\n\taddq $256, %c[minima](%[s])\n\t" \
  "vbroadcastss %c[total_at](%[t]), %%ymm13\n\t" TACTUS_ROW_VECTORS(TACTUS_ROW_MINIMUM)

#define TACTUS_ROW_PASS(TERMS, GROUPS, END) \
  asm volatile( \
      "vmovdqa %[mask], %%ymm15\n" \
      "1:\n\t" \
      TACTUS_FETCH("%c[lines](%[s])") TACTUS_ROW_PART("1") TERMS \
      "mov %c[more](%[s]), %[i]\n\t" \
      "test %[i], %[i]\n\t" \
      "jz 6f\n" \
      "5:\n\t" TACTUS_ROW_VECTORS(TACTUS_ROW_KEEP_SUM) TACTUS_ROW_PART("2") TACTUS_ROW_VECTORS(TACTUS_ROW_WIDEN_SUM) \
      "dec %[i]\n\t" \
      "jnz 5b\n" \
      "6:\n\t" GROUPS \
      "add %c[gap](%[s]), %[w]\n\t" END \
      "add $4, %[t]\n\t" \
      "decq %c[blocks](%[s])\n\t" \
      "jnz 1b\n\t" \
      : [w] "+r"(w), [x] "+r"(x), [t] "+r"(t), [ahead] "+r"(ahead), [i] "=&r"(i), [j] "=&r"(j), [k] "=&r"(k) \
      : [y] "r"(run.y), [s] "r"(&s), [mask] "m"(mask), [scale_at] "i"(offsetof(TileTerms, scale)), \
        [total_at] "i"(offsetof(TileTerms, total)), [turns] "i"(offsetof(RowPassState, turns)), \
        [factors] "i"(offsetof(RowPassState, factors)), [sums] "i"(offsetof(RowPassState, sums)), \
        [zeros] "i"(offsetof(RowPassState, zeros)), [wide] "i"(offsetof(RowPassState, wide)), \
        [at] "i"(offsetof(RowPassState, groups_at)), [lines] "i"(offsetof(RowPassState, lines)), \
        [more] "i"(offsetof(RowPassState, more_parts)), [gap] "i"(offsetof(RowPassState, gap)), \
        [scales] "i"(offsetof(RowPassState, scales)), [minima] "i"(offsetof(RowPassState, minima)), \
        [blocks] "i"(offsetof(RowPassState, blocks)) \
      : "cc", "memory", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm12", \
        "ymm13", "ymm14", "ymm15")
#define TACTUS_ROW_BY_SCALES(GROUPS) \
  if (run.weights->minima != nullptr) { \
    TACTUS_ROW_PASS(TACTUS_ROW_TERMS_TERM, GROUPS, TACTUS_ROW_END_MINIMUM); \
  } else if (run.weights->zeros != nullptr) { \
    TACTUS_ROW_PASS(TACTUS_ROW_TERMS_ZERO, GROUPS, TACTUS_ROW_END_SCALE); \
  } else { \
    TACTUS_ROW_PASS(TACTUS_ROW_TERMS_TERM, GROUPS, TACTUS_ROW_END_SCALE); \
  }
// clang-format on

struct NibbleRowPass {
  template <int kGroups>
  static __attribute__((noinline)) void RunGroups(const TileRun& run, RowPassState& s) {
    const __m256i mask = _mm256_set1_epi8(0xf);
    const std::byte *w = run.weights->codes, *x = run.x, *ahead = run.ahead;
    const auto* t = reinterpret_cast<const std::byte*>(run.terms);
    int64_t i, j, k;
    if constexpr (kGroups == 0) {
      TACTUS_ROW_BY_SCALES(TACTUS_ROW_GROUPS0)
    } else if constexpr (kGroups == 1) {
      TACTUS_ROW_BY_SCALES(TACTUS_ROW_GROUPS1)
    } else if constexpr (kGroups == 2) {
      TACTUS_ROW_BY_SCALES(TACTUS_ROW_GROUPS2)
    } else {
      TACTUS_ROW_BY_SCALES(TACTUS_ROW_GROUPS4)
    }
  }

  static void Run(const TileRun& run) {
    constexpr int64_t kPart = 32, kTurn = 8;  // columns
    const ChunkOfWeights& w = *run.weights;
    const int64_t part = w.block < kPart ? w.block : kPart, bytes = w.block / kTurn * kGroupBytes;
    const int64_t groups = run.wide == nullptr ? 0 : w.block / run.wide_columns;
    RowPassState s;
    s.turns = part / kTurn - 1;
    s.more_parts = w.block / part - 1;
    s.blocks = w.blocks;
    s.gap = w.codes_each - bytes;
    s.lines = s.gap > 0 ? (s.gap + 63) / 64 : 0;
    for (int64_t g = 0; g < 4; ++g) s.groups_at[g] = g * run.wide_columns / kTurn * kGroupBytes - bytes;
    s.factors = kPassFactors[w.zeros != nullptr];
    s.scales = w.scales;
    s.minima = w.minima;
    s.zeros = w.zeros;
    s.wide = run.wide;
    if (groups == 0) return RunGroups<0>(run, s);
    if (groups == 1) return RunGroups<1>(run, s);
    if (groups == 2) return RunGroups<2>(run, s);
    return RunGroups<4>(run, s);
  }
};

#undef TACTUS_ROW_VECTORS
#undef TACTUS_ROW_VALUES
#undef TACTUS_ROW_NIBBLES
#undef TACTUS_ROW_FIRST
#undef TACTUS_ROW_NEXT
#undef TACTUS_ROW_ADVANCE
#undef TACTUS_ROW_PART
#undef TACTUS_ROW_WIDENED
#undef TACTUS_ROW_WIDEN_TERM
#undef TACTUS_ROW_WIDEN_ZERO
#undef TACTUS_ROW_WIDEN_SUM
#undef TACTUS_ROW_KEEP_SUM
#undef TACTUS_ROW_TERMS_TERM
#undef TACTUS_ROW_TERMS_ZERO
#undef TACTUS_ROW_UPPER
#undef TACTUS_ROW_GROUP
#undef TACTUS_ROW_GROUPS0
#undef TACTUS_ROW_GROUPS
#undef TACTUS_ROW_GROUPS1
#undef TACTUS_ROW_GROUPS2
#undef TACTUS_ROW_GROUPS4
#undef TACTUS_ROW_ADD_Y
#undef TACTUS_ROW_SCALE
#undef TACTUS_ROW_MINIMUM
#undef TACTUS_ROW_SCALES
#undef TACTUS_ROW_END_SCALE
#undef TACTUS_ROW_END_MINIMUM
#undef TACTUS_ROW_PASS
#undef TACTUS_ROW_BY_SCALES

}  // namespace
}  // namespace tactus::compute
