// Random schedules of a StepDriver's sequences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "support/step_driver.h"

namespace tactus::test {

struct MixedSteps {
  int32_t output = 0;  // tokens of each sequence
  bool preempt = false;
  bool swap = false;
};

// One random hybrid batch after another, in any order of items, until the first `sequences` sequences have their
// tokens.
inline void RunMixed(StepDriver& driver, int32_t sequences, const MixedSteps& options, Rng& rng) {
  const auto done = [&](int32_t s) {
    const StepDriver::Sequence& q = driver.at(s);
    return q.status != ItemStatus::kOk || static_cast<int32_t>(q.output().size()) >= options.output;
  };
  for (int rounds = 0;; ++rounds) {
    ASSERT_LT(rounds, 10000) << "the sequences do not end";
    std::vector<StepDriver::Take> takes;
    bool all_done = true;
    for (int32_t s = 0; s < sequences; ++s) {
      if (done(s)) continue;
      all_done = false;
      StepDriver::Sequence& q = driver.at(s);
      const bool swapped = !q.host.empty();
      if (swapped) {
        if (rng.UniformInt(0, 2) > 0) continue;
        driver.SwapIn(s);
      } else if (options.preempt && q.computed > 0 && rng.UniformInt(0, 9) == 0) {
        driver.Preempt(s);
      } else if (options.swap && q.computed > 0 && rng.UniformInt(0, 4) == 0 &&
                 driver.free_host_blocks() >= static_cast<int64_t>(q.table.size())) {
        driver.SwapOut(s);
        continue;
      }
      if (!swapped && rng.UniformInt(0, 2) == 0) continue;
      takes.push_back({s, static_cast<int32_t>(rng.UniformInt(1, std::min(q.pending(), 24))), {}});
    }
    if (all_done) return;
    for (size_t i = takes.size(); i > 1; --i)
      std::swap(takes[i - 1], takes[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(i) - 1))]);
    if (takes.empty()) continue;
    const StepResult result = driver.Step(takes, rng.UniformInt(0, 3) == 0);
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  }
}

}  // namespace tactus::test
