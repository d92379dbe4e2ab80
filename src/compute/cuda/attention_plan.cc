#include "compute/cuda/attention_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace tactus::compute::cuda {
namespace {

// Units for each multiprocessor, if there are enough partitions: two decodes keep its loads under way while one of them
// begins or ends.
constexpr int64_t kDecodesEach = 2, kChunksEach = 1;
// Partial results of a chunk are about as many bytes as the K and V that it reads, so that a split has to save more.
constexpr int64_t kChunkSplitGain = 2;
constexpr int64_t kLeastUnits = 32;  // of a padded list; fewer take as long

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

class Planner {
 public:
  Planner(std::span<const AttentionRow> rows, const AttentionShape& shape, int64_t max_slots, AttentionPlan* plan)
      : rows_(rows), shape_(shape), group_(shape.heads / shape.kv_heads), max_slots_(max_slots), plan_(*plan) {}

  void Run() {
    plan_.decodes.clear();
    plan_.chunks.clear();
    plan_.members.clear();
    plan_.merges.clear();
    plan_.slots = 0;
    FindPartitions();
    FindSharers();
    FindShares();
    SplitItems();
    EmitShared();
    EmitItems();
    EmitMerges();
  }

 private:
  int32_t FirstVisible(int32_t position) const {
    if (shape_.chunk > 0) return position - position % shape_.chunk;
    return shape_.window > 0 && position >= shape_.window ? position - shape_.window + 1 : 0;
  }
  int32_t QRows(int32_t item) const { return rows_[static_cast<size_t>(item)].count * group_; }
  bool IsChunk(int32_t item) const { return QRows(item) > kDecodeRows; }
  AttentionPlan::Item& ItemOf(int32_t item) { return plan_.items[static_cast<size_t>(item)]; }
  int32_t num_items() const { return static_cast<int32_t>(rows_.size()); }

  void FindPartitions() {
    plan_.items.resize(rows_.size());
    for (int32_t i = 0; i < num_items(); ++i) {
      const AttentionRow& row = rows_[static_cast<size_t>(i)];
      ItemOf(i) = {.first = FirstVisible(row.first_position) / kPartition,
                   .end = row.count == 0 ? 0 : (row.first_position + row.count - 1) / kPartition + 1};
      if (row.count == 0) ItemOf(i).end = ItemOf(i).first;
    }
  }

  // f(first q row, number of q rows) for the tiles that an item's or a group's q rows are cut into, the last one first:
  // in an item it has the most positions.
  template <class F>
  void ForTiles(int32_t q_rows, int32_t step, F f) const {
    if (q_rows == 0) return;
    for (int32_t first = (q_rows - 1) / step * step; first >= 0; first -= step) {
      f(first, std::min(step, q_rows - first));
    }
  }
  // Members of a group per unit.
  int32_t MembersPerUnit() const { return ChunkRows(shape_.head_dim) / group_; }

  // f(begin, end) for the groups of `grouped`.
  template <class F>
  void ForGroups(F f) const {
    const std::vector<int32_t>& g = plan_.grouped;
    const auto group_at = [&](size_t i) { return rows_[static_cast<size_t>(g[i])].prefix_group; };
    for (size_t begin = 0, end; begin < g.size(); begin = end) {
      for (end = begin + 1; end < g.size() && group_at(end) == group_at(begin);) ++end;
      f(begin, end);
    }
  }

  // Sets Item::shared, and slots, of decodes that read their prefix together. `grouped` keeps these alone.
  void FindSharers() {
    plan_.grouped.clear();
    if (shape_.window > 0 || shape_.chunk > 0 || MembersPerUnit() < 2) return;
    for (int32_t i = 0; i < num_items(); ++i) {
      const AttentionRow& row = rows_[static_cast<size_t>(i)];
      const bool sees_all = row.first_position + 1 >= row.prefix_tokens;
      if (row.prefix_group >= 0 && row.count == 1 && row.prefix_tokens >= kPartition && sees_all) {
        plan_.grouped.push_back(i);
      }
    }
    std::sort(plan_.grouped.begin(), plan_.grouped.end(), [&](int32_t a, int32_t b) {
      const int32_t x = rows_[static_cast<size_t>(a)].prefix_group, y = rows_[static_cast<size_t>(b)].prefix_group;
      return x != y ? x < y : a < b;
    });
    ForGroups([&](size_t begin, size_t end) {
      int64_t slots = 0;
      int32_t tokens = INT32_MAX;
      for (size_t i = begin; i < end; ++i) {
        slots += SlotsOf(plan_.grouped[i]);
        tokens = std::min(tokens, rows_[static_cast<size_t>(plan_.grouped[i])].prefix_tokens);
      }
      if (end - begin < 2 || plan_.slots + slots > max_slots_) return;
      for (size_t i = begin; i < end; ++i) {
        ItemOf(plan_.grouped[i]).shared = tokens / kPartition;
        TakeSlots(plan_.grouped[i]);
      }
    });
    std::erase_if(plan_.grouped, [&](int32_t i) { return ItemOf(i).shared == 0; });
  }

  int64_t SlotsOf(int32_t item) { return int64_t{shape_.kv_heads} * QRows(item) * ItemOf(item).partitions(); }
  void TakeSlots(int32_t item) {
    ItemOf(item).slot = static_cast<int32_t>(plan_.slots);
    plan_.slots += SlotsOf(item);
  }

  // The partitions of a tile of an item's q rows.
  AttentionPlan::Item TileOf(int32_t item, int32_t first, int32_t count) {
    const AttentionRow& row = rows_[static_cast<size_t>(item)];
    AttentionPlan::Item tile = ItemOf(item);
    tile.first = std::max(FirstVisible(row.first_position + first / group_) / kPartition, tile.first + tile.shared);
    tile.end = (row.first_position + (first + count - 1) / group_) / kPartition + 1;
    return tile;
  }

  // Sets the partitions per unit that distribute all of them evenly.
  void FindShares() {
    int64_t decodes = 0, chunks = 0;
    for (int32_t i = 0; i < num_items(); ++i) {
      ForTiles(QRows(i), ChunkRows(shape_.head_dim), [&](int32_t first, int32_t count) {
        (count > kDecodeRows ? chunks : decodes) += TileOf(i, first, count).partitions();
      });
    }
    ForGroups([&](size_t begin, size_t end) {
      const int32_t q_rows = static_cast<int32_t>(end - begin) * group_;
      ForTiles(q_rows, MembersPerUnit() * group_, [&](int32_t, int32_t count) {
        (count > kDecodeRows ? chunks : decodes) += ItemOf(plan_.grouped[begin]).shared;
      });
    });
    const auto share = [&](int64_t partitions, int64_t each) {
      return std::max<int64_t>(1, CeilDiv(partitions * shape_.kv_heads, each * shape_.multiprocessors));
    };
    decode_share_ = share(decodes, kDecodesEach);
    chunk_share_ = share(chunks, kChunksEach);
  }

  // Gives slots to the items that are longer than a unit should be. Where there are too few slots, the longest items
  // get them, and units become longer.
  void SplitItems() {
    const auto splits = [&](int32_t i) {
      const int64_t most = IsChunk(i) ? chunk_share_ * kChunkSplitGain : decode_share_;
      return ItemOf(i).slot < 0 && ItemOf(i).partitions() > most;
    };
    const auto fits = [&](bool chunks) {
      int64_t slots = plan_.slots;
      for (int32_t i = 0; i < num_items(); ++i) slots += IsChunk(i) == chunks && splits(i) ? SlotsOf(i) : 0;
      return slots <= max_slots_;
    };
    for (const bool chunks : {false, true}) {
      int64_t& share = chunks ? chunk_share_ : decode_share_;
      const int64_t wanted = share;
      while (!fits(chunks)) share *= 2;
      for (int32_t i = 0; i < num_items(); ++i) {
        if (IsChunk(i) == chunks && splits(i)) TakeSlots(i);
      }
      share = wanted;
    }
  }

  // Units of one tile for all KV heads.
  void Emit(AttentionUnit unit, const AttentionPlan::Item& tile, int32_t item_rows) {
    const bool chunk = unit.count > kDecodeRows, has_slots = unit.members >= 0 || tile.slot >= 0;
    const int32_t partitions = tile.partitions();
    if (partitions == 0) return;
    const int64_t share = chunk ? chunk_share_ : decode_share_;
    const auto units = static_cast<int32_t>(has_slots ? CeilDiv(partitions, share) : 1);
    const AttentionPlan::Item& item = ItemOf(unit.item);
    for (unit.kv_head = 0; unit.kv_head < shape_.kv_heads; ++unit.kv_head) {
      for (int32_t u = 0; u < units; ++u) {
        const auto border = [&](int64_t k) { return tile.first + static_cast<int32_t>(partitions * k / units); };
        unit.partition = border(u);
        unit.partitions = border(u + 1) - unit.partition;
        unit.slot = -1;
        if (has_slots && unit.members < 0) {
          const int32_t place = unit.kv_head * item.partitions() + unit.partition - item.first;
          unit.slot = item.slot + place * item_rows + unit.first;
        }
        (chunk ? plan_.chunks : plan_.decodes).push_back(unit);
      }
    }
  }

  void EmitShared() {
    ForGroups([&](size_t begin, size_t end) {
      const auto entry = static_cast<int32_t>(plan_.members.size());
      for (size_t i = begin; i < end; ++i) {
        const int32_t item = plan_.grouped[i];
        plan_.members.push_back({.item = item, .slot = ItemOf(item).slot, .partitions = ItemOf(item).partitions()});
      }
      AttentionPlan::Item tile = ItemOf(plan_.grouped[begin]);
      tile.end = tile.first + tile.shared;
      const int32_t q_rows = static_cast<int32_t>(end - begin) * group_;
      ForTiles(q_rows, MembersPerUnit() * group_, [&](int32_t first, int32_t count) {
        const int32_t member = entry + first / group_;
        Emit({.item = plan_.members[static_cast<size_t>(member)].item, .count = count, .members = member}, tile,
             group_);
      });
    });
  }

  void EmitItems() {
    plan_.order.resize(rows_.size());
    std::iota(plan_.order.begin(), plan_.order.end(), 0);
    const auto length = [&](int32_t i) {
      const int64_t share = IsChunk(i) ? chunk_share_ : decode_share_;
      const int32_t partitions = ItemOf(i).partitions() - ItemOf(i).shared;
      return ItemOf(i).slot >= 0 ? std::min<int64_t>(share, partitions) : partitions;
    };
    std::sort(plan_.order.begin(), plan_.order.end(), [&](int32_t a, int32_t b) {
      const int64_t x = length(a), y = length(b);
      return x != y ? x > y : a < b;
    });
    for (const int32_t i : plan_.order) {
      ForTiles(QRows(i), ChunkRows(shape_.head_dim), [&](int32_t first, int32_t count) {
        Emit({.item = i, .first = first, .count = count}, TileOf(i, first, count), QRows(i));
      });
    }
  }

  void EmitMerges() {
    for (int32_t i = 0; i < num_items(); ++i) {
      const AttentionPlan::Item& item = ItemOf(i);
      if (item.slot < 0) continue;
      for (int32_t q = 0; q < rows_[static_cast<size_t>(i)].count; ++q) {
        plan_.merges.push_back({.item = i,
                                .query = q,
                                .slot = item.slot + q * group_,
                                .partition = item.first,
                                .partitions = item.partitions(),
                                .stride = QRows(i)});
      }
    }
  }

  const std::span<const AttentionRow> rows_;
  const AttentionShape& shape_;
  const int32_t group_;
  const int64_t max_slots_;
  AttentionPlan& plan_;
  int64_t decode_share_ = 1, chunk_share_ = 1;
};

}  // namespace

void PlanAttention(std::span<const AttentionRow> rows, const AttentionShape& shape, int64_t max_slots,
                   AttentionPlan* plan) {
  Planner(rows, shape, std::min<int64_t>(max_slots, INT32_MAX), plan).Run();
}

// Each tile of an item or of a group has a unit per KV head, and splits add at most those that run at once: a share is
// at least what makes as many. Groups have no more tiles than items.
void PadPlan(const AttentionShape& shape, int64_t items, AttentionPlan* plan) {
  const int64_t item_tiles = CeilDiv(shape.heads / shape.kv_heads, ChunkRows(shape.head_dim)) * items;
  const int64_t tiles = item_tiles + (plan->members.empty() ? 0 : items);
  const auto pad = [](auto* list, int64_t most) {
    if (list->empty()) return;
    const int64_t rounded = std::max<int64_t>(kLeastUnits, std::bit_ceil(list->size()));
    list->resize(std::max<size_t>(list->size(), static_cast<size_t>(std::min(rounded, most))));
  };
  pad(&plan->decodes, shape.kv_heads * tiles + kDecodesEach * shape.multiprocessors);
  pad(&plan->chunks, shape.kv_heads * tiles + kChunksEach * shape.multiprocessors);
  if (!plan->members.empty()) plan->members.resize(std::max(plan->members.size(), static_cast<size_t>(items)));
  if (!plan->merges.empty()) plan->merges.resize(std::max(plan->merges.size(), static_cast<size_t>(items)));
}

int64_t UsefulSlots(const AttentionShape& shape, int64_t kv_tokens, int64_t items) {
  // Each split item has more than the 1 / (units at once) of all partitions of a KV head.
  const int64_t units = kDecodesEach * shape.multiprocessors;
  const int64_t split = std::min(items, CeilDiv(units, shape.kv_heads));
  return int64_t{shape.heads} * (kv_tokens / kPartition + 2 * split);
}

}  // namespace tactus::compute::cuda
