// The cut of a step's attention into units, a pure function: what the units cover, and how even they are. The kernels'
// tests compute with such plans (kernels/attention_test.cc).
#include "compute/cuda/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kManySlots = 1 << 24;

AttentionShape Shape(int32_t heads = 8, int32_t kv_heads = 2, int32_t multiprocessors = 16) {
  return {.heads = heads, .kv_heads = kv_heads, .head_dim = 64, .multiprocessors = multiprocessors};
}
AttentionRow Decode(int32_t tokens, int32_t prefix_group = -1, int32_t prefix_tokens = 0) {
  return {.first_position = tokens - 1, .count = 1, .prefix_group = prefix_group, .prefix_tokens = prefix_tokens};
}
AttentionRow Chunk(int32_t first, int32_t count) {
  return {.first_position = first, .count = count};
}

// Reads a plan as the kernels do and records which unit computes what.
class Reader {
 public:
  Reader(const std::vector<AttentionRow>& rows, const AttentionShape& shape, const AttentionPlan& plan)
      : rows_(rows),
        shape_(shape),
        group_(shape.heads / shape.kv_heads),
        plan_(plan),
        slots_(static_cast<size_t>(std::max<int64_t>(0, plan.slots))) {
    computed_.reserve(rows.size());
    for (const AttentionRow& row : rows) {
      computed_.emplace_back(static_cast<size_t>(int64_t{shape.kv_heads} * row.count * group_ * Partitions(row)));
    }
    for (const AttentionUnit& unit : plan.decodes) Add(unit, kDecodeRows);
    for (const AttentionUnit& unit : plan.chunks) Add(unit, ChunkRows(shape.head_dim));
  }

  // Every q row sees each of its partitions once, and no two results have one place.
  void Check(int64_t max_slots) const {
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (int32_t h = 0; h < shape_.kv_heads; ++h) {
        for (int32_t r = 0; r < rows_[i].count * group_; ++r) {
          const int32_t position = rows_[i].first_position + r / group_;
          for (int32_t p = First(position) / kPartition; p <= position / kPartition; ++p) {
            ASSERT_EQ(computed_[i][Place(i, h, r, p)], 1)
                << "item " << i << ", KV head " << h << ", q row " << r << ", partition " << p;
          }
        }
      }
    }
    EXPECT_LE(plan_.slots, max_slots);
    std::set<int64_t> merged;
    for (const AttentionMerge& merge : plan_.merges) {
      for (int32_t h = 0; h < shape_.kv_heads; ++h) {
        for (int32_t p = 0; p < merge.partitions; ++p) {
          for (int32_t g = 0; g < group_; ++g) {
            const int64_t slot = merge.slot + int64_t{h * merge.partitions + p} * merge.stride + g;
            EXPECT_LT(slot, plan_.slots);
            EXPECT_TRUE(merged.insert(slot).second) << "two merges read slot " << slot;
          }
        }
      }
    }
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot] == 0) continue;
      EXPECT_EQ(slots_[slot], 1) << "slot " << slot;
      EXPECT_TRUE(merged.contains(static_cast<int64_t>(slot))) << "no merge reads slot " << slot;
    }
  }

  int64_t most_partitions() const { return most_partitions_; }

 private:
  int32_t First(int32_t position) const {
    if (shape_.chunk > 0) return position / shape_.chunk * shape_.chunk;
    return shape_.window > 0 ? std::max(0, position - shape_.window + 1) : 0;
  }

  static int32_t Partitions(const AttentionRow& row) {  // of the last q row's positions
    return (row.first_position + row.count - 1) / kPartition + 1;
  }
  // Where computed_[item] counts a partition's results.
  size_t Place(size_t item, int32_t kv_head, int32_t row, int32_t partition) const {
    return (static_cast<size_t>(kv_head) * rows_[item].count * group_ + row) * Partitions(rows_[item]) + partition;
  }

  void Add(const AttentionUnit& unit, int32_t most_rows) {
    EXPECT_GE(unit.count, 1);
    EXPECT_LE(unit.count, most_rows);
    EXPECT_GE(unit.partitions, 1);
    most_partitions_ = std::max<int64_t>(most_partitions_, unit.partitions);
    for (int32_t r = 0; r < unit.count; ++r) {
      const AttentionMember* const member =
          unit.members >= 0 ? &plan_.members[static_cast<size_t>(unit.members + r / group_)] : nullptr;
      const int32_t item = member != nullptr ? member->item : unit.item;
      const int32_t row = member != nullptr ? r % group_ : unit.first + r;
      const AttentionRow& rows = rows_[static_cast<size_t>(item)];
      for (int32_t p = unit.partition; p < unit.partition + unit.partitions; ++p) {
        ASSERT_TRUE(unit.kv_head >= 0 && unit.kv_head < shape_.kv_heads && row >= 0 && row < rows.count * group_ &&
                    p >= 0 && p < Partitions(rows))
            << "item " << item << " has no KV head " << unit.kv_head << ", q row " << row << ", partition " << p;
        ++computed_[static_cast<size_t>(item)][Place(static_cast<size_t>(item), unit.kv_head, row, p)];
        int64_t slot = -1;
        if (member != nullptr) {
          slot = member->slot + int64_t{unit.kv_head * member->partitions + p} * group_ + row;
        } else if (unit.slot >= 0) {
          slot = unit.slot + r + int64_t{p - unit.partition} * rows.count * group_;
        }
        if (slot < 0) continue;
        ASSERT_LT(slot, plan_.slots);
        ++slots_[static_cast<size_t>(slot)];
      }
    }
  }

  const std::vector<AttentionRow>& rows_;
  const AttentionShape& shape_;
  const int32_t group_;
  const AttentionPlan& plan_;
  std::vector<std::vector<int>> computed_;  // per item: results of each KV head, q row and partition
  std::vector<int> slots_;                  // writes
  int64_t most_partitions_ = 0;
};

AttentionPlan PlanOf(const std::vector<AttentionRow>& rows, const AttentionShape& shape,
                     int64_t max_slots = kManySlots) {
  AttentionPlan plan;
  PlanAttention(rows, shape, max_slots, &plan);
  return plan;
}

bool Equal(const AttentionUnit& a, const AttentionUnit& b) {
  return std::tie(a.item, a.kv_head, a.first, a.count, a.partition, a.partitions, a.slot, a.members) ==
         std::tie(b.item, b.kv_head, b.first, b.count, b.partition, b.partitions, b.slot, b.members);
}

TEST(AttentionPlan, UnitsCoverEveryVisiblePartitionOnce) {
  std::mt19937 random(1);
  const auto draw = [&](int32_t least, int32_t most) {
    return least + static_cast<int32_t>(random() % (most - least + 1));
  };
  AttentionPlan reused;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    AttentionShape shape = Shape();
    shape.kv_heads = draw(1, 3);
    shape.heads = shape.kv_heads * draw(1, 6);
    shape.head_dim = 64 << draw(0, 3);
    shape.multiprocessors = draw(1, 140);
    if (draw(0, 3) == 0) shape.window = draw(1, 2000);
    if (draw(0, 5) == 0) shape.window = 0, shape.chunk = draw(1, 2000);
    std::vector<AttentionRow> rows;
    const int32_t prefix = draw(0, 4000);
    for (int32_t i = draw(0, 12); i > 0; --i) {
      if (draw(0, 2) == 0) {
        rows.push_back(Chunk(draw(0, 3000), draw(0, 200)));
      } else if (draw(0, 1) == 0) {
        rows.push_back(Decode(prefix + draw(1, 3000), draw(0, 1), prefix));
      } else {
        rows.push_back(Decode(draw(1, 9000)));
      }
    }
    const int64_t max_slots = draw(0, 1) == 0 ? kManySlots : draw(0, 3000);
    const AttentionPlan plan = PlanOf(rows, shape, max_slots);
    ASSERT_NO_FATAL_FAILURE(Reader(rows, shape, plan).Check(max_slots));
    PlanAttention(rows, shape, max_slots, &reused);
    ASSERT_TRUE(std::ranges::equal(plan.decodes, reused.decodes, Equal) &&
                std::ranges::equal(plan.chunks, reused.chunks, Equal))
        << "the memory of an earlier plan changes the next one";
  }
}

TEST(AttentionPlan, OneLongDecodeIsSharedByAllMultiprocessors) {
  const AttentionShape shape = Shape(8, 2, 132);
  const std::vector<AttentionRow> rows = {Decode(256 * 1024)};
  const AttentionPlan plan = PlanOf(rows, shape);
  const int64_t share = (2 * 1024 + 2 * 132 - 1) / (2 * 132);  // two units for each multiprocessor
  EXPECT_LE(Reader(rows, shape, plan).most_partitions(), share);
  EXPECT_GE(static_cast<int64_t>(plan.decodes.size()), 2 * 1024 / share);
  EXPECT_EQ(plan.merges.size(), 1u);
}

TEST(AttentionPlan, ManyShortDecodesNeedNoSlots) {
  const AttentionShape shape = Shape(8, 2, 16);
  const std::vector<AttentionRow> rows(100, Decode(256));
  const AttentionPlan plan = PlanOf(rows, shape);
  EXPECT_EQ(plan.decodes.size(), 200u);
  EXPECT_EQ(plan.slots, 0);
  EXPECT_TRUE(plan.merges.empty());
}

TEST(AttentionPlan, DecodesThatShareAPrefixHaveItsPartitionsInCommonUnits) {
  const AttentionShape shape = Shape(8, 2, 16);
  const std::vector<AttentionRow> rows(8, Decode(2048 + 256, 0, 2048));
  const AttentionPlan plan = PlanOf(rows, shape);
  Reader(rows, shape, plan).Check(kManySlots);
  int64_t reads = 0;  // of partitions of K and V
  for (const auto* units : {&plan.decodes, &plan.chunks}) {
    for (const AttentionUnit& unit : *units) reads += unit.partitions;
  }
  EXPECT_EQ(reads, 2 * (8 + 8)) << "8 partitions of the prefix once, and one of each decode's own";
}

TEST(AttentionPlan, WithoutSlotsNothingIsSplit) {
  const AttentionShape shape = Shape();
  const std::vector<AttentionRow> rows = {Decode(9000, 0, 8000), Decode(9000, 0, 8000), Chunk(5000, 100)};
  const AttentionPlan plan = PlanOf(rows, shape, 0);
  Reader(rows, shape, plan).Check(0);
  EXPECT_EQ(plan.slots, 0);
  EXPECT_TRUE(plan.members.empty());
}

TEST(AttentionPlan, DecodesNeverUseMoreThanTheUsefulSlots) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    AttentionShape shape = Shape(8, 2, 1 + static_cast<int32_t>(random() % 140));
    std::vector<AttentionRow> rows;
    int64_t tokens = 0;
    for (size_t n = 1 + random() % 30; n > 0; --n) {
      rows.push_back(Decode(1 + static_cast<int32_t>(random() % 20000)));
      tokens += rows.back().first_position + 1;
    }
    EXPECT_LE(PlanOf(rows, shape).slots, UsefulSlots(shape, tokens, static_cast<int64_t>(rows.size())))
        << rows.size() << " decodes of " << tokens << " tokens, " << shape.multiprocessors << " multiprocessors";
  }
}

}  // namespace
}  // namespace tactus::compute::cuda
