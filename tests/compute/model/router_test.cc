// The choice of experts against hand-counted cases, and against a plain evaluation in double.
#include "compute/model/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace tactus::compute {
namespace {

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Choice RouteOnce(const RouterSpec& spec, const std::vector<float>& logits, const std::vector<float>& bias = {},
                 const std::vector<float>& scale = {}) {
  Choice choice;
  choice.experts.resize(static_cast<size_t>(spec.chosen));
  choice.weights.resize(static_cast<size_t>(spec.chosen));
  const auto experts = static_cast<int64_t>(logits.size());
  std::vector<float> scratch(static_cast<size_t>(RouteScratchBytes(experts)) / sizeof(float));
  Route(spec, experts, logits.data(), bias.empty() ? nullptr : bias.data(), scale.empty() ? nullptr : scale.data(),
        scratch.data(), choice.experts.data(), choice.weights.data());
  return choice;
}

void ExpectWeights(const Choice& choice, const std::vector<double>& expected) {
  ASSERT_EQ(choice.weights.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(choice.weights[i], expected[i], 1e-6) << "expert " << i;
}

double Sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

TEST(Router, ChosenExpertsAscendWithTheirOwnWeights) {
  RouterSpec spec;
  spec.chosen = 2;
  const Choice choice = RouteOnce(spec, {0.0f, 3.0f, 1.0f, 2.0f});
  EXPECT_EQ(choice.experts, (std::vector<int32_t>{1, 3}));
  const double sum = std::exp(0.0) + std::exp(3.0) + std::exp(1.0) + std::exp(2.0);
  ExpectWeights(choice, {std::exp(3.0) / sum, std::exp(2.0) / sum});
}

TEST(Router, ScalesOfExpertsFollowTheRenormalisation) {
  RouterSpec spec;
  spec.chosen = 2;
  spec.renormalise = true;
  const Choice choice = RouteOnce(spec, {0.0f, 3.0f, 1.0f, 2.0f}, {}, {9.0f, 0.5f, 9.0f, 4.0f});
  EXPECT_EQ(choice.experts, (std::vector<int32_t>{1, 3})) << "the scales choose nothing";
  const double first = 1.0 / (1.0 + std::exp(-1.0));
  ExpectWeights(choice, {0.5 * first, 4.0 * (1.0 - first)});
}

TEST(Router, RenormalisedSoftmaxEqualsTheSoftmaxOfTheChosen) {
  RouterSpec all, chosen;
  all.chosen = chosen.chosen = 3;
  all.renormalise = true;
  chosen.score = RouterScore::kChosenSoftmax;
  Rng rng(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> logits(16);
    for (float& l : logits) l = static_cast<float>(rng.UniformInt(-4000, 4000)) / 1000.0f;
    const Choice a = RouteOnce(all, logits), b = RouteOnce(chosen, logits);
    EXPECT_EQ(a.experts, b.experts);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(a.weights[i], b.weights[i], 1e-6);
    EXPECT_NEAR(std::accumulate(b.weights.begin(), b.weights.end(), 0.0), 1.0, 1e-6);
  }
}

TEST(Router, ChoiceBiasChangesTheChoiceAndNotTheWeights) {
  RouterSpec spec;
  spec.chosen = 1;
  spec.score = RouterScore::kSigmoid;
  spec.choice_bias = true;
  const Choice choice = RouteOnce(spec, {2.0f, 1.0f, 0.0f}, {0.0f, 0.0f, 0.9f});
  EXPECT_EQ(choice.experts, (std::vector<int32_t>{2}));
  ExpectWeights(choice, {Sigmoid(0.0)});
}

// Llama 4. Sigmoids of large logits are alike in f32.
TEST(Router, ChosenSigmoidComparesLogits) {
  RouterSpec spec;
  spec.chosen = 1;
  spec.score = RouterScore::kChosenSigmoid;
  const Choice large = RouteOnce(spec, {18.0f, 20.0f, 19.0f});
  EXPECT_EQ(large.experts, (std::vector<int32_t>{1}));
  ExpectWeights(large, {1.0});
  spec.chosen = 2;
  const Choice two = RouteOnce(spec, {-1.0f, 0.5f, -2.0f});
  EXPECT_EQ(two.experts, (std::vector<int32_t>{0, 1}));
  ExpectWeights(two, {Sigmoid(-1.0), Sigmoid(0.5)});
}

TEST(Router, ScaleMultipliesRenormalisedWeights) {
  RouterSpec spec;
  spec.chosen = 2;
  spec.score = RouterScore::kSigmoid;
  spec.renormalise = true;
  spec.scale = 2.5f;
  const Choice choice = RouteOnce(spec, {1.0f, -1.0f, 0.5f});
  EXPECT_EQ(choice.experts, (std::vector<int32_t>{0, 2}));
  const double sum = Sigmoid(1.0) + Sigmoid(0.5);
  ExpectWeights(choice, {2.5 * Sigmoid(1.0) / sum, 2.5 * Sigmoid(0.5) / sum});
}

// DeepSeek-V3, section 2.1.2: groups are ranked by the sum of their two best scores, not by their best one.
TEST(Router, GroupsAreRankedByTheirTwoBestScores) {
  RouterSpec spec;
  spec.chosen = 2;
  spec.score = RouterScore::kSigmoid;
  spec.groups = 2;
  spec.chosen_groups = 1;
  const Choice choice = RouteOnce(spec, {3.0f, -5.0f, -5.0f, 1.5f, 1.4f, -5.0f});
  EXPECT_EQ(choice.experts, (std::vector<int32_t>{3, 4}));
}

TEST(Router, AGroupOfOneExpertIsRankedByItsScore) {
  RouterSpec spec;
  spec.chosen = 2;
  spec.groups = 4;
  spec.chosen_groups = 2;
  EXPECT_EQ(RouteOnce(spec, {1.0f, 4.0f, 3.0f, 2.0f}).experts, (std::vector<int32_t>{1, 2}));
}

// Phi-3.5-MoE: the second weight is a softmax without the first expert, so both can be near 1.
TEST(Router, SparseMixerWeighsEachExpertAmongNearOnes) {
  RouterSpec spec;
  spec.chosen = 2;
  spec.score = RouterScore::kSparseMixer;
  const Choice far = RouteOnce(spec, {5.0f, 3.0f, 1.0f, 0.0f});
  EXPECT_EQ(far.experts, (std::vector<int32_t>{0, 1}));
  ExpectWeights(far, {1.0, 1.0});
  // (5 - 4.95) / 5 = 0.01 is within reach of the first; the second has no neighbour left.
  const Choice near = RouteOnce(spec, {5.0f, 4.95f, 1.0f, 0.0f});
  ExpectWeights(near, {1.0 / (1.0 + std::exp(-0.05)), 1.0});
}

TEST(Router, EqualScoresChooseTheLowerNumber) {
  RouterSpec spec;
  spec.chosen = 2;
  EXPECT_EQ(RouteOnce(spec, {1.0f, 2.0f, 2.0f, 2.0f}).experts, (std::vector<int32_t>{1, 2}));
}

TEST(Router, ChoosesNumbersOfExpertsEvenWhereLogitsAreNotNumbers) {
  RouterSpec spec;
  spec.chosen = 2;
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kChosenSoftmax, RouterScore::kChosenSigmoid}) {
    spec.score = score;
    for (const int32_t expert : RouteOnce(spec, {NAN, NAN, NAN}).experts) {
      EXPECT_GE(expert, 0);
      EXPECT_LT(expert, 3);
    }
  }
  spec.score = RouterScore::kSigmoid;
  EXPECT_EQ(RouteOnce(spec, {NAN, 1.0f, 2.0f}).experts, (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace tactus::compute
