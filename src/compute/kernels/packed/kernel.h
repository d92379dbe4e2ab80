// The operators over packed weights of one kernel set: distributes panels, finishes their sums and rounds the next
// operator's input. Written once over simd/simd.h; the set's PickSumFn selects the multiplying code (panel.h).
//
// A task is one panel (gate and up: the panels that fill whole blocks of the result) by at most kTaskTokens tokens; its
// sums are on its stack. Tasks of one panel are adjacent, so that its weights are read from memory once.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/packed/panel.h"
#include "compute/kernels/rows/row_kernel.h"
#include "compute/kernels/simd/simd.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kTaskTokens = 96;
inline constexpr int64_t kTaskMultiplies = 4'000'000;  // about 40 us of AVX2
// The fewest rows of a task, if there are more: whole tiles, which share opened codes; fewer where threads have no
// task.
inline constexpr int64_t kTaskRows = 24, kTaskRowsForThreads = 8;

// Token blocks per panel, of at most `most` rows each, so that tasks are short and every thread has some.
inline int64_t CutTokens(const PackedTokens& x, int64_t most, int64_t panels, int64_t columns, int32_t threads) {
  const int64_t rows = x.rows();
  const int64_t by_time = MinOf(rows / kTaskRows, CeilDiv(rows * columns * kPanelRows, kTaskMultiplies));
  const int64_t by_threads = MinOf(rows / kTaskRowsForThreads, CeilDiv(int64_t{4} * threads, MaxOf(1, panels)));
  const int64_t by_memory = CeilDiv(x.tokens, most / x.format.parts);
  return MinOf(x.tokens, MaxOf(by_memory, MaxOf(by_time, by_threads)));
}

// The tokens of one of `cuts` blocks, at most `most` rows. Large blocks begin at whole tiles of 4 or 6 rows, because 25
// rows would be five tiles of 5, unless a block could exceed `most` then.
struct TokenCut {
  int64_t first, count;
  TokenCut(const PackedTokens& x, int64_t cut, int64_t cuts, int64_t most) {
    constexpr int64_t kTiles = 12;
    const int64_t tokens = x.tokens;
    const bool whole = x.rows() >= kTaskRows * cuts && CeilDiv(tokens, cuts) + kTiles <= most / x.format.parts;
    const auto begin = [&](int64_t c) {
      const int64_t at = tokens * c / cuts;
      return whole && c < cuts ? at / kTiles * kTiles : at;
    };
    first = begin(cut);
    count = begin(cut + 1) - first;
  }
};

// Adds the sums of two parts each to those of `count` tokens, in place.
inline void AddParts(int64_t count, float* sums) {
  for (int64_t t = 0; t < count; ++t) {
    const float* from = sums + 2 * t * kPanelRows;
    for (int64_t i = 0; i < kPanelRows; i += Simd::kWidth) {
      Simd::Store(sums + t * kPanelRows + i, Simd::Add(Simd::Load(from + i), Simd::Load(from + kPanelRows + i)));
    }
  }
}

// Finishes a panel's sums over `tokens`: adds parts, the scale of rows with one block, bias.
inline void FinishPanel(const PanelSums& run, int64_t tokens, const float* bias) {
  const PackedMatrix& w = *run.w;
  if (run.x->format.parts == 2) AddParts(tokens, run.sums);
  const bool by_row = run.x->format.integer() && w.block == 0;
  if (!by_row && bias == nullptr) return;
  const auto* scales = reinterpret_cast<const float*>(w.data + (run.panel + 1) * w.panel_bytes) - kPanelRows;
  alignas(64) float shift[kPanelRows] = {};  // 0 beyond the matrix
  if (bias != nullptr) {
    const int64_t rows = MinOf(kPanelRows, w.rows - run.panel * kPanelRows);
    std::memcpy(shift, bias + run.panel * kPanelRows, static_cast<size_t>(rows) * sizeof(float));
  }
  for (int64_t t = 0; t < tokens; ++t) {
    float* y = run.sums + t * kPanelRows;
    for (int64_t i = 0; i < kPanelRows; i += Simd::kWidth) {
      Simd::F v = Simd::Load(y + i);
      if (by_row) v = Simd::Mul(v, Simd::Load(scales + i));
      if (bias != nullptr) v = Simd::Add(v, Simd::Load(shift + i));
      Simd::Store(y + i, v);
    }
  }
}

inline void StorePanel(const LinearOutput& out, const PanelSums& run, const TokenCut& cut) {
  FinishPanel(run, cut.count, out.bias);
  const int64_t rows = MinOf(kPanelRows, out.w->rows - run.panel * kPanelRows);
  for (int64_t t = 0; t < cut.count; ++t) {
    float* y = out.y + (cut.first + t) * out.y_stride + run.panel * kPanelRows;
    const float* from = run.sums + t * kPanelRows;
    ForVectors(rows, [&](int64_t i, int n) {
      const Simd::F v = Simd::Load(from + i);
      StoreFirst(y + i, out.add ? Simd::Add(LoadFirst(y + i, n), v) : v, n);
    });
  }
}

void LinearPackedBy(PickSumFn pick, ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs) {
  if (x.tokens <= 0) return;
  int64_t panels = 0;
  for (const LinearOutput& o : outputs) {
    CheckPackedMatch(x, *o.w);
    panels += o.w->panels();
  }
  const int64_t cuts = CutTokens(x, kTaskTokens, panels, x.cols, pool.threads());
  pool.ParallelFor(panels * cuts, [&](int64_t task, int32_t) {
    alignas(64) float sums[kTaskTokens * kPanelRows];
    int64_t panel = task / cuts;
    const LinearOutput* out = outputs.data();
    while (panel >= out->w->panels()) panel -= (out++)->w->panels();
    const TokenCut cut(x, task % cuts, cuts, kTaskTokens);
    const PanelSums run = {out->w, &x, panel, cut.first * x.format.parts, cut.count * x.format.parts, sums};
    pick(x, *out->w)(run);
    StorePanel(*out, run, cut);
  });
}

// ---- rounding of tokens ----

// The largest magnitude of four columns, as bits, with infinities and NaN on top.
inline uint32_t LargestOfFour(const float* values) {
  uint32_t largest = 0;
  for (int32_t i = 0; i < kWideColumns; ++i) {
    const uint32_t magnitude = BitsOf(values[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// Rounds kTokenBlock values from column `first` of a row; left: receives the remainder, or null. Plain loops, for the
// compiler to vectorise.
inline void RoundPart(const float* values, int64_t row, int64_t first, const PackedTokens& out, float* left) {
  const TokenFormat& f = out.format;
  constexpr int32_t kGroups = kTokenBlock / kWideColumns;
  uint32_t tops[kGroups];  // largest magnitude per group, as bits
  for (int32_t g = 0; g < kGroups; ++g) tops[g] = LargestOfFour(values + g * kWideColumns);
  WideGroup* const wide = out.wide + (f.wide > 0 ? row * out.wide_count() + first / f.wide : 0);
  bool is_wide[kGroups] = {};
  for (int32_t i = 0; f.wide > 0 && i < kTokenBlock / f.wide; ++i) {
    const int32_t begin = i * f.wide / kWideColumns, end = begin + f.wide / kWideColumns;
    int32_t best = begin;
    for (int32_t g = begin; g < end; ++g) best = tops[g] > tops[best] ? g : best;
    wide[i].first = (best - begin) * kWideColumns;
    is_wide[best] = true;
  }
  int32_t q[kTokenBlock];
  for (int32_t b = 0; b < kTokenBlock; b += f.block) {
    uint32_t top = 0;
    for (int32_t g = b / kWideColumns; g < (b + f.block) / kWideColumns; ++g) {
      const uint32_t own = BitsOf(FloatOf(tops[g]) * (is_wide[g] ? kWideReach : kNarrowReach));
      top = own > top ? own : top;
    }
    const bool finite = top < 0x7f800000;
    const float largest = FloatOf(top);
    const bool zero = !finite || largest < kTokenZero;
    const float scale = !finite ? FloatOf(0x7fc00000u) : zero ? 0.0f : largest;
    const float inverse = zero ? 0.0f : 1.0f / scale;
    const int32_t keep = finite ? -1 : 0;
    out.scales[row * out.scale_count() + (first + b) / f.block] = scale;
    for (int32_t i = b; i < b + f.block; ++i) {  // adding 1.5 * 2^23 rounds to even in the low bits
      q[i] = static_cast<int32_t>(BitsOf(values[i] * inverse + 0x1.8p23f) - 0x4b400000u) & keep;
    }
    for (int32_t i = b; left != nullptr && i < b + f.block; ++i) left[i] = values[i] - static_cast<float>(q[i]) * scale;
  }
  int32_t* sums = out.sums + row * out.sum_count() + first / 16;
  for (int32_t s = 0; s < kTokenBlock / 16; ++s) {
    int32_t sum = 0;
    for (int32_t i = 0; i < 16; ++i) sum += q[16 * s + i];
    sums[s] = sum;
  }
  auto* to = reinterpret_cast<int8_t*>(out.values + row * out.stride + first);
  for (int32_t i = 0; i < kTokenBlock; ++i) to[i] = static_cast<int8_t>(q[i]);
  for (int32_t i = 0; f.wide > 0 && i < kTokenBlock / f.wide; ++i) {
    const int32_t* from = q + i * f.wide + wide[i].first;
    for (int32_t j = 0; j < kWideColumns; ++j) wide[i].upper[j] = static_cast<int8_t>((from[j] + 128) >> 8);
  }
}

// `values`: one block of a token, from column `first` of its row.
inline void RoundBlock(const float* values, int64_t token, int64_t first, const PackedTokens& out) {
  alignas(64) float left[kTokenBlock];
  if (out.format.parts == 1) return RoundPart(values, token, first, out, nullptr);
  RoundPart(values, 2 * token, first, out, left);
  RoundPart(left, 2 * token + 1, first, out, nullptr);
}

// `values`: `columns` values of a token from column `first` on, whole blocks.
inline void RoundColumns(const float* values, int64_t token, int64_t first, int64_t columns, const PackedTokens& out) {
  if (out.format.values == TokenValues::kF32) {
    auto* to = reinterpret_cast<float*>(out.values + token * out.stride) + first;
    for (int64_t i = 0; i < columns; i += Simd::kWidth) Simd::Store(to + i, Simd::Load(values + i));
    return;
  }
  if (!out.format.integer()) {
    std::byte* to = out.values + token * out.stride + 2 * first;
    for (int64_t i = 0; i < columns; i += Simd::kWidth) Simd::StoreBF16(to + 2 * i, Simd::Load(values + i));
    return;
  }
  for (int64_t i = 0; i < columns; i += kTokenBlock) RoundBlock(values + i, token, first + i, out);
}

void PackTokensOp(ThreadPool& pool, const float* x, const float* norm_weight, float eps, const PackedTokens& out) {
  ForRows(pool, out.tokens, out.cols, [&](int64_t t) {
    const float* row = x + t * out.cols;
    const Simd::F inverse = Simd::Set1(norm_weight == nullptr ? 1.0f : InverseRms(row, out.cols, eps));
    for (int64_t first = 0; first < out.cols; first += kTokenBlock) {
      alignas(64) float values[kTokenBlock] = {};
      ForVectors(MinOf(kTokenBlock, out.cols - first), [&](int64_t i, int n) {
        Simd::F v = LoadFirst(row + first + i, n);
        if (norm_weight != nullptr) v = Simd::Mul(Simd::Mul(v, inverse), LoadFirst(norm_weight + first + i, n));
        StoreFirst(values + i, v, n);
      });
      RoundColumns(values, t, first, kTokenBlock, out);
    }
  });
}

// ---- gate and up ----

// One task computes whole token blocks of `out`, from two panels where a token block spans them. The last task also
// writes the padding.
void GatedPackedBy(PickSumFn pick, ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate,
                   const float* gate_bias, const PackedMatrix& up, const float* up_bias, const PackedTokens& out) {
  if (x.tokens <= 0) return;
  CheckPackedMatch(x, gate);
  CheckPackedMatch(x, up);
  constexpr int64_t kTokens = kTaskTokens / 2;
  const int64_t panels = gate.panels(), groups = CeilDiv(panels, 2);
  const int64_t cuts = CutTokens(x, kTokens, groups, 4 * x.cols, pool.threads());
  pool.ParallelFor(groups * cuts, [&](int64_t task, int32_t) {
    alignas(64) float gates[kTokens * kPanelRows], ups[kTokens * kPanelRows], values[kTokens * kTokenBlock];
    static_assert(kTokenBlock == 2 * kPanelRows);
    const int64_t group = task / cuts;
    const TokenCut cut(x, task % cuts, cuts, kTokens);
    const int64_t first = cut.first * x.format.parts, rows_of_x = cut.count * x.format.parts;
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t panel = 2 * group + half, rows = MaxOf(0, MinOf(kPanelRows, gate.rows - panel * kPanelRows));
      if (rows > 0) {
        const PanelSums gate_run = {&gate, &x, panel, first, rows_of_x, gates};
        const PanelSums up_run = {&up, &x, panel, first, rows_of_x, ups};
        pick(x, gate)(gate_run);
        pick(x, up)(up_run);
        FinishPanel(gate_run, cut.count, gate_bias);
        FinishPanel(up_run, cut.count, up_bias);
      }
      for (int64_t t = 0; t < cut.count; ++t) {
        float* to = values + t * kTokenBlock + half * kPanelRows;
        for (int64_t i = 0; i < kPanelRows; i += Simd::kWidth) {
          const int64_t lanes = rows - i;
          if (lanes <= 0) {
            Simd::Store(to + i, Simd::Zero());
            continue;
          }
          const Simd::F g = Simd::Load(gates + t * kPanelRows + i);
          const Simd::F denominator = Simd::Add(Simd::Set1(1.0f), Exp(Simd::Sub(Simd::Zero(), g)));
          const Simd::F v = Simd::Mul(Simd::Div(g, denominator), Simd::Load(ups + t * kPanelRows + i));
          Simd::Store(to + i, lanes >= Simd::kWidth ? v : Simd::KeepFirst(v, static_cast<int>(lanes), Simd::Zero()));
        }
      }
    }
    for (int64_t t = 0; t < cut.count; ++t) {
      RoundColumns(values + t * kTokenBlock, cut.first + t, group * kTokenBlock, kTokenBlock, out);
    }
  });
}

void EmbedPackedOp(ThreadPool& pool, const int32_t* ids, int64_t tokens, const PackedMatrix& table, float* x) {
  ForRows(pool, tokens, table.cols, [&](int64_t t) { UnpackRow(table, ids[t], x + t * table.cols); });
}

}  // namespace
}  // namespace tactus::compute
