// Mixtures of experts on the device: the choice of experts against the CPU's, grouping, products and their sum.
#include <limits>
#include <numeric>

#include "compute/cuda/kernels/experts.h"
#include "compute/model/expert_rows.h"
#include "compute/model/router.h"
#include "cuda/kernels/product_cases.h"

namespace tactus::compute::cuda {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

class RouterTest : public DeviceTest {
 protected:
  struct Rows {
    std::vector<int32_t> chosen, first, token, row;
    std::vector<float> weights, row_weights;
  };
  struct Biases {
    std::vector<float> choice, scale;  // empty: none
  };
  Rows Run(const RouterSpec& spec, int64_t experts, const std::vector<float>& logits, const Biases& biases) {
    const auto tokens = static_cast<int64_t>(logits.size()) / experts, rows = tokens * spec.chosen;
    const Buffer<float> in(logits), weights(rows), row_weights(rows);
    const Buffer<float> choice(biases.choice.empty() ? std::vector<float>(1) : biases.choice);
    const Buffer<float> scale(biases.scale.empty() ? std::vector<float>(1) : biases.scale);
    const Buffer<int32_t> chosen(rows), first(experts + 1), token(rows), row(rows);
    RouteTokens(stream(), spec, experts, in.data(), biases.choice.empty() ? nullptr : choice.data(),
                biases.scale.empty() ? nullptr : scale.data(), tokens,
                {chosen.data(), weights.data(), first.data(), token.data(), row.data(), row_weights.data()});
    return {chosen.Read(), first.Read(), token.Read(), row.Read(), weights.Read(), row_weights.Read()};
  }

  // The same experts as Route of the CPU, weights but for the last places, and rows as ExpertRows groups them.
  void Check(const RouterSpec& spec, int64_t experts, const std::vector<float>& logits, const Biases& biases = {}) {
    SCOPED_TRACE("score " + std::to_string(static_cast<int>(spec.score)) + ", " + std::to_string(experts) +
                 " experts, " + std::to_string(spec.chosen) + " chosen");
    const auto tokens = static_cast<int64_t>(logits.size()) / experts;
    const Rows got = Run(spec, experts, logits, biases);
    ModelConfig config;
    ExpertsBlock block;
    block.experts = experts;
    block.router = spec;
    config.layers.emplace_back(1).front().block = block;
    ExpertRows want(config, tokens);
    std::vector<float> scratch(static_cast<size_t>(2 * experts));
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t at = t * spec.chosen;
      Route(spec, experts, &logits[static_cast<size_t>(t * experts)],
            biases.choice.empty() ? nullptr : biases.choice.data(),
            biases.scale.empty() ? nullptr : biases.scale.data(), scratch.data(), want.chosen() + at,
            want.weights() + at);
    }
    want.Group(block, tokens);
    for (int64_t i = 0; i < tokens * spec.chosen; ++i) {
      const auto n = static_cast<size_t>(i);
      ASSERT_EQ(got.chosen[n], want.chosen()[i]) << "token " << i / spec.chosen;
      ASSERT_TRUE(Near(got.weights[n], want.weights()[i])) << got.weights[n] << " is not " << want.weights()[i];
      ASSERT_EQ(got.token[n], want.token(i));
      ASSERT_EQ(got.row[n], want.row(i / spec.chosen, static_cast<int32_t>(i % spec.chosen)));
      ASSERT_TRUE(Near(got.row_weights[n], want.weight_of_row(i)));
    }
    for (int64_t e = 0; e <= experts; ++e) ASSERT_EQ(got.first[static_cast<size_t>(e)], want.first(e)) << e;
  }
  // 4 units of the last place: an exponential's, and those of a sum of such.
  static bool Near(float a, float b) {
    return std::isnan(b) ? std::isnan(a) : a == b || std::abs(a - b) <= 0x1p-22f * std::abs(b);
  }
};
TACTUS_DEVICE_TESTS(RouterTest);

constexpr RouterScore kScores[] = {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kChosenSoftmax,
                                   RouterScore::kChosenSigmoid};

TEST_P(RouterTest, ChoosesTheExpertsOfTheCpu) {
  const std::pair<int64_t, int32_t> sizes[] = {{1, 1},  {2, 1},   {8, 2},   {33, 33},
                                               {60, 4}, {128, 8}, {256, 8}, {1024, 64}};
  for (const RouterScore score : kScores) {
    for (const auto& [experts, chosen] : sizes) {
      Check({.chosen = chosen, .score = score}, experts, Numbers(1).Take(5 * experts, 4.0f));
    }
  }
  Check({.chosen = 2, .score = RouterScore::kSparseMixer}, 16, Numbers(2).Take(37 * 16, 2.0f));
  // Near logits: some experts are among those that weigh.
  std::vector<float> near = Numbers(3).Take(37 * 16, 0.02f);
  for (float& v : near) v += 2.0f;
  Check({.chosen = 2, .score = RouterScore::kSparseMixer}, 16, near);
}

TEST_P(RouterTest, WeightsFollowEveryFieldOfTheSpec) {
  const Biases biases = {Numbers(4).Take(32, 0.5f), Numbers(5).Take(32)};
  const std::vector<float> logits = Numbers(6).Take(9 * 32, 3.0f);
  for (const RouterScore score : kScores) {
    for (const bool renormalise : {false, true}) {
      const RouterSpec spec = {.chosen = 4, .score = score, .renormalise = renormalise, .scale = 2.5f};
      Check(spec, 32, logits);
      Check(spec, 32, logits, {biases.choice, {}});
      Check(spec, 32, logits, biases);
    }
  }
}

TEST_P(RouterTest, GroupsAreChosenByTheirTwoBest) {
  const std::vector<float> logits = Numbers(7).Take(9 * 64, 3.0f);
  for (const auto& [groups, chosen] : std::vector<std::pair<int32_t, int32_t>>{{8, 3}, {8, 8}, {2, 1}, {64, 6}}) {
    Check({.chosen = 6, .score = RouterScore::kSigmoid, .renormalise = true, .groups = groups, .chosen_groups = chosen},
          64, logits, {Numbers(8).Take(64, 0.5f), {}});
  }
  Check({.chosen = 2, .score = RouterScore::kSoftmax, .groups = 40, .chosen_groups = 35}, 80, Numbers(9).Take(3 * 80));
}

TEST_P(RouterTest, EqualAndStrangeLogitsAreChosenAsOnTheCpu) {
  std::vector<float> logits(static_cast<size_t>(12 * 40));
  Numbers numbers(10);
  for (float& v : logits) v = static_cast<float>(numbers.Bits() % 3);  // many are equal
  for (int i = 0; i < 40; ++i) logits[static_cast<size_t>(40 + i)] = i % 3 == 0 ? kNaN : static_cast<float>(i % 5);
  for (int i = 0; i < 40; ++i) logits[static_cast<size_t>(80 + i)] = kNaN;
  for (int i = 0; i < 40; ++i)
    logits[static_cast<size_t>(120 + i)] = i % 2 == 0 ? -kInfinity : 200.0f * static_cast<float>(i);
  for (int i = 0; i < 40; ++i) logits[static_cast<size_t>(160 + i)] = i % 2 == 0 ? 0.0f : -0.0f;
  logits[200] = kInfinity;
  for (const RouterScore score : kScores) {
    Check({.chosen = 5, .score = score, .renormalise = true}, 40, logits);
    Check({.chosen = 5, .score = score, .groups = 4, .chosen_groups = 2}, 40, logits);
  }
  Check({.chosen = 2, .score = RouterScore::kSparseMixer}, 40, logits);
}

TEST_P(RouterTest, ManyTokensAreGroupedInOrder) {
  Check({.chosen = 3, .score = RouterScore::kChosenSoftmax}, 5, Numbers(11).Take(150 * 5));
  Check({.chosen = 1, .score = RouterScore::kChosenSigmoid}, 130, Numbers(12).Take(40 * 130));
}

// Rows grouped on the host from the experts of each token.
struct Grouping {
  explicit Grouping(int64_t experts, const std::vector<std::vector<int32_t>>& chosen) {
    first.assign(static_cast<size_t>(experts + 1), 0);
    for (int32_t e = 0; e < experts; ++e) {
      first[static_cast<size_t>(e)] = static_cast<int32_t>(token.size());
      for (size_t t = 0; t < chosen.size(); ++t) {
        for (const int32_t c : chosen[t]) {
          if (c != e) continue;
          token.push_back(static_cast<int32_t>(t));
          expert.push_back(e);
        }
      }
    }
    first.back() = static_cast<int32_t>(token.size());
  }
  std::vector<int32_t> first, token;
  std::vector<int32_t> expert;  // of each row
};

struct GroupedCase {
  MatrixCase matrix;
  Real type = Real::kBF16, y_type = Real::kF32;
  bool gathered = false, biased = false, weighed = false;
};

class GroupedTest : public DeviceTest {
 protected:
  void Check(const GroupedCase& c, int64_t experts, const std::vector<std::vector<int32_t>>& chosen) {
    SCOPED_TRACE(NameOf(c.matrix) + ", type " + std::to_string(static_cast<int>(c.type)) + ", " +
                 std::to_string(experts) + " experts");
    const Grouping rows(experts, chosen);
    const auto count = static_cast<int64_t>(rows.token.size()), cols = c.matrix.cols, outputs = c.matrix.rows;
    std::vector<std::unique_ptr<TestMatrix>> w;
    std::vector<DeviceMatrix> matrices;
    for (int64_t e = 0; e < experts; ++e) {
      w.push_back(std::make_unique<TestMatrix>(stream(), c.matrix, c.type, static_cast<uint32_t>(e + 1)));
      matrices.push_back(w.back()->device());
    }
    std::vector<float> x = Numbers(77).Take((c.gathered ? count : static_cast<int64_t>(chosen.size())) * cols);
    for (float& v : x) v = RoundTo(c.type, v);
    const std::vector<float> biases = Numbers(78).Take(experts * outputs), weights = Numbers(79).Take(count);
    const Buffer<DeviceMatrix> stack(matrices);
    const Buffer<uint8_t> in(BytesOf(c.type, x)), out(count * outputs * SizeOf(c.y_type));
    const Buffer<float> bias(biases), row_weights(weights);
    const Buffer<int32_t> first(rows.first), token(rows.token);
    ExpertRowsView view;
    view.first = first.data();
    view.token = token.data();
    view.row_weights = row_weights.data();
    DeviceMatrix shape = matrices[0];
    shape.data = shape.scales = shape.offsets = nullptr;
    MultiplyGrouped(stream(), {.x = in.data(),
                               .gathered = c.gathered,
                               .type = c.type,
                               .w = stack.data(),
                               .shape = shape,
                               .biases = c.biased ? bias.data() : nullptr,
                               .experts = experts,
                               .max_rows = count,
                               .rows = &view,
                               .weigh_inputs = c.weighed ? row_weights.data() : nullptr,
                               .y = out.data(),
                               .y_type = c.y_type});
    const std::vector<float> y = ValuesOf(c.y_type, out.Read());
    for (int64_t r = 0; r < count; ++r) {
      const auto at = static_cast<size_t>(r), e = static_cast<size_t>(rows.expert[at]);
      const float* const row = &x[static_cast<size_t>((c.gathered ? r : rows.token[at]) * cols)];
      const float weight = c.weighed ? weights[at] : 1.0f;
      for (int64_t i = 0; i < outputs; ++i) {
        const Expected sum = Dot(*w[e], row, i, cols);
        const double want =
            weight * sum.value + (c.biased ? biases[e * static_cast<size_t>(outputs) + static_cast<size_t>(i)] : 0);
        ASSERT_NEAR(y[static_cast<size_t>(r * outputs + i)], want,
                    sum.error + 1e-6 + std::abs(want) * 1.01 * RoundingOf(c.y_type))
            << "row " << r << " of expert " << e << ", output " << i;
      }
    }
  }
};
TACTUS_DEVICE_TESTS(GroupedTest);

// `tokens` tokens that use expert t % experts and those after it.
std::vector<std::vector<int32_t>> Spread(int64_t tokens, int64_t experts, int32_t each) {
  std::vector<std::vector<int32_t>> chosen(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int32_t n = 0; n < each; ++n) {
      chosen[static_cast<size_t>(t)].push_back(static_cast<int32_t>((t + n) % experts));
    }
  }
  return chosen;
}

// Expert 0 has no token, 1 has one, 2 has eleven, 3 none, 4 nine.
std::vector<std::vector<int32_t>> Uneven() {
  std::vector<std::vector<int32_t>> chosen(20, {2});
  for (size_t t = 11; t < 20; ++t) chosen[t] = {4};
  chosen.push_back({1});
  return chosen;
}

TEST_P(GroupedTest, EveryFormatMultipliesEachExpertsTokens) {
  for (const Real type : {Real::kBF16, Real::kF16, Real::kF32}) {
    for (const MatrixCase& m : std::vector<MatrixCase>{{MatrixFormat::kReal, 37, 72, 0, false},
                                                       {MatrixFormat::kFp8, 37, 80, 80, false},
                                                       {MatrixFormat::kInt8, 18, 96, 32, false},
                                                       {MatrixFormat::kInt4, 18, 192, 64, true},
                                                       {MatrixFormat::kInt4, 18, 80, 16, true}}) {
      Check({m, type, type}, 5, Uneven());
    }
  }
}

TEST_P(GroupedTest, EveryFieldIsUsed) {
  const MatrixCase m = {MatrixFormat::kReal, 20, 64, 0, false};
  for (const Real type : {Real::kBF16, Real::kF32}) {
    Check({m, type, Real::kF32, true, false, false}, 5, Uneven());
    Check({m, type, Real::kF32, false, true, false}, 5, Uneven());
    Check({m, type, type, false, false, true}, 5, Uneven());
    Check({m, type, type, true, true, true}, 5, Uneven());
  }
}

TEST_P(GroupedTest, AnyNumberOfExpertsAndTokensMultiplies) {
  const MatrixCase m = {MatrixFormat::kReal, 16, 32, 0, false};
  Check({m}, 1, Spread(1, 1, 1));
  Check({m}, 1, Spread(70, 1, 1));     // tiles of 64 tokens
  Check({m}, 256, Spread(3, 256, 8));  // most experts have none
  Check({m}, 40, Spread(40, 40, 2));
  Check({m}, 3, Spread(15, 3, 2));        // tiles of 16
  Check({m}, 3, Spread(40, 3, 2));        // of 32
  Check({m}, 100, Spread(100, 100, 66));  // of 128
}

TEST_P(GroupedTest, BitsAreThoseOfAProductWithTheExpertAlone) {
  const MatrixCase c = {MatrixFormat::kInt4, 18, 192, 64, true};
  const Grouping rows(5, Uneven());
  std::vector<std::unique_ptr<TestMatrix>> w;
  std::vector<DeviceMatrix> matrices;
  for (uint32_t e = 0; e < 5; ++e) {
    w.push_back(std::make_unique<TestMatrix>(stream(), c, Real::kBF16, e));
    matrices.push_back(w.back()->device());
  }
  const auto count = static_cast<int64_t>(rows.token.size());
  const Buffer<uint8_t> x(BytesOf(Real::kBF16, Numbers(5).Take(count * c.cols)));
  const Buffer<float> grouped(count * c.rows), alone(count * c.rows);
  const Buffer<DeviceMatrix> stack(matrices);
  const Buffer<int32_t> first(rows.first);
  ExpertRowsView view;
  view.first = first.data();
  MultiplyGrouped(stream(), {.x = x.data(),
                             .gathered = true,
                             .w = stack.data(),
                             .shape = matrices[0],
                             .experts = 5,
                             .max_rows = count,
                             .rows = &view,
                             .y = grouped.data(),
                             .y_type = Real::kF32});
  for (size_t e = 0; e < 5; ++e) {
    const int64_t begin = rows.first[e];
    MultiplyQuantized(stream(), {.x = x.data() + begin * c.cols * 2,
                                 .tokens = rows.first[e + 1] - begin,
                                 .w = matrices[e],
                                 .y = alone.data() + begin * c.rows,
                                 .y_type = Real::kF32,
                                 .y_stride = c.rows});
  }
  EXPECT_EQ(grouped.Read(), alone.Read());
}

class CombineTest : public DeviceTest {
 protected:
  struct Case {
    int64_t dim = 0;
    bool shared = false, shared_logits = false, weighs_input = false, adds = false;
  };
  void Check(const Case& c) {
    SCOPED_TRACE(std::to_string(c.dim) + " columns, " + std::to_string(c.shared) + std::to_string(c.shared_logits) +
                 std::to_string(c.weighs_input) + std::to_string(c.adds));
    constexpr int64_t kTokens = 5;
    constexpr int32_t kChosen = 3;
    std::vector<int32_t> row(static_cast<size_t>(kTokens * kChosen));
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<int32_t>((i * 7 + 3) % row.size());
    const std::vector<float> y = Numbers(1).Take(kTokens * kChosen * c.dim), shared = Numbers(2).Take(kTokens * c.dim);
    const std::vector<float> logits = Numbers(3).Take(kTokens, 4.0f), weights = Numbers(4).Take(kTokens * kChosen);
    const std::vector<float> before = Numbers(5).Take(kTokens * c.dim);
    const Buffer<float> y_in(y), shared_in(shared), logits_in(logits), weights_in(weights), out(kTokens * c.dim);
    const Buffer<int32_t> row_in(row);
    if (c.adds) TestStream().CopyToDevice(out.data(), before.data(), kTokens * c.dim * 4);
    ExpertRowsView view;
    view.weights = c.weighs_input ? nullptr : weights_in.data();
    view.row = row_in.data();
    CombineExperts(stream(), {.y = y_in.data(),
                              .shared = c.shared ? shared_in.data() : nullptr,
                              .shared_logits = c.shared_logits ? logits_in.data() : nullptr,
                              .tokens = kTokens,
                              .dim = c.dim,
                              .chosen = kChosen,
                              .weighs_input = c.weighs_input,
                              .rows = &view,
                              .out = out.data(),
                              .adds = c.adds});
    const std::vector<float> got = out.Read();
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t i = 0; i < c.dim; ++i) {
        const auto at = static_cast<size_t>(t * c.dim + i);
        double want = c.adds ? before[at] : 0.0;
        if (c.shared) {
          want +=
              shared[at] * (c.shared_logits ? 1.0 / (1.0 + std::exp(-double{logits[static_cast<size_t>(t)]})) : 1.0);
        }
        for (int32_t n = 0; n < kChosen; ++n) {
          const auto choice = static_cast<size_t>(t * kChosen + n);
          want += (c.weighs_input ? 1.0 : double{weights[choice]}) * y[static_cast<size_t>(row[choice] * c.dim + i)];
        }
        ASSERT_NEAR(got[at], want, 1e-6) << t << " " << i;
      }
    }
  }
};
TACTUS_DEVICE_TESTS(CombineTest);

TEST_P(CombineTest, AddsExpertsAndTheSharedExpert) {
  for (const int64_t dim : {7, 64, 1030}) {
    Check({dim});
    Check({dim, true});
    Check({dim, true, true});
    Check({dim, true, true, false, true});
    Check({dim, false, false, true});
    Check({dim, true, false, true, true});
  }
}

// Experts are added in ascending order, each with one rounding, whatever the number of tokens.
TEST_P(CombineTest, OrderOfTheSumIsThatOfTheExperts) {
  const Buffer<float> y({1e8f, -1e8f, 1.0f, 1.0f}), weights({1.0f, 1.0f, 1.0f}), out(1);
  const Buffer<int32_t> row({0, 1, 2});
  ExpertRowsView view;
  view.weights = weights.data();
  view.row = row.data();
  CombineExperts(stream(), {.y = y.data(), .tokens = 1, .dim = 1, .chosen = 3, .rows = &view, .out = out.data()});
  EXPECT_EQ(out.Read()[0], 1.0f);
  const Buffer<int32_t> other({2, 0, 1});
  view.row = other.data();
  CombineExperts(stream(), {.y = y.data(), .tokens = 1, .dim = 1, .chosen = 3, .rows = &view, .out = out.data()});
  EXPECT_EQ(out.Read()[0], 0.0f);
}

}  // namespace
}  // namespace tactus::compute::cuda
