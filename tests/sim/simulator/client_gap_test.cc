// Clients that pause between an answer and the next request.
#include <gtest/gtest.h>

#include "sim/linear_model.h"
#include "sim/simulator/simulator.h"
#include "sim/small_engine.h"

namespace tactus::sim {
namespace {

constexpr int64_t kRequests = 400;

// The time of each request after the end that caused it, in workload order.
std::vector<DurationNs> Gaps(const std::string& preset, DurationNs gap_ns, int64_t clients, uint64_t seed = 1) {
  LinearModel model;
  SimulationConfig c = SmallEngine(model, preset);
  c.seed = seed;
  c.concurrency = clients;
  c.client_gap_ns = gap_ns;
  std::vector<TimeNs> arrivals(kRequests), ends;
  c.on_done = [&](const WorkloadRequest& work, int32_t, const core::RequestDoneEvent& d) {
    arrivals[static_cast<size_t>(work.index)] = d.arrival_ns;
    ends.push_back(d.done_ns);
  };
  const auto spec = ParseWorkload("random:in=300,out=3");
  const auto stream = WorkloadStream::Open(*spec, *ParseArrivals("poisson", 0), kRequests, seed);
  const auto sim = Simulation::Create(c, stream->get());
  EXPECT_TRUE(sim.ok()) << sim.status().ToString();
  EXPECT_TRUE((*sim)->Run().ok());
  EXPECT_TRUE((*sim)->finished());
  EXPECT_EQ(ends.size(), static_cast<size_t>(kRequests));
  // The n-th end causes request n + clients.
  std::vector<DurationNs> gaps;
  for (size_t i = static_cast<size_t>(clients); i < arrivals.size(); ++i)
    gaps.push_back(arrivals[i] - ends[i - static_cast<size_t>(clients)]);
  return gaps;
}

TEST(ClientGap, GapsAreZeroByDefault) {
  EXPECT_EQ(Gaps("vllm", 0, 1), std::vector<DurationNs>(kRequests - 1, 0));
}

// Each request has its own draw, independent of the policy: mean and standard deviation are four seconds.
TEST(ClientGap, GapsDelayRequestsIndependentlyOfThePolicy) {
  constexpr DurationNs kMean = 4'000'000'000;
  const auto gaps = Gaps("vllm", kMean, 10);
  double sum = 0, squares = 0;
  for (const DurationNs gap : gaps) {
    EXPECT_GE(gap, 0);
    const double share = static_cast<double>(gap) / kMean;
    sum += share;
    squares += share * share;
  }
  const double mean = sum / static_cast<double>(gaps.size());
  EXPECT_NEAR(mean, 1, 0.15);
  EXPECT_NEAR(squares / static_cast<double>(gaps.size()) - mean * mean, 1, 0.4);
  EXPECT_EQ(gaps, Gaps("orca", kMean, 10));
  EXPECT_NE(gaps, Gaps("vllm", kMean, 10, 2));
}

}  // namespace
}  // namespace tactus::sim
