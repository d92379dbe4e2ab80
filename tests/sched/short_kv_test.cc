// Where KV memory is short, every preset still ends: what it computes again, because a preemption has dropped it, costs
// a bounded number of steps for each token of the answers.
#include <gtest/gtest.h>

#include "sched/known_lengths.h"
#include "sched/registry.h"
#include "sched/step_bed.h"

namespace tactus {
namespace {

using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::KnownLengths;
using testing::PresetConfig;

struct Load {
  int32_t prompt = 0, output = 0;
  int count = 0;
};

// Steps for each token of the answers, on KV memory for three of the requests; all are there from the beginning.
double StepsPerToken(const std::string& preset, int64_t budget, int64_t swap_blocks, const Load& load) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < load.count; ++i)
    lengths.push_back(load.output + i % 3);  // not all alike: an order by length acts
  KnownLengths predictor(lengths);
  HarnessConfig c = PresetConfig(preset, budget);
  c.predictor = &predictor;
  c.max_model_len = 128;
  c.num_blocks = (5 * (load.prompt + load.output) + load.prompt) / 2 / c.block_size;
  c.swap_blocks = swap_blocks;
  c.check_every_pass = false;
  Harness h(c);
  EXPECT_TRUE(h.scheduler_error().ok()) << h.scheduler_error().ToString();
  int64_t tokens = 0;
  for (int i = 0; i < load.count; ++i) {
    AddRequest(&h, load.prompt, load.output + i % 3);
    tokens += load.output + i % 3;
  }
  constexpr int64_t kMostPerToken = 64;  // far beyond every bound: it does not end
  EXPECT_EQ(h.Run(kMostPerToken * tokens), "");
  for (const auto& [handle, out] : h.outputs()) EXPECT_TRUE(out.done) << "request " << handle << " has not ended";
  return static_cast<double>(h.steps()) / static_cast<double>(tokens);
}

// The bound: one for each token, a context's steps once for each answer and again when it has lost it, and a context's
// steps for each ten tokens (a quantum of ltr) because others take turns.
double MostStepsPerToken(int64_t budget, const Load& load) {
  const double context = static_cast<double>(load.prompt + load.output + 2) / static_cast<double>(budget);
  return 1 + 2 * context / load.output + context / 10;
}

TEST(ShortKv, EveryPresetEndsWithinABoundedNumberOfStepsPerToken) {
  // Prompts of fewer steps than a quantum of ltr has, and of more.
  for (const auto& [budget, load] : {std::pair{int64_t{16}, Load{48, 24, 30}}, {int64_t{4}, Load{60, 24, 60}}}) {
    for (const sched::PresetInfo& preset : sched::Presets()) {
      for (const int64_t swap_blocks : {0, 400}) {
        if (preset.predictor[0] != '\0') continue;  // trail-oracle: as trail, which knows the lengths here too
        SCOPED_TRACE(std::string(preset.name) + ", budget " + std::to_string(budget) + ", host blocks " +
                     std::to_string(swap_blocks));
        const double steps = StepsPerToken(preset.name, budget, swap_blocks, load);
        EXPECT_LE(steps, MostStepsPerToken(budget, load));
      }
    }
  }
}

}  // namespace
}  // namespace tactus
