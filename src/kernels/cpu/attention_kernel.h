// Attention over paged K and V for one instruction set: included once per kernel-set file, after row_kernel.h. Softmax in
// pieces as in FlashAttention (Dao et al. 2022) and Flash-Decoding, with partitions fixed in absolute position.
//
// A row is one (query, head). Its result depends on the row and its K and V alone:
// - a score is one chain of multiply-adds over head_dim, ascending; then times `scale`;
// - within a partition of kPartition absolute positions: the maximum, the weights exp(score - maximum), their sum in lanes
//   by absolute position and the fixed tree of Simd::Sum, and the weighted values added position by position, ascending;
// - partitions are merged in ascending order by Merge, from the first that the row sees.
// Positions that a row does not see are skipped or get an exact zero in a sum of non-negative numbers. So block size, chunking,
// neighbours, threads and the splitting below change no bit.
//
// A tile is up to kAttentionTileRows rows that share one KV head; its K is converted and transposed once, its V once.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/kernel_set.h"

namespace tactus::kernels {
namespace {

struct AttentionRows {
  int32_t count = 0;
  const float* q[kAttentionTileRows];
  int32_t low[kAttentionTileRows];    // first and last position that the row sees; both ascending over rows
  int32_t high[kAttentionTileRows];
};

// Where one thread works. Row strides: `padded` for head vectors, kPartition for weights.
struct AttentionBuffers {
  float* keys;       // [head_dim, kKeyTile]: transposed
  float* gather;     // [kMaxWidth, padded]
  float* values;     // [kPartition, padded]
  float* weights;    // [rows, kPartition]: scores, then softmax weights
  float* part;       // [rows, padded]: a partition's result
  float* state;      // [rows, padded]: merged so far
};

struct AttentionCall {
  const float* q;
  const AttentionItem* items;
  int64_t num_items;
  int32_t heads, group;     // group: heads per KV head
  int32_t tile_heads;       // heads of a group per tile
  int32_t tile_queries;
  const KvLayer* kv;
  int64_t padded;           // head_dim rounded up to kMaxWidth
  float scale;
  int32_t window;
  float* out;
};

struct PartitionSums {
  float maximum[kAttentionTileRows];
  float sum[kAttentionTileRows];
};

inline AttentionBuffers CarveBuffers(std::byte* scratch, int64_t padded) {
  auto* p = reinterpret_cast<float*>(scratch);
  AttentionBuffers b;
  b.keys = p;
  b.gather = b.keys + padded * kKeyTile;
  b.values = b.gather + padded * kMaxWidth;
  b.weights = b.values + padded * kPartition;
  b.part = b.weights + kAttentionTileRows * kPartition;
  b.state = b.part + kAttentionTileRows * padded;
  return b;
}

// Walks the positions of one head of K or V in ascending order: one division at the start, none per position.
class HeadCursor {
 public:
  HeadCursor(const KvLayer& kv, const void* base, const AttentionItem& item, int32_t kv_head, int32_t position)
      : kv_(kv),
        base_(base),
        table_(item.block_table + position / kv.block_size),
        offset_(position % kv.block_size),
        kv_head_(kv_head) {
    EnterBlock();
  }
  // Index of the current position's first element.
  int64_t element() const { return block_element_ + static_cast<int64_t>(offset_) * kv_.head_dim; }
  // Moves on; `more`: another position will be read (the table may end here).
  void Next(bool more) {
    if (++offset_ < kv_.block_size) return;
    offset_ = 0;
    ++table_;
    if (more) EnterBlock();
  }
  const uint16_t* BF16() const { return static_cast<const uint16_t*>(base_) + element(); }
  const float* F32() const { return static_cast<const float*>(base_) + element(); }

 private:
  void EnterBlock() {
    block_element_ = (static_cast<int64_t>(*table_) * kv_.kv_heads + kv_head_) * kv_.block_size * kv_.head_dim;
  }
  const KvLayer& kv_;
  const void* base_;
  const int32_t* table_;
  int32_t offset_;
  int32_t kv_head_;
  int64_t block_element_ = 0;
};

// The cursor's position as f32, zero-padded.
inline void LoadHead(const KvLayer& kv, const HeadCursor& at, int64_t padded, float* to) {
  int32_t d = 0;
  if (kv.dtype == DType::kF32) {
    const float* p = at.F32();
    for (; d + Simd::kWidth <= kv.head_dim; d += Simd::kWidth) Simd::Store(to + d, Simd::Load(p + d));
    for (; d < kv.head_dim; ++d) to[d] = p[d];
  } else {
    const uint16_t* p = at.BF16();
    for (; d + Simd::kWidth <= kv.head_dim; d += Simd::kWidth) Simd::Store(to + d, Simd::LoadBF16(p + d));
    for (; d < kv.head_dim; ++d) to[d] = BF16ToF32(p[d]);
  }
  for (; d < padded; ++d) to[d] = 0.0f;
}

// keys[d, c] for positions tile + [c0, c1), which are whole vectors; positions outside [begin, end) become zeros.
inline void LoadKeys(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t tile, int32_t c0,
                     int32_t c1, int32_t begin, int32_t end, const AttentionBuffers& b) {
  const KvLayer& kv = *call.kv;
  constexpr int kW = Simd::kWidth;
  const bool in_pairs = Simd::kTransposesPairs && kv.dtype == DType::kBF16 && kv.head_dim % (2 * kW) == 0;
  const int32_t first = tile + c0 > begin ? tile + c0 : begin;
  HeadCursor cursor(kv, kv.k, item, kv_head, first);
  for (int32_t c = c0; c < c1; c += kW) {
    const bool whole = tile + c >= begin && tile + c + kW <= end;
    const uint16_t* rows[kW] = {};
    for (int32_t r = 0; r < kW; ++r) {
      const int32_t position = tile + c + r;
      float* to = b.gather + r * call.padded;
      if (position < begin || position >= end) {
        std::memset(to, 0, static_cast<size_t>(call.padded) * sizeof(float));
        continue;
      }
      if (in_pairs && whole) {
        rows[r] = cursor.BF16();
      } else {
        LoadHead(kv, cursor, call.padded, to);
      }
      cursor.Next(position + 1 < end);
    }
    if (in_pairs && whole) {
      for (int32_t d = 0; d < kv.head_dim; d += 2 * kW) {
        Simd::TransposePairs(rows, d, b.keys + static_cast<int64_t>(d) * kKeyTile + c, kKeyTile);
      }
      continue;
    }
    for (int64_t d = 0; d < call.padded; d += kW) {
      Simd::Transpose(b.gather + d, call.padded, b.keys + d * kKeyTile + c, kKeyTile);
    }
  }
}

// Scores of kRows rows against kAttentionVecs vectors of positions.
template <int kRows>
void ScoreTile(const float* const* q, int32_t head_dim, const float* keys, float scale, float* scores) {
  constexpr int kVecs = Simd::kAttentionVecs, kW = Simd::kWidth;
  Simd::F acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) acc[r][v] = Simd::Zero();
  }
  for (int32_t d = 0; d < head_dim; ++d) {
    Simd::F k[kVecs];
    for (int v = 0; v < kVecs; ++v) k[v] = Simd::Load(keys + d * kKeyTile + v * kW);
    for (int r = 0; r < kRows; ++r) {
      const Simd::F x = Simd::Set1(q[r][d]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Simd::MulAdd(x, k[v], acc[r][v]);
    }
  }
  const Simd::F s = Simd::Set1(scale);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) Simd::Store(scores + r * kPartition + v * kW, Simd::Mul(acc[r][v], s));
  }
}

inline void Scores(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, const AttentionRows& rows,
                   int32_t base, int32_t begin, int32_t end, const AttentionBuffers& b) {
  constexpr int kColumns = Simd::kAttentionVecs * Simd::kWidth;
  constexpr int kRows = Simd::kAttentionRows;
  const int32_t head_dim = call.kv->head_dim;
  for (int32_t tile = base; tile < end; tile += kKeyTile) {
    for (int32_t c = 0; c < kKeyTile; c += kColumns) {
      const int32_t first = tile + c, last = first + kColumns - 1;
      if (last < begin || first >= end) continue;
      LoadKeys(call, item, kv_head, tile, c, c + kColumns, begin, end, b);
      for (int32_t r = 0, n; r < rows.count; r += n) {
        n = rows.count - r >= kRows ? kRows : 1;
        if (rows.high[r + n - 1] < first || rows.low[r] > last) continue;
        float* to = b.weights + r * kPartition + (first - base);
        if (n == kRows) {
          ScoreTile<kRows>(rows.q + r, head_dim, b.keys + c, call.scale, to);
        } else {
          ScoreTile<1>(rows.q + r, head_dim, b.keys + c, call.scale, to);
        }
      }
    }
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

// out[r, :] (+)= weights[r, from..to) * values, position by position. `fresh`: starts from zero.
template <int kRows, int kVecs>
void WeighVectors(const float* weights, const float* values, int64_t padded, int32_t from, int32_t to, bool fresh,
                  float* out) {
  constexpr int kW = Simd::kWidth;
  Simd::F acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) acc[r][v] = fresh ? Simd::Zero() : Simd::Load(out + r * padded + v * kW);
  }
  for (int32_t s = from; s < to; ++s) {
    Simd::F x[kVecs];
    for (int v = 0; v < kVecs; ++v) x[v] = Simd::Load(values + s * padded + v * kW);
    for (int r = 0; r < kRows; ++r) {
      const Simd::F w = Simd::Set1(weights[r * kPartition + s]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Simd::MulAdd(w, x[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) Simd::Store(out + r * padded + v * kW, acc[r][v]);
  }
}

template <int kRows>
void Weigh(const float* weights, const float* values, int64_t padded, int32_t from, int32_t to, bool fresh, float* out) {
  constexpr int kVecs = Simd::kAttentionVecs, kW = Simd::kWidth;
  int64_t d = 0;
  for (; d + kVecs * kW <= padded; d += kVecs * kW) {
    WeighVectors<kRows, kVecs>(weights, values + d, padded, from, to, fresh, out + d);
  }
  for (; d < padded; d += kW) WeighVectors<kRows, 1>(weights, values + d, padded, from, to, fresh, out + d);
}

// Rows [r, r + n) whose visible columns are [begin[i], end[i]). Rows together where all see a column, alone at the edges.
inline void WeighRows(int32_t n, const int32_t* begin, const int32_t* end, const float* weights, const float* values,
                      int64_t padded, float* out) {
  int32_t common_begin = begin[0], common_end = end[0];
  for (int32_t i = 1; i < n; ++i) {
    common_begin = begin[i] > common_begin ? begin[i] : common_begin;
    common_end = end[i] < common_end ? end[i] : common_end;
  }
  const bool together = n == Simd::kAttentionRows && common_begin < common_end;
  for (int32_t i = 0; i < n; ++i) {
    if (begin[i] >= end[i]) continue;
    const int32_t stop = together ? common_begin : end[i];
    Weigh<1>(weights + i * kPartition, values, padded, begin[i], stop, true, out + i * padded);
  }
  if (!together) return;
  Weigh<Simd::kAttentionRows>(weights, values, padded, common_begin, common_end, false, out);
  for (int32_t i = 0; i < n; ++i) {
    if (common_end < end[i]) {
      Weigh<1>(weights + i * kPartition, values, padded, common_end, end[i], false, out + i * padded);
    }
  }
}

// All rows over partition `index`. Rows that see nothing of it keep b.part as it was and get sum < 0.
inline void RunPartition(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, const AttentionRows& rows,
                         int32_t index, const AttentionBuffers& b, PartitionSums* sums) {
  const int32_t base = index * kPartition;
  const int32_t begin = rows.low[0] > base ? rows.low[0] : base;
  const int32_t last = rows.high[rows.count - 1];
  const int32_t end = last + 1 < base + kPartition ? last + 1 : base + kPartition;
  Scores(call, item, kv_head, rows, base, begin, end, b);
  int32_t from[kAttentionTileRows], to[kAttentionTileRows];
  for (int32_t r = 0; r < rows.count; ++r) {
    from[r] = (rows.low[r] > base ? rows.low[r] : base) - base;
    to[r] = (rows.high[r] + 1 < base + kPartition ? rows.high[r] + 1 : base + kPartition) - base;
    sums->sum[r] = -1.0f;
    if (from[r] < to[r]) SoftmaxRow(b.weights + r * kPartition, from[r], to[r], &sums->maximum[r], &sums->sum[r]);
  }
  HeadCursor cursor(*call.kv, call.kv->v, item, kv_head, begin);
  for (int32_t p = begin; p < end; ++p) {
    LoadHead(*call.kv, cursor, call.padded, b.values + (p - base) * call.padded);
    cursor.Next(p + 1 < end);
  }
  for (int32_t r = 0; r < rows.count; r += Simd::kAttentionRows) {
    const auto n = static_cast<int32_t>(MinOf(Simd::kAttentionRows, rows.count - r));
    WeighRows(n, from + r, to + r, b.weights + r * kPartition, b.values, call.padded, b.part + r * call.padded);
  }
}

inline float ExpOne(float x) {
  float lanes[Simd::kWidth];
  Simd::Store(lanes, Exp(Simd::Set1(x)));
  return lanes[0];
}

// Adds a partition to what came before it; `seen` false: it is the first.
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

inline void WriteRow(const float* state, float sum, int32_t head_dim, float* out) {
  const Simd::F inverse = Simd::Set1(1.0f / sum);
  ForVectors(head_dim, [&](int64_t d, int n) { StoreFirst(out + d, Simd::Mul(LoadFirst(state + d, n), inverse), n); });
}

struct TilePlace {
  int32_t kv_head, first_head, heads, first_query, queries;
};

inline int64_t TilesOf(const AttentionCall& call, const AttentionItem& item) {
  return CeilDiv(item.count, call.tile_queries) * CeilDiv(call.group, call.tile_heads) * call.kv->kv_heads;
}

inline TilePlace PlaceOf(const AttentionCall& call, const AttentionItem& item, int64_t tile) {
  const int64_t head_tiles = CeilDiv(call.group, call.tile_heads);
  TilePlace p;
  p.kv_head = static_cast<int32_t>(tile % call.kv->kv_heads);
  tile /= call.kv->kv_heads;
  const auto in_group = static_cast<int32_t>(tile % head_tiles) * call.tile_heads;
  p.first_head = p.kv_head * call.group + in_group;
  p.heads = static_cast<int32_t>(MinOf(call.tile_heads, call.group - in_group));
  // The last queries see the most: they come first, so that the long tasks do not end the step.
  const int64_t query_tiles = CeilDiv(item.count, call.tile_queries);
  p.first_query = static_cast<int32_t>(query_tiles - 1 - tile / head_tiles) * call.tile_queries;
  p.queries = static_cast<int32_t>(MinOf(call.tile_queries, item.count - p.first_query));
  return p;
}

inline int64_t RowOffset(const AttentionCall& call, const AttentionItem& item, const TilePlace& p, int32_t row) {
  const int64_t token = item.first_token + p.first_query + row / p.heads;
  return (token * call.heads + p.first_head + row % p.heads) * call.kv->head_dim;
}

inline AttentionRows RowsOf(const AttentionCall& call, const AttentionItem& item, const TilePlace& p) {
  AttentionRows rows;
  rows.count = p.queries * p.heads;
  for (int32_t r = 0; r < rows.count; ++r) {
    const int32_t position = item.first_position + p.first_query + r / p.heads;
    rows.q[r] = call.q + RowOffset(call, item, p, r);
    rows.high[r] = position;
    rows.low[r] = call.window > 0 && position >= call.window ? position - call.window + 1 : 0;
  }
  return rows;
}

// One tile over all its partitions.
inline void RunAttentionTile(const AttentionCall& call, const AttentionItem& item, int64_t tile, std::byte* scratch) {
  const AttentionBuffers b = CarveBuffers(scratch, call.padded);
  const TilePlace place = PlaceOf(call, item, tile);
  const AttentionRows rows = RowsOf(call, item, place);
  float maximum[kAttentionTileRows], sum[kAttentionTileRows];
  bool seen[kAttentionTileRows] = {};
  PartitionSums part;
  for (int32_t index = rows.low[0] / kPartition; index <= rows.high[rows.count - 1] / kPartition; ++index) {
    RunPartition(call, item, place.kv_head, rows, index, b, &part);
    for (int32_t r = 0; r < rows.count; ++r) {
      if (part.sum[r] < 0) continue;
      Merge(seen[r], part.maximum[r], part.sum[r], b.part + r * call.padded, call.padded, &maximum[r], &sum[r],
            b.state + r * call.padded);
      seen[r] = true;
    }
  }
  for (int32_t r = 0; r < rows.count; ++r) {
    WriteRow(b.state + r * call.padded, sum[r], call.kv->head_dim, call.out + RowOffset(call, item, place, r));
  }
}

// A long decode on a machine with more threads than tiles: its partitions are tasks of their own, some at a time; their
// results wait in scratch and are merged in ascending order. Row layout of a result: padded values, maximum, sum.
inline void RunSplitItem(ThreadPool& pool, const AttentionCall& call, const AttentionItem& item, std::byte* results,
                         std::byte* thread_scratch) {
  const int64_t row_floats = call.padded + kMaxWidth, tiles = TilesOf(call, item);
  auto* states = reinterpret_cast<float*>(results);
  float* parts = states + call.heads * row_floats;
  const int32_t position = item.first_position;
  const int32_t low = call.window > 0 && position >= call.window ? position - call.window + 1 : 0;
  const int32_t first = low / kPartition, last = position / kPartition;
  const int32_t wave = kSplitPerThread * pool.threads();
  const int64_t thread_bytes = AttentionThreadBytes(call.kv->head_dim);
  for (int32_t begin = first; begin <= last; begin += wave) {
    const auto count = static_cast<int32_t>(MinOf(wave, last - begin + 1));
    pool.ParallelFor(tiles * count, [&](int64_t task, int32_t thread) {
      const AttentionBuffers b = CarveBuffers(thread_scratch + thread * thread_bytes, call.padded);
      const TilePlace place = PlaceOf(call, item, task % tiles);
      const AttentionRows rows = RowsOf(call, item, place);
      const int64_t index = task / tiles;
      PartitionSums sums;
      RunPartition(call, item, place.kv_head, rows, begin + static_cast<int32_t>(index), b, &sums);
      for (int32_t r = 0; r < rows.count; ++r) {
        float* to = parts + (index * call.heads + place.first_head + r) * row_floats;
        std::memcpy(to, b.part + r * call.padded, static_cast<size_t>(call.padded) * sizeof(float));
        to[call.padded] = sums.maximum[r];
        to[call.padded + 1] = sums.sum[r];
      }
    });
    pool.ParallelFor(call.heads, [&](int64_t head, int32_t) {
      float* state = states + head * row_floats;
      for (int32_t i = 0; i < count; ++i) {
        const float* part = parts + (i * call.heads + head) * row_floats;
        Merge(begin + i > first, part[call.padded], part[call.padded + 1], part, call.padded, state + call.padded,
              state + call.padded + 1, state);
      }
      if (begin + count > last) {
        WriteRow(state, state[call.padded + 1], call.kv->head_dim,
                 call.out + (static_cast<int64_t>(item.first_token) * call.heads + head) * call.kv->head_dim);
      }
    });
  }
}

inline bool ShouldSplit(const AttentionItem& item, int64_t all_tiles, int32_t threads) {
  return item.count == 1 && item.first_position >= 2 * kPartition && all_tiles < 4 * threads && threads > 1;
}

void Attention(ThreadPool& pool, const float* q, std::span<const AttentionItem> items, int32_t heads, const KvLayer& kv,
               float scale, int32_t window, float* out, Workspace scratch) {
  CheckHeadDim(kv.head_dim, 0);
  AttentionCall call;
  call.q = q;
  call.items = items.data();
  call.num_items = static_cast<int64_t>(items.size());
  call.heads = heads;
  call.group = heads / kv.kv_heads;
  call.tile_heads = static_cast<int32_t>(MinOf(call.group, kAttentionTileRows));
  call.tile_queries = kAttentionTileRows / call.tile_heads;
  call.kv = &kv;
  call.padded = RoundUp(kv.head_dim, kMaxWidth);
  call.scale = scale;
  call.window = window;
  call.out = out;
  const int64_t offset_bytes = RoundUp((call.num_items + 1) * static_cast<int64_t>(sizeof(int64_t)), 64);
  const int64_t thread_bytes = AttentionThreadBytes(kv.head_dim);
  const int64_t split_bytes = AttentionSplitBytes(heads, kv.head_dim, pool.threads());
  std::byte* aligned = AlignedWorkspace(scratch, offset_bytes + split_bytes + pool.threads() * thread_bytes);
  auto* first_tile = reinterpret_cast<int64_t*>(aligned);  // [num_items + 1]
  std::byte* results = aligned + offset_bytes;
  std::byte* thread_scratch = results + split_bytes;

  int64_t all_tiles = 0;
  for (int64_t i = 0; i < call.num_items; ++i) all_tiles += TilesOf(call, call.items[i]);
  int64_t tiles = 0;
  for (int64_t i = 0; i < call.num_items; ++i) {
    first_tile[i] = tiles;
    if (!ShouldSplit(call.items[i], all_tiles, pool.threads())) tiles += TilesOf(call, call.items[i]);
  }
  first_tile[call.num_items] = tiles;
  pool.ParallelFor(tiles, [&](int64_t task, int32_t thread) {
    int64_t low = 0, high = call.num_items;  // the item with first_tile[low] <= task < first_tile[low + 1]
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (first_tile[middle] <= task ? low : high) = middle;
    }
    RunAttentionTile(call, call.items[low], task - first_tile[low], thread_scratch + thread * thread_bytes);
  });
  for (int64_t i = 0; i < call.num_items; ++i) {
    if (first_tile[i] == first_tile[i + 1] && call.items[i].count > 0) {
      RunSplitItem(pool, call, call.items[i], results, thread_scratch);
    }
  }
}

}  // namespace
}  // namespace tactus::kernels
