// Attention's loops by matrix tiles on a software model of the tiles: scores and weighted values are the sums that they
// are defined to be, in the stated order, for every number of rows, and no instruction faults. On a machine with AMX,
// attention_test.cc also runs the set "amx".
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "compute/kernels/kernel_testing.h"
#include "compute/kernels/tile_model.h"

#if defined(__x86_64__)
#include "compute/kernels/attention/amx/bf16_tile.h"
#include "compute/kernels/attention/amx/int8_tile.h"

namespace tactus::compute {
namespace {

using testing::ModelTiles;
using testing::RandomFloats;

constexpr int64_t kMostRows = 2 * kAmxRows;

std::vector<uint16_t> RandomBf16(int64_t n, uint64_t seed) {
  std::vector<uint16_t> out;
  for (float x : RandomFloats(n, seed)) out.push_back(F32ToBF16(x));
  return out;
}
const uint32_t* Words(const std::vector<uint16_t>& x) {
  return reinterpret_cast<const uint32_t*>(x.data());
}

// One instruction's sum over `pairs` pairs: even and odd elements each in a chain from zero.
float Product(const uint16_t* a, const uint16_t* b, int64_t b_stride, int64_t pairs) {
  float even = 0, odd = 0;
  for (int64_t k = 0; k < pairs; ++k) {
    even = std::fma(BF16ToF32(a[2 * k]), BF16ToF32(b[k * b_stride]), even);
    odd = std::fma(BF16ToF32(a[2 * k + 1]), BF16ToF32(b[k * b_stride + 1]), odd);
  }
  return even + odd;
}

TEST(AttentionAmx, ScoresAreSumsOfProductsOf32Dimensions) {
  constexpr int32_t kDims = 96, kStride = 16;  // words from one pair of dimensions to the next
  const std::vector<uint16_t> q = RandomBf16(kMostRows * kDims, 1);
  const std::vector<uint16_t> keys[2] = {RandomBf16(kDims * kStride, 2), RandomBf16(kDims * kStride, 3)};
  const uint32_t* at[2] = {Words(keys[0]), Words(keys[1])};
  std::vector<std::byte> memory(kDims / 2 * 64);
  const std::byte* ahead[2] = {memory.data(), memory.data()};
  ModelTiles::faults = 0;
  for (const int32_t rows : {1, 7, 16, 17, 32}) {
    std::vector<float> scores(static_cast<size_t>(kMostRows * kPartition), -5.0f);
    const ScoreCall call = {rows, Words(q), kDims / 2, nullptr, at, kStride, kDims / 2, nullptr, ahead, scores.data()};
    ConfigureScores<ModelTiles>(rows);
    rows > kAmxRows ? ScoreByTiles<ModelTiles, true, true>(call) : ScoreByTiles<ModelTiles, false, false>(call);
    for (int64_t r = 0; r < kMostRows; ++r) {
      for (int64_t c = 0; c < 2 * 16; ++c) {
        float want = 0;
        for (int64_t d = 0; d < kDims; d += 32) {
          want += Product(&q[r * kDims + d], &keys[c / 16][(d / 2 * kStride + c % 16) * 2], 2 * kStride, 16);
        }
        ASSERT_EQ(scores[r * kPartition + c], r < rows ? want : -5.0f) << rows << " rows, row " << r << " column " << c;
      }
    }
  }
  EXPECT_EQ(ModelTiles::faults, 0);
}

TEST(AttentionAmx, WeightedValuesAreSumsOfProductsOf16Positions) {
  constexpr int32_t kDims = 64, kChunks = 5;
  const std::vector<uint16_t> weights = RandomBf16(kMostRows * kPartition, 4);
  std::vector<std::vector<uint16_t>> values;
  const uint32_t* chunks[kChunks];
  const std::byte* ahead[kChunks];
  for (int32_t c = 0; c < kChunks; ++c) values.push_back(RandomBf16(16 * kDims, static_cast<uint64_t>(5 + c)));
  for (int32_t c = 0; c < kChunks; ++c) chunks[c] = Words(values[c]), ahead[c] = Bytes(values[c].data());
  ModelTiles::faults = 0;
  for (const int32_t rows : {1, 9, 16, 20, 32}) {
    for (const bool resume : {false, true}) {
      std::vector<float> out = RandomFloats(kMostRows * kDims, 20);
      const std::vector<float> before = out;
      const int32_t from = 1, to = 3 * kChunkPairs + 2;  // pairs: of chunks 0 to 3
      WeighCall call = {rows, weights.data(), chunks, from, to, kDims, 0, resume, ahead, out.data(), kDims};
      ConfigureValues<ModelTiles>(rows);
      for (call.first_dim = 0; call.first_dim < kDims; call.first_dim += 32) {
        rows > kAmxRows ? WeighByTiles<ModelTiles, true, true>(call) : WeighByTiles<ModelTiles, false, false>(call);
      }
      for (int64_t r = 0; r < kMostRows; ++r) {
        for (int64_t d = 0; d < kDims; ++d) {
          float want = resume ? before[r * kDims + d] : 0.0f;
          for (int64_t c = 0; c < 4; ++c) {
            want += Product(&weights[r * kPartition + 16 * c], &values[c][2 * d], 2 * kDims, 8);
          }
          ASSERT_EQ(out[r * kDims + d], r < rows ? want : before[r * kDims + d])
              << rows << " rows, row " << r << " dimension " << d << (resume ? " resumed" : "");
        }
      }
    }
  }
  EXPECT_EQ(ModelTiles::faults, 0);
}

struct ModelJoin {
  static int32_t Join(int32_t high, int32_t low) { return (high << 8) + low; }
  static void StoreScores(const int32_t* high, const int32_t* low, const float* scale, float* to) {
    for (int i = 0; i < 16; ++i) to[i] = static_cast<float>(Join(high[i], low[i])) * scale[i];
  }
  static void StoreValues(const int32_t* high, const int32_t* low, bool resume, float* to) {
    auto* sums = reinterpret_cast<int32_t*>(to);
    for (int i = 0; i < 16; ++i) sums[i] = Join(high[i], low[i]) + (resume ? sums[i] : 0);
  }
};

std::vector<int8_t> RandomCodes(int64_t n, uint64_t seed) {
  std::vector<int8_t> out;
  Rng rng(seed);
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<int8_t>(rng.UniformInt(-127, 127)));
  return out;
}

TEST(AttentionAmx, Int8ScoresAreExactSums) {
  constexpr int32_t kDims = 128, kStride = 16, kVecs = 4;
  const std::vector<int8_t> q = RandomCodes(kAmxRows * 2 * kDims, 31);  // high bytes, then low bytes of a row
  std::vector<std::vector<int8_t>> keys;
  const uint32_t* at[kVecs];
  const float* scales[kVecs];
  std::vector<std::byte> memory(kDims / 4 * 64);
  const std::byte* ahead[kVecs];
  const std::vector<float> scale = RandomFloats(16 * kVecs, 32);
  for (int v = 0; v < kVecs; ++v) keys.push_back(RandomCodes(kDims * kStride, static_cast<uint64_t>(33 + v)));
  for (int v = 0; v < kVecs; ++v) {
    at[v] = reinterpret_cast<const uint32_t*>(keys[v].data());
    scales[v] = &scale[16 * v];
    ahead[v] = memory.data();
  }
  ModelTiles::faults = 0;
  for (const int32_t rows : {1, 5, 16}) {
    std::vector<float> scores(static_cast<size_t>(kAmxRows * kPartition), -5.0f);
    const ScoreCall call = {rows,      reinterpret_cast<const uint32_t*>(q.data()),
                            kDims / 2, nullptr,
                            at,        kStride,
                            kDims / 4, scales,
                            ahead,     scores.data()};
    ConfigureInt8<ModelTiles>(rows);
    ScoreInt8<ModelTiles, ModelJoin, true>(call);
    for (int64_t r = 0; r < kAmxRows; ++r) {
      for (int64_t c = 0; c < 16 * kVecs; ++c) {
        int32_t sum = 0;
        for (int64_t d = 0; d < kDims; ++d) {
          const int32_t x = 256 * q[r * 2 * kDims + d] + q[r * 2 * kDims + kDims + d];
          sum += x * keys[c / 16][(d / 4 * kStride + c % 16) * 4 + d % 4];
        }
        ASSERT_EQ(scores[r * kPartition + c], r < rows ? static_cast<float>(sum) * scale[c] : -5.0f)
            << rows << " rows, row " << r << " column " << c;
      }
    }
  }
  EXPECT_EQ(ModelTiles::faults, 0);
}

TEST(AttentionAmx, Int8ValuesAreExactSums) {
  constexpr int32_t kDims = 64, kChunks = 12;  // of 16 positions: three tiles
  std::vector<uint8_t> weights;                // high bytes, then low bytes of a row
  for (const int8_t w : RandomCodes(kAmxRows * 2 * kPartition, 41)) weights.push_back(static_cast<uint8_t>(w));
  const std::vector<int8_t> values = RandomCodes(16 * kChunks * kDims, 42);  // [positions / 4][dims][4]
  const uint32_t* chunks[kChunks];
  for (int32_t c = 0; c < kChunks; ++c) chunks[c] = reinterpret_cast<const uint32_t*>(&values[c * 16 * kDims]);
  ModelTiles::faults = 0;
  for (const int32_t rows : {1, 11, 16}) {
    for (const bool resume : {false, true}) {
      std::vector<int32_t> out(static_cast<size_t>(kAmxRows * kDims), 1000);
      const int32_t from = kTileQuads, to = 3 * kTileQuads;  // the second and third tile
      const WeighCall call = {rows,    reinterpret_cast<const uint16_t*>(weights.data()),
                              chunks,  from,
                              to,      kDims,
                              0,       resume,
                              nullptr, reinterpret_cast<float*>(out.data()),
                              kDims};
      ConfigureInt8<ModelTiles>(rows);
      WeighInt8<ModelTiles, ModelJoin>(call);
      for (int64_t r = 0; r < kAmxRows; ++r) {
        for (int64_t d = 0; d < kDims; ++d) {
          int32_t want = resume || r >= rows ? 1000 : 0;
          for (int64_t p = 64; p < 192 && r < rows; ++p) {
            const int32_t w = 256 * weights[r * 2 * kPartition + p] + weights[r * 2 * kPartition + kPartition + p];
            want += w * values[(p / 4 * kDims + d) * 4 + p % 4];
          }
          ASSERT_EQ(out[r * kDims + d], want)
              << rows << " rows, row " << r << " dimension " << d << (resume ? " resumed" : "");
        }
      }
    }
  }
  EXPECT_EQ(ModelTiles::faults, 0);
}

}  // namespace
}  // namespace tactus::compute
#endif
