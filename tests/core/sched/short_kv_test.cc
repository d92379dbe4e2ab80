// With little KV memory every preset still ends: recomputation after preemptions costs a bounded number of steps per
// token of the answers.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/sched/known_lengths.h"
#include "core/sched/registry.h"
#include "core/sched/step_bed.h"

namespace tactus::core {
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

// The place of the n-th request in the plan of a job that is scanned from both ends, the first half from the left and
// the others from the right. The ends are as far from the job's density as each other, so each has half of the KV
// memory.
PlannedPlace ScannedPlace(const Load& load, int n) {
  const bool left = 2 * n < load.count;
  return {.position = left ? 2 * n : 2 * (load.count - 1 - n) + 1,
          .kv_tokens = load.prompt + load.output / 2,
          .end = left ? PlanEnd::kLeft : PlanEnd::kRight,
          .density = left ? 2'000'000 : 0};
}

// Steps per token of the answers, with KV memory for three of the requests; all arrive at the beginning.
double StepsPerToken(const PresetInfo& preset, int64_t budget, int64_t swap_blocks, const Load& load) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < load.count; ++i)
    lengths.push_back(load.output + i % 3);  // different, so that orders by length differ
  KnownLengths predictor(lengths);
  HarnessConfig c = PresetConfig(preset.name, budget);
  c.predictor = &predictor;
  c.max_model_len = 128;
  c.num_blocks = (5 * (load.prompt + load.output) + load.prompt) / 2 / c.block_size;
  c.swap_blocks = swap_blocks;
  c.check_every_pass = false;
  Harness h(c);
  EXPECT_TRUE(h.scheduler_error().ok()) << h.scheduler_error().ToString();
  const bool scanned = std::string(preset.order) == "blend-dual-scan";
  int64_t tokens = 0;
  for (int i = 0; i < load.count; ++i) {
    AddRequest(&h, load.prompt, load.output + i % 3, [&](Request* r) {
      if (scanned) r->planned = ScannedPlace(load, i);
    });
    tokens += load.output + i % 3;
  }
  constexpr int64_t kMostPerToken = 64;  // far beyond every bound: counts as not ending
  EXPECT_EQ(h.Run(kMostPerToken * tokens), "");
  for (const auto& [handle, out] : h.outputs()) EXPECT_TRUE(out.done) << "request " << handle << " has not ended";
  if (scanned && h.scheduled().size() >= 2) {
    EXPECT_EQ(h.scheduled()[0].handle, h.handles().front());
    EXPECT_EQ(h.scheduled()[1].handle, h.handles().back()) << "the right end starts while the left one runs";
  }
  return static_cast<double>(h.steps()) / static_cast<double>(tokens);
}

// The bound: one step per token, a context's steps once per answer and again after it has lost its KV, and a context's
// steps for each ten tokens (a quantum of ltr) because others take turns.
double MostStepsPerToken(int64_t budget, const Load& load) {
  const double context = static_cast<double>(load.prompt + load.output + 2) / static_cast<double>(budget);
  return 1 + 2 * context / load.output + context / 10;
}

TEST(ShortKv, EveryPresetEndsWithinABoundedNumberOfStepsPerToken) {
  // Prompts of fewer and of more steps than a quantum of ltr.
  for (const auto& [budget, load] : {std::pair{int64_t{16}, Load{48, 24, 30}}, {int64_t{4}, Load{60, 24, 60}}}) {
    for (const PresetInfo& preset : Presets()) {
      for (const int64_t swap_blocks : {0, 400}) {
        if (preset.predictor[0] != '\0') continue;  // trail-oracle: same as trail, whose predictions are exact here
        SCOPED_TRACE(std::string(preset.name) + ", budget " + std::to_string(budget) + ", host blocks " +
                     std::to_string(swap_blocks));
        const double steps = StepsPerToken(preset, budget, swap_blocks, load);
        EXPECT_LE(steps, MostStepsPerToken(budget, load));
      }
    }
  }
}

}  // namespace
}  // namespace tactus::core
