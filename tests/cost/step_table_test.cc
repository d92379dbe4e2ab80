#include "cost/step_tables/step_table.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "cost/step_tables/nonnegative_fit.h"

namespace tactus::cost {
namespace {

// A machine with a known law: a constant, linear work with a kink, attention by pairs and by KV.
double LawMs(const StepSample& s) {
  const double n = s.prefill_tokens + static_cast<double>(s.decodes);
  return 2.0 + std::max(0.0, n - 64) * 0.05 +
         2e-6 * s.prefill_tokens * (s.prefill_context + (s.prefill_tokens + 1) / 2.0) +
         1e-4 * static_cast<double>(s.decode_context_tokens);
}

std::vector<StepSample> Grid(double noise, uint64_t seed) {
  Rng rng(seed);
  std::vector<StepSample> samples;
  for (int32_t c : {0, 1, 16, 32, 64, 128, 256, 512}) {
    for (int32_t k : {0, 512, 2048}) {
      for (int64_t d : {0, 1, 4, 8, 16, 32, 64, 128}) {
        if ((c == 0 && k > 0) || (c == 0 && d == 0)) continue;
        StepSample s{c, k, d, d * rng.UniformInt(16, 2048), 0};
        s.step_ms = LawMs(s) * (1 + noise * rng.Normal());
        samples.push_back(s);
      }
    }
  }
  return samples;
}

DurationNs Ask(const StepTimeModel& m, const StepSample& s) {
  const ChunkShape chunk{s.prefill_context, s.prefill_tokens};
  StepShape shape;
  if (s.prefill_tokens > 0) shape.chunks = {&chunk, 1};
  shape.decodes = s.decodes;
  shape.decode_context_tokens = s.decode_context_tokens;
  return m.StepTimeNs(shape);
}

TEST(NonNegativeFit, RecoversKnownCoefficientsAndRespectsTheBound) {
  // y = 3 a + 0 b - 2 c: unbounded, c would be -2; the best non-negative fit has c = 0.
  Rng rng(1);
  std::vector<double> rows, targets, weights;
  for (int i = 0; i < 200; ++i) {
    const double a = rng.Uniform(), b = rng.Uniform(), c = rng.Uniform();
    rows.insert(rows.end(), {a, b, c});
    targets.push_back(3 * a + 0.5 * b);
    weights.push_back(1);
  }
  std::vector<double> x = NonNegativeLeastSquares(rows, targets, weights, 3);
  EXPECT_NEAR(x[0], 3, 1e-6);
  EXPECT_NEAR(x[1], 0.5, 1e-6);
  EXPECT_NEAR(x[2], 0, 1e-6);
  for (size_t i = 0; i < targets.size(); ++i) targets[i] -= 2 * rows[3 * i + 2];
  x = NonNegativeLeastSquares(rows, targets, weights, 3);
  EXPECT_EQ(x[2], 0);
  EXPECT_GT(x[0], 0);
}

TEST(StepProfile, FitRecoversAnExpressibleLaw) {
  const std::vector<StepSample> samples = Grid(0, 7);
  const auto fitted = FitStepProfile(samples, {});
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  const StepProfile& m = **fitted;
  EXPECT_LT(m.error().fit_median, 1e-3);
  EXPECT_LT(m.error().left_out_p90, 1e-2);
  for (const StepSample& s : Grid(0, 8)) {  // contexts that the fit lacks
    EXPECT_NEAR(static_cast<double>(Ask(m, s)) / 1e6, LawMs(s), 0.02 * LawMs(s));
  }
}

// Two distinct counts make a segment: steps of 2, 3, 4, 6, ... 96 tokens have a knot at every power of two. Every other
// octave is flat, so fewer or other knots cannot reproduce all of it.
TEST(StepProfile, TwoDistinctCountsMakeASegment) {
  const auto ms = [](int32_t tokens) {
    double sum = 10;
    for (int32_t n = 1; n <= tokens; ++n) {
      const bool steep = (n > 4 && n <= 8) || (n > 16 && n <= 32);
      if (steep) sum += 1;
    }
    return sum;
  };
  std::vector<StepSample> samples;
  for (int repeat = 0; repeat < 3; ++repeat) {  // every count is measured in every fold
    for (const int32_t tokens : {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96})
      samples.push_back({tokens, 0, 0, 0, ms(tokens)});
  }
  const auto fitted = FitStepProfile(samples, {});
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  for (const int32_t tokens : {4, 6, 8, 16, 24, 32, 64}) {
    const StepSample asked{tokens, 0, 0, 0, 0};
    EXPECT_NEAR(static_cast<double>(Ask(**fitted, asked)) / 1e6, ms(tokens), 1e-3) << tokens << " tokens";
  }
}

TEST(StepProfile, LeftOutErrorReflectsTheNoise) {
  const auto quiet = FitStepProfile(Grid(0.01, 3), {});
  const auto loud = FitStepProfile(Grid(0.10, 3), {});
  ASSERT_TRUE(quiet.ok() && loud.ok());
  EXPECT_LT((*quiet)->error().left_out_median, 0.02);
  EXPECT_GT((*loud)->error().left_out_median, 0.04);
}

TEST(StepProfile, ADisturbedRowDoesNotBendTheFit) {
  std::vector<StepSample> samples = Grid(0.01, 5);
  for (size_t i = 0; i < samples.size(); i += 12) samples[i].step_ms *= 3;  // a disturbance of the machine
  const auto fitted = FitStepProfile(samples, {});
  ASSERT_TRUE(fitted.ok());
  double worst = 0;
  for (const StepSample& s : Grid(0, 6))
    worst = std::max(worst, std::abs(static_cast<double>(Ask(**fitted, s)) / 1e6 / LawMs(s) - 1));
  EXPECT_LT(worst, 0.10);
}

TEST(StepProfile, MoreWorkIsNeverFaster) {
  const auto fitted = FitStepProfile(Grid(0.2, 11), {});
  ASSERT_TRUE(fitted.ok());
  Rng rng(12);
  for (int i = 0; i < 2000; ++i) {
    StepSample s{static_cast<int32_t>(rng.UniformInt(1, 1000)), static_cast<int32_t>(rng.UniformInt(0, 5000)),
                 rng.UniformInt(0, 300), 0, 0};
    s.decode_context_tokens = s.decodes * rng.UniformInt(1, 5000);
    const DurationNs before = Ask(**fitted, s);
    StepSample t = s;
    switch (i % 3) {
      case 0:
        t.prefill_tokens += static_cast<int32_t>(rng.UniformInt(1, 64));
        break;
      case 1:
        t.prefill_context += static_cast<int32_t>(rng.UniformInt(1, 64));
        break;
      default:
        t.decodes += 1, t.decode_context_tokens += rng.UniformInt(1, 64);
    }
    EXPECT_LE(before, Ask(**fitted, t));
  }
}

class StepProfileFile : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = (std::filesystem::path(testing::TempDir()) / "step_profile.csv").string();
    std::ofstream(path) << text;
    return path;
  }
  static std::string Rows(const char* rows) {
    std::string text = kHeader;  // GCC 12 warns falsely of string(kHeader) + rows
    text += rows;
    return text;
  }
  static constexpr const char* kHeader = "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
};

TEST_F(StepProfileFile, FileIsReadWithItsRemarks) {
  std::string text = "# model: smol\n# device: cpu\n";
  text += kHeader;
  for (const StepSample& s : Grid(0, 7)) {
    text += std::to_string(s.prefill_tokens) + "," + std::to_string(s.prefill_context) + "," +
            std::to_string(s.decodes) + "," + std::to_string(s.decode_context_tokens) + "," +
            std::to_string(s.step_ms) + "\n";
  }
  const auto m = LoadStepProfile(Write(text));
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ((*m)->remarks().at("model"), "smol");
  EXPECT_LT((*m)->error().fit_median, 1e-3);
  StepShape most;
  const ChunkShape chunk{100, 512};
  most.chunks = {&chunk, 1};
  EXPECT_EQ((*m)->Extrapolation(most), "");
  const ChunkShape longer{100, 1024};
  most.chunks = {&longer, 1};
  EXPECT_NE((*m)->Extrapolation(most).find("1024 (measured up to 512: 2.0 x beyond)"), std::string::npos)
      << (*m)->Extrapolation(most);
}

// Each range separately; its end is inside. Unmeasured quantities have no ratio.
TEST(StepProfile, ExtrapolationNamesEveryRange) {
  std::vector<StepSample> samples;
  for (int32_t i = 1; i <= 12; ++i) samples.push_back({i, 0, 0, 0, 1.0 * i});
  const auto fitted = FitStepProfile(samples, {});
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  const ChunkShape most_chunk{0, 12}, chunks[] = {{5, 18}, {4, 6}};
  StepShape inside, beyond;
  inside.chunks = {&most_chunk, 1};
  EXPECT_EQ((*fitted)->Extrapolation(inside), "");
  beyond.chunks = chunks;
  beyond.decodes = 3;
  beyond.decode_context_tokens = 9;
  EXPECT_EQ((*fitted)->Extrapolation(beyond),
            "prompt tokens per step 24 (measured up to 12: 2.0 x beyond); a chunk's context of 5 (measured up to 0); "
            "decodes 3 (measured up to 0); KV tokens of decodes 9 (measured up to 0)");
  EXPECT_EQ(
      (*fitted)->Describe().find("12 measured steps of up to 12 prompt tokens behind 0, 0 decodes over 0 KV tokens; "),
      0u)
      << (*fitted)->Describe();
}

// A slope of a day per token, predicted for millions of tokens.
TEST_F(StepProfileFile, PredictionsAreBounded) {
  std::string rows;
  for (int i = 1; i <= 12; ++i) rows += std::to_string(i) + ",0,0,0," + std::to_string(8e7 * i) + "\n";
  StepShape shape;
  const ChunkShape chunk{1 << 24, 1 << 24};
  shape.chunks = {&chunk, 1};
  for (const std::string& text :
       {Rows(rows.c_str()), std::string("table,a,b,ms\ntokens,1,0,1\ntokens,1.000001,0,1e9\n")}) {
    const auto m = ParseStepProfile("steep.csv", text);
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_EQ((*m)->StepTimeNs(shape), static_cast<DurationNs>(kLongestStepNs)) << text;
  }
}

TEST_F(StepProfileFile, RowsAtTheLimitsAreAccepted) {
  std::string rows = "16777216,16777216,0,0,1e-06\n0,0,4,4,1\n0,0,16777216,1e12,1e9\n";
  for (int i = 1; i <= 9; ++i) rows += std::to_string(i) + ",0,0,0," + std::to_string(i) + "\n";
  const auto loaded = ParseStepProfile("limits.csv", Rows(rows.c_str()));
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  for (const char* row : {"16777217,0,0,0,1\n", "1,16777217,0,0,1\n", "0,0,16777217,16777217,1\n",
                          "0,0,1,1000000000001,1\n", "1,0,0,0,1000000001\n"}) {
    EXPECT_NE(LoadStepProfile(Write(Rows(row))).status().message().find("' is not a "), std::string::npos) << row;
  }
}

TEST_F(StepProfileFile, BadRowsAreNamed) {
  const auto message = [&](const std::string& text) { return LoadStepProfile(Write(text)).status().message(); };
  EXPECT_EQ(LoadStepProfile("/no/such/profile.csv").status().code(), StatusCode::kNotFound);
  EXPECT_NE(message("").find("no header"), std::string::npos);
  EXPECT_NE(message("a,b\n1,2\n").find(":1: the header is 'a,b'"), std::string::npos);
  EXPECT_NE(message(Rows("16,0,0,0\n")).find(":2: 5 columns"), std::string::npos);
  EXPECT_NE(message(Rows("16,0,0,0,1,2\n")).find(":2: 5 columns"), std::string::npos);
  EXPECT_NE(message(Rows("16,-1,0,0,1\n")).find(":2, column 2: '-1'"), std::string::npos);
  EXPECT_NE(message(Rows("16,0,0,0,nan\n")).find(":2, column 5: 'nan'"), std::string::npos);
  for (const char* too_short : {"16,0,0,0,0\n", "16,0,0,0,1e-300\n"}) {
    EXPECT_NE(message(Rows(too_short)).find(":2, column 5: a step takes 1e-06 ms or longer"), std::string::npos);
  }
  EXPECT_NE(message(Rows("0,0,0,0,1\n")).find("without a token"), std::string::npos);
  EXPECT_NE(message(Rows("0,0,4,3,1\n")).find("4 decodes"), std::string::npos);
  EXPECT_NE(message(Rows("16,0,0,0,1\n")).find("1 rows is too small"), std::string::npos);
}

}  // namespace
}  // namespace tactus::cost
