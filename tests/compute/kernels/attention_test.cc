// Attention of every kernel set: close to ref, and the same bits for a query as a decode, in a chunk of any size, over
// any block size, beside any other items, with any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/kernel_testing.h"

namespace tactus::compute {
namespace {

using testing::OwnedWorkspace;
using testing::RandomFloats;

struct Shape {
  int32_t heads, kv_heads, head_dim;
  int32_t window = 0;
  DType kv_dtype = DType::kBF16;
  float softcap = 0.0f;
  bool alibi = false, sinks = false;
  int32_t chunk = 0;

  bool changes_scores() const { return softcap > 0 || alibi; }
};

// A sequence's K and V as floats, and its queries.
struct Sequence {
  int32_t length;
  std::vector<float> q, k, v;
};

Sequence MakeSequence(const Shape& s, int32_t length, uint64_t seed) {
  return {length, RandomFloats(int64_t{length} * s.heads * s.head_dim, seed),
          RandomFloats(int64_t{length} * s.kv_heads * s.head_dim, seed + 1),
          RandomFloats(int64_t{length} * s.kv_heads * s.head_dim, seed + 2)};
}

// A paged cache with shuffled blocks; unwritten memory is NaN, so that reading it is detected.
class Cache {
 public:
  Cache(const Shape& shape, int32_t block_size, const std::vector<Sequence>& sequences, const Ops& ops,
        ThreadPool& pool)
      : shape_(shape) {
    for (int32_t h = 0; h < shape.heads; ++h) {
      slopes_.push_back(1.0f / static_cast<float>(2 << (h % 8)));
      sinks_.push_back(static_cast<float>(h % 5) - 1.5f);
    }
    int32_t blocks = 1;
    for (const Sequence& s : sequences) blocks += (s.length + block_size - 1) / block_size;
    const size_t elements = static_cast<size_t>(blocks) * shape.kv_heads * block_size * shape.head_dim;
    k_.assign(elements * 4, std::byte{0xff});
    v_.assign(elements * 4, std::byte{0xff});
    layer_ = {k_.data(), v_.data(), shape.kv_dtype, block_size, shape.kv_heads, shape.head_dim};
    std::vector<int32_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    Rng rng(99);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.UniformInt(0, int64_t(i) - 1)]);
    size_t next = 0;
    for (const Sequence& s : sequences) {
      std::vector<int32_t> table;
      for (int32_t p = 0; p < s.length; p += block_size) table.push_back(order[next++]);
      std::vector<int64_t> slots;
      for (int32_t p = 0; p < s.length; ++p)
        slots.push_back(int64_t{table[p / block_size]} * block_size + p % block_size);
      ops.store_kv(pool, s.k.data(), s.v.data(), slots.data(), s.length, layer_);
      tables_.push_back(std::move(table));
    }
  }

  struct Piece {
    int32_t sequence, first_position, count;
  };

  // Runs the pieces in one call; results in the order of the pieces' rows.
  std::vector<float> Run(const Ops& ops, ThreadPool& pool, const std::vector<Sequence>& sequences,
                         const std::vector<Piece>& pieces) {
    const int64_t row = int64_t{shape_.heads} * shape_.head_dim;
    std::vector<float> q;
    std::vector<AttentionItem> items;
    int32_t tokens = 0;
    for (const Piece& p : pieces) {
      const std::vector<float>& from = sequences[p.sequence].q;
      q.insert(q.end(), from.begin() + p.first_position * row, from.begin() + (p.first_position + p.count) * row);
      items.push_back({tokens, p.first_position, p.count, tables_[p.sequence].data()});
      tokens += p.count;
    }
    std::vector<float> out(static_cast<size_t>(tokens * row), -7.0f);
    OwnedWorkspace scratch(tokens, 64, shape_.heads, shape_.head_dim, pool.threads());
    const AttentionSpec spec = {.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
                                .window = shape_.window,
                                .chunk = shape_.chunk,
                                .softcap = shape_.softcap,
                                .slopes = shape_.alibi ? slopes_.data() : nullptr,
                                .sinks = shape_.sinks ? sinks_.data() : nullptr};
    ops.attention(pool, q.data(), row, items, shape_.heads, layer_, spec, out.data(), row, scratch.view());
    return out;
  }

 private:
  Shape shape_;
  std::vector<float> slopes_, sinks_;  // [heads]
  std::vector<std::byte> k_, v_;
  KvLayer layer_;
  std::vector<std::vector<int32_t>> tables_;
};

const Shape kShapes[] = {
    {8, 1, 64},                   // MQA
    {9, 3, 64},                   // a group that fills no tile
    {4, 4, 128, 0, DType::kF32},  // MHA
    {4, 2, 8},
    {6, 2, 24, 0, DType::kF32},  // tiny and odd heads
    {4, 2, 16, 5},
    {8, 2, 64, 300},
    {2, 2, 256, 64},  // windows within, across and at the edges of partitions
    {2, 1, 512},      // the largest heads
    {4, 2, 512, 40, DType::kF32},
    {4, 1, 512, 0, DType::kInt8},
    {72, 1, 16},  // more heads than a tile has rows
    {6, 2, 7},    // no pairs of dimensions
    {8, 1, 64, 0, DType::kInt8},
    {6, 2, 24, 5, DType::kInt8},
    {8, 2, 64, 0, DType::kBF16, 1.5f},               // soft-capped scores
    {6, 2, 24, 0, DType::kF32, 0.0f, true},          // ALiBi
    {6, 2, 24, 40, DType::kInt8, 2.0f, true, true},  // all of it, in a window
    {8, 2, 64, 0, DType::kBF16, 0.0f, false, true},  // sinks alone
    {8, 4, 64, 128, DType::kInt8, 0.0f, false, true},
    {4, 2, 16, 0, DType::kBF16, 0.0f, false, false, 100},  // chunks within and across partitions
    {6, 2, 24, 0, DType::kF32, 0.0f, false, false, 7},
    {8, 2, 64, 0, DType::kInt8, 0.0f, false, false, 256},
};

std::string NameOf(const Ops* ops, const Shape& s) {
  return std::string(ops->name) + " heads " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " dim " +
         std::to_string(s.head_dim) + " window " + std::to_string(s.window) + " " + InfoOf(s.kv_dtype).name +
         (s.softcap > 0 ? " softcap" : "") + (s.alibi ? " alibi" : "") + (s.sinks ? " sinks" : "") +
         (s.chunk > 0 ? " chunk " + std::to_string(s.chunk) : "");
}

// Whether this set rounds q and the softmax weights to bf16 (attention/avx512/bf16.cc).
bool RoundsToBF16([[maybe_unused]] const Ops* ops, [[maybe_unused]] const Shape& shape) {
#if defined(__x86_64__)
  const std::string_view name = ops->name;
  return (name == "avx512" || name == "amx") && shape.kv_dtype == DType::kBF16 && !shape.changes_scores() &&
         CpuHasAvx512Bf16();
#else
  return false;
#endif
}

// Whether it rounds them to 16 bits. Roughly: also approximates 2^x to 1e-4 (attention/avx512/int8.cc); finely: does
// not (attention/avx2/int8_products.h).
enum class Rounds16 { kNot, kFinely, kRoughly };
Rounds16 RoundsTo16Bits([[maybe_unused]] const Ops* ops, [[maybe_unused]] const Shape& shape) {
#if defined(__x86_64__)
  const std::string_view name = ops->name;
  if (shape.kv_dtype != DType::kInt8) return Rounds16::kNot;
  if (name == "avx2" || name == "avxvnni") return Rounds16::kFinely;
  const bool has = (name == "avx512" || name == "amx") && !shape.changes_scores() && CpuHasAvx512Vnni();
  return has ? Rounds16::kRoughly : Rounds16::kNot;
#else
  return Rounds16::kNot;
#endif
}

// The set's expected result: ref's with q rounded as in the set, and a tolerance per element. Values are of order one
// and the result is their average; scores of order one are off by a few ulp of sqrt(head_dim) terms, which moves a
// weight by as much. Rounding a weight w to bf16 moves it by at most 2^-8 w; in the quotient of the sums that is at
// most 2^-8 (sum of w |v| + |result|).
struct Expected {
  std::vector<float> value, tolerance;
};
Expected Expect(const Shape& shape, std::vector<Sequence> sequences, const std::vector<Cache::Piece>& pieces,
                const Ops* ops, ThreadPool& pool) {
  const Ops& ref = *SelectOps("ref");
  const bool rounds = RoundsToBF16(ops, shape);
  if (rounds) {
    for (Sequence& s : sequences) {
      for (float& q : s.q) q = BF16ToF32(F32ToBF16(q));
    }
  }
  Expected e;
  e.value = Cache(shape, 16, sequences, ref, pool).Run(ref, pool, sequences, pieces);
  const Rounds16 rounds_less = RoundsTo16Bits(ops, shape);
  // Weights have at least 15 bits relative to the largest: each is off by at most 2^-15. So is q. Sums grow with
  // head_dim.
  const float sums = 4e-6f * std::max(1.0f, static_cast<float>(shape.head_dim) / 256.0f);
  e.tolerance.assign(e.value.size(), rounds_less == Rounds16::kRoughly  ? 1e-4f
                                     : rounds_less == Rounds16::kFinely ? 3e-5f
                                                                        : sums);
  if (!rounds && rounds_less == Rounds16::kNot) return e;
  for (Sequence& s : sequences) {
    for (float& v : s.v) v = std::fabs(v);
  }
  const std::vector<float> magnitude = Cache(shape, 16, sequences, ref, pool).Run(ref, pool, sequences, pieces);
  const float part = rounds ? 1.0f / 256 : 2e-4f;
  for (size_t i = 0; i < e.value.size(); ++i) e.tolerance[i] += (magnitude[i] + std::fabs(e.value[i])) * part;
  return e;
}

TEST(Attention, AgreesWithRef) {
  ThreadPool pool(2, SystemClock());
  for (const Shape& shape : kShapes) {
    const std::vector<Sequence> sequences = {MakeSequence(shape, 300, 1), MakeSequence(shape, 37, 5)};
    const std::vector<Cache::Piece> pieces = {{0, 299, 1}, {1, 0, 37}, {0, 240, 30}, {1, 36, 1}};
    std::map<std::pair<bool, Rounds16>, Expected> by_rounding;  // the only thing in which sets' expectations differ
    for (const Ops* ops : RunnableOps()) {
      const std::pair rounding(RoundsToBF16(ops, shape), RoundsTo16Bits(ops, shape));
      if (!by_rounding.contains(rounding)) by_rounding[rounding] = Expect(shape, sequences, pieces, ops, pool);
      const Expected& want = by_rounding[rounding];
      for (const int32_t block_size : {16, 6, 5}) {
        Cache cache(shape, block_size, sequences, *ops, pool);
        const std::vector<float> got = cache.Run(*ops, pool, sequences, pieces);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], want.value[i], want.tolerance[i]) << NameOf(ops, shape) << " at " << i;
        }
      }
    }
  }
}

TEST(Attention, ChunksBlocksNeighboursAndThreadsChangeNoBit) {
  ThreadPool one(1, SystemClock()), two(2, SystemClock()), three(3, SystemClock()), five(5, SystemClock());
  ThreadPool* pools[] = {&one, &two, &three, &five};
  Rng rng(7);
  for (const Shape& shape : kShapes) {
    const int64_t row = int64_t{shape.heads} * shape.head_dim;
    constexpr int32_t kLength = 600;
    const std::vector<Sequence> sequences = {MakeSequence(shape, kLength, 1), MakeSequence(shape, 90, 5)};
    for (const Ops* ops : RunnableOps()) {
      if (std::string_view(ops->name) == "ref") continue;
      // Every query as a separate decode (a sample: all of them would be quadratic).
      Cache cache(shape, 16, sequences, *ops, one);
      std::vector<int32_t> checked = {0, 1, 15, 16, 63, 64, 255, 256, 257, 511, 512, 513, kLength - 1};
      for (int i = 0; i < 20; ++i) checked.push_back(static_cast<int32_t>(rng.UniformInt(0, kLength - 1)));
      std::vector<std::vector<float>> alone;
      for (int32_t p : checked) alone.push_back(cache.Run(*ops, one, sequences, {{0, p, 1}}));
      auto check = [&](const std::vector<float>& out, const std::vector<Cache::Piece>& pieces, const std::string& how) {
        int64_t first_row = 0;
        for (const Cache::Piece& piece : pieces) {
          for (size_t i = 0; i < checked.size(); ++i) {
            const int32_t in_piece = checked[i] - piece.first_position;
            if (piece.sequence != 0 || in_piece < 0 || in_piece >= piece.count) continue;
            ASSERT_TRUE(testing::SameBits(out.data() + (first_row + in_piece) * row, alone[i].data(), row))
                << NameOf(ops, shape) << " position " << checked[i] << " " << how;
          }
          first_row += piece.count;
        }
      };
      int round = 0;
      for (int32_t block_size : {1, 8, 16, 32, 48}) {
        Cache other(shape, block_size, sequences, *ops, one);
        std::vector<Cache::Piece> pieces;
        for (int32_t p = 0; p < kLength;) {  // the sequence in random chunks, with decodes of another between them
          const auto count = static_cast<int32_t>(std::min<int64_t>(kLength - p, rng.UniformInt(1, 1 + 90 * round)));
          pieces.push_back({0, p, count});
          pieces.push_back({1, static_cast<int32_t>(rng.UniformInt(0, 89)), 1});
          p += count;
        }
        ThreadPool& pool = *pools[round++ % 4];
        check(other.Run(*ops, pool, sequences, pieces), pieces,
              "block size " + std::to_string(block_size) + " threads " + std::to_string(pool.threads()));
        if (HasFatalFailure()) return;
      }
      // Single decodes on many threads are split over partitions.
      for (size_t i = 0; i < checked.size(); ++i) {
        check(cache.Run(*ops, five, sequences, {{0, checked[i], 1}}), {{0, checked[i], 1}}, "split");
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Enough decodes and short chunks in one call for tiles with several KV heads; each has the same bits as alone.
TEST(Attention, TilesOfSeveralKvHeadsChangeNoBit) {
  const Shape shapes[] = {{8, 4, 64},
                          {9, 3, 64},
                          {15, 5, 64, 0, DType::kInt8},
                          {40, 20, 16},
                          {8, 4, 128, 40},
                          {8, 4, 32, 301, DType::kInt8},
                          {8, 4, 64, 0, DType::kBF16, 0.0f, false, false, 90}};
  ThreadPool one(1, SystemClock()), three(3, SystemClock());
  for (const Shape& shape : shapes) {
    const int64_t row = int64_t{shape.heads} * shape.head_dim;
    std::vector<Sequence> sequences;
    std::vector<Cache::Piece> pieces;
    for (int32_t i = 0; i < 24; ++i) {
      const int32_t length = (i * 29 + 31) % 320 + 6;
      sequences.push_back(MakeSequence(shape, length, static_cast<uint64_t>(3 * i)));
      const int32_t count = i % 4 == 0 ? 1 + i % 7 : 1;
      pieces.push_back({i, length - count, count});
    }
    for (const Ops* ops : RunnableOps()) {
      if (std::string_view(ops->name) == "ref") continue;
      for (const int32_t block_size : {16, 48}) {
        Cache cache(shape, block_size, sequences, *ops, one);
        std::vector<float> alone;
        for (const Cache::Piece& p : pieces) {
          for (int32_t q = p.first_position; q < p.first_position + p.count; ++q) {
            const std::vector<float> out = cache.Run(*ops, one, sequences, {{p.sequence, q, 1}});
            alone.insert(alone.end(), out.begin(), out.end());
          }
        }
        for (ThreadPool* pool : {&one, &three}) {
          const std::vector<float> out = cache.Run(*ops, *pool, sequences, pieces);
          ASSERT_EQ(out.size(), alone.size());
          for (size_t i = 0; i < out.size(); i += static_cast<size_t>(row)) {
            ASSERT_TRUE(testing::SameBits(out.data() + i, alone.data() + i, row))
                << NameOf(ops, shape) << " block size " << block_size << " threads " << pool->threads() << " query "
                << i / static_cast<size_t>(row);
          }
        }
      }
    }
  }
}

// Enough partitions for several waves of a split decode.
TEST(Attention, LongDecodesMergeInTheSameOrderWhenSplit) {
  const Shape shape = {4, 1, 16};
  ThreadPool one(1, SystemClock()), two(2, SystemClock());
  const std::vector<Sequence> sequences = {MakeSequence(shape, 5000, 3)};
  for (const Ops* ops : RunnableOps()) {
    Cache cache(shape, 16, sequences, *ops, one);
    const std::vector<Cache::Piece> last = {{0, 4999, 1}};
    const Expected want = Expect(shape, sequences, last, ops, one);
    const std::vector<float> alone = cache.Run(*ops, one, sequences, last),
                             split = cache.Run(*ops, two, sequences, last);
    EXPECT_TRUE(testing::SameBits(alone.data(), split.data(), 64)) << ops->name;
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], want.value[i], want.tolerance[i]) << ops->name;
  }
}

// Tiles that are split over several waves of tasks, alone and beside others.
TEST(Attention, LongChunksHaveTheBitsOfTheirDecodes) {
  const Shape shape = {4, 1, 64};
  const int64_t row = int64_t{shape.heads} * shape.head_dim;
  ThreadPool one(1, SystemClock()), two(2, SystemClock()), five(5, SystemClock());
  const std::vector<Sequence> sequences = {MakeSequence(shape, 8400, 3), MakeSequence(shape, 5000, 8)};
  const std::vector<std::vector<Cache::Piece>> calls = {
      {{0, 8370, 30}}, {{1, 4984, 16}}, {{0, 8399, 1}, {1, 4999, 1}}, {{1, 4960, 40}, {0, 8398, 2}}};
  for (const Ops* ops : RunnableOps()) {
    if (std::string_view(ops->name) == "ref") continue;
    Cache cache(shape, 16, sequences, *ops, one);
    std::map<std::pair<int32_t, int32_t>, std::vector<float>> alone;
    for (const auto& [sequence, position] : {std::pair(0, 8370), {0, 8399}, {1, 4984}, {1, 4999}}) {
      alone[{sequence, position}] = cache.Run(*ops, one, sequences, {{sequence, position, 1}});
    }
    for (const std::vector<Cache::Piece>& pieces : calls) {
      for (ThreadPool* pool : {&one, &two, &five}) {
        const std::vector<float> out = cache.Run(*ops, *pool, sequences, pieces);
        int64_t first_row = 0;
        int checked = 0;
        for (const Cache::Piece& piece : pieces) {
          for (const auto& [where, want] : alone) {
            const int32_t in_piece = where.second - piece.first_position;
            if (piece.sequence != where.first || in_piece < 0 || in_piece >= piece.count) continue;
            ++checked;
            ASSERT_TRUE(testing::SameBits(out.data() + (first_row + in_piece) * row, want.data(), row))
                << ops->name << " sequence " << where.first << " position " << where.second << " threads "
                << pool->threads();
          }
          first_row += piece.count;
        }
        ASSERT_GT(checked, 0);
      }
    }
  }
}

// int8 has a scale per position and head: positions with K or V far larger or smaller than their neighbours', or zero,
// have their proper weight; a non-finite one affects every row that attends to it and no other.
TEST(Attention, Int8ScalesMayDifferWidely) {
  const Shape shape = {8, 2, 64, 0, DType::kInt8};
  ThreadPool pool(1, SystemClock());
  std::vector<Sequence> sequences = {MakeSequence(shape, 300, 3)};
  const int32_t row = shape.kv_heads * shape.head_dim;
  const float factors[] = {1.0f, 1e-6f, 30.0f, 0.0f, 1e-32f, 1e-3f, 4.0f};
  for (int32_t p = 0; p < 300; ++p) {
    for (int32_t d = 0; d < row; ++d) {
      sequences[0].v[p * row + d] *= factors[p % 7];
      if (p % 5 == 0) sequences[0].k[p * row + d] *= 1e-7f;
    }
  }
  const std::vector<Cache::Piece> pieces = {{0, 0, 40}, {0, 280, 20}, {0, 299, 1}};
  for (const Ops* ops : RunnableOps()) {
    for (const int32_t block_size : {16, 6}) {
      const Expected want = Expect(shape, sequences, pieces, ops, pool);
      const std::vector<float> got = Cache(shape, block_size, sequences, *ops, pool).Run(*ops, pool, sequences, pieces);
      // Values of 30 with weights off by 2^-15.
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want.value[i], want.tolerance[i] + 2e-3) << ops->name << " at " << i;
      }
    }
    for (const auto kv : {&Sequence::k, &Sequence::v}) {
      std::vector<Sequence> broken = sequences;
      (broken[0].*kv)[20 * row] = HUGE_VALF;  // KV head 0 alone
      const std::vector<float> got = Cache(shape, 16, broken, *ops, pool).Run(*ops, pool, broken, {{0, 0, 40}});
      for (size_t i = 0; i < got.size(); ++i) {
        const size_t position = i / 512, head = i % 512 / 64;
        ASSERT_EQ(std::isnan(got[i]), position >= 20 && head < 4) << ops->name << " at " << i;
      }
    }
  }
}

// Scores far apart: weights that underflow, a maximum in a late partition.
TEST(Attention, LargeScoresStayFinite) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Shape shape = {2, 1, 16, 0, dtype};
    ThreadPool pool(1, SystemClock());
    std::vector<Sequence> sequences = {MakeSequence(shape, 520, 3)};
    for (int32_t p = 0; p < 520; ++p) {
      for (int d = 0; d < 16; ++d) sequences[0].k[p * 16 + d] *= p == 515 ? 1000.0f : 100.0f;
    }
    for (const Ops* ops : RunnableOps()) {
      Cache cache(shape, 16, sequences, *ops, pool);
      const Expected want = Expect(shape, sequences, {{0, 500, 20}}, ops, pool);
      const std::vector<float> got = cache.Run(*ops, pool, sequences, {{0, 500, 20}});
      // Scores of order 1000 carry an absolute error of about 1e-4, and so do the weights.
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want.value[i], want.tolerance[i] + 2e-3) << ops->name << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tactus::compute
