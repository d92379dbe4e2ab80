// The operators over packed weights of one kernel set: hands panels out, finishes their sums and rounds what comes
// next. Written once over simd/simd.h; the set says with a PickSumFn what multiplies (panel.h).
//
// A task is one panel (gate and up: those that fill whole blocks of the result) by at most kTaskTokens tokens; its
// sums are on its stack. Tasks of one panel are neighbours, so that its weights come from memory once.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/packed/panel.h"
#include "kernels/rows/row_kernel.h"
#include "kernels/simd/simd.h"

namespace tactus::kernels {
namespace {

inline constexpr int64_t kTaskTokens = 96;
inline constexpr int64_t kTaskMultiplies = 4'000'000;  // about 100 us of AVX2

// Token blocks per panel, so that tasks are short and every thread has some.
inline int64_t CutTokens(int64_t tokens, int64_t planes, int64_t panels, int64_t columns, int32_t threads) {
  const int64_t rows = tokens * planes;
  const int64_t by_time = CeilDiv(rows * columns * kPanelRows, kTaskMultiplies);
  const int64_t by_threads = CeilDiv(int64_t{4} * threads, MaxOf(1, panels));
  const int64_t useful = MaxOf(1, rows / 8);  // a few full tiles each
  return MinOf(tokens, MaxOf(CeilDiv(tokens, kTaskTokens), MinOf(useful, MaxOf(by_time, by_threads))));
}

// What becomes of a panel's sums: the scale of a row of one block, bias.
inline void FinishPanel(const PanelSums& run, const float* bias) {
  const PackedMatrix& w = *run.w;
  const bool by_row = run.x->format.integer() && w.block == 0;
  if (!by_row && bias == nullptr) return;
  const auto* scales = reinterpret_cast<const float*>(w.data + (run.panel + 1) * w.panel_bytes) - kPanelRows;
  alignas(64) float shift[kPanelRows] = {};  // beyond the matrix 0
  if (bias != nullptr) {
    const int64_t rows = MinOf(kPanelRows, w.rows - run.panel * kPanelRows);
    std::memcpy(shift, bias + run.panel * kPanelRows, static_cast<size_t>(rows) * sizeof(float));
  }
  for (int64_t t = 0; t < run.tokens; ++t) {
    float* y = run.sums + t * kPanelRows;
    for (int64_t i = 0; i < kPanelRows; i += Simd::kWidth) {
      Simd::F v = Simd::Load(y + i);
      if (by_row) v = Simd::Mul(v, Simd::Load(scales + i));
      if (bias != nullptr) v = Simd::Add(v, Simd::Load(shift + i));
      Simd::Store(y + i, v);
    }
  }
}

inline void StorePanel(const LinearOutput& out, const PanelSums& run) {
  FinishPanel(run, out.bias);
  const int64_t rows = MinOf(kPanelRows, out.w->rows - run.panel * kPanelRows);
  for (int64_t t = 0; t < run.tokens; ++t) {
    float* y = out.y + (run.first + t) * out.y_stride + run.panel * kPanelRows;
    const float* from = run.sums + t * kPanelRows;
    ForVectors(rows, [&](int64_t i, int n) {
      const Simd::F v = Simd::Load(from + i);
      StoreFirst(y + i, out.add ? Simd::Add(LoadFirst(y + i, n), v) : v, n);
    });
  }
}

void LinearPackedBy(PickSumFn pick, ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs) {
  if (x.tokens <= 0) return;
  const int64_t planes = x.format.planes;
  int64_t panels = 0;
  for (const LinearOutput& o : outputs) {
    CheckPackedMatch(x, *o.w);
    panels += o.w->panels();
  }
  const int64_t cuts = CutTokens(x.tokens, planes, panels, x.cols, pool.threads());
  pool.ParallelFor(panels * cuts, [&](int64_t task, int32_t) {
    alignas(64) float sums[kTaskTokens * kPanelRows];
    int64_t panel = task / cuts;
    const LinearOutput* out = outputs.data();
    while (panel >= out->w->panels()) panel -= (out++)->w->panels();
    const int64_t cut = task % cuts, first = x.tokens * cut / cuts, count = x.tokens * (cut + 1) / cuts - first;
    const PanelSums run = {out->w, &x, panel, first, count, sums};
    pick(x, *out->w)(run);
    StorePanel(*out, run);
  });
}

// ---- rounding of tokens ----

// `values`: one block of a token, from column `first` of its row. Plain loops, which compilers turn into vectors.
inline void RoundBlock(const float* values, int64_t token, int64_t first, const PackedTokens& out) {
  const int32_t planes = out.format.planes, block = out.format.block;
  const bool shifts = out.format.has_shifts();
  const float limit = planes == 2 ? 32512.0f : 127.0f;
  int32_t top = 0;                 // magnitudes compare as integers do, and those of infinities and NaN are the largest
  int32_t tops[kTokenBlock / 32];  // of the columns under one shift
  for (int32_t b = 0; b < kTokenBlock / block; ++b) {
    tops[b] = 0;
    for (int32_t i = b * block; i < (b + 1) * block; ++i) {
      const auto bits = static_cast<int32_t>(BitsOf(values[i]) & 0x7fffffffu);
      tops[b] = bits > tops[b] ? bits : tops[b];
    }
    top = tops[b] > top ? tops[b] : top;
  }
  const bool finite = top < 0x7f800000;
  const float largest = FloatOf(static_cast<uint32_t>(top));
  const bool zero = !finite || largest < kTokenZero;
  const float scale = !finite ? FloatOf(0x7fc00000u)
                      : zero  ? 0.0f
                              : largest / limit * (shifts ? 1.0f / (1 << kTokenShift) : 1.0f);
  const float inverse = zero ? 0.0f : limit / largest;
  int32_t q[kTokenBlock];
  const int32_t keep = finite ? -1 : 0;
  for (int32_t b = 0; b < kTokenBlock / block; ++b) {
    const int32_t times = (top - tops[b]) >> 23, k = !shifts ? 0 : times < kTokenShift ? times : kTokenShift;
    const float factor = inverse * static_cast<float>(1 << k);
    for (int32_t i = b * block; i < (b + 1) * block; ++i) {  // adding 1.5 * 2^23 rounds to even in the low bits
      q[i] = static_cast<int32_t>(BitsOf(values[i] * factor + 0x1.8p23f) - 0x4b400000u) & keep;
    }
    if (shifts) out.shifts[token * out.shift_count() + first / block + b] = zero ? 0 : kTokenShift - k;
  }
  out.scales[token * out.scale_count() + first / kTokenBlock] = scale;
  int32_t* sums = out.sums + token * out.sum_count() + first / 16;
  for (int32_t s = 0; s < kTokenBlock / 16; ++s) {
    int32_t sum = 0;
    for (int32_t i = 0; i < 16; ++i) sum += q[16 * s + i];
    sums[s] = sum;
  }
  auto* to = reinterpret_cast<int8_t*>(out.values + token * planes * out.stride + first);
  if (planes == 2) {
    for (int32_t i = 0; i < kTokenBlock; ++i) to[i] = static_cast<int8_t>((q[i] + 128) >> 8);
    to += out.stride;
  }
  for (int32_t i = 0; i < kTokenBlock; ++i) to[i] = static_cast<int8_t>(q[i]);
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

// One task makes whole token blocks of `out`, two panels where a block of tokens spans them. The last one also makes
// the padding.
void GatedPackedBy(PickSumFn pick, ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate,
                   const float* gate_bias, const PackedMatrix& up, const float* up_bias, const PackedTokens& out) {
  if (x.tokens <= 0) return;
  CheckPackedMatch(x, gate);
  CheckPackedMatch(x, up);
  constexpr int64_t kTokens = kTaskTokens / 2;
  const int64_t planes = x.format.planes, panels = gate.panels(), groups = CeilDiv(panels, 2);
  const int64_t cuts = MinOf(
      x.tokens, MaxOf(CeilDiv(x.tokens, kTokens), CutTokens(x.tokens, planes, groups, 4 * x.cols, pool.threads())));
  pool.ParallelFor(groups * cuts, [&](int64_t task, int32_t) {
    alignas(64) float gates[kTokens * kPanelRows], ups[kTokens * kPanelRows], values[kTokens * kTokenBlock];
    static_assert(kTokenBlock == 2 * kPanelRows);
    const int64_t group = task / cuts, cut = task % cuts;
    const int64_t first = x.tokens * cut / cuts, count = x.tokens * (cut + 1) / cuts - first;
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t panel = 2 * group + half, rows = MaxOf(0, MinOf(kPanelRows, gate.rows - panel * kPanelRows));
      if (rows > 0) {
        const PanelSums gate_run = {&gate, &x, panel, first, count, gates};
        const PanelSums up_run = {&up, &x, panel, first, count, ups};
        pick(x, gate)(gate_run);
        pick(x, up)(up_run);
        FinishPanel(gate_run, gate_bias);
        FinishPanel(up_run, up_bias);
      }
      for (int64_t t = 0; t < count; ++t) {
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
    for (int64_t t = 0; t < count; ++t) {
      RoundColumns(values + t * kTokenBlock, first + t, group * kTokenBlock, kTokenBlock, out);
    }
  });
}

void EmbedPackedOp(ThreadPool& pool, const int32_t* ids, int64_t tokens, const PackedMatrix& table, float* x) {
  ForRows(pool, tokens, table.cols, [&](int64_t t) { UnpackRow(table, ids[t], x + t * table.cols); });
}

}  // namespace
}  // namespace tactus::kernels
