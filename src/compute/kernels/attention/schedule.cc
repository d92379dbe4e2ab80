#include "compute/kernels/attention/schedule.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/kernel_set.h"

namespace tactus::compute {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t Aligned(int64_t bytes) {
  return CeilDiv(bytes, 64) * 64;
}
int64_t PaddedHead(int32_t head_dim) {
  return CeilDiv(head_dim, kMaxWidth) * kMaxWidth;
}
// Floats of one row's result: a whole number of cache lines.
int64_t ResultFloats(int32_t head_dim) {
  return PaddedHead(head_dim) + kMaxWidth;
}
int64_t ResultRows(int32_t threads) {
  return int64_t{kSplitPerThread} * threads * kAttentionTileRows;
}

// The source of tiles: an item, or the decodes of a prefix group.
struct Unit {
  const AttentionItem* item;
  const int32_t* members;  // a group's, as in AttentionTile; else null
  int32_t shared;
  int32_t queries;
};

// Most bytes that a tile of several KV heads reads: at one core's rate, about the intended length of a task.
constexpr int64_t kLongestRead = int64_t{8} << 20;

int32_t KvHeadsPerTile(const AttentionCall& call, const Unit& unit) {
  const int32_t rows = unit.queries * call.group;
  if (unit.members != nullptr || rows > kNarrowRows || rows == 0 || call.kv_heads_at_once == 1) return 1;
  const int64_t bytes = 2 * KvHeadBytes(*call.kv) * (unit.item->first_position / call.kv->block_size + 1);
  const int64_t most = std::min<int64_t>({call.kv_heads_at_once, kAttentionTileRows / rows, kLongestRead / bytes});
  return most <= 1 ? 1 : static_cast<int32_t>(CeilDiv(call.kv->kv_heads, CeilDiv(call.kv->kv_heads, most)));
}

int64_t QueryTiles(const AttentionCall& call, const Unit& unit) {
  if (unit.members != nullptr) return CeilDiv(unit.queries, kAttentionTileRows / call.tile_heads);
  return CeilDiv(unit.queries, call.tile_queries);
}

int64_t TilesOf(const AttentionCall& call, const Unit& unit) {
  return QueryTiles(call, unit) * CeilDiv(call.group, call.tile_heads) *
         CeilDiv(call.kv->kv_heads, KvHeadsPerTile(call, unit));
}

// Members are spread evenly. Tiles of one KV head are adjacent: they read the same blocks.
AttentionTile GroupTileAt(const AttentionCall& call, const Unit& unit, int64_t tile) {
  const int64_t query_tiles = QueryTiles(call, unit), at = tile % query_tiles;
  const int64_t first = unit.queries * at / query_tiles;
  AttentionTile t;
  t.members = unit.members + first;
  t.item = call.items + t.members[0];
  t.shared = unit.shared;
  t.kv_head = static_cast<int32_t>(tile / query_tiles);
  t.kv_heads = 1;
  t.first_head = t.kv_head * call.group;
  t.heads = call.group;
  t.first_query = 0;
  t.queries = static_cast<int32_t>(unit.queries * (at + 1) / query_tiles - first);
  return t;
}

// Tiles of one KV head are adjacent: they read the same blocks. The last queries attend to the most positions; they run
// first, so that long tasks do not end the step.
AttentionTile TileAt(const AttentionCall& call, const Unit& unit, int64_t tile) {
  if (unit.members != nullptr) return GroupTileAt(call, unit, tile);
  const int64_t query_tiles = QueryTiles(call, unit), head_tiles = CeilDiv(call.group, call.tile_heads);
  AttentionTile t;
  t.item = unit.item;
  t.members = nullptr;
  t.shared = 0;
  t.first_query = static_cast<int32_t>(query_tiles - 1 - tile % query_tiles) * call.tile_queries;
  t.queries = std::min(call.tile_queries, unit.queries - t.first_query);
  tile /= query_tiles;
  const int32_t at_once = KvHeadsPerTile(call, unit);
  t.kv_head = static_cast<int32_t>(tile / head_tiles) * at_once;
  t.kv_heads = std::min(at_once, call.kv->kv_heads - t.kv_head);
  const auto in_group = static_cast<int32_t>(tile % head_tiles) * call.tile_heads;
  t.first_head = t.kv_head * call.group + in_group;
  t.heads = std::min(call.tile_heads, call.group - in_group);
  return t;
}

struct PartitionRange {
  int32_t first, last;
};
PartitionRange PartitionsOf(const AttentionCall& call, const AttentionTile& t) {
  if (t.members == nullptr) {
    const int32_t position = t.item->first_position + t.first_query;
    return {VisibleFrom(call, position).low / kPartition, (position + t.queries - 1) / kPartition};
  }
  int32_t last = 0;
  for (int32_t q = 0; q < t.queries; ++q) last = std::max(last, QueryOf(call, t, q).position);
  return {0, last / kPartition};
}

// Reading K and V of a head costs about as much as the arithmetic of 24 rows.
constexpr int64_t kReadRows = 24;

int64_t CostOf(const AttentionCall& call, const AttentionTile& t) {
  if (t.members == nullptr) {
    const int32_t position = t.item->first_position + t.first_query;
    return (position + t.queries - VisibleFrom(call, position).low) * int64_t{t.rows() + kReadRows * t.kv_heads};
  }
  int64_t own = 0;
  for (int32_t q = 0; q < t.queries; ++q) own += QueryOf(call, t, q).position + 1 - t.shared;
  return t.shared * int64_t{t.rows() + kReadRows} + own * (t.heads + kReadRows);
}

struct SplitTask {
  const Unit* unit;
  int64_t tile;
  int32_t partition, first_row;
};
// A tile's partitions in this wave: tasks [first, first + count). Tiles that span waves keep their rows in a separate
// carry.
struct MergeTask {
  int32_t first = 0, count = 0;
  bool begins = false, ends = false;
  int32_t carry = 0;
};

// The split tiles, cut into waves that fill the scratch for results.
class SplitWaves {
 public:
  SplitWaves(const AttentionCall& call, const Unit* units, const int32_t* order, int64_t num_units, int64_t rows,
             SplitTask* tasks, MergeTask* merges)
      : call_(call), units_(units), order_(order), num_units_(num_units), rows_(rows), tasks_(tasks), merges_(merges) {}

  bool NextWave() {
    num_tasks_ = num_merges_ = 0;
    int64_t used = 0;
    for (; unit_ < num_units_; ++unit_, tile_ = 0) {
      const Unit& unit = units_[order_[unit_]];
      for (; tile_ < TilesOf(call_, unit); ++tile_, partition_ = -1) {
        const AttentionTile t = TileAt(call_, unit, tile_);
        const PartitionRange range = PartitionsOf(call_, t);
        if (used + t.rows() > rows_) return true;
        const bool begins = partition_ < 0;
        if (begins) partition_ = range.first;
        MergeTask& merge = merges_[num_merges_++];
        merge = {num_tasks_, 0, begins, false, begins ? 1 - carry_ : carry_};
        for (; partition_ <= range.last && used + t.rows() <= rows_; ++partition_, used += t.rows()) {
          tasks_[num_tasks_++] = {&unit, tile_, partition_, static_cast<int32_t>(used)};
          ++merge.count;
        }
        merge.ends = partition_ > range.last;
        if (!merge.ends) {
          carry_ = merge.carry;
          return true;
        }
      }
    }
    return num_tasks_ > 0;
  }

  int64_t num_tasks() const { return num_tasks_; }
  int64_t num_merges() const { return num_merges_; }
  const SplitTask& task(int64_t i) const { return tasks_[i]; }
  const MergeTask& merge(int64_t i) const { return merges_[i]; }

 private:
  const AttentionCall& call_;
  const Unit* units_;
  const int32_t* order_;
  int64_t num_units_, rows_;
  SplitTask* tasks_;
  MergeTask* merges_;
  int32_t num_tasks_ = 0, num_merges_ = 0;
  int64_t unit_ = 0, tile_ = 0;
  int32_t partition_ = -1;  // -1: the tile has not begun
  int32_t carry_ = 0;       // of the tile that continues in the next wave
};

// The caller's workspace, divided.
struct Pieces {
  Unit* units;          // [num_items] at most, as the next three
  int32_t* members;     // of all groups, group by group
  int32_t* order;       // of units, longest tile first; split units at the front
  int64_t* first_tile;  // [units + 1], in the order of `order`
  SplitTask* tasks;
  MergeTask* merges;
  float* results;  // [ResultRows][ResultFloats]
  float* carries;  // [2][kMostTileRows][ResultFloats]
  std::byte* threads;
};

struct Sizes {
  Sizes(int64_t num_items, int32_t head_dim, int32_t threads) {
    units = Aligned(num_items * static_cast<int64_t>(sizeof(Unit)));
    members = Aligned(num_items * static_cast<int64_t>(sizeof(int32_t)));
    order = Aligned(num_items * static_cast<int64_t>(sizeof(int32_t)));
    first_tile = Aligned((num_items + 1) * static_cast<int64_t>(sizeof(int64_t)));
    tasks = Aligned(ResultRows(threads) * static_cast<int64_t>(sizeof(SplitTask)));
    merges = Aligned(ResultRows(threads) * static_cast<int64_t>(sizeof(MergeTask)));
    results = ResultRows(threads) * ResultFloats(head_dim) * 4;
    carries = 2 * kMostTileRows * ResultFloats(head_dim) * 4;
    all_threads = threads * AttentionThreadBytes(head_dim);
  }
  int64_t Total() const {
    return units + members + order + first_tile + tasks + merges + results + carries + all_threads;
  }
  int64_t units, members, order, first_tile, tasks, merges, results, carries, all_threads;
};

Pieces Carve(std::byte* p, const Sizes& s) {
  auto take = [&p](int64_t bytes) {
    std::byte* at = p;
    p += bytes;
    return at;
  };
  Pieces c;
  c.units = reinterpret_cast<Unit*>(take(s.units));
  c.members = reinterpret_cast<int32_t*>(take(s.members));
  c.order = reinterpret_cast<int32_t*>(take(s.order));
  c.first_tile = reinterpret_cast<int64_t*>(take(s.first_tile));
  c.tasks = reinterpret_cast<SplitTask*>(take(s.tasks));
  c.merges = reinterpret_cast<MergeTask*>(take(s.merges));
  c.results = reinterpret_cast<float*>(take(s.results));
  c.carries = reinterpret_cast<float*>(take(s.carries));
  c.threads = take(s.all_threads);
  return c;
}

// The positions that tiles of these items may read together; 0: none.
int32_t SharedBy(const AttentionCall& call, const int32_t* members, int64_t count) {
  if (count < 2 || call.group > kNarrowRows) return 0;
  int32_t shared = std::numeric_limits<int32_t>::max();
  for (int64_t i = 0; i < count; ++i) {
    const AttentionItem& item = call.items[members[i]];
    if (item.count != 1 || VisibleFrom(call, item.first_position).low > 0) return 0;
    shared = std::min({shared, item.prefix_tokens, item.first_position + 1});
  }
  return shared / kKeyTile * kKeyTile;
}

// Makes units of items and groups; returns their number.
int64_t MakeUnits(const AttentionCall& call, bool takes_members, Unit* units, int32_t* members) {
  int64_t num_units = 0, num_members = 0;
  auto add_item = [&](int64_t i) {
    const AttentionItem& item = call.items[i];
    units[num_units++] = {&item, nullptr, 0, item.count};
  };
  for (int64_t i = 0; i < call.num_items; ++i) {
    if (takes_members && call.items[i].prefix_group >= 0) {
      members[num_members++] = static_cast<int32_t>(i);
    } else {
      add_item(i);
    }
  }
  auto group = [&](int32_t i) { return call.items[i].prefix_group; };
  std::sort(members, members + num_members,
            [&](int32_t a, int32_t b) { return group(a) != group(b) ? group(a) < group(b) : a < b; });
  for (int64_t first = 0, end; first < num_members; first = end) {
    for (end = first + 1; end < num_members && group(members[end]) == group(members[first]);) ++end;
    const int32_t shared = SharedBy(call, members + first, end - first);
    if (shared > 0) {
      units[num_units++] = {&call.items[members[first]], members + first, shared, static_cast<int32_t>(end - first)};
    } else {
      for (int64_t i = first; i < end; ++i) add_item(members[i]);
    }
  }
  return num_units;
}

// The most KV heads per tile that leave a few tiles for each thread.
int32_t KvHeadsAtOnce(const AttentionCall& call, const Unit* units, int64_t num_units, int32_t threads) {
  int64_t narrow = 0;
  for (int64_t i = 0; i < num_units; ++i) {
    narrow += units[i].members == nullptr && units[i].queries * call.group <= kNarrowRows;
  }
  const int64_t tiles = std::max<int64_t>(1, CeilDiv(4 * int64_t{threads}, std::max<int64_t>(1, narrow)));
  return static_cast<int32_t>(std::clamp<int64_t>(call.kv->kv_heads / tiles, 1, kMostKvHeads));
}

// The queries of an item's tile of at most `most_rows` rows that leave several tiles for each thread.
int32_t TileQueries(const AttentionCall& call, int32_t most_rows, int32_t threads) {
  const int64_t head_tiles = CeilDiv(call.group, call.tile_heads) * call.kv->kv_heads;
  int32_t rows = most_rows;
  for (; rows > kAttentionTileRows; rows /= 2) {
    int64_t tiles = 0;
    for (int64_t i = 0; i < call.num_items; ++i) tiles += CeilDiv(call.items[i].count, rows / call.tile_heads);
    if (tiles * head_tiles >= int64_t{8} * threads) break;
  }
  return rows / call.tile_heads;
}

// Sorts the units; returns the number of split ones, at the front: those with a tile that would occupy one thread long
// after the others have finished. `costs`: scratch of num_units.
int64_t OrderUnits(const AttentionCall& call, int32_t threads, const Unit* units, int64_t num_units, int32_t* order,
                   int64_t* costs) {
  int64_t total = 0;
  for (int64_t i = 0; i < num_units; ++i) {
    order[i] = static_cast<int32_t>(i);
    const Unit& unit = units[i];
    const int64_t query_tiles = QueryTiles(call, unit);
    costs[i] = 0;
    for (int64_t q = 0; q < query_tiles; ++q) {  // the tiles of the first heads; those of others cost the same
      const int64_t cost = CostOf(call, TileAt(call, unit, q));
      costs[i] = std::max(costs[i], cost);
      total += TilesOf(call, unit) / query_tiles * cost;
    }
  }
  std::sort(order, order + num_units,
            [costs](int32_t a, int32_t b) { return costs[a] != costs[b] ? costs[a] > costs[b] : a < b; });
  int64_t split = 0;
  while (threads > 1 && split < num_units && costs[order[split]] * 2 * threads > total) {
    const PartitionRange range = PartitionsOf(call, TileAt(call, units[order[split]], 0));
    if (range.first == range.last) break;
    ++split;
  }
  return split;
}

void MergeWave(ThreadPool& pool, const AttentionKernel& kernel, const AttentionCall& call, const SplitWaves& waves,
               const Pieces& c) {
  const int64_t stride = ResultFloats(call.kv->head_dim), thread_bytes = AttentionThreadBytes(call.kv->head_dim);
  pool.ParallelFor(waves.num_merges(), [&](int64_t i, int32_t thread) {
    const MergeTask& merge = waves.merge(i);
    const SplitTask& first = waves.task(merge.first);
    const AttentionTile tile = TileAt(call, *first.unit, first.tile);
    for (int32_t r = 0; r < tile.rows(); ++r) {
      float* state = merge.begins && merge.ends ? reinterpret_cast<float*>(c.threads + thread * thread_bytes)
                                                : c.carries + (merge.carry * kMostTileRows + r) * stride;
      if (merge.begins) {
        std::memset(state, 0, static_cast<size_t>(stride) * sizeof(float));
        state[call.padded] = -std::numeric_limits<float>::infinity();
      }
      float* out = merge.ends ? call.out + AttentionRowOffset(call, tile, r, call.out_stride) : nullptr;
      kernel.merge(call, HeadOf(call, tile, r), state, c.results + (first.first_row + r) * stride, tile.rows() * stride,
                   merge.count, out);
    }
  });
}

}  // namespace

VisibleRange VisibleFrom(const AttentionCall& call, int32_t position) {
  return {call.spec->FirstVisible(position), position};
}

AttentionQuery QueryOf(const AttentionCall& call, const AttentionTile& tile, int32_t query) {
  const AttentionItem& item = tile.members != nullptr ? call.items[tile.members[query]] : *tile.item;
  const int32_t in_item = tile.members != nullptr ? 0 : tile.first_query + query;
  return {&item, item.first_token + in_item, item.first_position + in_item};
}

AttentionTile MemberTile(const AttentionCall& call, const AttentionTile& tile, int32_t query) {
  AttentionTile t = tile;
  t.item = QueryOf(call, tile, query).item;
  t.members = nullptr;
  t.shared = 0;
  t.first_query = 0;
  t.queries = 1;
  return t;
}

int32_t SharedColumns(const AttentionTile& tile, int32_t index) {
  if (tile.members == nullptr) return kPartition;
  return std::clamp(tile.shared - index * kPartition, 0, kPartition);
}

int32_t HeadOf(const AttentionCall& call, const AttentionTile& tile, int32_t row) {
  const int32_t kv_head = row / tile.rows_per_kv_head(), in_head = row % tile.rows_per_kv_head();
  return tile.first_head + kv_head * call.group + in_head % tile.heads;
}

float InverseSumWithSink(float sink, float maximum, float sum) {
  const float top = std::max(maximum, sink);
  const float factor = std::exp(maximum - top);
  return factor / (sum * factor + std::exp(sink - top));
}

int64_t AttentionRowOffset(const AttentionCall& call, const AttentionTile& tile, int32_t row, int64_t stride) {
  const int64_t token = QueryOf(call, tile, row % tile.rows_per_kv_head() / tile.heads).token;
  return token * stride + int64_t{HeadOf(call, tile, row)} * call.kv->head_dim;
}

void RunAttention(ThreadPool& pool, const AttentionKernel& kernel, const float* q, int64_t q_stride,
                  std::span<const AttentionItem> items, int32_t heads, const KvLayer& kv, const AttentionSpec& spec,
                  float* out, int64_t out_stride, Workspace scratch) {
  CheckHeadDim(kv.head_dim, 0);
  AttentionCall call = {};
  call.q = q;
  call.q_stride = q_stride;
  call.kv = &kv;
  call.spec = &spec;
  call.out = out;
  call.out_stride = out_stride;
  call.items = items.data();
  call.num_items = static_cast<int64_t>(items.size());
  call.heads = heads;
  call.group = heads / kv.kv_heads;
  call.tile_heads = std::min(call.group, kAttentionTileRows);
  call.tile_queries = TileQueries(call, kernel.tile_rows, pool.threads());
  call.padded = PaddedHead(kv.head_dim);
  const Sizes sizes(call.num_items, kv.head_dim, pool.threads());
  const Pieces c = Carve(AlignedWorkspace(scratch, sizes.Total()), sizes);
  const bool takes_members = kernel.takes_members != nullptr && kernel.takes_members(call);
  const int64_t num_units = MakeUnits(call, takes_members, c.units, c.members);
  call.kv_heads_at_once = 1;
  if (kernel.takes_kv_heads != nullptr && kernel.takes_kv_heads(call)) {
    call.kv_heads_at_once = KvHeadsAtOnce(call, c.units, num_units, pool.threads());
  }
  const int64_t split = OrderUnits(call, pool.threads(), c.units, num_units, c.order, c.first_tile);
  int64_t tiles = 0;
  for (int64_t i = split; i < num_units; ++i) {
    c.first_tile[i] = tiles;
    tiles += TilesOf(call, c.units[c.order[i]]);
  }
  c.first_tile[num_units] = tiles;
  SplitWaves waves(call, c.units, c.order, split, ResultRows(pool.threads()), c.tasks, c.merges);
  const int64_t thread_bytes = AttentionThreadBytes(kv.head_dim), stride = ResultFloats(kv.head_dim);
  auto tile_at = [&](int64_t tile) {
    int64_t low = split, high = num_units;  // the unit with first_tile[low] <= tile < first_tile[low + 1]
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (c.first_tile[middle] <= tile ? low : high) = middle;
    }
    return TileAt(call, c.units[c.order[low]], tile - c.first_tile[low]);
  };
  for (bool more = waves.NextWave(); more || tiles > 0; more = waves.NextWave()) {
    pool.ParallelFor(waves.num_tasks() + tiles, [&](int64_t task, int32_t thread) {
      std::byte* thread_scratch = c.threads + thread * thread_bytes;
      if (task < waves.num_tasks()) {
        const SplitTask& s = waves.task(task);
        return kernel.run_partition(call, TileAt(call, *s.unit, s.tile), s.partition, thread_scratch,
                                    c.results + s.first_row * stride, stride);
      }
      const int64_t at = task - waves.num_tasks(), after = at + pool.threads();
      const AttentionTile tile = tile_at(at), next = tile_at(after < tiles ? after : at);
      kernel.run_tile(call, tile, after < tiles ? &next : nullptr, thread_scratch);
    });
    tiles = 0;
    if (waves.num_merges() > 0) MergeWave(pool, kernel, call, waves, c);
  }
}

int64_t AttentionThreadBytes(int32_t head_dim) {
  const int64_t padded = PaddedHead(head_dim);
  // f32: q, K transposed by tiles, V, a partition's result and the state; weights of all rows.
  const int64_t vectors = kKeyTile + kMaxWidth + kPartition + 3 * kAttentionTileRows;
  const int64_t f32 = (vectors * padded + kAttentionTileRows * kPartition) * int64_t{sizeof(float)};
  // bf16: q, a partition's result, the state; K and V of a partition where they cannot be read in place; scores (f32)
  // and weights (bf16) of kAttentionTileRows rows; scales.
  const int64_t vectors_bf16 = (3 * kMostTileRows + kPartition + 4) * padded;
  const int64_t bf16 = (vectors_bf16 + (3 * kAttentionTileRows / 2 + 2) * kPartition) * int64_t{sizeof(float)};
  return Aligned(std::max(f32, bf16));
}

int64_t AttentionWorkspaceBytes(int64_t tokens, int32_t heads, int32_t head_dim, int32_t threads) {
  (void)heads;
  return Sizes(tokens, head_dim, threads).Total();
}

}  // namespace tactus::compute
