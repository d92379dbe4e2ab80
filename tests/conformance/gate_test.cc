// The gate with every preset: accepted requests are served as without it, refused ones get no output and use no
// resources, and a fresh instance and a replay refuse the same.
#include <gtest/gtest.h>

#include <cstdio>

#include "conformance/workload.h"
#include "core/trace/replay.h"

namespace tactus {
namespace {

using testing::ExpectedOutput;
using testing::MakeWorkload;
using testing::Outcome;
using testing::Play;
using testing::RequestOutput;
using testing::Workload;

// Four fifths of the real step times, so that the correction is not 1; a replay computes it too.
struct FakeSteps final : StepTimeModel {
  DurationNs StepTimeNs(const StepShape& shape) const override {
    return (kMillisecond + shape.tokens() * 10 * kMicrosecond) * 4 / 5;
  }
};

TEST(GateConformance, RefusedRequestsDoNotAffectServedOnes) {
  const FakeSteps steps;
  const auto classes = ParseServiceClasses({"shed:ttft=10ms,gate=shed", "wait:gate=queue", "off:gate=off"});
  ASSERT_TRUE(classes.ok()) << classes.status().message();
  const std::string names[] = {"", "shed", "wait", "off"};
  const std::string path = ::testing::TempDir() + "gate_conformance.trace";
  int64_t refused = 0, served = 0;
  for (const auto& preset : core::Presets()) {
    for (uint64_t seed = 9000; seed < 9012; ++seed) {
      SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed));
      Workload w = MakeWorkload(seed, {.cancels = seed % 3 == 0, .tokens_on_host = seed % 2 == 0});
      w.config.scheduler.limits.step_time = &steps;
      w.config.scheduler.limits.classes = *classes;
      for (size_t i = 0; i < w.arrivals.size(); ++i) w.arrivals[i].request.slo_class = names[i % 4];
      const core::SchedulerConfig c{.preset = preset.name, .gate = seed % 2 == 0 ? "predict" : "queue"};
      const Outcome once = Play(w, c, false, path);
      ASSERT_EQ(once.broken, "");
      for (const RequestOutput& out : once.requests) {
        if (out.done_event.refused) {
          ++refused;
          EXPECT_EQ(out.error.code(), StatusCode::kResourceExhausted);
          EXPECT_EQ(out.done_event.scheduled_ns, 0);
          EXPECT_TRUE(out.request->slo_class == "shed" || (c.gate == "predict" && out.request->slo_class.empty()))
              << out.request->slo_class;
          continue;
        }
        if (out.done_event.finish != FinishReason::kLength) continue;
        ++served;
        EXPECT_EQ(out.choices[0].tokens, ExpectedOutput(w.config.executor, *out.request, 0, w.config.model_stop_ids));
      }
      const Outcome fresh = Play(w, c, /*fresh_policies=*/true);
      ASSERT_EQ(fresh.broken, "");
      EXPECT_EQ(once.hashes, fresh.hashes);
      const auto replayed = core::ReplayTrace(path, {});
      ASSERT_TRUE(replayed.ok()) << replayed.status().message();
      EXPECT_TRUE(replayed->identical()) << "first other plan: step " << replayed->first_difference;
    }
  }
  std::remove(path.c_str());
  EXPECT_GT(refused, 200);
  EXPECT_GT(served, 200);
}

}  // namespace
}  // namespace tactus
