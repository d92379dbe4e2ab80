// A tile of attention over a partition, with the loops of a Format (tiles.h): wide, narrow, or of members that share
// some of its columns.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compute/kernels/attention/avx512/groups.h"
#include "compute/kernels/attention/avx512/narrow.h"

namespace tactus::compute {
namespace {

constexpr int32_t kAll = 1 << 20, kAfter = FetchStream::kMostAhead;

// The reads that follow a tile's partition, to be prefetched.
struct Upcoming {
  const AttentionTile* tile = nullptr;  // null: none
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
PartitionKv PartOf(const KvLayer& kv, int32_t base, int32_t begin, int32_t end) {
  PartitionKv p;
  p.base = base;
  p.begin = begin;
  p.end = end;
  p.value_stride = kv.head_dim;  // as in chunks
  return p;
}

// A partition of a tile all of whose rows read the blocks of tile.item.
template <class Format>
void RunPartition(const AttentionCall& call, const AttentionTile& tile, const Upcoming& next, const Rows& rows,
                  int32_t index, const Buffers& b, Sums* sums) {
  const KvLayer& kv = *call.kv;
  const int32_t base = index * kPartition;
  // A tile with members continues with its first member's own positions.
  const int32_t last = (tile.members != nullptr ? rows.high[0] : rows.last) + 1;
  PartitionKv p =
      PartOf(kv, base, rows.low[0] > base ? rows.low[0] : base, last < base + kPartition ? last : base + kPartition);
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
    ScoreNarrow<Format>(call, tile, p, stream, 0, b);
    SoftmaxNarrow<Format>(call, tile, rows, p, b, &ranges, sums);
    const int32_t pieces_of_keys = (p.last_chunk() + 1 - p.first_chunk()) * tile.kv_heads;
    return WeighNarrow<Format>(call, tile, p, ranges.groups, stream, pieces_of_keys, b);
  }
  PlaceValues<Format::kValues>(call, tile, b, &p);
  if (Format::kCodes) PlaceValueScales(call, tile, 0, p, b);
  for (int32_t r = 0; r < rows.count; r += Format::kBlockRows) {
    const int32_t n = rows.count - r < Format::kBlockRows ? rows.count - r : Format::kBlockRows;
    RunBlock<Format>(call, rows, p, r, n, stream, b, sums);
  }
}

// A member of a tile in a partition whose first `shared` columns the members share: the member's own columns.
struct Member {
  Member(const AttentionCall& call, const AttentionTile& of, int32_t query, int32_t base, int32_t shared,
         const Buffers& b)
      : tile(MemberTile(call, of, query)), first_row(query * of.heads), at(b.FromRow(first_row, call.padded)) {
    const int32_t end = tile.item->first_position + 1;
    p = PartOf(*call.kv, base, base + shared, end < base + kPartition ? end : base + kPartition);
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
template <class Format>
void SoftmaxMember(const AttentionCall& call, const Member& m, NarrowRanges* ranges, Sums* sums) {
  Sums own;
  SoftmaxNarrow<Format>(call, m.tile, Rows(call, m.tile), m.p, m.at, ranges, &own);
  sums->CopyFrom(own, m.first_row, m.tile.heads);
}

// A partition behind the shared prefix: each member separately.
template <class Format>
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
    RunPartition<Format>(call, own, more ? Upcoming{&after, base} : next, Rows(call, own), index,
                         b.FromRow(first, call.padded), &of_own);
    sums->CopyFrom(of_own, first, tile.heads);
  }
}

// Pieces of the columns that the members share, then of each member's own.
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

// A partition whose first `shared` columns the members share: those for all rows together, the others member by member.
// First scores, then softmax, then values, as for separate rows.
template <class Format>
void RunAcross(const AttentionCall& call, const AttentionTile& tile, const Upcoming& next, const Rows& rows,
               int32_t index, int32_t shared, const Buffers& b, Sums* sums) {
  const KvLayer& kv = *call.kv;
  const int32_t base = index * kPartition;
  const ColumnRange common = {0, shared};
  PartitionKv p = PartOf(kv, base, base, base + shared);
  PlaceChunks(kv, *tile.item, tile.kv_head, p.begin, p.end, p.chunks);
  FetchStream keys(kv), values(kv);
  FetchMembers(call, tile, p, false, &keys);
  keys.Close();
  PlaceKeys(call, tile, b, &p);
  for (int32_t r = 0; r < rows.count; r += Format::kGroupRows) {
    ScoreGroup<Format>(call, p, rows.count - r < Format::kGroupRows ? rows.count - r : Format::kGroupRows, common, keys,
                       r == 0, b.FromRow(r, call.padded));
  }
  if (Format::kCodes) PlaceValueScales(call, tile, 0, p, b);
  NarrowRanges ranges;
  for (int32_t q = 0, piece = shared / 16; q < tile.queries; ++q) {
    Member m(call, tile, q, base, shared, b);
    if (m.sees()) {
      PlaceChunks(kv, *m.tile.item, tile.kv_head, m.p.begin, m.p.end, m.p.chunks + m.p.first_chunk());
      PlaceKeys(call, m.tile, b, &m.p);
      ScoreNarrow<Format>(call, m.tile, m.p, keys, piece, m.at);
      piece += m.pieces();
    } else {
      m.p = p;
    }
    SoftmaxMember<Format>(call, m, &ranges, sums);
  }
  FetchMembers(call, tile, p, true, &values);
  FetchAfter(call, next, &values);
  values.Close();
  PlaceValues<Format::kValues>(call, tile, b, &p);
  for (int32_t r = 0; r < rows.count; r += Format::kGroupRows) {
    const int32_t n = rows.count - r < Format::kGroupRows ? rows.count - r : Format::kGroupRows;
    Format::BeginValues(n);
    WeighGroup<Format>(call, p, p.values, n, 0, shared / KvGroup(kv), false, b.weights + r * kPartition,
                       values.Ahead(0), r == 0, b.part + r * call.padded);
  }
  for (int32_t q = 0, piece = shared / 16; q < tile.queries; ++q) {
    Member m(call, tile, q, base, shared, b);
    if (!m.sees()) continue;
    PlaceChunks(kv, *m.tile.item, tile.kv_head, m.p.begin, m.p.end, m.p.chunks + m.p.first_chunk());
    for (int32_t r = 0; r < tile.heads; r += Format::kGroupRows)
      ranges.groups[r / Format::kGroupRows] = {shared, m.p.end - base};
    WeighNarrow<Format>(call, m.tile, m.p, ranges.groups, values, piece, m.at);
    piece += m.pieces();
  }
}

template <class Format>
void RunAnyPartition(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next, const Rows& rows,
                     int32_t index, const Buffers& b, Sums* sums) {
  const int32_t shared = SharedColumns(tile, index);
  if (shared == kPartition) {
    RunPartition<Format>(call, tile, BeginOf(call, next), rows, index, b, sums);
  } else if (shared == 0) {
    RunApart<Format>(call, tile, BeginOf(call, next), rows, index, b, sums);
  } else {
    RunAcross<Format>(call, tile, BeginOf(call, next), rows, index, shared, b, sums);
  }
  if (!Format::kCodes) return;
  for (int32_t r = 0; r < rows.count; ++r) {  // integer results to their values
    const __m512 unit = _mm512_set1_ps(sums->unit[r]);
    float* to = b.part + r * call.padded;
    for (int64_t d = 0; d < call.padded; d += 16) {
      _mm512_storeu_ps(to + d, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(to + d)), unit));
    }
  }
}

}  // namespace
}  // namespace tactus::compute
