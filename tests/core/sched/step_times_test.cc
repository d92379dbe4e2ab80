// An engine loads or measures step times at start if one of its choices requests them (ChoiceTraits::wants_step_time).
// A choice that read them without a request would have them in a simulation but not in a server.
#include <gtest/gtest.h>

#include "core/sched/registry.h"
#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::PresetConfig;

class CountingModel final : public StepTimeModel {
 public:
  DurationNs StepTimeNs(const StepShape& shape) const override {
    ++asked;
    return kMillisecond + 10 * kMicrosecond * shape.tokens();
  }
  mutable int64_t asked = 0;
};

// Prompts, decodes beside prompts, objectives of every kind, and too little memory.
int64_t QuestionsOfARun(HarnessConfig c) {
  const CountingModel model;
  c.scheduler.limits.step_time = &model;
  c.num_blocks = 24;
  c.executor.step_base_ns = kMillisecond;
  Harness h(c);
  for (int i = 0; i < 12; ++i) {
    AddRequest(&h, 5 + 7 * (i % 4), 8, [i](Request* r) {
      if (i % 3 == 0) r->slo = {.ttft_ns = 20 * kMillisecond, .tbt_ns = 3 * kMillisecond};
      if (i % 3 == 1) r->slo = {.jct_ns = 60 * kMillisecond};
    });
    EXPECT_EQ(h.Settle(), "");
  }
  EXPECT_EQ(h.Run(), "");
  return model.asked;
}

// Times that the choices read while they are made.
int64_t QuestionsAtStart(const std::string& preset, const std::string& order) {
  const CountingModel model;
  HarnessConfig c = PresetConfig(preset);
  c.scheduler.order = order;
  c.scheduler.limits.step_time = &model;
  EXPECT_TRUE(Scheduler::TraitsOf(c.scheduler).ok());
  return model.asked;
}

// The order alone reads as many times as the order, admission, composition and budget of the preset together.
TEST(StepTimes, ChoicesOfTactusShareOneModel) {
  EXPECT_GT(QuestionsAtStart("vllm", "promise"), 0);
  EXPECT_EQ(QuestionsAtStart("tactus", ""), QuestionsAtStart("vllm", "promise"));
}

TEST(StepTimes, EveryPresetThatReadsStepTimesRequestsThem) {
  int readers = 0;
  for (const PresetInfo& preset : Presets()) {
    if (!std::string(preset.predictor).empty()) continue;  // simulation only
    HarnessConfig c = PresetConfig(preset.name);
    const int64_t asked = QuestionsOfARun(c);
    readers += asked > 0;
    const auto traits = Scheduler::TraitsOf(c.scheduler);
    ASSERT_TRUE(traits.ok()) << preset.name << ": " << traits.status().ToString();
    EXPECT_TRUE(traits->wants_step_time || asked == 0) << preset.name << " reads step times: " << asked << " questions";
  }
  EXPECT_GT(readers, 5);
}

TEST(StepTimes, EveryChoiceThatReadsStepTimesRequestsThem) {
  int readers = 0;
  for (const Choice choice : kAllChoices) {
    for (const ChoiceInfo& value : Values(choice)) {
      // In every preset, since some choices only work with certain others.
      for (const PresetInfo& preset : Presets()) {
        HarnessConfig c = PresetConfig(preset.name);
        std::string* const names[] = {&c.scheduler.order,  &c.scheduler.admission,  &c.scheduler.composition,
                                      &c.scheduler.budget, &c.scheduler.preemption, &c.scheduler.gate};
        *names[static_cast<size_t>(choice)] = value.name;
        SchedulerConfig with = c.scheduler;
        const CountingModel model;
        with.limits.step_time = &model;
        const auto traits = Scheduler::TraitsOf(c.scheduler), made = Scheduler::TraitsOf(with);
        if (!traits.ok() || !made.ok()) continue;
        readers += model.asked > 0;
        EXPECT_TRUE(traits->wants_step_time || model.asked == 0) << preset.name << " with " << value.name;
        EXPECT_EQ(traits->wants_step_time, made->wants_step_time) << preset.name << " with " << value.name;
      }
    }
  }
  EXPECT_GT(readers, 20);
}

}  // namespace
}  // namespace tactus::core
