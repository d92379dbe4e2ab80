// Factors on operators' times: each affects only its own kind, and unreadable factors are refused.
#include "cost/scaled_operators.h"

#include <gtest/gtest.h>

#include "cost/cost_model.h"

namespace tactus::cost {
namespace {

// A separate time for every kind, so that a factor on the wrong kind shows.
struct Times final : OperatorTimes {
  std::function<double(int64_t)> Gemm(const WeightFormat&, int64_t, int64_t) const override {
    return [](int64_t m) { return static_cast<double>(m); };
  }
  std::function<double(int64_t)> Experts(const WeightFormat&, const ExpertsShape&) const override {
    return [](int64_t m) { return 23 * static_cast<double>(m); };
  }
  double PrefillBaseNs(const AttentionShape&) const override { return 2; }
  double PrefillAddsNs(const AttentionShape&, double, double) const override { return 3; }
  double PrefillAloneNs(const AttentionShape&, double, double) const override { return 5; }
  double DecodeNs(const AttentionShape&, double, double) const override { return 7; }
  double DecodeBesideChunkNs(const AttentionShape&, double, double) const override { return 11; }
  double ElementwiseNs(Elementwise, double) const override { return 13; }
  double AllReduceNs(double, int32_t) const override { return 17; }
  double ExchangeNs(double, int32_t, int32_t) const override { return 29; }
  double SendNs(double, int32_t) const override { return 19; }
};

std::vector<double> TimesUnder(const char* text) {
  const auto scale = ParseOperatorScale(text);
  EXPECT_TRUE(scale.ok()) << scale.status().message();
  const auto o = MakeScaled(*scale, std::make_unique<Times>());
  const AttentionShape shape;
  return {o->Gemm({}, 1, 1)(1),
          o->PrefillBaseNs(shape),
          o->PrefillAddsNs(shape, 1, 1),
          o->PrefillAloneNs(shape, 1, 1),
          o->DecodeNs(shape, 1, 1),
          o->DecodeBesideChunkNs(shape, 1, 1),
          o->ElementwiseNs(Elementwise::kNorm, 1),
          o->AllReduceNs(1, 2),
          o->SendNs(1, 2),
          o->ExchangeNs(1, 2, 1)};
}

TEST(ScaledOperators, EachFactorReachesItsKind) {
  EXPECT_EQ(TimesUnder(""), (std::vector<double>{1, 2, 3, 5, 7, 11, 13, 17, 19, 29}));
  EXPECT_EQ(TimesUnder("products=2"), (std::vector<double>{2, 2, 3, 5, 7, 11, 13, 17, 19, 29}));
  EXPECT_EQ(TimesUnder("prompt-attention=2"), (std::vector<double>{1, 4, 6, 10, 7, 11, 13, 17, 19, 29}));
  EXPECT_EQ(TimesUnder("decode-attention=2"), (std::vector<double>{1, 2, 3, 5, 14, 22, 13, 17, 19, 29}));
  EXPECT_EQ(TimesUnder("beside-chunk=2"), (std::vector<double>{1, 2, 3, 5, 7, 22, 13, 17, 19, 29}));
  EXPECT_EQ(TimesUnder("small=2"), (std::vector<double>{1, 2, 3, 5, 7, 11, 26, 17, 19, 29}));
  EXPECT_EQ(TimesUnder("network=2"), (std::vector<double>{1, 2, 3, 5, 7, 11, 13, 34, 38, 58}));
  EXPECT_EQ(TimesUnder("network=2,products=0.5"), (std::vector<double>{0.5, 2, 3, 5, 7, 11, 13, 34, 38, 58}));
}

TEST(ScaledOperators, UnreadableFactorsAreRefusedByName) {
  for (const char* text : {"gemm=2", "products", "products=", "products=0", "products=101", "products=-1",
                           "products=nan", "products=2x", "products=1,products=1", ",", "products=1,,network=2"}) {
    const auto scale = ParseOperatorScale(text);
    ASSERT_FALSE(scale.ok()) << text;
    EXPECT_EQ(scale.status().param(), "cost-scale") << text;
    EXPECT_NE(scale.status().message().find("prompt-attention"), std::string::npos) << scale.status().message();
  }
}

TEST(ScaledOperators, CostModelAppliesAndDescribesFactors) {
  Deployment deployment{.model = "yi-34b", .device = "a100", .tp = 2};
  const auto plain = CostModel::Create(deployment);
  deployment.scale.network = 3;
  const auto scaled = CostModel::Create(deployment);
  ASSERT_TRUE(plain.ok() && scaled.ok());
  StepShape step;
  step.decodes = 32;
  step.logit_rows = 32;
  step.decode_context_tokens = 32 * 4096;
  EXPECT_GT((*scaled)->StepTimeNs(step), (*plain)->StepTimeNs(step));
  EXPECT_NE((*scaled)->Describe().find("scaled: network x 3"), std::string::npos) << (*scaled)->Describe();
  EXPECT_EQ((*plain)->Describe().find("scaled"), std::string::npos) << (*plain)->Describe();
}

}  // namespace
}  // namespace tactus::cost
