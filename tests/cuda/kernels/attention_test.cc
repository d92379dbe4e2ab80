// Attention against a reference in double, and the rule that a token's bits depend on its own q, K and V alone.
#include <set>

#include "cuda/kernels/attention_batch.h"

namespace tactus::compute::cuda {
namespace {

class AttentionTest : public DeviceTest {};
TACTUS_DEVICE_TESTS(AttentionTest);

// Decodes, a draft of three queries and a chunk, around the borders of tiles and partitions.
std::vector<BatchItem> MixedItems() {
  return {{.first = 0, .sequence = 1},
          {.first = 63, .sequence = 2},
          {.first = 64, .sequence = 3},
          {.first = 530, .sequence = 4},
          {.first = 255, .count = 3, .sequence = 5},
          {.first = 250, .count = 21, .sequence = 6}};
}

// Values are about normal and averages are below 3. Weights and results of 16 bits are rounded to nearest, and so are K
// and V that are stored in int8.
double ToleranceOf(const BatchShape& shape) {
  if (shape.type == Real::kF32) return 1e-5;
  return (shape.type == Real::kBF16 ? 0x1p-8 : 0x1p-11) * (shape.kv_type == KvType::kInt8 ? 4.0 : 3.0);
}

void ExpectReference(const BatchShape& shape, const std::vector<BatchItem>& items, int32_t multiprocessors = 4) {
  Batch batch(shape, items);
  const BatchResult result = batch.Run(multiprocessors);
  EXPECT_LT(batch.Error(result), ToleranceOf(shape))
      << "heads " << shape.heads << " / " << shape.kv_heads << " of " << shape.head_dim << ", type "
      << static_cast<int>(shape.type) << ", KV " << static_cast<int>(shape.kv_type);
}

TEST_P(AttentionTest, TypesMatchReference) {
  for (const Real type : {Real::kBF16, Real::kF16}) {
    const KvType same = type == Real::kBF16 ? KvType::kBF16 : KvType::kF16;
    for (const KvType kv_type : {same, KvType::kInt8, KvType::kFp8}) {
      ExpectReference({.type = type, .kv_type = kv_type}, MixedItems());
    }
  }
}

TEST_P(AttentionTest, PlainFormMatchesReferenceInEveryType) {
  for (const Real type : {Real::kF32, Real::kBF16, Real::kF16}) {
    for (const KvType kv_type : {KvType::kF32, KvType::kBF16, KvType::kF16, KvType::kInt8, KvType::kFp8}) {
      // 24 is no multiple of 16, so tensor cores have no form for it.
      ExpectReference({.head_dim = 24, .type = type, .kv_type = kv_type},
                      {{.first = 300}, {.first = 29, .count = 9, .sequence = 1}});
    }
  }
}

TEST_P(AttentionTest, HeadDimensionsMatchReference) {
  for (const int32_t head_dim : {16, 32, 64, 80, 96, 112, 128, 192, 256, 512}) {
    for (const KvType kv_type : {KvType::kBF16, KvType::kInt8}) {
      ExpectReference({.heads = 2, .kv_heads = 1, .head_dim = head_dim, .kv_type = kv_type},
                      {{.first = 290}, {.first = 50, .count = 20, .sequence = 1}});
    }
  }
  for (const int32_t head_dim : {8, 40, 256}) {
    ExpectReference({.heads = 2, .kv_heads = 1, .head_dim = head_dim, .type = Real::kF32, .kv_type = KvType::kF32},
                    {{.first = 70}, {.first = 50, .count = 9, .sequence = 1}});
  }
}

TEST_P(AttentionTest, GroupsMatchReference) {
  for (const int32_t group : {1, 3, 5, 8, 16, 24}) {
    ExpectReference({.heads = group, .kv_heads = 1},
                    {{.first = 70}, {.first = 270, .count = 3, .sequence = 1}, {.count = 30, .sequence = 2}});
  }
  ExpectReference({.heads = 12, .kv_heads = 4}, MixedItems());
}

TEST_P(AttentionTest, BlockSizesMatchReference) {
  for (const int32_t block_size : {1, 8, 24, 32, 64, 100, 128, 256}) {
    ExpectReference({.block_size = block_size}, {{.first = 299}, {.first = 60, .count = 10, .sequence = 1}});
    ExpectReference({.block_size = block_size, .kv_type = KvType::kInt8}, {{.first = 299}});
  }
}

TEST_P(AttentionTest, FieldsMatchReference) {
  std::vector<BatchShape> shapes(11);
  shapes[0].window = 1;
  shapes[1].window = 70;
  shapes[2].window = 300;
  shapes[3].chunk = 64;
  shapes[4].chunk = 200;
  shapes[5].softcap = 2.0f;
  shapes[6].slopes = true;
  shapes[7].sinks = true;
  shapes[8].scale = 1.0f;
  shapes[9].q_gap = 8, shapes[9].out_gap = 16;
  shapes[10].window = 100, shapes[10].softcap = 5.0f, shapes[10].slopes = true, shapes[10].sinks = true;
  for (BatchShape& shape : shapes) {
    ExpectReference(shape, MixedItems());
    ExpectReference(shape, {{.first = 530}, {.first = 250, .count = 10, .sequence = 1}}, 100);
    shape.type = Real::kF32;
    shape.kv_type = KvType::kF32;
    shape.head_dim = 8;
    ExpectReference(shape, {{.first = 530}, {.first = 250, .count = 10, .sequence = 1}}, 100);
    ExpectReference(shape, {{.first = 100}, {.first = 0, .count = 20, .sequence = 1}});
  }
}

TEST_P(AttentionTest, ManyPartitionsMatchReference) {
  ExpectReference({.heads = 2, .kv_heads = 1}, {{.first = 2100}, {.first = 1500, .count = 10, .sequence = 1}}, 132);
}

// A sequence's tokens have the bits that each has alone, for several cuts of the sequence into items.
class AttentionBitsTest : public DeviceTest {
 protected:
  static constexpr int32_t kEnd = 330;
  void ExpectEqualBits(const BatchShape& shape) {
    std::vector<BatchItem> alone;
    for (const int32_t p : {250, 255, 256, 257, 270, 319, 320, kEnd - 1}) alone.push_back({.first = p});
    const BatchResult expected = Batch(shape, alone).Run(1);
    const std::vector<std::vector<int32_t>> cuts = {{250, kEnd}, {250, 253, 254, 257, 290, kEnd}};
    for (const std::vector<int32_t>& cut : cuts) {
      std::vector<BatchItem> items;
      for (size_t i = 0; i + 1 < cut.size(); ++i) items.push_back({.first = cut[i], .count = cut[i + 1] - cut[i]});
      for (const int32_t multiprocessors : {1, 132}) {
        const BatchResult result = Batch(shape, items).Run(multiprocessors);
        for (size_t i = 0; i < alone.size(); ++i) {
          EXPECT_EQ(result.BitsOf(alone[i].first - 250), expected.BitsOf(static_cast<int64_t>(i)))
              << "position " << alone[i].first << " of " << items.size() << " items, " << multiprocessors
              << " multiprocessors, head_dim " << shape.head_dim;
        }
      }
    }
  }
};
TACTUS_DEVICE_TESTS(AttentionBitsTest);

TEST_P(AttentionBitsTest, TokensDoNotDependOnChunks) {
  ExpectEqualBits({.heads = 3, .kv_heads = 1});
  ExpectEqualBits({.heads = 2, .kv_heads = 1, .type = Real::kF16, .kv_type = KvType::kInt8});
  ExpectEqualBits({.heads = 1, .kv_heads = 1, .head_dim = 8, .type = Real::kF32, .kv_type = KvType::kF32});
}

TEST_P(AttentionBitsTest, TokensDoNotDependOnChunksAtLargeHeads) {
  if (GetParam() != LaneOrder::kForward) return;  // small heads cover the order of lanes
  ExpectEqualBits({.heads = 1, .kv_heads = 1, .head_dim = 128});
  ExpectEqualBits({.heads = 1, .kv_heads = 1, .head_dim = 256, .kv_type = KvType::kFp8});
}

TEST_P(AttentionBitsTest, TokensDoNotDependOnChunksWithEveryField) {
  ExpectEqualBits({.heads = 2, .kv_heads = 1, .window = 90, .softcap = 3.0f, .slopes = true, .sinks = true});
  ExpectEqualBits({.heads = 2, .kv_heads = 1, .chunk = 100});
}

TEST_P(AttentionBitsTest, SplitsDoNotChangeBits) {
  for (const KvType kv_type : {KvType::kBF16, KvType::kInt8}) {
    const BatchShape shape{.heads = 4, .kv_heads = 2, .kv_type = kv_type, .sinks = true};
    Batch batch(shape, {{.first = 1500}, {.first = 700, .sequence = 1}, {.first = 500, .count = 20, .sequence = 2}});
    const BatchResult whole = batch.Run(1);
    EXPECT_EQ(batch.plan().slots, 0);
    for (const int32_t multiprocessors : {5, 20, 132}) {
      EXPECT_EQ(batch.Run(multiprocessors).bits, whole.bits) << multiprocessors;
      EXPECT_GT(batch.plan().slots, 0);
    }
  }
}

TEST_P(AttentionBitsTest, SharedPrefixesDoNotChangeBits) {
  for (const int32_t members : {2, 3, 17}) {  // 16, 24 and 136 q rows
    for (const bool f32 : {false, true}) {
      if (f32 && members > 2) continue;
      BatchShape shape{.heads = 8, .kv_heads = 1};
      if (f32) shape.type = Real::kF32, shape.kv_type = KvType::kF32, shape.head_dim = 8;
      std::vector<BatchItem> items = {{.first = 400, .sequence = 99}};
      for (int32_t m = 0; m < members; ++m) {
        items.push_back({.first = 575 + m * 7, .sequence = m, .prefix = 0, .prefix_tokens = 528});
        if (m % 2 == 0) items.push_back({.first = 511 + m, .sequence = 50 + m, .prefix = 3, .prefix_tokens = 512});
      }
      items.push_back({.first = 300, .count = 20, .sequence = 98});
      Batch shared(shape, items);
      for (BatchItem& item : items) item.groups = false;
      const BatchResult apart = Batch(shape, items).Run(1);
      for (const int32_t multiprocessors : {1, 40}) {
        if (f32 && multiprocessors == 1) continue;
        EXPECT_EQ(shared.Run(multiprocessors).bits, apart.bits) << members << " members, " << multiprocessors;
        EXPECT_FALSE(shared.plan().members.empty());
      }
    }
  }
}

TEST_P(AttentionBitsTest, PaddedListsDoNotChangeBits) {
  for (const bool f32 : {false, true}) {
    BatchShape shape{.heads = 8, .kv_heads = 1};
    if (f32) shape.type = Real::kF32, shape.kv_type = KvType::kF32, shape.head_dim = 8;
    std::vector<BatchItem> items = {{.first = 1500, .sequence = 99}};
    for (int32_t m = 0; m < 3; ++m) {
      items.push_back({.first = 575 + m * 7, .sequence = m, .prefix = 0, .prefix_tokens = 528});
    }
    Batch batch(shape, items);
    const BatchResult exact = batch.Run(8);
    const size_t decodes = batch.plan().decodes.size(), merges = batch.plan().merges.size();
    EXPECT_EQ(batch.Run(8, 1 << 20, 16).bits, exact.bits);
    EXPECT_GT(batch.plan().decodes.size(), decodes);
    EXPECT_GT(batch.plan().merges.size(), merges);
  }
}

// Units of one block follow each other in all orders: long and short ones, with and without slots, decodes, chunks,
// shared prefixes, and units that do nothing between others.
TEST_P(AttentionBitsTest, CappedGridsDoNotChangeBits) {
  std::vector<BatchItem> items = {{.first = 1000, .sequence = 99}, {.first = 250, .count = 20, .sequence = 97}};
  for (int32_t m = 0; m < 4; ++m) {
    items.push_back({.first = 330 + m * 7, .sequence = m, .prefix = 0, .prefix_tokens = 288});
    items.push_back({.first = m * 40, .count = m % 2 == 0 ? 1 : 20, .sequence = 20 + m});
  }
  std::vector<BatchShape> shapes(3, {.heads = 8, .kv_heads = 4});
  shapes[1].kv_type = KvType::kInt8;
  shapes[2].type = Real::kF32, shapes[2].kv_type = KvType::kF32, shapes[2].head_dim = 8;
  for (const BatchShape& shape : shapes) {
    Batch batch(shape, items);
    const auto blocks_of_run = [&](BatchResult* result) {
      const int64_t before = emulator::CurrentCounts().blocks;
      *result = batch.Run(8, 1 << 20, 32);
      return emulator::CurrentCounts().blocks - before;
    };
    BatchResult whole, capped;
    const int64_t all = blocks_of_run(&whole);
    const AttentionPlan& plan = batch.plan();
    const size_t units = plan.decodes.size() + plan.chunks.size() + plan.merges.size() * 8;
    EXPECT_GT(plan.chunks.size(), 2u);
    const bool counts = all > 0;  // a real device counts no blocks
    if (counts) {
      EXPECT_EQ(all, static_cast<int64_t>(units)) << "a block per unit where there is no cap";
    }
    int64_t fewer = 0;
    for (const int32_t multiprocessors : {1, 2}) {
      batch.set_max_multiprocessors(multiprocessors);
      const int64_t blocks = blocks_of_run(&capped);
      EXPECT_EQ(capped.bits, whole.bits) << multiprocessors << " multiprocessors, KV "
                                         << static_cast<int>(shape.kv_type);
      if (!counts) continue;
      EXPECT_GT(blocks, fewer);
      EXPECT_LT(blocks, all) << multiprocessors;
      fewer = blocks;
    }
    batch.set_max_multiprocessors(1000);
    EXPECT_EQ(blocks_of_run(&capped), all) << "a cap beyond the units starts no more blocks";
    EXPECT_EQ(capped.bits, whole.bits);
  }
}

// Two blocks of decodes and one of chunks on a multiprocessor of the emulated device, which has 99 KiB of shared memory
// and 2048 threads; a merge has 128 threads.
TEST(AttentionCap, AllowsTheBlocksThatItsMultiprocessorsHold) {
  std::vector<BatchItem> items = {{.first = 1500, .sequence = 99}};
  for (int32_t m = 0; m < 20; ++m) items.push_back({.first = m, .count = m % 4 == 0 ? 40 : 1, .sequence = m});
  Batch batch({.heads = 8, .kv_heads = 2}, items);
  for (const int32_t multiprocessors : {1, 3}) {
    batch.set_max_multiprocessors(multiprocessors);
    const int64_t before = emulator::CurrentCounts().blocks;
    batch.Run(8);
    if (emulator::CurrentCounts().launches == 0) GTEST_SKIP() << "a real device counts no blocks";
    const AttentionPlan& plan = batch.plan();
    const auto least = [](int64_t most, size_t count) { return std::min(most, static_cast<int64_t>(count)); };
    EXPECT_EQ(emulator::CurrentCounts().blocks - before, least(2 * multiprocessors, plan.decodes.size()) +
                                                             least(multiprocessors, plan.chunks.size()) +
                                                             least(16 * multiprocessors, plan.merges.size() * 8))
        << multiprocessors;
    EXPECT_GT(plan.decodes.size(), 6u);
    EXPECT_GT(plan.chunks.size(), 3u);
  }
}

// The lengths of padded lists take few values, so that graphs serve many steps.
TEST(AttentionPlanTest, PaddedListsHaveFewLengths) {
  for (const int32_t heads : {8, 32, 71}) {
    const AttentionShape shape{.heads = heads, .kv_heads = heads == 32 ? 4 : 1, .head_dim = 64, .multiprocessors = 132};
    std::set<std::vector<size_t>> lengths;
    uint32_t random = 1;
    for (int32_t step = 0; step < 400; ++step) {
      const auto next = [&](uint32_t below) {
        return static_cast<int32_t>((random = random * 1664525u + 1013904223u) >> 8) % static_cast<int32_t>(below);
      };
      std::vector<AttentionRow> rows(24);
      const int32_t longest = 1 << (4 + next(10));
      const bool shares = next(2) == 0;
      for (AttentionRow& row : rows) {
        row.first_position = next(static_cast<uint32_t>(longest));
        row.count = 1;
        if (!shares || row.first_position < 1024) continue;
        row.prefix_group = next(4);
        row.prefix_tokens = 1024;
      }
      AttentionPlan plan;
      PlanAttention(rows, shape, 1 << 20, &plan);
      PadPlan(shape, 24, &plan);
      lengths.insert({plan.decodes.size(), plan.chunks.size(), plan.members.size(), plan.merges.size()});
    }
    EXPECT_LE(lengths.size(), 40u) << heads << " heads";
  }
}

TEST_P(AttentionBitsTest, PrefixOfWindowedLayersIsNotShared) {
  const std::vector<BatchItem> items = {{.first = 600, .prefix = 0, .prefix_tokens = 512},
                                        {.first = 640, .sequence = 1, .prefix = 0, .prefix_tokens = 512}};
  Batch batch({.window = 64}, items);
  EXPECT_LT(batch.Error(batch.Run(1)), 0.02);
  EXPECT_TRUE(batch.plan().members.empty());
}

TEST_P(AttentionBitsTest, NeighboursDoNotChangeBits) {
  const BatchShape shape{.heads = 4, .kv_heads = 2};
  const BatchResult alone = Batch(shape, {{.first = 333, .sequence = 7}}).Run(132);
  std::vector<BatchItem> items = MixedItems();
  items.push_back({.first = 333, .sequence = 7});
  const BatchResult beside = Batch(shape, items).Run(8);
  EXPECT_EQ(beside.BitsOf(static_cast<int64_t>(beside.bits.size()) / beside.width - 1), alone.bits);
}

}  // namespace
}  // namespace tactus::compute::cuda
