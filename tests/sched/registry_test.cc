#include <gtest/gtest.h>

#include <set>

#include "sched/scheduler.h"

namespace tactus::sched {
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

TEST(Registry, ThePresetsAreThere) {
  std::set<std::string> names;
  for (const PresetInfo& p : Presets()) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    EXPECT_TRUE(Scheduler::Create(Config(p.name)).ok()) << p.name;
    EXPECT_NE(std::string(p.starvation), "");
  }
  for (const char* name : {"sarathi-serve", "vllm", "vllm-v0", "orca", "request-level", "fastgen", "no-preempt"}) {
    EXPECT_TRUE(names.count(name)) << name;
  }
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

TEST(Registry, WhatCannotWorkIsRefusedWithTheWayOut) {
  SchedulerConfig c = Config("sarathi-serve");
  c.preemption = "none";
  EXPECT_NE(ErrorOf(c).find("--admission max-length or --preemption youngest-recompute"), std::string::npos);

  c = Config("orca");
  c.budget = "fixed";
  EXPECT_NE(ErrorOf(c).find("max-model-len is 1024"), std::string::npos);
  c.limits.token_budget = 1024;   // a budget that holds the longest prompt is all right
  EXPECT_EQ(ErrorOf(c), "");

  c = Config("no-preempt");
  c.limits.reserve_full = true;
  c.limits.blocks_total = 63;
  EXPECT_NE(ErrorOf(c).find("needs 64 KV blocks"), std::string::npos);
  c.limits.blocks_total = 64;
  EXPECT_EQ(ErrorOf(c), "");
}

TEST(Registry, BudgetsSayWhy) {
  SchedulerConfig c = Config("sarathi-serve");
  EXPECT_NE((*Scheduler::Create(c))->Describe().find("512 tokens per step: no --tbt-slo"), std::string::npos);
  EXPECT_EQ((*Scheduler::Create(c))->max_step_tokens(), 512);
  c.limits.tbt_slo_ns = 50 * kMillisecond;
  EXPECT_NE((*Scheduler::Create(c))->Describe().find("no step-time profile"), std::string::npos);
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
  c.limits.step_time = &model;
  c.limits.tbt_slo_ns = 30 * kMillisecond;   // 1 ms + 0.1 ms per token: 290 tokens, so 288
  EXPECT_EQ((*Scheduler::Create(c))->max_step_tokens(), 288);
  c.limits.tbt_slo_ns = 2 * kMillisecond;    // not even one tile
  EXPECT_EQ((*Scheduler::Create(c))->max_step_tokens(), 32);
}

TEST(Registry, ASmallBudgetLimitsTheSequencesSoThatEveryDecodeFits) {
  SchedulerConfig c = Config("sarathi-serve");
  c.limits.token_budget = 5;
  EXPECT_EQ((*Scheduler::Create(c))->max_running(), 5);
}

}  // namespace
}  // namespace tactus::sched
