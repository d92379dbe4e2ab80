// Attention of layers whose queries see a part of what comes before them.
#include "cost/attention_tables.h"

#include <gtest/gtest.h>

namespace tactus::cost {
namespace {

// Times that are sums of tokens and context.
class Sums final : public OperatorTimes {
 public:
  std::function<double(int64_t)> Gemm(const WeightFormat&, int64_t, int64_t) const override { return {}; }
  std::function<double(int64_t)> Experts(const WeightFormat&, const ExpertsShape&) const override { return {}; }
  double PrefillBaseNs(const AttentionShape&) const override { return 0; }
  double PrefillAddsNs(const AttentionShape&, double tokens, double context) const override { return tokens + context; }
  double PrefillAloneNs(const AttentionShape&, double tokens, double context) const override {
    return alone * (tokens + context);
  }
  double DecodeNs(const AttentionShape&, double batch, double context) const override { return batch + context; }
  double ElementwiseNs(Elementwise, double) const override { return 0; }
  double AllReduceNs(double, int32_t) const override { return 0; }
  double SendNs(double, int32_t) const override { return 0; }

  double alone = 1;
};

double PromptNs(const AttentionTables& tables, int32_t tokens, int32_t context) {
  const ChunkShape chunk{context, tokens};
  StepShape shape;
  shape.chunks = {&chunk, 1};
  return tables.Apart(shape).chunks_ns;
}
StepShape Decodes(int64_t decodes, int64_t context) {
  StepShape shape;
  shape.decodes = decodes;
  shape.decode_context_tokens = decodes * context;
  return shape;
}

TEST(VisibleSpan, TokensSeeWhatFitsIntoTheirChunkWithThem) {
  const VisibleSpan chunks{.chunk = 64};
  EXPECT_EQ(chunks.Seen(63), 63);
  EXPECT_EQ(chunks.Seen(1e6), 64);
  EXPECT_EQ(chunks.Seen(30, 10), 30);
  EXPECT_EQ(chunks.Seen(1e6, 10), 54);
  EXPECT_EQ(chunks.Seen(1e6, 100), 0);
  EXPECT_EQ((VisibleSpan{.window = 64}.Seen(1e6, 10)), 64);
  EXPECT_EQ(VisibleSpan().Seen(1e6, 10), 1e6);
}

// Counts of 2^n - 1 are points of the tables.
TEST(AttentionTables, PartsOfAPromptStayInTheirChunks) {
  const AttentionTables tables(Sums(), {}, {.chunk = 64});
  EXPECT_NEAR(PromptNs(tables, 31, 31), 31 + 31, 1e-6) << "within the first chunk";
  EXPECT_NEAR(PromptNs(tables, 31, 1023), 31 + 33, 1e-6) << "to the end of a chunk";
  EXPECT_NEAR(PromptNs(tables, 255, 0), 255, 1e-6) << "whole chunks without context";
  EXPECT_NEAR(PromptNs(tables, 255, 1023), 255, 1e-6);
  Sums slow;
  slow.alone = 5;
  EXPECT_NEAR(PromptNs(AttentionTables(slow, {}, {.chunk = 64}), 255, 0), 5 * 64 + (255 - 64), 1e-6);
  EXPECT_NEAR(tables.Apart(Decodes(7, 31)).decodes_ns, 7 + 31, 1e-6);
  EXPECT_NEAR(tables.Apart(Decodes(7, 1023)).decodes_ns, 7 + 64, 1e-6);
}

TEST(AttentionTables, ChunksCutOffSharedPrefixes) {
  StepShape step = Decodes(2, 1023);
  const PrefixShape prefix{.tokens = 512, .decodes = 2};
  step.prefixes = {&prefix, 1};
  EXPECT_TRUE(AttentionTables(Sums(), {}, {}).ReadsTogether(step));
  EXPECT_FALSE(AttentionTables(Sums(), {}, {.chunk = 64}).ReadsTogether(step));
  EXPECT_FALSE(AttentionTables(Sums(), {}, {.window = 64}).ReadsTogether(step));
}

}  // namespace
}  // namespace tactus::cost
