// Queueing theory: cases for which the simulator's figures are known exactly or on average.
#include "theory/theory_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tactus::theory {
namespace {

constexpr DurationNs kStep = kMillisecond;

// One request at a time, first come, first served: a request with one prompt token and k output tokens takes k equal
// steps.
struct ServiceCase {
  const char* name;
  std::function<int32_t(Rng&)> output_tokens;
  double mean, second_moment;  // of the output tokens
};
const ServiceCase kServices[] = {
    {"deterministic", [](Rng&) { return 8; }, 8, 64},
    {"uniform", [](Rng& r) { return static_cast<int32_t>(r.UniformInt(1, 15)); }, 8, (15.0 * 16 * 31 / 6) / 15},
    {"two_point", [](Rng& r) { return r.Uniform() < 0.9 ? 2 : 62; }, 8, 0.9 * 4 + 0.1 * 62 * 62},
};

// Pollaczek and Khinchine: mean wait = lambda E[S^2] / (2 (1 - rho)). Waits before service, 200,000 requests; the
// interval is narrow enough to distinguish the three clearly (their second moments are as 64 : 83 : 388).
TEST(Queueing, MeanWaitOfASingleServerFollowsPollaczekKhinchine) {
  const LinearSteps model(kStep);
  for (const ServiceCase& service : kServices) {
    for (const double load : {0.5, 0.8}) {
      const double step_s = static_cast<double>(kStep) * 1e-9;
      const double rate = load / (service.mean * step_s);
      const auto arrivals = Poisson(11, 200000, rate, [&](Rng& r) { return Arrival{0, 1, service.output_tokens(r)}; });
      Case c;
      c.max_num_seqs = 1;
      const Outcome out = Simulate(c, model, arrivals);
      ASSERT_EQ(out.error, "");
      ASSERT_EQ(out.ended.size(), arrivals.size());
      std::vector<double> waits;
      for (const Ended& e : out.ended) waits.push_back(static_cast<double>(e.scheduled_ns - e.arrival_ns) * 1e-9);
      const double theory = rate * service.second_moment * step_s * step_s / (2 * (1 - load));
      const Estimate wait = BatchMeans(waits);
      EXPECT_TRUE(wait.Contains(theory)) << service.name << " at load " << load << ": " << wait.mean << " +- "
                                         << wait.half_width << " s, theory " << theory;
      EXPECT_LT(wait.half_width, 0.2 * theory) << service.name << ": the interval is too wide";
      RecordProperty(std::string(service.name) + (load < 0.6 ? "_half" : "_high"),
                     std::to_string(wait.mean * 1e3) + " +- " + std::to_string(wait.half_width * 1e3) + " ms, theory " +
                         std::to_string(theory * 1e3));
      // Every service takes exactly its steps.
      for (const Ended& e : out.ended) ASSERT_EQ(e.done_ns - e.scheduled_ns, e.output_tokens * kStep);
    }
  }
}

// A server that is never idle starts a new request at its next step: the wait is the rest of the current step, uniform
// in (0, T), and the first token comes one step later.
TEST(Queueing, NewRequestsWaitForTheCurrentStep) {
  const LinearSteps model(kStep);
  auto arrivals =
      Poisson(12, 50000, 100, [](Rng& r) { return Arrival{0, 1, static_cast<int32_t>(r.UniformInt(1, 4))}; });
  arrivals.insert(arrivals.begin(), Arrival{0, 1, 600000});  // keeps the server busy throughout
  Case c;
  c.max_model_len = 600002;
  const Outcome out = Simulate(c, model, arrivals);
  ASSERT_EQ(out.error, "");
  std::vector<double> waits;
  double squares = 0;
  for (const Ended& e : out.ended) {
    if (e.output_tokens > 4) continue;
    waits.push_back(static_cast<double>(e.scheduled_ns - e.arrival_ns));
    squares += waits.back() * waits.back();
    ASSERT_EQ(e.first_token_ns - e.scheduled_ns, kStep);
  }
  const Estimate wait = BatchMeans(waits);
  const auto step = static_cast<double>(kStep);
  EXPECT_TRUE(wait.Contains(step / 2)) << wait.mean << " +- " << wait.half_width;
  EXPECT_LT(wait.half_width, 0.02 * step);
  const double variance = squares / static_cast<double>(waits.size()) - wait.mean * wait.mean;
  EXPECT_NEAR(variance / (step * step), 1.0 / 12, 0.002);
  EXPECT_LT(*std::max_element(waits.begin(), waits.end()), step);
}

// More clients than places: every step is full, so tokens per second = B / T(B) exactly, until the last clients end.
TEST(ClosedLoop, SaturatedDecodesGiveTheBatchPerStep) {
  constexpr int32_t kBatch = 24;
  const LinearSteps model(kStep, 10 * kMicrosecond);
  Rng rng(3, 3);
  std::vector<Arrival> work;
  for (int32_t i = 0; i < 5000; ++i) work.push_back({0, 1, static_cast<int32_t>(rng.UniformInt(1, 60))});
  Case c;
  c.max_num_seqs = kBatch;
  c.concurrency = 3 * kBatch;
  const Outcome out = Simulate(c, model, work);
  ASSERT_EQ(out.error, "");
  const DurationNs full = kStep + kBatch * 10 * kMicrosecond;
  size_t saturated = 0;
  while (saturated < out.steps.size() && out.steps[saturated].items == kBatch) ++saturated;
  EXPECT_GT(saturated, out.steps.size() * 95 / 100);  // the rest is the end, when no client waits
  int64_t tokens = 0;
  for (size_t i = 0; i < saturated; ++i) tokens += out.steps[i].sampled;
  EXPECT_EQ(tokens, static_cast<int64_t>(saturated) * kBatch);
  EXPECT_EQ(out.steps[saturated - 1].end_ns - out.steps[0].start_ns, static_cast<int64_t>(saturated) * full);
}

// As many equal clients as fit: they run in lockstep and never wait.
TEST(ClosedLoop, EqualClientsRunInLockstep) {
  const LinearSteps model(kStep, 3 * kMicrosecond, 7);
  Case c;
  c.concurrency = 16;
  c.token_budget = 16 * 32;
  const Outcome out = Simulate(c, model, std::vector<Arrival>(16 * 10, Arrival{0, 32, 20}));
  ASSERT_EQ(out.error, "");
  DurationNs round = kStep + 16 * 32 * 3 * kMicrosecond;  // all prompts in one step, then 19 steps of decodes
  for (int32_t d = 1; d < 20; ++d) round += kStep + 16 * 3 * kMicrosecond + 16 * (32 + d) * 7;
  ASSERT_EQ(out.steps.size(), 10u * 20u);
  EXPECT_EQ(out.steps.back().end_ns, 10 * round);
  for (const Ended& e : out.ended) ASSERT_EQ(e.done_ns - e.arrival_ns, round);
}

// Saturated with prompts: every step computes the whole budget, so requests per second = tau / ((p + d - 1) T(tau)).
TEST(ClosedLoop, SaturatedChunksUseTheWholeBudget) {
  constexpr int64_t kBudget = 256;
  constexpr int32_t kPrompt = 300, kOutput = 40;
  const LinearSteps model(kStep, 20 * kMicrosecond);
  Case c;
  c.token_budget = kBudget;
  c.max_num_seqs = 128;
  c.concurrency = 400;
  const Outcome out = Simulate(c, model, std::vector<Arrival>(4000, Arrival{0, kPrompt, kOutput}));
  ASSERT_EQ(out.error, "");
  size_t saturated = 0;
  while (saturated < out.steps.size() && out.steps[saturated].tokens == kBudget) ++saturated;
  EXPECT_GT(saturated, out.steps.size() * 95 / 100);
  // Ends in the saturated phase, after the pipeline has filled.
  const TimeNs from = out.steps[saturated / 4].end_ns, to = out.steps[saturated - 1].end_ns;
  const auto ends = std::count_if(out.ended.begin(), out.ended.end(),
                                  [&](const Ended& e) { return e.done_ns > from && e.done_ns <= to; });
  const double per_s = static_cast<double>(ends) / (static_cast<double>(to - from) * 1e-9);
  const double step_s = (static_cast<double>(kStep) + kBudget * 20.0 * kMicrosecond) * 1e-9;
  const double theory = kBudget / ((kPrompt + kOutput - 1) * step_s);
  // Counts of whole requests in a window are exact up to one at each edge.
  EXPECT_NEAR(per_s, theory, 2.5 / (static_cast<double>(to - from) * 1e-9));
}

}  // namespace
}  // namespace tactus::theory
