#include "kernels/attention/schedule.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/attention/kv_layout.h"
#include "kernels/kernel_set.h"

namespace tactus::kernels {
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

// A tile of several KV heads reads at most so much: at the rate of one core about as long as tasks should last.
constexpr int64_t kLongestRead = int64_t{8} << 20;

int32_t KvHeadsPerTile(const AttentionCall& call, const AttentionItem& item) {
  const int32_t rows = item.count * call.group;
  if (rows > kNarrowRows || rows == 0 || call.kv_heads_at_once == 1) return 1;
  const int64_t bytes = 2 * KvHeadBytes(*call.kv) * (item.first_position / call.kv->block_size + 1);
  const int64_t most = std::min<int64_t>({call.kv_heads_at_once, kAttentionTileRows / rows, kLongestRead / bytes});
  return most <= 1 ? 1 : static_cast<int32_t>(CeilDiv(call.kv->kv_heads, CeilDiv(call.kv->kv_heads, most)));
}

int64_t TilesOf(const AttentionCall& call, const AttentionItem& item) {
  return CeilDiv(item.count, call.tile_queries) * CeilDiv(call.group, call.tile_heads) *
         CeilDiv(call.kv->kv_heads, KvHeadsPerTile(call, item));
}

// The last queries see the most: they come first, so that long tasks do not end the step.
AttentionTile TileAt(const AttentionCall& call, const AttentionItem& item, int64_t tile) {
  const int64_t head_tiles = CeilDiv(call.group, call.tile_heads);
  AttentionTile t;
  t.item = &item;
  const int32_t at_once = KvHeadsPerTile(call, item);
  const int64_t kv_tiles = CeilDiv(call.kv->kv_heads, at_once);
  t.kv_head = static_cast<int32_t>(tile % kv_tiles) * at_once;
  t.kv_heads = std::min(at_once, call.kv->kv_heads - t.kv_head);
  tile /= kv_tiles;
  const auto in_group = static_cast<int32_t>(tile % head_tiles) * call.tile_heads;
  t.first_head = t.kv_head * call.group + in_group;
  t.heads = std::min(call.tile_heads, call.group - in_group);
  const int64_t query_tiles = CeilDiv(item.count, call.tile_queries);
  t.first_query = static_cast<int32_t>(query_tiles - 1 - tile / head_tiles) * call.tile_queries;
  t.queries = std::min(call.tile_queries, item.count - t.first_query);
  return t;
}

struct PartitionRange {
  int32_t first, last;
};
PartitionRange PartitionsOf(const AttentionCall& call, const AttentionTile& t) {
  const int32_t position = t.item->first_position + t.first_query;
  return {VisibleFrom(call, position).low / kPartition, (position + t.queries - 1) / kPartition};
}

// Reading K and V of a head costs about as much as the arithmetic of 24 rows does.
int64_t CostOf(const AttentionCall& call, const AttentionTile& t) {
  const int32_t position = t.item->first_position + t.first_query;
  return (position + t.queries - VisibleFrom(call, position).low) * int64_t{t.rows() + 24 * t.kv_heads};
}

struct SplitTask {
  const AttentionItem* item;
  int64_t tile;
  int32_t partition, first_row;
};
// A tile's partitions in this wave: tasks [first, first + count). Those that continue before or after it keep their
// rows in a carry of their own.
struct MergeTask {
  int32_t first = 0, count = 0;
  bool begins = false, ends = false;
  int32_t carry = 0;
};

// The tiles that are split, cut into waves as large as the scratch for results.
class SplitWaves {
 public:
  SplitWaves(const AttentionCall& call, const int32_t* items, int64_t num_items, int64_t rows, SplitTask* tasks,
             MergeTask* merges)
      : call_(call), items_(items), num_items_(num_items), rows_(rows), tasks_(tasks), merges_(merges) {}

  bool NextWave() {
    num_tasks_ = num_merges_ = 0;
    int64_t used = 0;
    for (; item_ < num_items_; ++item_, tile_ = 0) {
      const AttentionItem& item = call_.items[items_[item_]];
      for (; tile_ < TilesOf(call_, item); ++tile_, partition_ = -1) {
        const AttentionTile t = TileAt(call_, item, tile_);
        const PartitionRange range = PartitionsOf(call_, t);
        if (used + t.rows() > rows_) return true;
        const bool begins = partition_ < 0;
        if (begins) partition_ = range.first;
        MergeTask& merge = merges_[num_merges_++];
        merge = {num_tasks_, 0, begins, false, begins ? 1 - carry_ : carry_};
        for (; partition_ <= range.last && used + t.rows() <= rows_; ++partition_, used += t.rows()) {
          tasks_[num_tasks_++] = {&item, tile_, partition_, static_cast<int32_t>(used)};
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
  const int32_t* items_;
  int64_t num_items_, rows_;
  SplitTask* tasks_;
  MergeTask* merges_;
  int32_t num_tasks_ = 0, num_merges_ = 0;
  int64_t item_ = 0, tile_ = 0;
  int32_t partition_ = -1;  // -1: the tile has not begun
  int32_t carry_ = 0;       // of the tile that continues in the next wave
};

// The caller's workspace in pieces.
struct Pieces {
  int32_t* order;       // [num_items], longest tile first; those that are split in front
  int64_t* first_tile;  // [num_items + 1] over order
  SplitTask* tasks;
  MergeTask* merges;
  float* results;  // [ResultRows][ResultFloats]
  float* carries;  // [2][kAttentionTileRows][ResultFloats]
  std::byte* threads;
};

struct Sizes {
  Sizes(int64_t num_items, int32_t head_dim, int32_t threads) {
    order = Aligned(num_items * static_cast<int64_t>(sizeof(int32_t)));
    first_tile = Aligned((num_items + 1) * static_cast<int64_t>(sizeof(int64_t)));
    tasks = Aligned(ResultRows(threads) * static_cast<int64_t>(sizeof(SplitTask)));
    merges = Aligned(ResultRows(threads) * static_cast<int64_t>(sizeof(MergeTask)));
    results = ResultRows(threads) * ResultFloats(head_dim) * 4;
    carries = 2 * kAttentionTileRows * ResultFloats(head_dim) * 4;
    all_threads = threads * AttentionThreadBytes(head_dim);
  }
  int64_t Total() const { return order + first_tile + tasks + merges + results + carries + all_threads; }
  int64_t order, first_tile, tasks, merges, results, carries, all_threads;
};

Pieces Carve(std::byte* p, const Sizes& s) {
  auto take = [&p](int64_t bytes) {
    std::byte* at = p;
    p += bytes;
    return at;
  };
  Pieces c;
  c.order = reinterpret_cast<int32_t*>(take(s.order));
  c.first_tile = reinterpret_cast<int64_t*>(take(s.first_tile));
  c.tasks = reinterpret_cast<SplitTask*>(take(s.tasks));
  c.merges = reinterpret_cast<MergeTask*>(take(s.merges));
  c.results = reinterpret_cast<float*>(take(s.results));
  c.carries = reinterpret_cast<float*>(take(s.carries));
  c.threads = take(s.all_threads);
  return c;
}

// The most KV heads per tile that leave each thread a few tiles.
int32_t KvHeadsAtOnce(const AttentionCall& call, int32_t threads) {
  int64_t narrow = 0;
  for (int64_t i = 0; i < call.num_items; ++i) narrow += call.items[i].count * call.group <= kNarrowRows;
  const int64_t tiles = std::max<int64_t>(1, CeilDiv(4 * int64_t{threads}, std::max<int64_t>(1, narrow)));
  return static_cast<int32_t>(std::clamp<int64_t>(call.kv->kv_heads / tiles, 1, kMostKvHeads));
}

// Sorts the items; returns how many of them, at the front, are split: those with a tile that would keep one thread busy
// for long after the others have no work left. `costs`: scratch of num_items.
int64_t OrderItems(const AttentionCall& call, int32_t threads, int32_t* order, int64_t* costs) {
  int64_t total = 0;
  for (int64_t i = 0; i < call.num_items; ++i) {
    order[i] = static_cast<int32_t>(i);
    const AttentionItem& item = call.items[i];
    const int64_t tiles = TilesOf(call, item);
    const int64_t per_query_tile = item.count > 0 ? tiles / CeilDiv(item.count, call.tile_queries) : 0;
    costs[i] = 0;
    for (int64_t t = 0; t < tiles; t += per_query_tile) {
      const int64_t cost = CostOf(call, TileAt(call, item, t));
      if (t == 0) costs[i] = cost;  // the largest
      total += per_query_tile * cost;
    }
  }
  std::sort(order, order + call.num_items,
            [costs](int32_t a, int32_t b) { return costs[a] != costs[b] ? costs[a] > costs[b] : a < b; });
  int64_t split = 0;
  while (threads > 1 && split < call.num_items && costs[order[split]] * 2 * threads > total) {
    const PartitionRange range = PartitionsOf(call, TileAt(call, call.items[order[split]], 0));
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
    const AttentionTile tile = TileAt(call, *first.item, first.tile);
    for (int32_t r = 0; r < tile.rows(); ++r) {
      float* state = merge.begins && merge.ends ? reinterpret_cast<float*>(c.threads + thread * thread_bytes)
                                                : c.carries + (merge.carry * kAttentionTileRows + r) * stride;
      if (merge.begins) {
        std::memset(state, 0, static_cast<size_t>(stride) * sizeof(float));
        state[call.padded] = -std::numeric_limits<float>::infinity();
      }
      float* out = merge.ends ? call.out + AttentionRowOffset(call, tile, r, call.out_stride) : nullptr;
      kernel.merge(call, state, c.results + (first.first_row + r) * stride, tile.rows() * stride, merge.count, out);
    }
  });
}

}  // namespace

VisibleRange VisibleFrom(const AttentionCall& call, int32_t position) {
  return {call.window > 0 && position >= call.window ? position - call.window + 1 : 0, position};
}

int64_t AttentionRowOffset(const AttentionCall& call, const AttentionTile& tile, int32_t row, int64_t stride) {
  const int32_t kv_head = row / tile.rows_per_kv_head(), in_head = row % tile.rows_per_kv_head();
  const int64_t token = tile.item->first_token + tile.first_query + in_head / tile.heads;
  const int64_t head = tile.first_head + static_cast<int64_t>(kv_head) * call.group + in_head % tile.heads;
  return token * stride + head * call.kv->head_dim;
}

void RunAttention(ThreadPool& pool, const AttentionKernel& kernel, std::span<const AttentionItem> items, int32_t heads,
                  AttentionCall call, Workspace scratch) {
  const KvLayer& kv = *call.kv;
  CheckHeadDim(kv.head_dim, 0);
  call.items = items.data();
  call.num_items = static_cast<int64_t>(items.size());
  call.heads = heads;
  call.group = heads / kv.kv_heads;
  call.tile_heads = std::min(call.group, kAttentionTileRows);
  call.tile_queries = kAttentionTileRows / call.tile_heads;
  call.padded = PaddedHead(kv.head_dim);
  call.kv_heads_at_once = 1;
  if (kernel.takes_kv_heads != nullptr && kernel.takes_kv_heads(call)) {
    call.kv_heads_at_once = KvHeadsAtOnce(call, pool.threads());
  }
  const Sizes sizes(call.num_items, kv.head_dim, pool.threads());
  const Pieces c = Carve(AlignedWorkspace(scratch, sizes.Total()), sizes);
  const int64_t split = OrderItems(call, pool.threads(), c.order, c.first_tile);
  int64_t tiles = 0;
  for (int64_t i = split; i < call.num_items; ++i) {
    c.first_tile[i] = tiles;
    tiles += TilesOf(call, call.items[c.order[i]]);
  }
  c.first_tile[call.num_items] = tiles;
  SplitWaves waves(call, c.order, split, ResultRows(pool.threads()), c.tasks, c.merges);
  const int64_t thread_bytes = AttentionThreadBytes(kv.head_dim), stride = ResultFloats(kv.head_dim);
  auto tile_at = [&](int64_t tile) {
    int64_t low = split, high = call.num_items;  // the item with first_tile[low] <= tile < first_tile[low + 1]
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (c.first_tile[middle] <= tile ? low : high) = middle;
    }
    return TileAt(call, call.items[c.order[low]], tile - c.first_tile[low]);
  };
  for (bool more = waves.NextWave(); more || tiles > 0; more = waves.NextWave()) {
    pool.ParallelFor(waves.num_tasks() + tiles, [&](int64_t task, int32_t thread) {
      std::byte* thread_scratch = c.threads + thread * thread_bytes;
      if (task < waves.num_tasks()) {
        const SplitTask& s = waves.task(task);
        return kernel.run_partition(call, TileAt(call, *s.item, s.tile), s.partition, thread_scratch,
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
  // f32: K transposed by tiles, V, a partition's result and the state; weights of all rows.
  const int64_t vectors = kKeyTile + kMaxWidth + kPartition + 2 * kAttentionTileRows;
  const int64_t f32 = (vectors * padded + kAttentionTileRows * kPartition) * int64_t{sizeof(float)};
  // bf16: q, a partition's result, the state; K and V of a partition where they cannot be read in place; scores (f32)
  // and weights (bf16) of all rows; scales.
  const int64_t vectors_bf16 = (3 * kAttentionTileRows + kPartition + 4) * padded;
  const int64_t bf16 = (vectors_bf16 + (3 * kAttentionTileRows / 2 + 2) * kPartition) * int64_t{sizeof(float)};
  return Aligned(std::max(f32, bf16));
}

int64_t AttentionWorkspaceBytes(int64_t tokens, int32_t heads, int32_t head_dim, int32_t threads) {
  (void)heads;
  return Sizes(tokens, head_dim, threads).Total();
}

}  // namespace tactus::kernels
