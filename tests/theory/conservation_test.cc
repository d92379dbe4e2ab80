// Properties of every scheduler: Little's law, no idle server while work waits, every token computed once (and once
// more after its KV was lost).
#include <gtest/gtest.h>

#include <algorithm>

#include "theory/theory_case.h"

namespace tactus::theory {
namespace {

std::vector<Arrival> Mixed(uint64_t seed, int64_t count, double rate) {
  return Poisson(seed, count, rate, [](Rng& r) {
    return Arrival{0, static_cast<int32_t>(r.UniformInt(1, 400)), static_cast<int32_t>(r.UniformInt(1, 120))};
  });
}

// L = lambda W holds for every run that starts and ends empty: the integral of the number in the system is the sum of
// the times in it. The left side is summed by plan, the right side by request; both are whole nanoseconds.
TEST(Conservation, LittlesLawHolds) {
  const LinearSteps model(5 * kMillisecond, 40 * kMicrosecond, 30);
  const auto arrivals = Mixed(21, 4000, 40);
  Case c;
  c.token_budget = 256;
  c.max_num_seqs = 32;
  c.blocks = 300;
  c.count_in_system = true;
  const Outcome out = Simulate(c, model, arrivals);
  ASSERT_EQ(out.error, "");
  // During a step: the requests of its plan, plus those that arrived meanwhile for the rest of it.
  int64_t number_times_time = 0;
  size_t next = 0;
  for (const Step& step : out.steps) {
    while (next < arrivals.size() && arrivals[next].at_ns <= step.start_ns) ++next;
    number_times_time += step.in_system * (step.end_ns - step.start_ns);
    for (; next < arrivals.size() && arrivals[next].at_ns < step.end_ns; ++next)
      number_times_time += step.end_ns - arrivals[next].at_ns;
  }
  int64_t times = 0;
  for (const Ended& e : out.ended) times += e.done_ns - e.arrival_ns;
  EXPECT_EQ(number_times_time, times);
  EXPECT_EQ(out.ended.size(), arrivals.size());
  EXPECT_GT(out.stats.preemptions, 0);
  // As averages: the number in the system, and rate x mean time.
  const auto span = static_cast<double>(out.steps.back().end_ns);
  const double rate = static_cast<double>(out.ended.size()) / span;
  const double mean_time = static_cast<double>(times) / static_cast<double>(out.ended.size());
  EXPECT_NEAR(static_cast<double>(number_times_time) / span, rate * mean_time, 1e-9 * rate * mean_time);
}

class EveryPreset : public testing::TestWithParam<std::string> {};

TEST_P(EveryPreset, ConservesTimeAndTokens) {
  const LinearSteps model(5 * kMillisecond, 40 * kMicrosecond, 30);
  // Memory for all requests; too little, so that presets with preemption preempt.
  for (const int64_t blocks : {5000, 120}) {
    const auto arrivals = Mixed(31, 400, 7);
    Case c;
    c.preset = GetParam();
    c.max_num_seqs = 24;
    c.max_model_len = 640;
    c.blocks = blocks;
    c.swap_blocks = 200;
    const Outcome out = Simulate(c, model, arrivals);
    ASSERT_EQ(out.error, "");
    ASSERT_EQ(out.ended.size(), arrivals.size());

    // The server is idle only when the system is empty.
    std::vector<TimeNs> ends;
    for (const Ended& e : out.ended) ends.push_back(e.done_ns);
    std::sort(ends.begin(), ends.end());
    DurationNs busy = 0, idle = out.steps.front().start_ns;
    EXPECT_EQ(out.steps.front().start_ns, arrivals.front().at_ns);
    for (size_t i = 0; i < out.steps.size(); ++i) {
      busy += out.steps[i].end_ns - out.steps[i].start_ns;
      if (i == 0 || out.steps[i].start_ns == out.steps[i - 1].end_ns) continue;
      const TimeNs end = out.steps[i - 1].end_ns;
      ASSERT_GT(out.steps[i].start_ns, end) << "two steps at once";
      const auto come = std::upper_bound(arrivals.begin(), arrivals.end(), end,
                                         [](TimeNs t, const Arrival& a) { return t < a.at_ns; });
      const auto gone = std::upper_bound(ends.begin(), ends.end(), end);
      ASSERT_EQ(come - arrivals.begin(), gone - ends.begin()) << "idle with work waiting after step " << i - 1;
      ASSERT_EQ(out.steps[i].start_ns, come->at_ns) << "not started at the first arrival after step " << i - 1;
      idle += out.steps[i].start_ns - end;
    }
    EXPECT_EQ(busy, out.busy_ns);
    EXPECT_EQ(busy + idle, out.steps.back().end_ns);

    // Computed tokens: prompt and output of every request without its last output token, which is never an input, plus
    // the recomputed tokens.
    int64_t computed = 0, sampled = 0, due = 0, output = 0, recomputed = 0;
    for (const Step& step : out.steps) {
      computed += step.tokens;
      sampled += step.sampled;
    }
    for (const Arrival& a : arrivals) {
      due += a.prompt_tokens + a.output_tokens - 1;
      output += a.output_tokens;
    }
    for (const Ended& e : out.ended) recomputed += e.recomputed_tokens;
    EXPECT_EQ(computed, due + recomputed);
    EXPECT_EQ(sampled, output);
    EXPECT_EQ(out.stats.generation_tokens, output);
    EXPECT_EQ(out.stats.recomputed_tokens, recomputed);
  }
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const core::PresetInfo& p : core::Presets()) names.push_back(p.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Presets, EveryPreset, testing::ValuesIn(PresetNames()), [](const auto& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace tactus::theory
