// Attention by FlashInfer's lists: values of the reference in double and of our own units, for every form. The emulated
// device computes the lists in plain loops; a real one runs FlashInfer, in builds with it.
#include "compute/cuda/flashinfer_plan.h"
#include "cuda/kernels/attention_batch.h"

namespace tactus::compute::cuda {
namespace {

// As ToleranceOf in attention_test.cc. Partial results have 16 bits too, so a value below 4 is rounded once more, by at
// most 2^-7 in bf16.
double FlashInferTolerance(Real type) {
  return (type == Real::kBF16 ? 0x1p-8 : 0x1p-11) * 5.0;
}

class FlashInferTest : public DeviceTest {
 protected:
  void SetUp() override {
    if (!HasFlashInfer()) GTEST_SKIP() << "this build has no FlashInfer (TACTUS_FLASHINFER)";
    DeviceTest::SetUp();
  }

  // The values, and the plan that computed them. `padded` > 0: as many items, and as many tokens.
  struct Computed {
    std::vector<float> values;  // [tokens, heads * head_dim]
    std::vector<uint16_t> bits;
    FlashInferPlan plan;
  };
  static Computed Compute(const BatchShape& shape, const std::vector<BatchItem>& items, bool batch_invariant,
                          int32_t multiprocessors = 4, int64_t padded = 0) {
    return shape.type == Real::kBF16 ? Run<bf16>(shape, items, batch_invariant, multiprocessors, padded)
                                     : Run<f16>(shape, items, batch_invariant, multiprocessors, padded);
  }

  static void ExpectReference(BatchShape shape, const std::vector<BatchItem>& items) {
    shape.kv_type = shape.type == Real::kBF16 ? KvType::kBF16 : KvType::kF16;
    const std::vector<double> expected = BatchData(shape, items).Reference();
    const BatchResult ours = Batch(shape, items).Run(4);
    for (const bool batch_invariant : {true, false}) {
      const Computed computed = Compute(shape, items, batch_invariant);
      ASSERT_EQ(computed.values.size(), expected.size());
      double error = 0, difference = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double off = std::abs(computed.values[i] - expected[i]);
        error = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(error, off);
        difference = std::max<double>(difference, std::abs(computed.values[i] - ours.values[i]));
      }
      const double tolerance = FlashInferTolerance(shape.type);
      EXPECT_LT(error, tolerance) << "group " << shape.heads / shape.kv_heads << ", head_dim " << shape.head_dim
                                  << ", batch invariance " << batch_invariant << ", type "
                                  << static_cast<int>(shape.type);
      EXPECT_LT(difference, 2 * tolerance) << "from our attention";
    }
  }

 private:
  template <class T>
  static Computed Run(const BatchShape& shape, const std::vector<BatchItem>& items, bool batch_invariant,
                      int32_t multiprocessors, int64_t padded) {
    const BatchData data(shape, items);
    Computed computed;
    FlashInferPlan& plan = computed.plan;
    const int64_t max_partials = 200;
    PlanFlashInfer(data.rows, data.tables,
                   {.heads = shape.heads,
                    .kv_heads = shape.kv_heads,
                    .head_dim = shape.head_dim,
                    .block_size = shape.block_size,
                    .multiprocessors = multiprocessors,
                    .batch_invariant = batch_invariant,
                    .max_partials = max_partials},
                   &plan);
    if (padded > 0) PadFlashInferPlan(padded, &plan);
    const int64_t tokens = std::max(data.tokens, padded);
    const Buffer<T> q(Rounded<T>(data.q)), out(tokens * data.QWidth());
    const Buffer<T> k(Rounded<T>(data.k)), v(Rounded<T>(data.v));
    const Buffer<float> partials(max_partials * shape.heads * (shape.head_dim / 2 + 1));
    const Lists lists(plan);
    FlashInferCall call;
    lists.Fill(plan, &call);
    call.q = q.data();
    call.out = out.data();
    call.q_stride = data.QWidth() + shape.q_gap;
    call.type = shape.type;
    call.heads = shape.heads;
    call.scale = data.Scale();
    call.tokens = tokens;
    call.partials = partials.data();
    call.max_partials = max_partials;
    KvPages kv;
    kv.k = k.data();
    kv.v = v.data();
    kv.type = shape.kv_type;
    kv.blocks = data.blocks;
    kv.block_size = shape.block_size;
    kv.kv_heads = shape.kv_heads;
    kv.head_dim = shape.head_dim;
    AttendByFlashInfer(TestStream(), call, kv);
    for (const T& value : out.Read()) {
      computed.values.push_back(ToFloat(value));
      std::memcpy(&computed.bits.emplace_back(), &value, sizeof(uint16_t));
    }
    computed.values.resize(static_cast<size_t>(data.tokens * data.QWidth()));
    computed.bits.resize(computed.values.size());
    return computed;
  }

  class Lists {
   public:
    explicit Lists(const FlashInferPlan& p)
        : first_token_(p.first_token),
          first_page_(p.first_page),
          pages_(p.pages),
          last_page_tokens_(p.last_page_tokens),
          kv_chunk_(p.kv_chunk),
          first_partial_(OrOne(p.first_partial)),
          first_of_token_(OrOne(p.first_of_token)),
          decodes_(p.decodes),
          chunks_(p.chunks) {}
    void Fill(const FlashInferPlan& p, FlashInferCall* call) const {
      call->items = std::ssize(p.last_page_tokens);
      call->first_token = first_token_.data();
      call->first_page = first_page_.data();
      call->pages = pages_.data();
      call->last_page_tokens = last_page_tokens_.data();
      call->kv_chunk = kv_chunk_.data();
      call->first_partial = first_partial_.data();
      call->first_of_token = first_of_token_.data();
      decodes_.Fill(p.decodes, &call->decodes);
      chunks_.Fill(p.chunks, &call->chunks);
    }

   private:
    template <class E>
    static std::vector<E> OrOne(const std::vector<E>& list) {
      return list.empty() ? std::vector<E>(1) : list;
    }
    class Units {
     public:
      explicit Units(const FlashInferPlan::Units& u)
          : items_(OrOne(u.items)), q_tiles_(OrOne(u.q_tiles)), kv_tiles_(OrOne(u.kv_tiles)), valid_(OrOne(u.valid)) {}
      void Fill(const FlashInferPlan::Units& from, FlashInferUnits* to) const {
        *to = {.items = items_.data(),
               .q_tiles = q_tiles_.data(),
               .kv_tiles = kv_tiles_.data(),
               .valid = reinterpret_cast<const bool*>(valid_.data()),
               .count = std::ssize(from.items),
               .tile_rows = from.tile_rows,
               .split = from.split};
      }

     private:
      const Buffer<int32_t> items_, q_tiles_, kv_tiles_;
      const Buffer<uint8_t> valid_;
    };
    const Buffer<int32_t> first_token_, first_page_, pages_, last_page_tokens_, kv_chunk_;
    const Buffer<int32_t> first_partial_, first_of_token_;
    const Units decodes_, chunks_;
  };
};
TACTUS_DEVICE_TESTS(FlashInferTest);

// Decodes, drafts and chunks around the borders of pages, tiles and chunks of positions.
std::vector<BatchItem> MixedWork() {
  return {{.first = 0, .sequence = 1},
          {.first = 70, .count = 33, .sequence = 2},
          {.first = 600, .sequence = 3},
          {.first = 255, .count = 3, .sequence = 4},
          {.first = 0, .count = 20, .sequence = 5},
          {.first = 511, .sequence = 6}};
}
std::vector<BatchItem> DecodesAlone() {
  return {{.first = 15, .sequence = 1}, {.first = 16, .sequence = 2}, {.first = 700, .sequence = 3}};
}

TEST_P(FlashInferTest, MixedStepsMatchReferenceAndOurAttention) {
  for (const int32_t group : {1, 4, 8}) {
    ExpectReference({.heads = 2 * group, .kv_heads = 2, .head_dim = 64}, MixedWork());
  }
  ExpectReference({.heads = 4, .kv_heads = 2, .head_dim = 64, .type = Real::kF16}, MixedWork());
}

TEST_P(FlashInferTest, DecodesAloneMatchReferenceAndOurAttention) {
  for (const int32_t group : {1, 2, 3, 4, 8}) {
    ExpectReference({.heads = 2 * group, .kv_heads = 2, .head_dim = 64}, DecodesAlone());
  }
  ExpectReference({.heads = 4, .kv_heads = 1, .head_dim = 64, .type = Real::kF16}, DecodesAlone());
}

TEST_P(FlashInferTest, HeadDimensionsAndBlockSizesMatchReference) {
  for (const int32_t head_dim : {128, 256}) {
    ExpectReference({.heads = 2, .kv_heads = 1, .head_dim = head_dim}, {{.first = 290}, {.first = 50, .count = 40}});
  }
  for (const int32_t block_size : {1, 8, 64}) {
    ExpectReference({.heads = 2, .kv_heads = 1, .head_dim = 64, .block_size = block_size},
                    {{.first = 300}, {.first = 60, .count = 10, .sequence = 1}});
  }
  ExpectReference({.heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.2f, .q_gap = 64}, MixedWork());
}

TEST_P(FlashInferTest, SplitsOfDecodesAreComputed) {
  const BatchShape shape{.heads = 4, .kv_heads = 2, .head_dim = 64};
  EXPECT_TRUE(Compute(shape, DecodesAlone(), false).plan.decodes.split) << "the tests above compute no split";
  EXPECT_TRUE(Compute(shape, MixedWork(), false).plan.decodes.split) << "the tests above compute no split";
}

// A sequence's tokens have the bits that each has alone, as a decode, in a chunk and beside others.
TEST_P(FlashInferTest, WithBatchInvarianceTokensDoNotDependOnTheBatch) {
  const BatchShape shape{.heads = 6, .kv_heads = 2, .head_dim = 64};
  const auto bits_of = [&](const std::vector<BatchItem>& items, int64_t token) {
    const Computed computed = Compute(shape, items, true);
    const auto width = static_cast<int64_t>(shape.heads) * shape.head_dim;
    return std::vector<uint16_t>(computed.bits.begin() + token * width, computed.bits.begin() + (token + 1) * width);
  };
  for (const int32_t position : {250, 299, 319}) {
    const auto alone = bits_of({{.first = position, .sequence = 1}}, 0);
    EXPECT_EQ(bits_of({{.first = 250, .count = 70, .sequence = 1}}, position - 250), alone) << position;
    EXPECT_EQ(bits_of({{.first = 9, .count = 40, .sequence = 2},
                       {.first = 245, .count = 75, .sequence = 1},
                       {.first = 600, .sequence = 3}},
                      40 + position - 245),
              alone)
        << position;
  }
}

TEST_P(FlashInferTest, PaddedListsChangeNoBit) {
  const BatchShape shape{.heads = 4, .kv_heads = 2, .head_dim = 64};
  for (const bool batch_invariant : {true, false}) {
    const Computed plain = Compute(shape, DecodesAlone(), batch_invariant);
    EXPECT_EQ(Compute(shape, DecodesAlone(), batch_invariant, 4, 5).bits, plain.bits);
  }
}

}  // namespace
}  // namespace tactus::compute::cuda
