// The operators on rows and elements: close to ref, the same bits in any batch, in place where allowed.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>

#include "compute/kernels/kernel_testing.h"

namespace tactus::compute {
namespace {

using testing::RandomFloats;
using testing::SameBits;

const Ops& Ref() {
  return *SelectOps("ref");
}

TEST(RowOps, RmsNormAgreesWithRefAndDependsOnItsRowAlone) {
  ThreadPool pool(3, SystemClock());
  for (const int64_t dim : {1, 5, 16, 64, 100, 576, 2048}) {
    constexpr int64_t kTokens = 37;
    const std::vector<float> x = RandomFloats(kTokens * dim, 1, 3.0f), weight = RandomFloats(dim, 2);
    std::vector<float> want(x.size()), got(x.size()), alone(static_cast<size_t>(dim));
    Ref().rms_norm(pool, x.data(), kTokens, dim, weight.data(), 1e-5f, want.data());
    for (const Ops* ops : RunnableOps()) {
      ops->rms_norm(pool, x.data(), kTokens, dim, weight.data(), 1e-5f, got.data());
      // The sum of squares has dim positive terms in at least 4 chains; then a root, a division and two products.
      const float tolerance = (static_cast<float>(dim) / 4 + 4) * 0x1.0p-24f;
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], std::fabs(want[i]) * tolerance) << ops->name << " dim " << dim;
      }
      ops->rms_norm(pool, x.data() + 7 * dim, 1, dim, weight.data(), 1e-5f, alone.data());
      EXPECT_TRUE(SameBits(alone.data(), got.data() + 7 * dim, dim)) << ops->name;
      std::vector<float> in_place = x;
      ops->rms_norm(pool, in_place.data(), kTokens, dim, weight.data(), 1e-5f, in_place.data());
      EXPECT_TRUE(SameBits(in_place.data(), got.data(), kTokens * dim)) << ops->name;
    }
  }
}

TEST(RowOps, EmbedReadsRowsOfAnyFormat) {
  ThreadPool pool(2, SystemClock());
  for (DType dtype : testing::kAllDTypes) {
    const testing::OwnedMatrix table = testing::RandomMatrix(dtype, 9, 256, 3);
    const int32_t ids[] = {8, 0, 3, 3};
    std::vector<float> want(4 * 256), got(4 * 256);
    for (int t = 0; t < 4; ++t) Ref().dequantize_row(table.view, ids[t], want.data() + t * 256);
    for (const Ops* ops : RunnableOps()) {
      ops->embed(pool, ids, 4, table.view, got.data());
      EXPECT_TRUE(SameBits(got.data(), want.data(), 4 * 256)) << ops->name << " " << InfoOf(dtype).name;
    }
  }
}

TEST(RowOps, RopeRotatesPairs) {
  ThreadPool pool(2, SystemClock());
  // By hand: one pair, a quarter turn at position 1.
  const float quarter = 1.5707964f;
  for (const Ops* ops : RunnableOps()) {
    float q[] = {1, 2, 3, 4}, k[] = {5, 6, 7, 8};
    const int32_t position = 1;
    ops->rope(pool, q, k, &position, 1, 1, 1, 4, {&quarter, 1.0f, 2, false});
    EXPECT_NEAR(q[0], -2, 1e-6) << ops->name;  // (1, 2) -> (-2, 1); dimensions beyond rotary_dim do not change
    EXPECT_NEAR(q[1], 1, 1e-6);
    EXPECT_EQ(q[2], 3);
    EXPECT_NEAR(k[0], -6, 1e-6);
  }
  const int32_t heads = 3, kv_heads = 1, dim = 64;
  const int64_t tokens = 20;
  std::vector<int32_t> positions;
  for (int t = 0; t < tokens; ++t) positions.push_back(t * 397);
  for (const bool interleaved : {false, true}) {
    for (const int32_t rotary : {64, 32, 20}) {
      std::vector<float> inv_freq;
      for (int i = 0; i < rotary / 2; ++i)
        inv_freq.push_back(std::pow(10000.0f, -2.0f * i / static_cast<float>(rotary)));
      const RopeTable table = {inv_freq.data(), 1.25f, rotary, interleaved};
      const std::vector<float> q = RandomFloats(tokens * heads * dim, 1), k = RandomFloats(tokens * kv_heads * dim, 2);
      std::vector<float> want_q = q, want_k = k;
      Ref().rope(pool, want_q.data(), want_k.data(), positions.data(), tokens, heads, kv_heads, dim, table);
      for (const Ops* ops : RunnableOps()) {
        std::vector<float> got_q = q, got_k = k;
        ops->rope(pool, got_q.data(), got_k.data(), positions.data(), tokens, heads, kv_heads, dim, table);
        for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(got_q[i], want_q[i], 2e-6) << ops->name;
        for (size_t i = 0; i < k.size(); ++i) ASSERT_NEAR(got_k[i], want_k[i], 2e-6) << ops->name;
        std::vector<float> one_q(q.begin() + 5 * heads * dim, q.begin() + 6 * heads * dim);
        std::vector<float> one_k(k.begin() + 5 * dim, k.begin() + 6 * dim);
        ops->rope(pool, one_q.data(), one_k.data(), &positions[5], 1, heads, kv_heads, dim, table);
        EXPECT_TRUE(SameBits(one_q.data(), got_q.data() + 5 * heads * dim, heads * dim)) << ops->name;
      }
    }
  }
}

// By the layout that kv_layout.h describes, repeated here as code: bf16 and int8, paired and plain.
TEST(RowOps, StoreKvRoundsToNearestEvenIntoItsSlotAndNowhereElse) {
  ThreadPool pool(2, SystemClock());
  const int32_t kv_heads = 3, blocks = 5;
  for (const int32_t dim : {24, 7}) {
    for (const int32_t block_size : {4, 3}) {
      const std::vector<float> k = RandomFloats(3 * kv_heads * dim, 1), v = RandomFloats(3 * kv_heads * dim, 2);
      const int64_t slots[] = {3 * block_size + 1, 2, 5 * block_size - 1};
      const bool paired = dim % 2 == 0 && block_size % 2 == 0;
      for (const Ops* ops : RunnableOps()) {
        std::vector<uint16_t> cache_k(blocks * kv_heads * block_size * dim, 0x7777), cache_v = cache_k;
        const KvLayer kv = {cache_k.data(), cache_v.data(), DType::kBF16, block_size, kv_heads, dim};
        EXPECT_EQ(KvBlockBytes(kv), 2 * kv_heads * block_size * dim);
        ops->store_kv(pool, k.data(), v.data(), slots, 3, kv);
        std::set<size_t> written_k, written_v;
        for (int t = 0; t < 3; ++t) {
          const int64_t block = slots[t] / block_size, offset = slots[t] % block_size;
          for (int h = 0; h < kv_heads; ++h) {
            for (int d = 0; d < dim; ++d) {
              const size_t head = (block * kv_heads + h) * block_size * dim, from = (t * kv_heads + h) * dim + d;
              const size_t at_k = head + (paired ? d / 2 * block_size * 2 + offset * 2 + d % 2 : offset * dim + d);
              const size_t at_v = head + (paired ? offset / 2 * dim * 2 + d * 2 + offset % 2 : offset * dim + d);
              EXPECT_EQ(cache_k[at_k], F32ToBF16(k[from])) << ops->name;
              EXPECT_EQ(cache_v[at_v], F32ToBF16(v[from])) << ops->name;
              written_k.insert(at_k);
              written_v.insert(at_v);
            }
          }
        }
        for (size_t i = 0; i < cache_k.size(); ++i) {
          ASSERT_TRUE(written_k.contains(i) || cache_k[i] == 0x7777) << ops->name;
          ASSERT_TRUE(written_v.contains(i) || cache_v[i] == 0x7777) << ops->name;
        }
      }
    }
  }
}

// V unchanged, K rotated by a Hadamard matrix first: here that of order 8, by its definition (-1 to the number of
// common bits).
TEST(RowOps, Int8KvHasOneScalePerPositionAndHead) {
  ThreadPool pool(1, SystemClock());
  const int32_t dim = 8, block_size = 4;
  const std::vector<float> wanted = {0, 127, -127, 63.5f, 0.5f, 1.5f, -2.5f, 100};
  const int codes[] = {0, 127, -127, 64, 0, 2, -2, 100};  // scale 1, halves to even
  std::vector<float> k(8, 0.0f), bad(8, 1.0f);
  for (int i = 0; i < dim; ++i) {
    for (int j = 0; j < dim; ++j) {
      k[i] += (std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1.0f : -1.0f) / std::sqrt(8.0f) * wanted[j];
    }
  }
  bad[3] = std::nanf("");
  for (const Ops* ops : RunnableOps()) {
    std::vector<std::byte> cache_k(block_size * (dim + 4)), cache_v(cache_k.size(), std::byte{0x55});
    const KvLayer kv = {cache_k.data(), cache_v.data(), DType::kInt8, block_size, 1, dim};
    EXPECT_EQ(KvBlockBytes(kv), block_size * (dim + 4));
    const int64_t slots[] = {0, 1};
    ops->store_kv(pool, k.data(), wanted.data(), slots, 1, kv);
    ops->store_kv(pool, bad.data(), bad.data(), slots + 1, 1, kv);
    for (int d = 0; d < dim; ++d) {
      EXPECT_NEAR(static_cast<int8_t>(cache_k[d / 4 * 16 + d % 4]), wanted[d], 0.501) << ops->name << " " << d;
      EXPECT_EQ(static_cast<int8_t>(cache_v[4 * d]), codes[d]) << ops->name << " " << d;
    }
    float scales[4];
    std::memcpy(scales, cache_k.data() + 32, 8);
    std::memcpy(scales + 2, cache_v.data() + 32, 8);
    EXPECT_NEAR(scales[0], 1.0f, 1e-6);
    EXPECT_TRUE(std::isnan(scales[1]));
    EXPECT_EQ(scales[2], 1.0f);
    EXPECT_TRUE(std::isnan(scales[3]));
    const std::vector<float> zeros(8, 0.0f);
    ops->store_kv(pool, zeros.data(), zeros.data(), slots, 1, kv);
    std::memcpy(scales, cache_k.data() + 32, 4);
    EXPECT_EQ(scales[0], 0.0f);
  }
}

// Columns of one wide buffer, with and without norms: the bits of the separate operators, and no other memory changed.
TEST(RowOps, RopeStoreEqualsNormRopeAndStore) {
  ThreadPool pool(3, SystemClock());
  const int32_t heads = 6, kv_heads = 2, block_size = 4;
  const int64_t tokens = 37;
  for (const int32_t dim : {64, 20}) {
    const int64_t q_cols = heads * dim, kv_cols = kv_heads * dim, wide = q_cols + 2 * kv_cols + 3;
    const std::vector<float> buffer = RandomFloats(tokens * wide, 1), q_norm = RandomFloats(dim, 2),
                             k_norm = RandomFloats(dim, 3);
    std::vector<float> inv_freq;
    for (int i = 0; i < dim / 2; ++i) inv_freq.push_back(std::pow(10000.0f, -2.0f * i / static_cast<float>(dim)));
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (int t = 0; t < tokens; ++t) {
      positions.push_back(t * 91);
      slots.push_back((t * 7) % 40);
    }
    auto columns = [&](const std::vector<float>& from, int64_t first, int64_t count) {
      std::vector<float> out;
      for (int64_t t = 0; t < tokens; ++t)
        out.insert(out.end(), from.begin() + t * wide + first, from.begin() + t * wide + first + count);
      return out;
    };
    for (const bool interleaved : {false, true}) {
      for (const bool norms : {false, true}) {
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kInt8}) {
          for (const Ops* ops : RunnableOps()) {
            const RopeTable rope = {inv_freq.data(), 1.0f, dim, interleaved};
            std::vector<std::byte> k1(10 * kv_cols * block_size * 8), v1 = k1, k2 = k1, v2 = k1;
            std::vector<float> q = columns(buffer, 0, q_cols), k = columns(buffer, q_cols, kv_cols),
                               v = columns(buffer, q_cols + kv_cols, kv_cols), fused = buffer;
            if (norms) {
              ops->rms_norm(pool, q.data(), tokens * heads, dim, q_norm.data(), 1e-5f, q.data());
              ops->rms_norm(pool, k.data(), tokens * kv_heads, dim, k_norm.data(), 1e-5f, k.data());
            }
            ops->rope(pool, q.data(), k.data(), positions.data(), tokens, heads, kv_heads, dim, rope);
            ops->store_kv(pool, k.data(), v.data(), slots.data(), tokens,
                          {k1.data(), v1.data(), dtype, block_size, kv_heads, dim});
            RopeStoreCall call;
            call.q = fused.data();
            call.k = fused.data() + q_cols;
            call.v = call.k + kv_cols;
            call.q_stride = call.k_stride = call.v_stride = wide;
            call.positions = positions.data();
            call.slots = slots.data();
            call.tokens = tokens;
            call.heads = heads;
            call.rope = rope;
            if (norms) {
              call.qk_norm = true;
              call.q_norm = q_norm.data();
              call.k_norm = k_norm.data();
              call.eps = 1e-5f;
            }
            ops->rope_store(pool, call, {k2.data(), v2.data(), dtype, block_size, kv_heads, dim});
            EXPECT_TRUE(k1 == k2 && v1 == v2) << ops->name << " " << InfoOf(dtype).name << " dim " << dim;
            EXPECT_EQ(columns(fused, 0, q_cols), q) << ops->name;
            EXPECT_EQ(columns(fused, q_cols, wide - q_cols), columns(buffer, q_cols, wide - q_cols)) << ops->name;
          }
        }
      }
    }
  }
}

// One token of two query heads over a KV head, as Gemma 4, Hunyuan, Llama 4 and Ministral 3 need it.
class RopeStoreOptions : public ::testing::Test {
 protected:
  static constexpr int32_t kDim = 20, kPosition = 75;
  void SetUp() override {
    for (int i = 0; i < kDim / 2; ++i) inv_freq_.push_back(std::pow(10000.0f, -2.0f * i / static_cast<float>(kDim)));
    rope_ = {inv_freq_.data(), 1.0f, kDim, false};
    call_.q = q_.data();
    call_.k = k_.data();
    call_.v = k_.data();  // K = V
    call_.positions = &kPosition_;
    call_.slots = &kSlot_;
    call_.tokens = 1;
    call_.heads = 2;
    call_.rope = rope_;
    call_.eps = 1e-5f;
  }
  void Run(const Ops& ops) {
    ops.rope_store(pool_, call_, {stored_k_.data(), stored_v_.data(), DType::kF32, 1, 1, kDim});
  }

  const int32_t kPosition_ = kPosition;
  const int64_t kSlot_ = 0;
  ThreadPool pool_{1, SystemClock()};
  std::vector<float> q_ = RandomFloats(2 * kDim, 1), k_ = RandomFloats(kDim, 2), norm_ = RandomFloats(kDim, 3);
  std::vector<float> inv_freq_, stored_k_ = std::vector<float>(kDim), stored_v_ = std::vector<float>(kDim);
  RopeTable rope_;
  RopeStoreCall call_;
};

TEST_F(RopeStoreOptions, NormsMayFollowTheRotation) {
  for (const Ops* ops : RunnableOps()) {
    std::vector<float> q = q_, k = k_;
    ops->rope(pool_, q.data(), k.data(), &kPosition_, 1, 2, 1, kDim, rope_);
    ops->rms_norm(pool_, q.data(), 2, kDim, norm_.data(), 1e-5f, q.data());
    ops->rms_norm(pool_, k.data(), 1, kDim, norm_.data(), 1e-5f, k.data());
    std::vector<float> turned = q_;
    call_.q = turned.data();
    call_.qk_norm = true;
    call_.q_norm = call_.k_norm = norm_.data();
    call_.norms_last = true;
    Run(*ops);
    EXPECT_EQ(turned, q) << ops->name;
    EXPECT_EQ(stored_k_, k) << ops->name;
  }
}

TEST_F(RopeStoreOptions, NormsOfQAndKMayHaveNoWeights) {
  for (const Ops* ops : RunnableOps()) {
    std::vector<float> q = q_, k = k_, turned = q_;
    ops->rope(pool_, q.data(), k.data(), &kPosition_, 1, 2, 1, kDim, rope_);
    ops->rms_norm(pool_, q.data(), 2, kDim, nullptr, 1e-5f, q.data());
    ops->rms_norm(pool_, k.data(), 1, kDim, nullptr, 1e-5f, k.data());
    call_.q = turned.data();
    call_.qk_norm = call_.norms_last = true;
    Run(*ops);
    EXPECT_EQ(turned, q) << ops->name;
    EXPECT_EQ(stored_k_, k) << ops->name;
  }
}

TEST_F(RopeStoreOptions, ValuesEqualToKeysAreNormedAndDoNotTurn) {
  for (const Ops* ops : RunnableOps()) {
    std::vector<float> v = k_;
    ops->rms_norm(pool_, v.data(), 1, kDim, nullptr, 1e-5f, v.data());
    call_.v_norm = true;
    Run(*ops);
    EXPECT_EQ(stored_v_, v) << ops->name;
    EXPECT_EQ(k_, RandomFloats(kDim, 2)) << ops->name;
  }
}

TEST_F(RopeStoreOptions, WithoutKeysTheCacheIsUntouched) {
  for (const Ops* ops : RunnableOps()) {
    std::vector<float> q = q_, alone = q_;
    call_.q = q.data();
    call_.k = k_.data();
    Run(*ops);
    std::fill(stored_k_.begin(), stored_k_.end(), -7.0f);
    call_.q = alone.data();
    call_.k = nullptr;
    Run(*ops);
    EXPECT_EQ(alone, q) << ops->name;
    EXPECT_EQ(stored_k_, std::vector<float>(kDim, -7.0f)) << ops->name;
  }
}

TEST_F(RopeStoreOptions, QueriesGrowWithTheirPosition) {
  const QueryScale scale{0.5f, 25};
  EXPECT_EQ(scale.At(24), 1.0f);
  EXPECT_FLOAT_EQ(scale.At(25), 1.0f + 0.5f * std::log(2.0f));
  EXPECT_FLOAT_EQ(scale.At(kPosition), 1.0f + 0.5f * std::log(4.0f));
  EXPECT_FLOAT_EQ((QueryScale{0.5f, 25, 1}.At(24)), 1.0f + 0.5f * std::log(2.0f)) << "the 25th position";
  EXPECT_EQ((QueryScale{0.5f, 25, 1}.At(23)), 1.0f);
  for (const Ops* ops : RunnableOps()) {
    std::vector<float> q = q_, k = k_, scaled = q_;
    ops->rope(pool_, q.data(), k.data(), &kPosition_, 1, 2, 1, kDim, rope_);
    ops->scale(pool_, q.data(), scale.At(kPosition), 0.0f, 2 * kDim);
    call_.q = scaled.data();
    call_.query_scale = scale;
    Run(*ops);
    EXPECT_EQ(scaled, q) << ops->name;
    EXPECT_EQ(stored_k_, k) << ops->name;
  }
}

TEST(RowOps, Bf16RoundingOfOddValues) {
  ThreadPool pool(1, SystemClock());
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> odd = {0.0f, -0.0f, inf, -inf, std::nanf(""), 1.00390625f, 1.01171875f, 3.4e38f, 1e-40f, -1e-45f};
  odd.resize(16, 1.0f);
  for (const Ops* ops : RunnableOps()) {
    std::vector<uint16_t> k(16), v(16);
    const int64_t slot = 0;
    ops->store_kv(pool, odd.data(), odd.data(), &slot, 1, {k.data(), v.data(), DType::kBF16, 1, 1, 16});
    for (size_t i = 0; i < odd.size(); ++i) EXPECT_EQ(k[i], F32ToBF16(odd[i])) << ops->name << " " << odd[i];
  }
}

TEST(RowOps, LayerNormAgreesWithRefAndDependsOnItsRowAlone) {
  ThreadPool pool(2, SystemClock());
  constexpr int64_t kTokens = 9;
  for (const int64_t dim : {1, 7, 64, 100, 2048}) {
    std::vector<float> x = RandomFloats(kTokens * dim, 1);
    for (float& v : x) v += 3.0f;  // a mean that does not vanish
    const std::vector<float> weight = RandomFloats(dim, 2), bias = RandomFloats(dim, 3);
    for (const bool weighted : {true, false}) {
      const float *w = weighted ? weight.data() : nullptr, *b = weighted ? bias.data() : nullptr;
      std::vector<float> want(x.size()), got(x.size()), alone(static_cast<size_t>(dim));
      Ref().layer_norm(pool, x.data(), kTokens, dim, w, b, 1e-5f, want.data());
      for (const Ops* ops : RunnableOps()) {
        ops->layer_norm(pool, x.data(), kTokens, dim, w, b, 1e-5f, got.data());
        for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << ops->name << " dim " << dim;
        ops->layer_norm(pool, x.data() + 7 * dim, 1, dim, w, b, 1e-5f, alone.data());
        EXPECT_TRUE(SameBits(alone.data(), got.data() + 7 * dim, dim)) << ops->name << " dim " << dim;
      }
    }
  }
}

TEST(RowOps, EveryActivationAgreesWithRef) {
  ThreadPool pool(2, SystemClock());
  constexpr int64_t kCount = 1003;
  std::vector<float> gate = RandomFloats(kCount, 1, 12.0f);
  gate[0] = -200, gate[1] = 200, gate[2] = 0;
  const std::vector<float> up = RandomFloats(kCount, 2, 12.0f);
  for (const Activation f : {Activation::kSilu, Activation::kGeluErf, Activation::kGeluTanh, Activation::kRelu,
                             Activation::kRelu2, Activation::kClampedSwiglu}) {
    for (const bool gated : {true, false}) {
      if (!gated && f == Activation::kClampedSwiglu) continue;
      const float* const factor = gated ? up.data() : nullptr;
      std::vector<float> want(gate.size()), got(gate.size());
      Ref().activate(pool, f, gate.data(), factor, kCount, want.data());
      for (const Ops* ops : RunnableOps()) {
        ops->activate(pool, f, gate.data(), factor, kCount, got.data());
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], 2e-6 * std::fabs(want[i]) + 4e-7 * std::fabs(gated ? up[i] * gate[i] : gate[i]))
              << ops->name << " activation " << static_cast<int>(f) << " of " << gate[i];
        }
      }
    }
  }
}

TEST(RowOps, ScaleAndSoftcapAgreeWithRef) {
  ThreadPool pool(2, SystemClock());
  const std::vector<float> x = RandomFloats(517, 4, 90.0f);
  for (const float softcap : {0.0f, 30.0f}) {
    std::vector<float> want = x;
    Ref().scale(pool, want.data(), 0.75f, softcap, 517);
    for (const Ops* ops : RunnableOps()) {
      std::vector<float> got = x;
      ops->scale(pool, got.data(), 0.75f, softcap, 517);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << ops->name << " softcap " << softcap;
    }
  }
}

TEST(RowOps, SiluMulAndAddAgreeWithRefAtEveryElement) {
  ThreadPool pool(3, SystemClock());
  for (const int64_t n : {1, 3, 17, 1000, 40000}) {
    std::vector<float> gate = RandomFloats(n, 1, 20.0f);
    gate[0] = -200;
    if (n > 2) gate[1] = 200;
    const std::vector<float> up = RandomFloats(n, 2);
    std::vector<float> want(gate.size()), got(gate.size());
    Ref().activate(pool, Activation::kSilu, gate.data(), up.data(), n, want.data());
    for (const Ops* ops : RunnableOps()) {
      ops->activate(pool, Activation::kSilu, gate.data(), up.data(), n, got.data());
      for (int64_t i = 0; i < n; ++i)
        ASSERT_NEAR(got[i], want[i], 1e-6 * std::fabs(want[i]) + 1e-30) << ops->name << gate[i];
      float one;
      ops->activate(pool, Activation::kSilu, &gate[n - 1], &up[n - 1], 1, &one);
      EXPECT_TRUE(SameBits(&one, &got[n - 1], 1)) << ops->name;
      std::vector<float> sum = gate;
      ops->add(pool, sum.data(), up.data(), 1.0f, n);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], gate[i] + up[i]) << ops->name;
      sum = gate;
      ops->add(pool, sum.data(), up.data(), 0.5f, n);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], gate[i] + 0.5f * up[i]) << ops->name;
    }
  }
}

TEST(RowOps, NanStaysNan) {
  ThreadPool pool(1, SystemClock());
  const std::vector<float> gate(16, std::nanf("")), up(16, 1.0f);
  for (const Ops* ops : RunnableOps()) {
    std::vector<float> out(16);
    ops->activate(pool, Activation::kSilu, gate.data(), up.data(), 16, out.data());
    for (float v : out) EXPECT_TRUE(std::isnan(v)) << ops->name;
  }
}

TEST(SelectOps, SelectsByNameAndRefusesUnknownNames) {
  const auto sets = RunnableOps();
  ASSERT_GE(sets.size(), 2u);
  EXPECT_STREQ(sets[0]->name, "ref");
  EXPECT_STREQ(sets[1]->name, "scalar");
  for (const Ops* ops : sets) EXPECT_EQ(SelectOps(ops->name), ops);
  EXPECT_EQ(SelectOps("sse9"), nullptr);
  const char* before = std::getenv("TACTUS_KERNELS");
  const std::string saved = before != nullptr ? before : "";
  setenv("TACTUS_KERNELS", "scalar", 1);
  EXPECT_STREQ(SelectOps()->name, "scalar");
  setenv("TACTUS_KERNELS", "none such", 1);
  EXPECT_EQ(SelectOps(), nullptr);
  unsetenv("TACTUS_KERNELS");
  EXPECT_EQ(SelectOps(), sets.back());
  if (before != nullptr) setenv("TACTUS_KERNELS", saved.c_str(), 1);
}

TEST(WorkspaceDeathTest, ATooSmallWorkspaceStopsWithBothSizes) {
  ThreadPool pool(1, SystemClock());
  const testing::OwnedMatrix w = testing::RandomMatrix(DType::kF32, 4, 32, 1);
  const std::vector<float> x(32, 1.0f);
  std::vector<float> y(4);
  std::byte few[100];
  EXPECT_DEATH(SelectOps("scalar")->linear(pool, x.data(), 1, w.view, nullptr, y.data(), {few, 100}),
               "workspace has 100 bytes");
}

}  // namespace
}  // namespace tactus::compute
