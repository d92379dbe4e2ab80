// RopeAndStore against the CPU's set "ref", whose K and V in f32 have the layout of the device's pages, and CopyPages.
#include "compute/cuda/kernels/rope_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "compute/kernels/ops.h"
#include "row_testing.h"

namespace tactus::compute::cuda::rope_store_test {
namespace {

class RopeStoreTest : public DeviceTest {};
TACTUS_DEVICE_TESTS(RopeStoreTest);

struct Case {
  int32_t heads = 4, kv_heads = 2, head_dim = 64, block_size = 16;
  int32_t rotary_dim = 64;  // 0: no rotation
  bool interleaved = false;
  float attention_scale = 1.0f;
  bool qk_norm = false, norm_weights = true, norms_last = false, v_norm = false;
  float query_beta = 0.0f;
  int64_t query_length = 0, query_offset = 0;
  bool v_is_k = false, stores = true;
  std::vector<int32_t> positions = {0, 5, 1000, 131071, 1048575};
};

constexpr float kEps = 1e-5f;

// The inputs of a case, as columns of one buffer: q, k and v of a token follow one another, then `gap` values.
struct Inputs {
  Inputs(const Case& c, int64_t gap) : q_width(c.heads * c.head_dim), kv_width(c.kv_heads * c.head_dim) {
    width = q_width + 2 * kv_width + gap;
    rows = Normals(width * static_cast<int64_t>(c.positions.size()), 1, 2.0);
    for (int64_t i = 0; i < c.rotary_dim / 2; ++i) {
      inv_freq.push_back(static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / c.rotary_dim)));
    }
    q_norm = Normals(c.head_dim, 2);
    k_norm = Normals(c.head_dim, 3);
    // Slots in no order, over 6 blocks.
    for (size_t t = 0; t < c.positions.size(); ++t) {
      slots.push_back(static_cast<int64_t>((t * 29 + 11) % static_cast<size_t>(6 * c.block_size)));
    }
  }
  int64_t q_width, kv_width, width;
  std::vector<float> rows, inv_freq, q_norm, k_norm;
  std::vector<int64_t> slots;
};

struct Pages {
  std::vector<float> k, v;  // of 6 blocks; NaN where nothing is stored
};

// `rows` becomes what q is afterwards.
Pages Reference(const Case& c, const Inputs& in, std::vector<float>* rows) {
  ThreadPool pool(1, SystemClock());
  const auto elements = static_cast<size_t>(6 * c.block_size * in.kv_width);
  Pages pages{std::vector<float>(elements, std::nanf("")), std::vector<float>(elements, std::nanf(""))};
  const std::vector<float> before = *rows;
  RopeStoreCall call;
  call.q = rows->data();
  call.k = c.stores ? before.data() + in.q_width : nullptr;
  call.v = c.v_is_k ? call.k : before.data() + in.q_width + in.kv_width;
  call.q_stride = call.k_stride = call.v_stride = in.width;
  call.positions = c.positions.data();
  call.slots = in.slots.data();
  call.tokens = static_cast<int64_t>(c.positions.size());
  call.heads = c.heads;
  call.rope = {in.inv_freq.data(), c.attention_scale, c.rotary_dim, c.interleaved};
  call.qk_norm = c.qk_norm;
  call.q_norm = c.norm_weights ? in.q_norm.data() : nullptr;
  call.k_norm = c.norm_weights ? in.k_norm.data() : nullptr;
  call.norms_last = c.norms_last;
  call.v_norm = c.v_norm;
  call.eps = kEps;
  call.query_scale = {c.query_beta, c.query_length, c.query_offset};
  const KvLayer kv{pages.k.data(), pages.v.data(), DType::kF32, c.block_size, c.kv_heads, c.head_dim};
  RunnableOps().front()->rope_store(pool, call, kv);
  return pages;
}

// The Hadamard matrix of the largest power of two in `dim`, over its root, times each piece of that many values.
std::vector<double> Spread(const std::vector<double>& x, int64_t dim) {
  const int64_t n = dim & -dim;
  std::vector<double> out(x.size());
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(n)) {
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      double sum = 0.0;
      for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
        sum += (__builtin_popcountll(i & j) % 2 == 0 ? 1.0 : -1.0) * x[first + j];
      }
      out[first + i] = sum / std::sqrt(static_cast<double>(n));
    }
  }
  return out;
}

template <class Kv>
constexpr KvType KvTypeOf() {
  return std::is_same_v<Kv, float>    ? KvType::kF32
         : std::is_same_v<Kv, bf16>   ? KvType::kBF16
         : std::is_same_v<Kv, f16>    ? KvType::kF16
         : std::is_same_v<Kv, int8_t> ? KvType::kInt8
                                      : KvType::kFp8;
}

std::vector<double> Doubles(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

// Stored values against the reference; where it has NaN nothing was stored, and `got` is as it was.
template <class Kv>
void ExpectStored(const std::vector<Kv>& got, const std::vector<float>& scales, const std::vector<float>& want,
                  int32_t head_dim, bool spreads) {
  if constexpr (!std::is_same_v<Kv, int8_t>) {
    for (size_t i = 0; i < want.size(); ++i) {
      const float value = ToFloat(got[i]);
      if (std::isnan(want[i])) {
        ASSERT_EQ(value, 1.0f) << i;
      } else if (std::is_same_v<Kv, e4m3>) {  // values near a tie may be rounded to either side
        const double expected = std::clamp(static_cast<double>(want[i]), -448.0, 448.0);
        ASSERT_NEAR(static_cast<double>(value), expected, std::abs(expected) * 0x1.01p-4 + 0x1p-10) << i;
      } else {
        ASSERT_NEAR(static_cast<double>(value), static_cast<double>(want[i]),
                    std::abs(want[i]) * ToleranceOf<Kv>() + 3e-6)
            << i;
      }
    }
  } else {
    const auto dim = static_cast<size_t>(head_dim);
    for (size_t row = 0; row < scales.size(); ++row) {
      if (std::isnan(want[row * dim])) {
        ASSERT_EQ(scales[row], 1.0f) << row;
        continue;
      }
      std::vector<double> head = Doubles(Part(want, static_cast<int64_t>(row * dim), head_dim));
      if (spreads) head = Spread(head, head_dim);
      double largest = 0.0;
      for (const double x : head) largest = std::max(largest, std::abs(x));
      const auto scale = static_cast<double>(scales[row]);
      ASSERT_NEAR(scale, largest / 127.0, largest * 1e-6) << row;
      for (size_t d = 0; d < dim; ++d) {
        ASSERT_NEAR(got[row * dim + d] * scale, head[d], scale * 0.5001 + 1e-6) << row << " " << d;
      }
    }
  }
}

template <class T, class Kv>
void Check(Stream& s, const Case& c, int64_t gap = 8) {
  Inputs in(c, gap);
  const std::vector<T> rows = Rounded<T>(in.rows);
  in.rows = Floats(rows);
  std::vector<float> turned = in.rows;
  const Pages want = Reference(c, in, &turned);
  const auto elements = static_cast<int64_t>(want.k.size()), positions = elements / c.head_dim;
  const Buffer<T> all(rows);
  const Buffer<Kv> k(std::vector<Kv>(static_cast<size_t>(elements), FromFloat<Kv>(1.0f))), v(k.Read());
  const Buffer<float> k_scales(std::vector<float>(static_cast<size_t>(positions), 1.0f)), v_scales(k_scales.Read());
  const Buffer<float> inv_freq(in.inv_freq), q_norm(in.q_norm), k_norm(in.k_norm);
  const Buffer<int32_t> at(c.positions);
  const Buffer<int64_t> slots(in.slots);
  RopeStore call;
  call.q = all.data();
  call.k = c.stores ? all.data() + in.q_width : nullptr;
  call.v = c.v_is_k ? call.k : all.data() + in.q_width + in.kv_width;
  call.q_stride = call.k_stride = call.v_stride = in.width;
  call.type = RealOf<T>();
  call.positions = at.data();
  call.slots = slots.data();
  call.tokens = static_cast<int64_t>(c.positions.size());
  call.heads = c.heads;
  call.inv_freq = c.rotary_dim > 0 ? inv_freq.data() : nullptr;
  call.attention_scale = c.attention_scale;
  call.rotary_dim = c.rotary_dim;
  call.interleaved = c.interleaved;
  call.qk_norm = c.qk_norm;
  call.q_norm = c.norm_weights ? q_norm.data() : nullptr;
  call.k_norm = c.norm_weights ? k_norm.data() : nullptr;
  call.norms_last = c.norms_last;
  call.v_norm = c.v_norm;
  call.eps = kEps;
  call.query_beta = c.query_beta;
  call.query_length = c.query_length;
  call.query_offset = c.query_offset;
  const KvPages kv{k.data(), v.data(),     k_scales.data(), v_scales.data(), KvTypeOf<Kv>(),
                   6,        c.block_size, c.kv_heads,      c.head_dim};
  RopeAndStore(s, call, kv);

  std::vector<double> q = Doubles(turned);
  if (std::is_same_v<Kv, int8_t>) {
    for (size_t t = 0; t < c.positions.size(); ++t) {
      const auto first = q.begin() + static_cast<int64_t>(t) * in.width;
      const std::vector<double> spread = Spread({first, first + in.q_width}, c.head_dim);
      std::copy(spread.begin(), spread.end(), first);
    }
  }
  ExpectNear(all.Read(), q, 3e-6);
  ExpectStored(k.Read(), k_scales.Read(), want.k, c.head_dim, true);
  ExpectStored(v.Read(), v_scales.Read(), want.v, c.head_dim, false);
}

// Every option, and sizes that are and are not multiples of what a lane or a warp has.
std::vector<Case> Cases() {
  std::vector<Case> cases(14);
  cases[1].interleaved = true;
  cases[2].head_dim = 128, cases[2].rotary_dim = 128, cases[2].qk_norm = true;
  cases[3].head_dim = 80, cases[3].rotary_dim = 20, cases[3].qk_norm = true, cases[3].norms_last = true;
  cases[4].head_dim = 96, cases[4].rotary_dim = 32, cases[4].interleaved = true, cases[4].v_norm = true;
  cases[5].qk_norm = true, cases[5].norm_weights = false, cases[5].v_norm = true;
  cases[6].attention_scale = 1.3f, cases[6].query_beta = 0.1f, cases[6].query_length = 8192;
  cases[7].query_beta = 0.2f, cases[7].query_length = 1000, cases[7].query_offset = 1, cases[7].rotary_dim = 0;
  cases[8].v_is_k = true, cases[8].v_norm = true, cases[8].qk_norm = true;
  cases[9].stores = false, cases[9].qk_norm = true;
  cases[10].head_dim = 20, cases[10].rotary_dim = 6;  // no vectors
  cases[11].heads = 33, cases[11].kv_heads = 11, cases[11].block_size = 32, cases[11].positions = {77};
  cases[12].heads = 2, cases[12].kv_heads = 1, cases[12].head_dim = 512, cases[12].rotary_dim = 256;
  cases[13].head_dim = 256, cases[13].rotary_dim = 256, cases[13].qk_norm = true, cases[13].norms_last = true;
  return cases;
}

TEST_P(RopeStoreTest, EveryOptionMatchesTheReference) {
  const std::vector<Case> cases = Cases();
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    Check<float, float>(stream(), cases[i]);
    Check<float, int8_t>(stream(), cases[i]);
    Check<bf16, bf16>(stream(), cases[i]);
  }
}

TEST_P(RopeStoreTest, EveryTypeMatchesTheReference) {
  for (const int32_t head_dim : {64, 20}) {
    Case c;
    c.head_dim = head_dim, c.rotary_dim = 16, c.positions = {3, 70000};
    ForTypes([&](auto value) {
      using T = decltype(value);
      Check<T, float>(stream(), c);
      Check<T, bf16>(stream(), c);
      Check<T, f16>(stream(), c);
      Check<T, int8_t>(stream(), c);
      Check<T, e4m3>(stream(), c);
    });
  }
}

TEST_P(RopeStoreTest, RowsNeedNoAlignment) {
  Check<bf16, bf16>(stream(), Case{}, 3);
  Check<float, int8_t>(stream(), Case{}, 1);
}

// Angles are exact in f32 at any position, so a rotation there is as exact as near 0.
TEST_P(RopeStoreTest, LargeAnglesAreExact) {
  Case c;
  c.heads = c.kv_heads = 1, c.head_dim = c.rotary_dim = 32;
  c.positions.clear();
  for (int32_t i = 0; i < 300; ++i) c.positions.push_back(1048575 - 3491 * i);
  Inputs in(c, 0);
  std::fill(in.rows.begin(), in.rows.end(), 0.0f);
  for (size_t t = 0; t < c.positions.size(); ++t) {
    std::fill_n(in.rows.begin() + static_cast<int64_t>(t) * in.width, 16, 1.0f);
  }
  std::vector<float> turned = in.rows;
  c.stores = false;
  Reference(c, in, &turned);
  const Buffer<float> rows(in.rows), inv_freq(in.inv_freq), pages(static_cast<int64_t>(1));
  const Buffer<int32_t> positions(c.positions);
  RopeStore call;
  call.q = rows.data();
  call.q_stride = in.width;
  call.type = Real::kF32;
  call.positions = positions.data();
  call.tokens = 300;
  call.heads = 1;
  call.inv_freq = inv_freq.data();
  call.rotary_dim = 32;
  RopeAndStore(stream(), call, {.type = KvType::kF32, .kv_heads = 1, .head_dim = 32});
  ExpectNear(rows.Read(), Doubles(turned), 2.5e-7, 0.0);
}

TEST_P(RopeStoreTest, TokensDoNotDependOnOthers) {
  Case c;
  c.qk_norm = true;
  Inputs in(c, 0);
  const Buffer<float> inv_freq(in.inv_freq), norm(in.q_norm);
  std::vector<std::vector<bf16>> k(2), q(2);
  for (const bool alone : {false, true}) {
    const int64_t tokens = alone ? 1 : 5, first = alone ? 3 : 0;
    const Buffer<bf16> rows(Rounded<bf16>(Part(in.rows, first * in.width, tokens * in.width)));
    const Buffer<bf16> pages(std::vector<bf16>(static_cast<size_t>(6 * 16 * in.kv_width))), v(pages.Read());
    const Buffer<int32_t> positions(Part(c.positions, first, tokens));
    const Buffer<int64_t> slots(Part(in.slots, first, tokens));
    RopeStore call;
    call.q = rows.data(), call.k = rows.data() + in.q_width, call.v = rows.data() + in.q_width + in.kv_width;
    call.q_stride = call.k_stride = call.v_stride = in.width;
    call.positions = positions.data(), call.slots = slots.data();
    call.tokens = tokens, call.heads = c.heads;
    call.inv_freq = inv_freq.data(), call.rotary_dim = c.rotary_dim;
    call.qk_norm = true, call.q_norm = norm.data(), call.k_norm = norm.data();
    RopeAndStore(stream(), call,
                 {.k = pages.data(), .v = v.data(), .blocks = 6, .kv_heads = c.kv_heads, .head_dim = c.head_dim});
    q[alone ? 1 : 0] = Part(rows.Read(), (3 - first) * in.width, in.q_width);
    const int64_t slot = in.slots[3];
    k[alone ? 1 : 0] = Part(pages.Read(), (slot / 16 * 2 * 16 + slot % 16) * 64, 64);
  }
  EXPECT_TRUE(SameBits(q[0], q[1]));
  EXPECT_TRUE(SameBits(k[0], k[1]));
}

TEST_P(RopeStoreTest, RowsWithoutSlotStoreNothing) {
  Case c;
  const Inputs in(c, 0);
  const Buffer<float> inv_freq(in.inv_freq);
  const Buffer<int32_t> positions(c.positions);
  std::vector<std::vector<bf16>> q, pages;
  for (const int64_t tokens : {5, 2}) {  // the last three have no slot, or are not there
    const Buffer<bf16> rows(Rounded<bf16>(in.rows));
    const Buffer<bf16> k(std::vector<bf16>(static_cast<size_t>(6 * 16 * in.kv_width))), v(k.Read());
    const Buffer<int64_t> slots({in.slots[0], in.slots[1], -1, -1, -1});
    RopeStore call;
    call.q = rows.data(), call.k = rows.data() + in.q_width, call.v = rows.data() + in.q_width + in.kv_width;
    call.q_stride = call.k_stride = call.v_stride = in.width;
    call.positions = positions.data(), call.slots = slots.data();
    call.tokens = tokens, call.heads = c.heads;
    call.inv_freq = inv_freq.data(), call.rotary_dim = c.rotary_dim;
    RopeAndStore(stream(), call,
                 {.k = k.data(), .v = v.data(), .blocks = 6, .kv_heads = c.kv_heads, .head_dim = c.head_dim});
    q.push_back(Part(rows.Read(), 0, 2 * in.width));
    for (const Buffer<bf16>* part : {&k, &v}) pages.push_back(part->Read());
  }
  EXPECT_TRUE(SameBits(q[0], q[1]));
  EXPECT_TRUE(SameBits(pages[0], pages[2]));
  EXPECT_TRUE(SameBits(pages[1], pages[3]));
}

TEST_P(RopeStoreTest, Int8StatesZeroAndNotFiniteHeads) {
  const int32_t dim = 32;
  std::vector<float> heads(3 * dim, 0.0f);
  heads[dim + 4] = std::numeric_limits<float>::infinity();
  heads[2 * dim + 31] = std::nanf("");
  const Buffer<float> q(std::vector<float>(3 * dim, 1.0f)), k(heads);
  const Buffer<int8_t> k_pages(std::vector<int8_t>(16 * dim, 7)), v_pages(k_pages.Read());
  const Buffer<float> k_scales(std::vector<float>(16, 1.0f)), v_scales(k_scales.Read());
  const Buffer<int32_t> positions({0, 1, 2});
  const Buffer<int64_t> slots({0, 1, 2});
  RopeStore call;
  call.q = q.data(), call.k = k.data(), call.v = k.data();
  call.q_stride = call.k_stride = call.v_stride = dim;
  call.type = Real::kF32;
  call.positions = positions.data(), call.slots = slots.data();
  call.tokens = 3, call.heads = 1;
  RopeAndStore(stream(), call,
               {.k = k_pages.data(),
                .v = v_pages.data(),
                .k_scales = k_scales.data(),
                .v_scales = v_scales.data(),
                .type = KvType::kInt8,
                .blocks = 1,
                .kv_heads = 1,
                .head_dim = dim});
  for (const Buffer<float>* scales : {&k_scales, &v_scales}) {
    const std::vector<float> got = scales->Read();
    EXPECT_EQ(got[0], 0.0f);
    EXPECT_TRUE(std::isnan(got[1]));
    EXPECT_TRUE(std::isnan(got[2]));
  }
  for (const Buffer<int8_t>* pages : {&k_pages, &v_pages}) {
    EXPECT_EQ(Part(pages->Read(), 0, 3 * dim), std::vector<int8_t>(3 * dim, 0));
  }
}

TEST_P(RopeStoreTest, CopyPagesCopiesInOrder) {
  // Block 1 is a source before it is a target.
  const std::vector<int32_t> pairs = {1, 3, 0, 1, 4, 2};
  const Buffer<int32_t> list(pairs);
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kInt8}) {
    for (const int32_t head_dim : {3, 40}) {
      const int32_t block_size = head_dim == 3 ? 2 : 16, kv_heads = head_dim == 3 ? 1 : 3;
      const int64_t positions = kv_heads * block_size, bytes = positions * head_dim * SizeOf(type);
      std::vector<uint8_t> k(static_cast<size_t>(5 * bytes)), v = k;
      for (size_t i = 0; i < k.size(); ++i) {
        k[i] = static_cast<uint8_t>(i * 7 + i / 251);
        v[i] = static_cast<uint8_t>(k[i] + 100);
      }
      std::vector<float> k_scales = Normals(5 * positions, 1), v_scales = Normals(5 * positions, 2);
      const Buffer<uint8_t> k_pages(k), v_pages(v);
      const Buffer<float> k_list(k_scales), v_list(v_scales);
      CopyPages(
          stream(), list.data(), 3,
          {k_pages.data(), v_pages.data(), k_list.data(), v_list.data(), type, 5, block_size, kv_heads, head_dim});
      for (size_t i = 0; i < pairs.size(); i += 2) {
        const int64_t from = pairs[i], to = pairs[i + 1];
        std::copy_n(k.begin() + from * bytes, bytes, k.begin() + to * bytes);
        std::copy_n(v.begin() + from * bytes, bytes, v.begin() + to * bytes);
        if (type != KvType::kInt8) continue;
        std::copy_n(k_scales.begin() + from * positions, positions, k_scales.begin() + to * positions);
        std::copy_n(v_scales.begin() + from * positions, positions, v_scales.begin() + to * positions);
      }
      EXPECT_EQ(k_pages.Read(), k);
      EXPECT_EQ(v_pages.Read(), v);
      EXPECT_EQ(k_list.Read(), k_scales);
      EXPECT_EQ(v_list.Read(), v_scales);
    }
  }
}

}  // namespace
}  // namespace tactus::compute::cuda::rope_store_test
