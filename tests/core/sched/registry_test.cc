#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/sched/choices.h"
#include "core/sched/scheduler.h"

namespace tactus::core {
namespace {

SchedulerConfig Config(const std::string& preset) {
  SchedulerConfig c;
  c.preset = preset;
  c.limits.max_num_seqs = 16;
  c.limits.max_model_len = 1024;
  c.limits.slot_capacity = 64;
  c.limits.blocks_total = 100;
  c.limits.block_size = 16;
  return c;
}

std::string ErrorOf(const SchedulerConfig& c) {
  const auto made = Scheduler::Create(c);
  return made.ok() ? "" : made.status().message();
}

// A predictor by name, for configurations that never run.
class NamedPredictor final : public LengthPredictor {
 public:
  explicit NamedPredictor(std::string name) : name_(std::move(name)) {}
  const char* name() const override { return name_.c_str(); }
  bool learns() const override { return true; }
  void Bind(SlotId, const PredictionFeatures&) override {}
  void Ended(SlotId, int32_t, bool) override {}
  int32_t PredictOutputTokens(SlotId, int32_t) const override { return 1; }

 private:
  const std::string name_;
};

TEST(Registry, EveryPresetCanBeMade) {
  std::set<std::string> names;
  for (const PresetInfo& p : Presets()) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    SchedulerConfig c = Config(p.name);
    const auto predictor = Scheduler::PredictorFor(c);
    ASSERT_TRUE(predictor.ok()) << predictor.status().ToString();
    const NamedPredictor named(*predictor);
    if (*predictor != "none") c.limits.predictor = &named;
    const auto made = Scheduler::Create(c);
    EXPECT_TRUE(made.ok()) << p.name << ": " << made.status().ToString();
    EXPECT_NE(std::string(p.starvation), "");
  }
  for (const char* name :
       {"sarathi-serve", "vllm", "vllm-v0", "orca", "orca-best", "request-level", "fastgen", "no-preempt", "sarathi",
        "chunked-only", "hybrid-only", "s3", "pia", "trail", "trail-oracle", "ltr", "larry"}) {
    EXPECT_TRUE(names.count(name)) << name;
  }
}

TEST(Registry, ChoicesThatNeedAPredictorDefaultToHistory) {
  const auto predictor_for = [](const std::string& preset, const std::string& order, const std::string& predictor) {
    SchedulerConfig c = Config(preset);
    c.order = order;
    c.predictor = predictor;
    const auto name = Scheduler::PredictorFor(c);
    return name.ok() ? *name : "refused: " + name.status().message();
  };
  for (const char* preset : {"s3", "pia", "trail", "ltr"})
    EXPECT_EQ(predictor_for(preset, "", ""), "history") << preset;
  for (const char* preset : {"sarathi-serve", "larry", "sarathi"})
    EXPECT_EQ(predictor_for(preset, "", ""), "none") << preset;
  EXPECT_EQ(predictor_for("sarathi-serve", "srpt", ""), "history");
  EXPECT_EQ(predictor_for("sarathi-serve", "", "history"), "history");
  EXPECT_EQ(predictor_for("trail", "", "noisy:0.3"), "noisy:0.3");
  EXPECT_EQ(predictor_for("trail", "fcfs", ""), "none");  // no choice needs one any more
  EXPECT_EQ(predictor_for("trail-oracle", "", ""), "oracle");
  EXPECT_NE(predictor_for("trail", "", "none").find("use --predictor history"), std::string::npos);
  EXPECT_NE(predictor_for("trail-oracle", "", "history").find("such as trail"), std::string::npos);
}

TEST(Registry, WithoutItsPredictorASchedulerIsRefused) {
  SchedulerConfig c = Config("trail");
  EXPECT_NE(ErrorOf(c).find("order 'srpt'"), std::string::npos);
  EXPECT_NE(ErrorOf(c).find("--predictor history"), std::string::npos);
  const NamedPredictor history("history"), oracle("oracle");
  c.limits.predictor = &history;
  EXPECT_EQ(ErrorOf(c), "");
  EXPECT_EQ((*Scheduler::Create(c))->config().predictor, "history");
  c = Config("trail-oracle");
  c.limits.predictor = &history;
  EXPECT_NE(ErrorOf(c).find("oracle"), std::string::npos);
  c.limits.predictor = &oracle;
  EXPECT_EQ(ErrorOf(c), "");
}

TEST(Registry, ParametersOutOfRangeAreRefusedByName) {
  SchedulerConfig c = Config("larry");
  *c.limits.policy.Find<double>("larry-lambda") = -0.5;
  EXPECT_NE(ErrorOf(c).find("larry-lambda -0.5 is outside [0, inf]"), std::string::npos) << ErrorOf(c);
  *c.limits.policy.Find<double>("larry-lambda") = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ErrorOf(c), "");
  *c.limits.policy.Find<double>("larry-lambda") = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(ErrorOf(c), "");
  c = Config("larry");
  *c.limits.policy.Find<double>("trail-c") = 1.5;
  EXPECT_NE(ErrorOf(c).find("trail-c 1.5"), std::string::npos);
  *c.limits.policy.Find<double>("trail-c") = 0.8;
  *c.limits.policy.Find<int64_t>("pia-bin") = 0;
  EXPECT_NE(ErrorOf(c).find("pia-bin 0"), std::string::npos);
  c = Config("accelgen");
  *c.limits.policy.Find<std::string>("era") = "complete";
  EXPECT_NE(ErrorOf(c).find("era 'complete' is unknown; known: auto|kv|completed|prefilled|off"), std::string::npos)
      << ErrorOf(c);
  *c.limits.policy.Find<std::string>("era") = "off";
  EXPECT_EQ(ErrorOf(c), "");
}

TEST(Registry, UnknownNamesListTheKnownOnes) {
  EXPECT_NE(ErrorOf(Config("sarathi-server")).find("sarathi-serve, vllm"), std::string::npos);
  SchedulerConfig c = Config("vllm");
  c.order = "lifo";
  EXPECT_NE(ErrorOf(c).find("known: fcfs, priority"), std::string::npos);
}

TEST(Registry, OneChoiceOfAPresetCanBeChanged) {
  SchedulerConfig c = Config("sarathi-serve");
  c.order = "priority";
  const auto made = Scheduler::Create(c);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->config().order, "priority");
  EXPECT_EQ((*made)->config().composition, "stall-free");
  EXPECT_NE((*made)->Describe().find("order priority"), std::string::npos);
}

TEST(Registry, ImpossibleCombinationsAreRefusedWithAFix) {
  SchedulerConfig c = Config("sarathi-serve");
  c.preemption = "none";
  EXPECT_NE(ErrorOf(c).find("--admission max-length or --preemption youngest-recompute"), std::string::npos);

  c = Config("sarathi-serve");
  c.preemption = "abort-and-requeue";
  EXPECT_NE(ErrorOf(c).find("use --admission predicted-length"), std::string::npos);

  c = Config("orca");
  c.budget = "fixed";
  EXPECT_NE(ErrorOf(c).find("max-model-len is 1024"), std::string::npos);
  c.limits.token_budget = 1024;  // a budget that fits the longest prompt works
  EXPECT_EQ(ErrorOf(c), "");

  c = Config("no-preempt");
  c.limits.reserve_full = true;
  c.limits.blocks_total = 63;
  EXPECT_NE(ErrorOf(c).find("needs 64 KV blocks"), std::string::npos);
  c.limits.blocks_total = 64;
  EXPECT_EQ(ErrorOf(c), "");
}

// A knob that changes a step's cost must not be ignored: without a composition that has such batches it is refused.
TEST(Registry, AKnobIsRefusedWithoutTheChoiceThatDeclaresIt) {
  SchedulerConfig c = Config("sarathi-serve");
  *c.limits.policy.Find<bool>("pad") = true;
  EXPECT_EQ(ErrorOf(c),
            "--pad computes every sequence of a batch up to the longest, and no choice here has such batches; use "
            "--composition request-level");
  EXPECT_EQ(Scheduler::Create(c).status().param(), "pad");
  c = Config("request-level");
  *c.limits.policy.Find<bool>("pad") = true;
  EXPECT_EQ(ErrorOf(c), "");
  // A knob without such a message is ignored elsewhere.
  c = Config("sarathi-serve");
  *c.limits.policy.Find<double>("larry-lambda") = 0.5;
  EXPECT_EQ(ErrorOf(c), "");
  // An injected choice may know the knob.
  c = Config("sarathi-serve");
  *c.limits.policy.Find<bool>("pad") = true;
  InjectedChoices injected;
  injected.composition = MakeStallFree(c.limits);
  EXPECT_TRUE(Scheduler::Create(c, std::move(injected)).ok());
}

TEST(Registry, EveryChoiceFindsItsKnobs) {
  std::set<std::string> names;
  for (const KnobDeclaration* knob : DeclaredKnobs()) {
    EXPECT_TRUE(names.insert(knob->name).second) << knob->name << " is declared twice";
  }
  const std::set<std::string> known = {"tbt-headroom",
                                       "larry-lambda",
                                       "trail-c",
                                       "trail-margin",
                                       "trail-most-preemptions",
                                       "ltr-starvation-steps",
                                       "ltr-quantum-steps",
                                       "s3-window",
                                       "pia-bin",
                                       "pia-window",
                                       "pia-batch",
                                       "pia-variable-batches",
                                       "pia-collect-failed",
                                       "accelgen-ttft",
                                       "accelgen-tbt",
                                       "accelgen-gamma",
                                       "distance",
                                       "era",
                                       "accelgen-long-prompt",
                                       "accelgen-pivot",
                                       "pad",
                                       "mlfq-quantum",
                                       "mlfq-promotion",
                                       "mlfq-promotion-steps",
                                       "accelgen-missed-turn",
                                       "accelgen-missed",
                                       "accelgen-late-takes",
                                       "accelgen-model"};
  EXPECT_TRUE(std::includes(names.begin(), names.end(), known.begin(), known.end()));
  PolicyOptions options;
  EXPECT_EQ(*options.Find<double>("larry-lambda"), 0.01);
  EXPECT_EQ(*options.Find<std::string>("distance"), "euclidean");
  EXPECT_EQ(options.Find<DurationText>("mlfq-promotion")->ns, 3 * kSecond);
  EXPECT_EQ(options.Find<int64_t>("larry-lambda"), nullptr) << "of another type";
  EXPECT_EQ(options.Find<double>("larry"), nullptr);
}

// A policy whose row omits its knob aborts at construction, instead of reading another value.
TEST(RegistryDeathTest, AKnobWithoutARowCannotBeRead) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  static constexpr Knob<double> kForgotten{"forgotten", 0.5, {.help = "in no row"}};
  const PolicyOptions options;
  EXPECT_DEATH((void)options[kForgotten], "no row of choices.def names the knob 'forgotten'");
}

TEST(RegistryDeathTest, PlanRejectsATableForOtherNotes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const NamedPredictor history("history");
  SchedulerConfig c = Config("trail");
  c.limits.predictor = &history;
  const auto made = Scheduler::Create(c);
  ASSERT_TRUE(made.ok());
  ASSERT_GT((*made)->notes().stride(), 0u);
  EXPECT_EQ((*Scheduler::Create(Config("sarathi-serve")))->notes().stride(), 0u) << "its choices note nothing";
  StepPlan plan;
  EXPECT_DEATH((*made)->Plan(StepView(), nullptr, &plan),
               "was made for other notes than those of this scheduler's choices");
}

// Injected choices lay out their notes before the others.
TEST(Registry, InjectedChoicesShareTheNoteLayout) {
  struct InjectedNote {
    int64_t value;
  };
  SchedulerConfig c = Config("request-level");
  InjectedChoices injected;
  c.limits.notes = &injected.notes;
  const NoteColumn<InjectedNote> note = c.limits.Note<InjectedNote>();
  injected.order = MakeFcfsOrder(c.limits);
  const auto made = Scheduler::Create(c, std::move(injected));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ASSERT_GT((*made)->notes().stride(), sizeof(InjectedNote)) << "request-level notes the size of a batch";
  std::vector<std::byte> bytes((*made)->notes().stride());
  const SequenceNotes notes{bytes.data(), bytes.size()};
  EXPECT_EQ(&note.At(notes, 0), &(*made)->notes().Find<InjectedNote>()->At(notes, 0));
  EXPECT_EQ((*made)->config().limits.notes, nullptr) << "it is not used later";
}

// Whether step times are worth loading, before sizes are known.
TEST(Registry, TraitsReportWhetherStepTimesAreUsed) {
  const auto by_step_time = [](const std::string& preset, const std::string& budget, DurationNs tbt_slo_ns,
                               int64_t token_budget) {
    SchedulerConfig c;
    c.preset = preset;
    c.budget = budget;
    c.limits.tbt_slo_ns = tbt_slo_ns;
    c.limits.token_budget = token_budget;
    const auto traits = Scheduler::TraitsOf(c);
    EXPECT_TRUE(traits.ok()) << traits.status().ToString();
    return traits.ok() && traits->wants_step_time;
  };
  EXPECT_TRUE(by_step_time("sarathi-serve", "", kSecond, 0));
  EXPECT_TRUE(by_step_time("sarathi-serve", "", kAutoDuration, 0));
  EXPECT_TRUE(by_step_time("sarathi-serve", "", kSecond, 64)) << "64 tokens are the most, and the objective stands";
  EXPECT_TRUE(by_step_time("vllm", "tbt-slo", kSecond, 0));
  EXPECT_TRUE(by_step_time("tactus", "", kAutoDuration, 0));
  EXPECT_TRUE(by_step_time("tactus", "", 0, 64)) << "objectives of requests size its steps";
  EXPECT_TRUE(by_step_time("orca", "profile", kSecond, 0));
  EXPECT_FALSE(by_step_time("sarathi-serve", "", 0, 0)) << "no objective";
  EXPECT_FALSE(by_step_time("sarathi-serve", "", kAutoDuration, 64)) << "a size is given, an objective is not";
  EXPECT_FALSE(by_step_time("orca", "profile", kSecond, 64)) << "the size is fixed";
  EXPECT_FALSE(by_step_time("orca", "profile", kAutoDuration, 0))
      << "one size for all steps is for the user's objective";
  EXPECT_FALSE(by_step_time("sarathi-serve", "fixed", kSecond, 0));
  EXPECT_TRUE(by_step_time("accelgen", "", kSecond, 0));
  EXPECT_TRUE(by_step_time("accelgen", "fixed", 0, 64)) << "the order's slack needs them";
  EXPECT_TRUE(by_step_time("fastserve", "", 0, 0)) << "a prompt's first queue depends on them";
  EXPECT_TRUE(by_step_time("blend", "", 0, 0));
  EXPECT_FALSE(by_step_time("vllm", "", kSecond, 0));
  for (const PresetInfo& preset : Presets()) by_step_time(preset.name, "", kSecond, 0);
  SchedulerConfig unknown;
  unknown.preset = "bogus";
  EXPECT_NE(Scheduler::TraitsOf(unknown).status().message().find("unknown scheduler 'bogus'"), std::string::npos);
}

// Memory is planned before step times are known: for the largest step that they may later allow.
TEST(Registry, PromiseBudgetReportsItsLargestStepWithoutStepTimes) {
  SchedulerConfig c = Config("tactus");
  EXPECT_EQ(Scheduler::TraitsOf(c)->max_tokens, 2048);
  c.limits.token_budget = 300;
  EXPECT_EQ(Scheduler::TraitsOf(c)->max_tokens, 300);
}

TEST(Registry, ASearchIsNoPreset) {
  ASSERT_NE(FindSearch("oracle"), nullptr);
  EXPECT_STREQ(FindSearch("oracle")->name, "oracle");
  EXPECT_EQ(FindSearch("sarathi-serve"), nullptr);
  for (const PresetInfo& preset : Presets()) EXPECT_EQ(FindSearch(preset.name), nullptr) << preset.name;
}

TEST(Registry, DescribeStatesTheReasonForTheBudget) {
  SchedulerConfig c = Config("sarathi-serve");
  EXPECT_NE((*Scheduler::Create(c))->Describe().find("512 tokens per step: no --tbt-slo"), std::string::npos);
  EXPECT_EQ((*Scheduler::Create(c))->max_step_tokens(), 512);
  c.limits.tbt_slo_ns = 50 * kMillisecond;
  EXPECT_NE((*Scheduler::Create(c))->Describe().find("there are no step times of this machine for --tbt-slo"),
            std::string::npos);
  c.limits.token_budget = 96;
  EXPECT_NE((*Scheduler::Create(c))->Describe().find("96 tokens per step: --token-budget"), std::string::npos);
  EXPECT_EQ((*Scheduler::Create(Config("orca")))->max_step_tokens(), 1024);
  EXPECT_EQ((*Scheduler::Create(Config("vllm-v0")))->max_step_tokens(), 1024 + 16);
}

class LinearModel final : public StepTimeModel {
 public:
  DurationNs StepTimeNs(const StepShape& shape) const override {
    return kMillisecond + shape.tokens() * 100 * kMicrosecond;
  }
  int32_t tile_tokens() const override { return 32; }
};

TEST(Registry, ProfileTakesTheLargestTileMultipleThatKeepsTheObjective) {
  const LinearModel model;
  SchedulerConfig c = Config("sarathi-serve");
  c.budget = "profile";
  c.limits.step_time = &model;
  c.limits.tbt_slo_ns = 30 * kMillisecond;  // 1 ms + 0.1 ms per token: 290 tokens, so 288
  EXPECT_EQ((*Scheduler::Create(c))->max_step_tokens(), 288);
  c.limits.tbt_slo_ns = 2 * kMillisecond;  // not even one tile
  EXPECT_EQ((*Scheduler::Create(c))->max_step_tokens(), 32);
}

TEST(Registry, ASmallBudgetLimitsTheSequencesSoThatEveryDecodeFits) {
  SchedulerConfig c = Config("sarathi-serve");
  c.limits.token_budget = 5;
  EXPECT_EQ((*Scheduler::Create(c))->max_running(), 5);
}

}  // namespace
}  // namespace tactus::core
