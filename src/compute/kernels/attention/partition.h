// Attention of a tile of rows over one partition, and the merging of partitions, by the products of a class Products
// (float_products.h). kernel.h states the order of every sum.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/kv.h"
#include "compute/kernels/rows/activations.h"

namespace tactus::compute {
namespace {

// Soft-caps scores[begin, end) of a row and adds ALiBi's slope times the distance of each from `position`, which has
// column `position - base`. Whole vectors change; SoftmaxRow reads no column outside the range.
inline void ChangeScores(const AttentionSpec& spec, int32_t head, int32_t base, int32_t position, int32_t begin,
                         int32_t end, float* scores) {
  constexpr int kW = Simd::kWidth;
  const Simd::F cap = Simd::Set1(spec.softcap), inverse = Simd::Set1(spec.softcap > 0 ? 1.0f / spec.softcap : 0.0f);
  for (int32_t c = begin / kW * kW; c < end; c += kW) {
    Simd::F s = Simd::Load(scores + c);
    if (spec.softcap > 0) s = Simd::Mul(cap, Tanh(Simd::Mul(s, inverse)));
    if (spec.slopes != nullptr) {
      float bias[kW];
      for (int i = 0; i < kW; ++i) bias[i] = spec.slopes[head] * static_cast<float>(base + c + i - position);
      s = Simd::Add(s, Simd::Load(bias));
    }
    Simd::Store(scores + c, s);
  }
}

// scores[begin, end) to weights in place; columns around them, up to whole vectors, become 0.
inline void SoftmaxRow(float* scores, int32_t begin, int32_t end, float* maximum, float* sum) {
  constexpr int kW = Simd::kWidth;
  const Simd::F lowest = Simd::Set1(-__builtin_inff());
  const int32_t first = begin / kW * kW;
  Simd::F top = lowest;
  for (int32_t c = first; c < end; c += kW) {
    const Simd::F s = Simd::KeepFrom(Simd::KeepFirst(Simd::Load(scores + c), end - c, lowest), begin - c, lowest);
    Simd::Store(scores + c, s);
    top = Simd::Max(top, s);
  }
  *maximum = Simd::MaxLane(top);
  const Simd::F m = Simd::Set1(*maximum);
  Simd::F total = Simd::Zero();
  for (int32_t c = first; c < end; c += kW) {
    const Simd::F w = Exp(Simd::Sub(Simd::Load(scores + c), m));
    Simd::Store(scores + c, w);
    total = Simd::Add(total, w);
  }
  *sum = Simd::Sum(total);
}

// Scores of all rows to weights; row r attends to columns [from[r], to[r]), to none where its sum is < 0.
inline void SoftmaxRows(const AttentionCall& call, const AttentionTile& tile, const AttentionRows& rows, int32_t base,
                        const AttentionBuffers& b, int32_t* from, int32_t* to, PartitionSums* sums) {
  for (int32_t r = 0; r < rows.count; ++r) {
    from[r] = (rows.low[r] > base ? rows.low[r] : base) - base;
    to[r] = (rows.high[r] + 1 < base + kPartition ? rows.high[r] + 1 : base + kPartition) - base;
    sums->sum[r] = -1.0f;
    if (from[r] >= to[r]) continue;
    float* const scores = b.weights + r * kPartition;
    if (call.spec->changes_scores()) {
      ChangeScores(*call.spec, HeadOf(call, tile, r), base, rows.high[r], from[r], to[r], scores);
    }
    SoftmaxRow(scores, from[r], to[r], &sums->maximum[r], &sums->sum[r]);
  }
}

// The partition at `base` for members that share at most its first `shared` columns: those once, then each member's
// own.
template <class Products>
void RunMembers(const AttentionCall& call, const AttentionTile& tile, const AttentionRows& rows, int32_t base,
                int32_t shared, const AttentionBuffers& b, PartitionSums* sums) {
  const int32_t heads = tile.heads, mid = base + shared;
  auto end_of = [&](int32_t q) {
    const int32_t end = rows.high[q * heads] + 1;
    return end < base + kPartition ? end : base + kPartition;
  };
  // K or V of a member's own columns; of the members in turn, to be prefetched.
  auto own_of = [&](const void* kv, int32_t q) {
    if (q >= tile.queries) return KvRange{};
    return KvRange{kv, QueryOf(call, tile, q).item, tile.kv_head, mid, end_of(q)};
  };
  const KvLayer& kv = *call.kv;
  if (shared > 0) {
    const KvRange next = {kv.v, tile.item, tile.kv_head, base, mid};
    Products::ScoreItem(call, *tile.item, tile.kv_head, rows, base, base, mid, next, b);
  }
  for (int32_t q = 0; q < tile.queries; ++q) {
    if (end_of(q) <= mid) continue;
    AttentionBuffers own = b;
    own.weights += q * heads * kPartition;
    const KvRange next = own_of(q + 1 < tile.queries ? kv.k : kv.v, (q + 1) % tile.queries);
    Products::ScoreItem(call, *QueryOf(call, tile, q).item, tile.kv_head, rows.Part(q * heads, heads), base, mid,
                        end_of(q), next, own);
  }
  int32_t from[kAttentionTileRows], to[kAttentionTileRows], middle[kAttentionTileRows];
  SoftmaxRows(call, tile, rows, base, b, from, to, sums);
  for (int32_t r = 0; r < rows.count; ++r) middle[r] = shared;
  if (shared > 0) {
    Products::ScaleWeights(call, *tile.item, tile.kv_head, base, base, mid, 0, rows.count, from, middle, b);
  }
  for (int32_t q = 0; q < tile.queries; ++q) {
    if (end_of(q) <= mid) continue;
    Products::ScaleWeights(call, *QueryOf(call, tile, q).item, tile.kv_head, base, mid, end_of(q), q * heads, heads,
                           middle, to, b);
  }
  Products::RoundWeights(rows.count, kPartition, from, to, b);
  if (shared > 0) {
    Products::Weigh(call, *tile.item, tile.kv_head, base, base, mid, 0, rows.count, from, middle, true, {}, b);
  }
  for (int32_t q = 0; q < tile.queries; ++q) {
    if (end_of(q) <= mid) continue;
    Products::Weigh(call, *QueryOf(call, tile, q).item, tile.kv_head, base, mid, end_of(q), q * heads, heads, middle,
                    to, shared == 0, own_of(kv.v, q + 1), b);
  }
  Products::Finish(call, rows.count, b);
}

// K of the positions that are read after column `end` of a tile: its own, or the next tile's first partition.
inline KvRange KeysAfter(const AttentionCall& call, const AttentionTile& tile, int32_t end, int32_t last,
                         const AttentionTile* next) {
  auto range = [&](const AttentionTile& of, int32_t begin, int32_t stop) {
    return KvRange{call.kv->k, of.item, of.kv_head, begin, begin + kPartition < stop ? begin + kPartition : stop};
  };
  if (end < last) return range(tile, end, last);
  if (next == nullptr) return {};
  const VisibleRange seen = VisibleFrom(call, QueryOf(call, *next, 0).position);
  return range(*next, seen.low, seen.high + 1);
}

// All rows over partition `index`. Rows without a visible column there leave b.part unchanged and get sum < 0. `next`:
// the tile that follows, to be prefetched; null: none.
template <class Products>
void RunPartition(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next,
                  const AttentionRows& rows, int32_t index, const AttentionBuffers& b, PartitionSums* sums) {
  const int32_t base = index * kPartition, shared = SharedColumns(tile, index);
  if (shared < kPartition) return RunMembers<Products>(call, tile, rows, base, shared, b, sums);
  const int32_t begin = rows.low[0] > base ? rows.low[0] : base;
  const int32_t last = rows.high[rows.count - 1];
  const int32_t end = last + 1 < base + kPartition ? last + 1 : base + kPartition;
  Products::ScoreItem(call, *tile.item, tile.kv_head, rows, base, begin, end,
                      {call.kv->v, tile.item, tile.kv_head, begin, end}, b);
  int32_t from[kAttentionTileRows], to[kAttentionTileRows];
  SoftmaxRows(call, tile, rows, base, b, from, to, sums);
  Products::ScaleWeights(call, *tile.item, tile.kv_head, base, begin, end, 0, rows.count, from, to, b);
  Products::RoundWeights(rows.count, end - base, from, to, b);
  Products::Weigh(call, *tile.item, tile.kv_head, base, begin, end, 0, rows.count, from, to, true,
                  KeysAfter(call, tile, end, last + 1, next), b);
  Products::Finish(call, rows.count, b);
}

inline float ExpOne(float x) {
  float lanes[Simd::kWidth];
  Simd::Store(lanes, Exp(Simd::Set1(x)));
  return lanes[0];
}

// Merges a partition into the earlier ones; `seen` false: it is the first.
inline void Merge(bool seen, float part_maximum, float part_sum, const float* part, int64_t padded, float* maximum,
                  float* sum, float* state) {
  if (!seen) {
    *maximum = part_maximum;
    *sum = part_sum;
    std::memcpy(state, part, static_cast<size_t>(padded) * sizeof(float));
    return;
  }
  const float top = *maximum > part_maximum ? *maximum : part_maximum;
  const float old_factor = ExpOne(*maximum - top), new_factor = ExpOne(part_maximum - top);
  *maximum = top;
  *sum = *sum * old_factor + part_sum * new_factor;
  const Simd::F f0 = Simd::Set1(old_factor), f1 = Simd::Set1(new_factor);
  for (int64_t d = 0; d < padded; d += Simd::kWidth) {
    Simd::Store(state + d, Simd::MulAdd(Simd::Load(part + d), f1, Simd::Mul(Simd::Load(state + d), f0)));
  }
}

inline void WriteRow(const float* state, float inverse_sum, int32_t head_dim, float* out) {
  const Simd::F inverse = Simd::Set1(inverse_sum);
  ForVectors(head_dim, [&](int64_t d, int n) { StoreFirst(out + d, Simd::Mul(LoadFirst(state + d, n), inverse), n); });
}
}  // namespace
}  // namespace tactus::compute
