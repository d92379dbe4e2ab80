// Attention by vdpbf16ps: q and the softmax weights rounded to bf16, K and V as stored (int8 codes are exact in bf16),
// sums in f32. Each lane of the instruction adds two products to its sum, the odd one first, each step rounded to
// nearest even, subnormals taken as zero.
//
// A row is one (query, head). Its result depends on the row and its K and V alone:
// - a score is one chain over the pairs of head_dim, ascending; int8: then times the position's scale of K;
// - within a partition of kPartition absolute positions: the maximum, the weights 2^(scale log2(e) (score - maximum))
//   rounded to bf16 (int8: times the position's scale of V first), their sum (lanes by absolute position, then a fixed
//   tree), and one chain of weighted values over pairs of positions, ascending;
// - partitions are merged in ascending order by MergeRows.
// Positions that a row does not see are skipped or have a weight of exact zero. So block size, chunking, neighbours,
// threads and the splitting of long tiles change no bit.
#include "kernels/attention/avx512/bf16.h"

#include "kernels/attention/avx512/bf16_place.h"

namespace tactus::kernels {
namespace {

constexpr float kLog2E = 1.44269504f;

struct Rows {
  Rows(const AttentionCall& call, const AttentionTile& tile) : count(tile.rows()) {
    for (int32_t r = 0; r < count; ++r) {
      const int32_t query = r % tile.rows_per_kv_head() / tile.heads;
      const VisibleRange seen = VisibleFrom(call, QueryOf(call, tile, query).position);
      low[r] = seen.low;
      high[r] = seen.high;
      last = seen.high > last ? seen.high : last;
    }
  }
  // Columns of the partition at `base` that row r sees; empty: from >= to.
  ColumnRange In(int32_t r, int32_t base) const {
    const int32_t from = low[r] > base ? low[r] - base : 0, to = high[r] + 1 - base;
    return {from, to < kPartition ? to : kPartition};
  }
  int32_t count;
  int32_t low[kAttentionTileRows], high[kAttentionTileRows];  // both ascending within a KV head of an item
  int32_t last = 0;                                           // of all rows
};

// Few rows take more vectors at a time: about 16 sums are in flight either way.
constexpr int VecsFor(int rows) {
  return rows <= 4 ? 4 : 2;
}

using ScoreFn = void (*)(const uint32_t*, int64_t, const uint32_t* const*, int64_t, int32_t, const float*,
                         const std::byte* const*, int32_t, float*);
using WeighFn = void (*)(const uint16_t*, const uint32_t* const*, int32_t, int32_t, int64_t, int64_t, bool,
                         const std::byte* const*, int32_t, float*, int64_t);

template <int kVecs, bool kFetch>
constexpr ScoreFn kScore[kGroupRows + 1] = {nullptr,
                                            ScoreRows<1, kVecs, kFetch>,
                                            ScoreRows<2, kVecs, kFetch>,
                                            ScoreRows<3, kVecs, kFetch>,
                                            ScoreRows<4, kVecs, kFetch>,
                                            ScoreRows<5, kVecs == 4 ? 2 : kVecs, kFetch>,
                                            ScoreRows<6, kVecs == 4 ? 2 : kVecs, kFetch>,
                                            ScoreRows<7, kVecs == 4 ? 2 : kVecs, kFetch>,
                                            ScoreRows<8, kVecs == 4 ? 2 : kVecs, kFetch>};
template <int kVecs, bool kFetch>
constexpr WeighFn kWeigh[kGroupRows + 1] = {nullptr,
                                            WeighRows<1, kVecs, kFetch>,
                                            WeighRows<2, kVecs, kFetch>,
                                            WeighRows<3, kVecs, kFetch>,
                                            WeighRows<4, kVecs, kFetch>,
                                            WeighRows<5, kVecs, kFetch>,
                                            WeighRows<6, kVecs, kFetch>,
                                            WeighRows<7, kVecs, kFetch>,
                                            WeighRows<8, kVecs, kFetch>};

// Weighted values of pairs [from, to) for `n` rows; arguments as WeighRows'.
void WeighGroup(const AttentionCall& call, const PartitionKv& p, const uint32_t* const* chunks, int32_t n, int32_t from,
                int32_t to, bool resume, const uint16_t* weights, const std::byte* const* ahead, bool fetch,
                float* out) {
  const int32_t vecs = VecsFor(n), step = p.widens ? 32 : 64;  // a vector of codes is half as long
  const WeighFn weigh = vecs == 4 ? (fetch ? kWeigh<4, true>[n] : kWeigh<4, false>[n])
                                  : (fetch ? kWeigh<2, true>[n] : kWeigh<2, false>[n]);
  int64_t d = 0;
  for (; d + 16 * vecs <= call.padded; d += 16 * vecs)
    weigh(weights, chunks, from, to, p.value_stride, d, resume, ahead, step, out, call.padded);
  for (; d < call.padded; d += 16)
    kWeigh<1, false>[n](weights, chunks, from, to, p.value_stride, d, resume, ahead, step, out, call.padded);
}

struct Sums {
  float maximum[kAttentionTileRows], sum[kAttentionTileRows];  // sum -1: the row sees nothing here
};

// Scores of `n` rows to weights. Lanes are reduced for all rows together: one row alone would wait for each step.
void SoftmaxGroup(const PartitionKv& p, const ColumnRange* own, ColumnRange group, int32_t n, float log2_scale,
                  const float* all_scores, uint16_t* all_weights, float* maximum, float* sum) {
  __m512 lanes[kGroupRows];
  for (int32_t r = 0; r < n; ++r) {
    if (own[r].from < own[r].to) lanes[r] = RowMaximum(all_scores + r * kPartition, own[r]);
  }
  for (int32_t r = 0; r < n; ++r) {
    if (own[r].from < own[r].to) maximum[r] = MaxLane(lanes[r]);
  }
  for (int32_t r = 0; r < n; ++r) {
    const float* scores = all_scores + r * kPartition;
    uint16_t* weights = all_weights + r * kPartition;
    if (own[r].from >= own[r].to) {
      std::memset(weights, 0, kPartition * sizeof(uint16_t));
    } else if (p.value_scales != nullptr) {
      lanes[r] = SoftmaxRow<true>(scores, own[r], group, log2_scale, maximum[r], p.value_scales, weights);
    } else {
      lanes[r] = SoftmaxRow<false>(scores, own[r], group, log2_scale, maximum[r], nullptr, weights);
    }
  }
  for (int32_t r = 0; r < n; ++r) sum[r] = own[r].from < own[r].to ? SumLanes(lanes[r]) : -1.0f;
}

// Of rows [first, first + n), what each sees of the partition at `base`, and all together.
ColumnRange RangesOf(const Rows& rows, int32_t first, int32_t n, int32_t base, ColumnRange* own) {
  ColumnRange group = {kPartition, 0};
  for (int32_t r = 0; r < n; ++r) {
    own[r] = rows.In(first + r, base);
    if (own[r].from >= own[r].to) continue;
    group.from = own[r].from < group.from ? own[r].from : group.from;
    group.to = own[r].to > group.to ? own[r].to : group.to;
  }
  return group;
}

// Scores of `n` rows, those at the front of b, over columns [from, to) of the partition.
void ScoreGroup(const AttentionCall& call, PartitionKv& p, int32_t n, ColumnRange group, const FetchStream& stream,
                bool fetch, const Buffers& b) {
  const int64_t q_stride = call.padded / 2;
  const int32_t dim_pairs = (call.kv->head_dim + 1) / 2, vecs = VecsFor(n);
  const ScoreFn score = fetch ? kScore<4, true>[n] : kScore<4, false>[n];
  const int32_t first_vector = group.from / 16 / vecs * vecs;
  for (int32_t v = first_vector; v * 16 < group.to; v += vecs) {
    if (p.widens) WidenKeys(call, b, stream, v + vecs, &p);
    score(b.q, q_stride, p.keys + v, p.key_stride, dim_pairs, p.key_scales != nullptr ? p.key_scales + 16 * v : nullptr,
          stream.Ahead(v - first_vector), p.widens ? 32 : 64, b.scores + 16 * v);
  }
}

// Rows [first, first + n) over the partition, into b.part.
void RunGroup(const AttentionCall& call, const Rows& rows, PartitionKv& p, int32_t first, int32_t n,
              const FetchStream& stream, const Buffers& b, Sums* sums) {
  ColumnRange own[kGroupRows];
  const ColumnRange group = RangesOf(rows, first, n, p.base, own);
  for (int32_t r = 0; r < n; ++r) sums->sum[first + r] = -1.0f;  // until it is known
  if (group.from >= group.to) return;
  const bool fetch = first == 0 && stream.active();
  const int32_t first_vector = group.from / 16 / VecsFor(n) * VecsFor(n);
  Buffers at = b;
  at.q += first * call.padded / 2;
  ScoreGroup(call, p, n, group, stream, fetch, at);
  if (p.widens && p.values_ready == p.first_chunk()) CopyValueScales(call, 0, p, b);
  SoftmaxGroup(p, own, group, n, call.scale * kLog2E, b.scores, b.weights, sums->maximum + first, sums->sum + first);
  if (p.widens) WidenValues(call, b, stream, p.last_chunk() + 1 - p.first_chunk(), (group.to + 15) / 16, &p);
  const int32_t from = group.from / 2, to = (group.to + 1) / 2;
  const std::byte* const* ahead = stream.Ahead((group.to + 15) / 16 - first_vector) - from / 8;
  WeighGroup(call, p, p.values, n, from, to, false, b.weights, ahead, fetch, b.part + first * call.padded);
}

// Scores of all KV heads of a narrow tile, two chunks of K at a time: blocks are read as they lie in memory. `piece`:
// the first one's place in the stream.
void ScoreNarrow(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& p, const FetchStream& stream,
                 int32_t piece, const Buffers& b) {
  const KvLayer& kv = *call.kv;
  const int32_t rows = tile.rows_per_kv_head(), dim_pairs = kv.head_dim / 2;
  const int64_t head_bytes = KvHeadBytes(kv), q_stride = call.padded / 2;
  for (int32_t c = p.first_chunk(); c <= p.last_chunk(); c += 2) {
    const int32_t chunks = c < p.last_chunk() ? 2 : 1;
    for (int32_t h = 0; h < tile.kv_heads; ++h, piece += chunks) {
      const uint32_t* keys[2];
      for (int32_t i = 0; i < 2; ++i) {
        const ChunkPlace& chunk = p.chunks[c + (i < chunks ? i : 0)];
        const std::byte* head = chunk.Head(kv.k) + h * head_bytes;
        if (p.widens && i < chunks) WidenKeyChunk(call, head, chunk.offset, stream, piece + i, i, b);
        keys[i] = p.widens ? b.keys + i * 8 * call.padded : reinterpret_cast<const uint32_t*>(head) + chunk.offset;
      }
      for (int32_t r = h * rows, n; r < (h + 1) * rows; r += n) {
        n = (h + 1) * rows - r < kGroupRows ? (h + 1) * rows - r : kGroupRows;
        const ScoreFn score = r == h * rows ? kScore<2, true>[n] : kScore<2, false>[n];
        score(b.q + r * q_stride, q_stride, keys, p.key_stride, dim_pairs, p.widens ? b.key_scales : nullptr,
              stream.Ahead(piece), p.widens ? 32 : 64, b.scores + r * kPartition + 16 * c);
      }
    }
  }
}

// As ScoreNarrow, of V.
void WeighNarrow(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& p, const ColumnRange* groups,
                 const FetchStream& stream, int32_t piece, const Buffers& b) {
  const KvLayer& kv = *call.kv;
  const int32_t rows = tile.rows_per_kv_head(), first = p.first_chunk();
  const int64_t head_bytes = KvHeadBytes(kv);
  for (int32_t c = first; c <= p.last_chunk(); c += 2) {
    const int32_t chunks = c < p.last_chunk() ? 2 : 1;
    for (int32_t h = 0; h < tile.kv_heads; ++h, piece += chunks) {
      const uint32_t* values[2];
      for (int32_t i = 0; i < chunks; ++i) {
        const ChunkPlace& chunk = p.chunks[c + i];
        values[i] =
            p.widens ? WidenValueChunk(call, chunk.Head(kv.v) + h * head_bytes, chunk.offset, stream, piece + i, i, b)
                     : ValuesInPlace(call, p, c + i, chunk.Values(kv) + h * head_bytes / 4, b);
      }
      for (int32_t r = h * rows, n; r < (h + 1) * rows; r += n) {
        n = (h + 1) * rows - r < kGroupRows ? (h + 1) * rows - r : kGroupRows;
        const ColumnRange& group = groups[(r - h * rows) / kGroupRows];
        const int32_t from = group.from / 2 > 8 * c ? group.from / 2 : 8 * c;
        const int32_t to = (group.to + 1) / 2 < 8 * (c + chunks) ? (group.to + 1) / 2 : 8 * (c + chunks);
        WeighGroup(call, p, values - c, n, from, to, p.resumes || c > first, b.weights + r * kPartition,
                   stream.Ahead(piece) - c, r == h * rows, b.part + r * call.padded);
      }
    }
  }
}

// What each row of a KV head of a narrow tile sees of a partition, and each kGroupRows of them together.
struct NarrowRanges {
  ColumnRange own[kNarrowRows], groups[kNarrowRows / kGroupRows];
};

// Scores of a narrow tile to weights.
void SoftmaxNarrow(const AttentionCall& call, const AttentionTile& tile, const Rows& rows, const PartitionKv& p,
                   const Buffers& b, NarrowRanges* ranges, Sums* sums) {
  const int32_t per_head = tile.rows_per_kv_head();
  ColumnRange *own = ranges->own, *groups = ranges->groups;
  for (int32_t r = 0; r < per_head; r += kGroupRows) {
    groups[r / kGroupRows] = RangesOf(rows, r, per_head - r < kGroupRows ? per_head - r : kGroupRows, p.base, own + r);
  }
  for (int32_t r = 0; r < rows.count; ++r) sums->sum[r] = -1.0f;
  for (int32_t h = 0; h < tile.kv_heads; ++h) {
    if (p.widens) CopyValueScales(call, h, p, b);
    for (int32_t r = 0; r < per_head; r += kGroupRows) {
      const ColumnRange& group = groups[r / kGroupRows];
      if (group.from >= group.to) continue;
      const int32_t row = h * per_head + r;
      SoftmaxGroup(p, own + r, group, per_head - r < kGroupRows ? per_head - r : kGroupRows, call.scale * kLog2E,
                   b.scores + row * kPartition, b.weights + row * kPartition, sums->maximum + row, sums->sum + row);
    }
  }
}

constexpr int32_t kAll = 1 << 20, kAfter = FetchStream::kMostAhead;

// What is read after a tile's partition, to be fetched meanwhile.
struct Upcoming {
  const AttentionTile* tile = nullptr;  // null: nothing
  int32_t begin = 0;
};
Upcoming BeginOf(const AttentionCall& call, const AttentionTile* tile) {
  return {tile, tile != nullptr ? VisibleFrom(call, QueryOf(call, *tile, 0).position).low : 0};
}
void FetchAfter(const AttentionCall& call, const Upcoming& after, FetchStream* stream) {
  if (after.tile == nullptr) return;
  stream->Add(*call.kv, *after.tile, after.begin, QueryOf(call, *after.tile, 0).position + 1, kAfter, nullptr);
}

// Columns [begin, end) of the partition at `base`, before K and V are placed.
PartitionKv PartOf(const KvLayer& kv, const Buffers& b, int32_t base, int32_t begin, int32_t end) {
  PartitionKv p;
  p.base = base;
  p.begin = begin;
  p.end = end;
  p.widens = InChunks(kv) && kv.dtype == DType::kInt8;
  p.keys_ready = p.values_ready = p.first_chunk();
  p.value_stride = kv.head_dim;
  p.key_scales = p.widens ? b.key_scales : nullptr;
  p.value_scales = p.widens ? b.value_scales : nullptr;
  return p;
}

// A partition of a tile all of whose rows read the blocks of tile.item.
void RunPartition(const AttentionCall& call, const AttentionTile& tile, const Upcoming& next, const Rows& rows,
                  int32_t index, const Buffers& b, Sums* sums) {
  const KvLayer& kv = *call.kv;
  const int32_t base = index * kPartition;
  // Of members the first reads on, behind what they share.
  const int32_t last = (tile.members != nullptr ? rows.high[0] : rows.last) + 1;
  PartitionKv p =
      PartOf(kv, b, base, rows.low[0] > base ? rows.low[0] : base, last < base + kPartition ? last : base + kPartition);
  const bool chunks = InChunks(kv);
  FetchStream stream(kv);
  if (chunks) {
    stream.Add(kv, tile, p.begin, p.end, kAll, p.chunks + p.first_chunk());
    if (p.end < last) {
      stream.Add(kv, tile, p.end, last, kAfter, nullptr);
    } else {
      FetchAfter(call, next, &stream);
    }
    stream.Close();
  }
  PlaceKeys(call, tile, b, &p);
  if (chunks && tile.rows_per_kv_head() <= kNarrowRows) {
    NarrowRanges ranges;
    ScoreNarrow(call, tile, p, stream, 0, b);
    SoftmaxNarrow(call, tile, rows, p, b, &ranges, sums);
    const int32_t pieces_of_keys = (p.last_chunk() + 1 - p.first_chunk()) * tile.kv_heads;
    return WeighNarrow(call, tile, p, ranges.groups, stream, pieces_of_keys, b);
  }
  PlaceValues(call, tile, b, &p);
  PlaceScales(call, tile, b, &p);
  for (int32_t r = 0; r < rows.count; r += kGroupRows) {
    RunGroup(call, rows, p, r, rows.count - r < kGroupRows ? rows.count - r : kGroupRows, stream, b, sums);
  }
}

// A member of a tile in a partition whose first `shared` columns it reads with others: its own columns.
struct Member {
  Member(const AttentionCall& call, const AttentionTile& of, int32_t query, int32_t base, int32_t shared,
         const Buffers& b)
      : tile(MemberTile(call, of, query)), first_row(query * of.heads), at(b.FromRow(first_row, call.padded)) {
    const int32_t end = tile.item->first_position + 1;
    p = PartOf(*call.kv, b, base, base + shared, end < base + kPartition ? end : base + kPartition);
    p.resumes = true;
  }
  bool sees() const { return p.begin < p.end; }
  int32_t pieces() const { return sees() ? p.last_chunk() + 1 - p.first_chunk() : 0; }
  AttentionTile tile;
  int32_t first_row;
  Buffers at;
  PartitionKv p;
};

// Softmax of one member's rows, whose scores are complete, into its place in *sums.
void SoftmaxMember(const AttentionCall& call, const Member& m, NarrowRanges* ranges, Sums* sums) {
  Sums own;
  SoftmaxNarrow(call, m.tile, Rows(call, m.tile), m.p, m.at, ranges, &own);
  for (int32_t r = 0; r < m.tile.heads; ++r) {
    sums->maximum[m.first_row + r] = own.maximum[r];
    sums->sum[m.first_row + r] = own.sum[r];
  }
}

// A partition behind what the members share: each alone.
void RunApart(const AttentionCall& call, const AttentionTile& tile, const Upcoming& next, const Rows& rows,
              int32_t index, const Buffers& b, Sums* sums) {
  const int32_t base = index * kPartition;
  for (int32_t r = 0; r < rows.count; ++r) sums->sum[r] = -1.0f;
  for (int32_t q = 0; q < tile.queries; ++q) {
    const int32_t first = q * tile.heads;
    if (rows.high[first] < base) continue;
    const AttentionTile own = MemberTile(call, tile, q);
    const AttentionTile after = MemberTile(call, tile, q + 1 < tile.queries ? q + 1 : q);
    const bool more = q + 1 < tile.queries && rows.high[first + tile.heads] >= base;
    Sums of_own;
    RunPartition(call, own, more ? Upcoming{&after, base} : next, Rows(call, own), index, b.FromRow(first, call.padded),
                 &of_own);
    for (int32_t r = 0; r < tile.heads; ++r) {
      sums->maximum[first + r] = of_own.maximum[r];
      sums->sum[first + r] = of_own.sum[r];
    }
  }
}

// Pieces of the columns that the members share, then of each one's own.
void FetchMembers(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& shared, bool values,
                  FetchStream* stream) {
  const KvLayer& kv = *call.kv;
  auto add = [&](const AttentionTile& t, int32_t begin, int32_t end) {
    if (begin < end && values) stream->AddValues(kv, t, begin, end, kAll, nullptr);
    if (begin < end && !values) stream->AddKeys(kv, t, begin, end, kAll, nullptr);
  };
  add(tile, shared.begin, shared.end);
  for (int32_t q = 0; q < tile.queries; ++q) {
    const AttentionTile own = MemberTile(call, tile, q);
    const int32_t end = own.item->first_position + 1;
    add(own, shared.end, end < shared.base + kPartition ? end : shared.base + kPartition);
  }
  if (!values) stream->AddValues(kv, tile, shared.begin, shared.end, kAfter, nullptr);
}

// A partition whose first `shared` columns the members share: those for all rows, the others member by member. Scores
// first, then softmax, then values, as if a row were alone.
void RunAcross(const AttentionCall& call, const AttentionTile& tile, const Upcoming& next, const Rows& rows,
               int32_t index, int32_t shared, const Buffers& b, Sums* sums) {
  const KvLayer& kv = *call.kv;
  const int32_t base = index * kPartition;
  const ColumnRange common = {0, shared};
  PartitionKv p = PartOf(kv, b, base, base, base + shared);
  PlaceChunks(kv, *tile.item, tile.kv_head, p.begin, p.end, p.chunks);
  FetchStream keys(kv), values(kv);
  FetchMembers(call, tile, p, false, &keys);
  keys.Close();
  PlaceKeys(call, tile, b, &p);
  for (int32_t r = 0; r < rows.count; r += kGroupRows) {
    ScoreGroup(call, p, rows.count - r < kGroupRows ? rows.count - r : kGroupRows, common, keys, r == 0,
               b.FromRow(r, call.padded));
  }
  if (p.widens) CopyValueScales(call, 0, p, b);
  NarrowRanges ranges;
  for (int32_t q = 0, piece = shared / 16; q < tile.queries; ++q) {
    Member m(call, tile, q, base, shared, b);
    if (m.sees()) {
      PlaceChunks(kv, *m.tile.item, tile.kv_head, m.p.begin, m.p.end, m.p.chunks + m.p.first_chunk());
      PlaceKeys(call, m.tile, b, &m.p);
      ScoreNarrow(call, m.tile, m.p, keys, piece, m.at);
      piece += m.pieces();
    } else {
      m.p = p;
    }
    SoftmaxMember(call, m, &ranges, sums);
  }
  FetchMembers(call, tile, p, true, &values);
  FetchAfter(call, next, &values);
  values.Close();
  PlaceValues(call, tile, b, &p);
  if (p.widens) WidenValues(call, b, values, 0, shared / 16, &p);
  for (int32_t r = 0; r < rows.count; r += kGroupRows) {
    WeighGroup(call, p, p.values, rows.count - r < kGroupRows ? rows.count - r : kGroupRows, 0, shared / 2, false,
               b.weights + r * kPartition, values.Ahead(0), r == 0, b.part + r * call.padded);
  }
  for (int32_t q = 0, piece = shared / 16; q < tile.queries; ++q) {
    Member m(call, tile, q, base, shared, b);
    if (!m.sees()) continue;
    PlaceChunks(kv, *m.tile.item, tile.kv_head, m.p.begin, m.p.end, m.p.chunks + m.p.first_chunk());
    for (int32_t r = 0; r < tile.heads; r += kGroupRows) ranges.groups[r / kGroupRows] = {shared, m.p.end - base};
    WeighNarrow(call, m.tile, m.p, ranges.groups, values, piece, m.at);
    piece += m.pieces();
  }
}

void RunAnyPartition(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next, const Rows& rows,
                     int32_t index, const Buffers& b, Sums* sums) {
  const int32_t shared = SharedColumns(tile, index);
  if (shared == kPartition) return RunPartition(call, tile, BeginOf(call, next), rows, index, b, sums);
  if (shared == 0) return RunApart(call, tile, BeginOf(call, next), rows, index, b, sums);
  RunAcross(call, tile, BeginOf(call, next), rows, index, shared, b, sums);
}

// Adds a partition's `n` rows, stride apart, to what came before them. A row's first partition finds maximum -infinity,
// sum and values 0.
inline void MergeRows(float log2_scale, int32_t n, const float* maximum, const float* sum, const float* part,
                      int64_t padded, float* state_maximum, float* state_sum, float* state) {
  for (int32_t r = 0; r < n; r += 16) {
    const __mmask16 rows = Within(r, 0, n);
    const __m512 s1 = _mm512_maskz_loadu_ps(rows, sum + r), s0 = _mm512_maskz_loadu_ps(rows, state_sum + r);
    const __mmask16 sees = _mm512_mask_cmp_ps_mask(rows, s1, _mm512_setzero_ps(), _CMP_NLT_UQ);
    if (sees == 0) continue;
    const __m512 m1 = _mm512_maskz_loadu_ps(rows, maximum + r), m0 = _mm512_maskz_loadu_ps(rows, state_maximum + r);
    const __m512 top = _mm512_max_ps(m0, m1), scale = _mm512_set1_ps(log2_scale);
    // The first partition meets a state of zeros: what Exp2 makes of its -infinity, 2^-126, does not matter.
    const __m512 f0 = Exp2(_mm512_mul_ps(_mm512_sub_ps(m0, top), scale));
    const __m512 f1 = Exp2(_mm512_mul_ps(_mm512_sub_ps(m1, top), scale));
    _mm512_mask_storeu_ps(state_maximum + r, sees, top);
    _mm512_mask_storeu_ps(state_sum + r, sees, _mm512_fmadd_ps(s1, f1, _mm512_mul_ps(s0, f0)));
    alignas(64) float old_factor[16], new_factor[16];
    _mm512_store_ps(old_factor, f0);
    _mm512_store_ps(new_factor, f1);
    for (int32_t i = 0; i < 16; ++i) {
      if ((sees >> i & 1) == 0) continue;
      const __m512 a = _mm512_set1_ps(old_factor[i]), c = _mm512_set1_ps(new_factor[i]);
      float* to = state + (r + i) * padded;
      const float* from = part + (r + i) * padded;
      for (int64_t d = 0; d < padded; d += 16) {
        const __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(to + d), a);
        _mm512_storeu_ps(to + d, _mm512_fmadd_ps(_mm512_loadu_ps(from + d), c, kept));
      }
    }
  }
}

// A sum of zeros is +0 whether or not it was merged with others.
inline void WriteRow(const float* state, float sum, int32_t head_dim, float* out) {
  const __m512 inverse = _mm512_set1_ps(1.0f / sum);
  for (int32_t d = 0; d < head_dim; d += 16) {
    const __mmask16 lanes = Within(d, 0, head_dim);
    _mm512_mask_storeu_ps(out + d, lanes, _mm512_fmadd_ps(_mm512_loadu_ps(state + d), inverse, _mm512_setzero_ps()));
  }
}

// f(row, index of its first element in a buffer whose tokens are `stride` apart), rows ascending.
template <class F>
inline void ForRowsOf(const AttentionCall& call, const AttentionTile& tile, int64_t stride, F f) {
  const int32_t head_dim = call.kv->head_dim;
  for (int32_t kv_head = 0, r = 0; kv_head < tile.kv_heads; ++kv_head) {
    const int64_t head = AttentionRowOffset(call, tile, r, 0);
    for (int32_t query = 0; query < tile.queries; ++query) {
      const int64_t token = QueryOf(call, tile, query).token * stride + head;
      for (int32_t h = 0; h < tile.heads; ++h, ++r) f(r, token + static_cast<int64_t>(h) * head_dim);
    }
  }
}

void RoundQueries(const AttentionCall& call, const AttentionTile& tile, uint32_t* rounded) {
  const int32_t head_dim = call.kv->head_dim;
  ForRowsOf(call, tile, call.q_stride, [&](int32_t r, int64_t at) {
    const float* from = call.q + at;
    alignas(64) float turned[kMaxHeadDim];
    if (call.kv->dtype == DType::kInt8) {
      const int32_t run = head_dim & -head_dim, vectors = head_dim / 16;
      std::memcpy(turned, from, static_cast<size_t>(head_dim) * sizeof(float));
      if (run >= 16) {
        SpreadVectors(reinterpret_cast<__m512*>(turned), vectors, run);
      } else {
        SpreadHead(turned, head_dim);
      }
      from = turned;
    }
    uint32_t* to = rounded + r * call.padded / 2;
    int32_t d = 0;
    for (; d + 32 <= head_dim; d += 32) {
      const __m512bh pair = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + d + 16), _mm512_loadu_ps(from + d));
      _mm512_storeu_si512(to + d / 2, reinterpret_cast<__m512i>(pair));
    }
    for (; d < call.padded; d += 16) {
      const __m512 x = _mm512_maskz_loadu_ps(Within(d, 0, head_dim), from + d);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + d / 2), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    }
  });
}

// Brings rows of a tile near: of q those of the tile to come, of the result this one's own. They lie in pieces, and
// waiting for them costs a fifth of a short prompt.
template <int kWrite>
void FetchRows(const AttentionCall& call, const AttentionTile& tile, const float* base, int64_t stride) {
  const int64_t bytes = int64_t{tile.heads} * call.kv->head_dim * int64_t{sizeof(float)};
  for (int32_t r = 0; r < tile.rows(); r += tile.heads) {
    const auto* from = reinterpret_cast<const char*>(base + AttentionRowOffset(call, tile, r, stride));
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, kWrite);
  }
}

void RunTile(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next, std::byte* scratch) {
  const Buffers b(scratch, call.padded);
  const Rows rows(call, tile);
  RoundQueries(call, tile, b.q);
  Sums sums;
  float maximum[kAttentionTileRows], sum[kAttentionTileRows];
  // The first partition is the state, which is what merging it into nothing would give (but for the sign of zeros: see
  // WriteRow).
  const int32_t first = rows.low[0] / kPartition, last = rows.last / kPartition;
  FetchRows<1>(call, tile, call.out, call.out_stride);
  if (next != nullptr) FetchRows<0>(call, *next, call.q, call.q_stride);
  Buffers begin = b;
  begin.part = b.state;
  RunAnyPartition(call, tile, next, rows, first, begin, &sums);
  for (int32_t r = 0; r < rows.count; ++r) {
    const bool sees = !(sums.sum[r] < 0);
    maximum[r] = sees ? sums.maximum[r] : -__builtin_inff();
    sum[r] = sees ? sums.sum[r] : 0.0f;
    if (!sees) std::memset(b.state + r * call.padded, 0, static_cast<size_t>(call.padded) * sizeof(float));
  }
  for (int32_t index = first + 1; index <= last; ++index) {
    RunAnyPartition(call, tile, next, rows, index, b, &sums);
    MergeRows(call.scale * kLog2E, rows.count, sums.maximum, sums.sum, b.part, call.padded, maximum, sum, b.state);
  }
  ForRowsOf(call, tile, call.out_stride, [&](int32_t r, int64_t at) {
    WriteRow(b.state + r * call.padded, sum[r], call.kv->head_dim, call.out + at);
  });
}

void RunTilePartition(const AttentionCall& call, const AttentionTile& tile, int32_t index, std::byte* scratch,
                      float* results, int64_t stride) {
  const Buffers b(scratch, call.padded);
  const Rows rows(call, tile);
  RoundQueries(call, tile, b.q);
  Sums sums;
  RunAnyPartition(call, tile, nullptr, rows, index, b, &sums);
  for (int32_t r = 0; r < rows.count; ++r) {
    float* to = results + r * stride;
    std::memcpy(to, b.part + r * call.padded, static_cast<size_t>(call.padded) * sizeof(float));
    to[call.padded] = sums.maximum[r];
    to[call.padded + 1] = sums.sum[r];
  }
}

void MergeResults(const AttentionCall& call, float* state, const float* results, int64_t stride, int32_t count,
                  float* out) {
  for (int32_t i = 0; i < count; ++i) {
    const float* part = results + i * stride;
    MergeRows(call.scale * kLog2E, 1, part + call.padded, part + call.padded + 1, part, call.padded,
              state + call.padded, state + call.padded + 1, state);
  }
  if (out != nullptr) WriteRow(state, state[call.padded + 1], call.kv->head_dim, out);
}

}  // namespace

void AttentionAvx512Bf16(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                         int32_t heads, const KvLayer& kv, float scale, int32_t window, float* out, int64_t out_stride,
                         Workspace scratch) {
  static constexpr AttentionKernel kKernel = {
      .takes_kv_heads = [](const AttentionCall& call) { return InChunks(*call.kv); },
      .takes_members = [](const AttentionCall& call) { return InChunks(*call.kv); },
      .run_tile = RunTile,
      .run_partition = RunTilePartition,
      .merge = MergeResults,
  };
  AttentionCall call = {};
  call.q = q;
  call.q_stride = q_stride;
  call.kv = &kv;
  call.scale = scale;
  call.window = window;
  call.out = out;
  call.out_stride = out_stride;
  RunAttention(pool, kKernel, items, heads, call, scratch);
}

}  // namespace tactus::kernels
