// Swap to host memory in the whole engine: with the fake executor a wrong or missing copy changes a token.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "conformance/workload.h"
#include "core/trace/replay.h"

namespace tactus::swap_test {
namespace {

using core::SchedulerConfig;
using testing::ExpectedOutput;
using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::MakeWorkload;
using testing::Outcome;
using testing::Play;
using testing::RequestOutput;
using testing::Tokens;
using testing::Workload;

std::vector<SchedulerConfig> SwappingSchedulers() {
  return {{.preset = "fastserve"},
          {.preset = "sarathi-serve", .preemption = "swap"},
          {.preset = "vllm", .preemption = "swap"},
          {.preset = "vllm-v0", .preemption = "swap"},
          {.preset = "fastgen", .preemption = "swap"},
          {.preset = "sarathi-serve", .order = "priority", .preemption = "proactive-swap"},
          {.preset = "vllm", .order = "mlfq", .preemption = "proactive-swap"}};
}

void ExpectModelTokens(const Workload& w, const Outcome& outcome) {
  for (const RequestOutput& out : outcome.requests) {
    for (size_t choice = 0; choice < out.choices.size(); ++choice) {
      const auto& got = out.choices[choice].tokens;
      const auto expected =
          ExpectedOutput(w.config.executor, *out.request, static_cast<int32_t>(choice), w.config.model_stop_ids);
      ASSERT_LE(got.size(), expected.size()) << w.ToString();
      ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin())) << w.ToString();
    }
  }
}

TEST(SwapConformance, SwappingDoesNotChangeOutputs) {
  int64_t swapped = 0, brought_back = 0, recomputed = 0;
  for (const SchedulerConfig& names : SwappingSchedulers()) {
    for (uint64_t seed = 0; seed < 120; ++seed) {
      SCOPED_TRACE(names.preset + "/" + names.order + "/" + names.preemption + " seed " + std::to_string(seed));
      const Workload w =
          MakeWorkload(seed, {.cancels = seed % 3 == 0, .faults = seed % 4 == 1, .rejects = seed % 4 == 2});
      const Outcome outcome = Play(w, names);
      ASSERT_EQ(outcome.broken, "");
      ExpectModelTokens(w, outcome);
      EXPECT_EQ(outcome.stats.swap_blocks_used, 0) << "host blocks were lost";
      if (w.config.swap_blocks == 0) {
        EXPECT_EQ(outcome.stats.swapped_sequences, 0);
      }
      // Without faults and cancels, and with space for all sequences, no token is computed twice.
      if (w.config.swap_blocks > 8 * w.config.num_blocks && seed % 4 == 0) {
        EXPECT_EQ(outcome.stats.recomputed_tokens, 0);
      }
      swapped += outcome.stats.swapped_sequences;
      brought_back += outcome.stats.swapped_in_blocks;
      recomputed += outcome.stats.recomputed_tokens;
    }
  }
  EXPECT_GT(swapped, 300);
  EXPECT_GT(brought_back, 500);
  EXPECT_GT(recomputed, 500);  // with little or no space the fallback was tested too
}

// A recording of swaps replays to the same plans, copies and host blocks (the plan hash covers both ends of every
// copy).
TEST(SwapConformance, RecordingsReplay) {
  const std::string path = ::testing::TempDir() + "tactus_swap_" + std::to_string(getpid()) + ".trace";
  int64_t swapped = 0;
  for (const SchedulerConfig& names : SwappingSchedulers()) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(names.preset + "/" + names.preemption + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.cancels = true, .faults = seed % 2 == 1});
      const Outcome recorded = Play(w, names, false, path);
      ASSERT_EQ(recorded.broken, "");
      const auto report = core::ReplayTrace(path);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_TRUE(report->identical());
      EXPECT_EQ(report->stats.swapped_out_blocks, recorded.stats.swapped_out_blocks);
      EXPECT_EQ(report->stats.swapped_in_blocks, recorded.stats.swapped_in_blocks);
      swapped += recorded.stats.swapped_sequences;
    }
  }
  std::remove(path.c_str());
  EXPECT_GT(swapped, 30);
}

}  // namespace
}  // namespace tactus::swap_test
