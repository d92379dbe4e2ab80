#include "cost/step_tables/step_spread.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace tactus::cost {
namespace {

// Exactly 1 ms plus 20 us per token and 1 us per KV token.
class LinearTimes final : public StepTimeModel {
 public:
  DurationNs StepTimeNs(const StepShape& s) const override {
    DurationNs ns = 1'000'000 + 20'000 * s.tokens() + 1'000 * s.decode_context_tokens;
    for (const ChunkShape& c : s.chunks) ns += 1'000 * c.context_tokens;
    return ns;
  }
};

double MedianMs(const StepSample& s) {
  return 1 + 0.02 * (s.prefill_tokens + static_cast<double>(s.decodes)) +
         0.001 * (s.prefill_context + static_cast<double>(s.decode_context_tokens));
}

std::vector<StepSample> Steps(double with_prompts, double decodes_only, int count, bool slow = false) {
  Rng rng(3);
  std::vector<StepSample> steps;
  for (int i = 0; i < count; ++i) {
    const bool prompt = i % 2 == 0;
    StepSample s{prompt ? 1 + i % 100 : 0, prompt ? i % 700 : 0, 1 + i % 9, 10 * (1 + i % 9), 0};
    s.step_ms = MedianMs(s) * std::exp((prompt ? with_prompts : decodes_only) * rng.Normal()) * (slow ? 1.5 : 1);
    steps.push_back(s);
  }
  return steps;
}

TEST(StepSpread, SpreadIsTheDeviationOfEachKind) {
  const auto spread = SpreadAbout(LinearTimes(), Steps(0.2, 0.05, 20000));
  ASSERT_TRUE(spread.has_value());
  EXPECT_NEAR(spread->with_prompts, 0.2, 0.004);
  EXPECT_NEAR(spread->decodes_only, 0.05, 0.001);
  const auto slow = SpreadAbout(LinearTimes(), Steps(0.2, 0.05, 20000, true));
  EXPECT_NEAR(slow->with_prompts, spread->with_prompts, 1e-9) << "a constant slowdown is no variation";
}

TEST(StepSpread, UnmeasuredKindUsesTheOthersSpread) {
  std::vector<StepSample> steps = Steps(0.2, 0.05, 2000), prompts, decodes;
  for (const StepSample& s : steps) (s.prefill_tokens > 0 ? prompts : decodes).push_back(s);
  EXPECT_NEAR(SpreadAbout(LinearTimes(), prompts)->decodes_only, 0.2, 0.02);
  EXPECT_NEAR(SpreadAbout(LinearTimes(), decodes)->with_prompts, 0.05, 0.005);
  EXPECT_FALSE(SpreadAbout(LinearTimes(), {}).has_value());
}

TEST(StepSpread, WrittenSpreadIsReadBack) {
  const auto wild = SpreadAbout(LinearTimes(), Steps(3, 3, 200));
  EXPECT_EQ(*wild, (StepSpread{kMostSpread, kMostSpread}));
  for (const StepSpread& spread : {StepSpread{0.1739, 0.1176}, StepSpread{0, 0.5}, *wild}) {
    std::map<std::string, std::string> remarks = {{"model", "m"}};
    NoteSpread(spread, &remarks);
    const auto read = NotedSpread(remarks);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, spread);
  }
}

// Profiles without a spread, or with an invalid one, load; only reading the spread fails.
TEST(StepSpread, ProfilesWithoutOrWithInvalidSpreadLoad) {
  std::string rows = "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
  for (int i = 1; i <= 12; ++i) rows += std::to_string(i) + ",0,0,0," + std::to_string(i) + "\n";
  const auto before = ParseStepProfile("old.csv", rows);
  ASSERT_TRUE(before.ok()) << before.status().ToString();
  const auto none = NotedSpread((*before)->remarks());
  EXPECT_TRUE(none.ok() && !none->has_value());

  const auto noted = [&](const char* prompts, const char* decodes) {
    std::string text;  // GCC 12 warns falsely of concatenated strings
    if (prompts != nullptr) text.append("# spread of steps with prompts: ").append(prompts).append("\n");
    if (decodes != nullptr) text.append("# spread of steps of decodes only: ").append(decodes).append("\n");
    const auto profile = ParseStepProfile("new.csv", text.append(rows));
    EXPECT_TRUE(profile.ok()) << profile.status().ToString();
    return NotedSpread((*profile)->remarks());
  };
  EXPECT_EQ(*noted("0.25", "1"), (StepSpread{0.25, 1}));
  EXPECT_FALSE(noted("0.25", nullptr)->has_value()) << "only one kind";
  for (const char* wrong : {"x", "", "-0.1", "1.001", "nan", "0.1 or so"}) {
    const auto read = noted("0.1", wrong);
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_EQ(read.status().code(), StatusCode::kDataLoss);
    std::string said = "'spread of steps of decodes only' is '";
    said.append(wrong).append("', but a spread is a number between 0 and 1");
    EXPECT_NE(read.status().message().find(said), std::string::npos) << read.status().message();
  }
}

}  // namespace
}  // namespace tactus::cost
