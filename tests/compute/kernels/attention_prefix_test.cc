// Attention over decodes that share a prefix, passed as a group and separately: the same bits, for every kernel set,
// any shape of heads and cache, any prefix length and group size, beside any other items, on any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>

#include "compute/kernels/kernel_set.h"
#include "compute/kernels/kernel_testing.h"

namespace tactus::compute::attention_prefix_test {
namespace {

struct Shape {
  int32_t heads, kv_heads, head_dim;
  compute::DType kv_dtype = compute::DType::kBF16;
  int32_t window = 0, chunk = 0;
};

const Shape kShapes[] = {
    {9, 3, 64},  // the default model's shape
    {9, 3, 64, compute::DType::kInt8},
    {4, 1, 128},
    {8, 8, 16},   // no query heads in common: groups of rows consist of members alone
    {16, 1, 32},  // the most rows per member in a narrow tile
    {32, 2, 16, compute::DType::kInt8},
    {6, 2, 24},                        // heads that vectors do not divide
    {6, 2, 7, compute::DType::kInt8},  // nor pairs
    {4, 2, 16, compute::DType::kF32},
    {9, 3, 64, compute::DType::kF32},
    {4, 2, 16, compute::DType::kBF16, 300},     // a window that cuts some of the sequences, so nothing is shared
    {4, 2, 16, compute::DType::kBF16, 0, 300},  // chunks that cut some of them
    {17, 1, 16},                                // more rows than a narrow tile: nothing is shared
};

struct Group {
  int32_t prefix;                // positions
  std::vector<int32_t> lengths;  // of its sequences; each at least `prefix`
};

// A step's decodes: those of groups, whose tables begin with the same blocks, and other chunks and decodes. Blocks are
// in random order; unwritten memory is NaN.
class Scene {
 public:
  Scene(const Shape& shape, int32_t block_size, const std::vector<Group>& groups, const std::vector<int32_t>& others,
        const Ops& ops, uint64_t seed)
      : shape_(shape), rng_(seed) {
    int32_t blocks = 0;
    auto blocks_of = [&](int32_t positions) { return (positions + block_size - 1) / block_size; };
    for (const Group& g : groups) {
      for (const int32_t length : g.lengths) blocks += blocks_of(length);
    }
    for (const int32_t length : others) blocks += blocks_of(length);
    layer_ = {nullptr, nullptr, shape.kv_dtype, block_size, shape.kv_heads, shape.head_dim};
    const auto bytes = static_cast<size_t>((blocks + 1) * KvBlockBytes(layer_));
    k_.assign(bytes, std::byte{0xff});
    v_.assign(bytes, std::byte{0xff});
    layer_.k = k_.data();
    layer_.v = v_.data();
    free_.resize(static_cast<size_t>(blocks + 1));
    std::iota(free_.begin(), free_.end(), 0);
    for (size_t i = free_.size(); i > 1; --i) {
      std::swap(free_[i - 1], free_[static_cast<size_t>(rng_.UniformInt(0, static_cast<int64_t>(i) - 1))]);
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      std::vector<int32_t> prefix;
      Write(ops, groups[g].prefix / block_size * block_size, &prefix);
      for (const int32_t length : groups[g].lengths) {
        std::vector<int32_t> table = prefix;
        Write(ops, length, &table);
        Add(std::move(table), length - 1, 1, static_cast<int32_t>(g), groups[g].prefix / block_size * block_size);
      }
    }
    for (const int32_t length : others) {
      std::vector<int32_t> table;
      Write(ops, length, &table);
      const auto count = static_cast<int32_t>(rng_.UniformInt(1, std::min(length, 30)));
      Add(std::move(table), length - count, count, -1, 0);
    }
    for (size_t i = items_.size(); i > 1; --i) {
      std::swap(items_[i - 1], items_[static_cast<size_t>(rng_.UniformInt(0, static_cast<int64_t>(i) - 1))]);
    }
    for (AttentionItem& item : items_) {
      item.first_token = tokens_;
      tokens_ += item.count;
    }
    q_ = testing::RandomFloats(int64_t{tokens_} * shape.heads * shape.head_dim, seed + 1);
  }

  std::vector<float> Run(const Ops& ops, ThreadPool& pool, bool grouped) {
    std::vector<AttentionItem> items = items_;
    for (AttentionItem& item : items) {
      if (!grouped) item.prefix_group = -1;
    }
    const int64_t row = int64_t{shape_.heads} * shape_.head_dim;
    std::vector<float> out(q_.size(), -7.0f);
    testing::OwnedWorkspace scratch(tokens_, 64, shape_.heads, shape_.head_dim, pool.threads());
    ops.attention(pool, q_.data(), row, items, shape_.heads, layer_,
                  {.scale = 0.3f, .window = shape_.window, .chunk = shape_.chunk}, out.data(), row, scratch.view());
    return out;
  }

 private:
  // Appends blocks for positions up to `length` to the table, and random K and V to them.
  void Write(const Ops& ops, int32_t length, std::vector<int32_t>* table) {
    const auto first = static_cast<int32_t>(table->size()) * layer_.block_size;
    std::vector<int64_t> slots;
    for (int32_t p = first; p < length; ++p) {
      if (p % layer_.block_size == 0) {
        table->push_back(free_.back());
        free_.pop_back();
      }
      slots.push_back(int64_t{table->back()} * layer_.block_size + p % layer_.block_size);
    }
    const int64_t row = int64_t{shape_.kv_heads} * shape_.head_dim, tokens = static_cast<int64_t>(slots.size());
    ThreadPool one(1, SystemClock());
    const std::vector<float> k = testing::RandomFloats(tokens * row, rng_.Next64()),
                             v = testing::RandomFloats(tokens * row, rng_.Next64());
    ops.store_kv(one, k.data(), v.data(), slots.data(), tokens, layer_);
  }
  void Add(std::vector<int32_t> table, int32_t first_position, int32_t count, int32_t group, int32_t prefix) {
    tables_.push_back(std::make_unique<std::vector<int32_t>>(std::move(table)));
    items_.push_back({0, first_position, count, tables_.back()->data(), group, prefix});
  }

  const Shape shape_;
  Rng rng_;
  KvLayer layer_;
  std::vector<std::byte> k_, v_;
  std::vector<int32_t> free_;
  std::vector<std::unique_ptr<std::vector<int32_t>>> tables_;
  std::vector<AttentionItem> items_;
  std::vector<float> q_;
  int32_t tokens_ = 0;
};

void ExpectSameBits(const Shape& shape, int32_t block_size, const std::vector<Group>& groups,
                    const std::vector<int32_t>& others, uint64_t seed, ThreadPool& pool, const std::string& what) {
  for (const Ops* ops : RunnableOps()) {
    if (std::string_view(ops->name) == "ref") continue;  // has no groups
    Scene scene(shape, block_size, groups, others, *ops, seed);
    const std::vector<float> apart = scene.Run(*ops, pool, false), together = scene.Run(*ops, pool, true);
    for (size_t i = 0; i < apart.size(); ++i) {
      ASSERT_FALSE(std::isnan(apart[i])) << ops->name << ": the test itself reads unwritten memory";
    }
    const int64_t row = int64_t{shape.heads} * shape.head_dim;
    for (size_t i = 0; i < apart.size(); i += static_cast<size_t>(row)) {
      ASSERT_TRUE(testing::SameBits(together.data() + i, apart.data() + i, row))
          << ops->name << " heads " << shape.heads << "/" << shape.kv_heads << " dim " << shape.head_dim << " "
          << compute::InfoOf(shape.kv_dtype).name << " block size " << block_size << " threads " << pool.threads()
          << ", " << what << ": other bits for token " << i / static_cast<size_t>(row);
    }
  }
}

// Prefixes that end at, before and after the edges of partitions and of key tiles; suffixes from none to several
// partitions.
TEST(AttentionPrefix, SharedReadingChangesNoBit) {
  ThreadPool one(1, SystemClock()), three(3, SystemClock());
  const std::vector<Group> kinds[] = {
      {{128, {130, 129, 200, 128}}},
      {{256, {257, 300, 256, 700, 255 + 256}}},
      {{512, {520, 513, 768, 769, 1100}}},
      {{192, {192, 250, 256, 257}}, {320, {321, 400, 640}}},
      {{64, {65, 400, 80}}, {1040, {1041, 1100, 1281, 1290}}},
      {{40, {50, 60}}, {300, {301, 512}}},
  };
  uint64_t seed = 1;
  for (const Shape& shape : kShapes) {
    for (const int32_t block_size : {16, 64, 6, 1}) {
      for (size_t kind = 0; kind < std::size(kinds); ++kind) {
        if (block_size != 16 && kind != 5) continue;
        ExpectSameBits(shape, block_size, kinds[kind], {33, 300}, ++seed, kind % 2 == 0 ? three : one,
                       "kind " + std::to_string(kind));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Enough members for several tiles of a KV head, in tiles split by partitions and unsplit.
TEST(AttentionPrefix, ManyMembersChangeNoBit) {
  ThreadPool one(1, SystemClock()), two(2, SystemClock()), five(5, SystemClock());
  Rng rng(5);
  for (const Shape& shape :
       {Shape{9, 3, 64}, Shape{4, 2, 16, compute::DType::kInt8}, Shape{2, 2, 16, compute::DType::kF32}}) {
    for (ThreadPool* pool : {&one, &two, &five}) {
      Group g{static_cast<int32_t>(rng.UniformInt(8, 40)) * 16, {}};
      for (int32_t i = 0; i < 50; ++i) g.lengths.push_back(g.prefix + static_cast<int32_t>(rng.UniformInt(1, 90)));
      ExpectSameBits(shape, 16, {g}, {900}, rng.Next64(), *pool, "50 members behind " + std::to_string(g.prefix));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionPrefix, RandomStepsChangeNoBit) {
  ThreadPool one(1, SystemClock()), two(2, SystemClock()), four(4, SystemClock());
  ThreadPool* pools[] = {&one, &two, &four};
  Rng rng(11);
  auto pick = [&](int64_t low, int64_t high) { return static_cast<int32_t>(rng.UniformInt(low, high)); };
  for (int32_t round = 0; round < 30; ++round) {
    const Shape& shape = kShapes[pick(0, std::size(kShapes) - 1)];
    const int32_t block_size = std::array{16, 16, 32, 48, 8, 5}[static_cast<size_t>(pick(0, 5))];
    std::vector<Group> groups;
    for (int32_t g = pick(1, 3); g > 0; --g) {
      Group group{pick(1, 5) == 1 ? pick(1, 700) : pick(1, 11) * 64, {}};
      for (int32_t i = pick(1, 9); i > 0; --i) group.lengths.push_back(group.prefix + pick(0, 1) * pick(0, 400) + 1);
      groups.push_back(std::move(group));
    }
    std::vector<int32_t> others;
    for (int32_t i = pick(0, 4); i > 0; --i) others.push_back(pick(1, 600));
    ExpectSameBits(shape, block_size, groups, others, rng.Next64(), *pools[pick(0, 2)],
                   "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tactus::compute::attention_prefix_test
