// The crash report after a broken invariant on the engine thread.
#include "core/loop/crash_report.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "core/loop/harness.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

// Plans 150 steps, then none: the loop detects that nothing can change any more.
class Stops final : public Composition {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }
  void Compose(StepContext& step) override {
    if (step.view.step == 150) return;
    step.RunDecodes();
    step.RunPrefills(false);
    step.AdmitInOrder(false);
  }
};

void RunUntilItBreaks() {
  testing::HarnessConfig config;
  config.about = "seed = 42\n";
  config.max_model_len = 400;
  config.num_blocks = 200;
  InjectedChoices injected;
  injected.composition = std::make_unique<Stops>();
  testing::Harness h(config, std::move(injected));
  h.MustSubmit(testing::MakeRequest(testing::Tokens(1, 3), 300));
  h.Run();
}

TEST(CrashReportDeathTest, ReportsTheStateOfTheLoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(RunUntilItBreaks(),
               "an empty plan(.|\n)*scheduler sarathi-serve: order fcfs(.|\n)*composition injected(.|\n)*seed = 42\n"
               "150 steps planned, plan hash [0-9a-f]{16}, 0 in flight, 0 running, 1 waiting; (.|\n)*"
               "the last steps(.|\n)*  22 (.|\n)*  149 ");
}

TEST(CrashReportDeathTest, OmitsALoopThatIsNotRunning) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        InstallCrashReport();
        {
          const CrashScope scope([](const void*) { return std::string("over"); }, nullptr);
        }
        TACTUS_CHECK(1 + 1 == 3);
      },
      "broken invariant: 1 \\+ 1 == 3\n$");
}

}  // namespace
}  // namespace tactus::core
