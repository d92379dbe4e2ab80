#include "engine/step_times/step_profiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>

#include "base/clock.h"
#include "cost/step_tables/step_spread.h"
#include "engine/step_times/profile_model.h"
#include "support/source_path.h"

namespace tactus {
namespace {

engine::ProfileLimits Limits() {
  engine::ProfileLimits l;
  l.max_step_tokens = 512;
  l.max_decodes = 64;
  l.max_context = 2048;
  l.num_blocks = 3000;
  l.block_size = 16;
  l.vocab_size = 100;
  return l;
}

int64_t BlocksOf(const engine::ProfileLimits& l, const engine::ProfilePoint& p) {
  const auto blocks = [&l](int64_t tokens) { return (tokens + l.block_size - 1) / l.block_size; };
  return blocks(p.prefill_tokens + p.prefill_context) + p.decodes * blocks(p.decode_context);
}

TEST(DesignProfile, PointsAreDistinctAndWithinTheLimits) {
  engine::ProfileLimits small = Limits();
  small.num_blocks = 40;
  small.max_step_tokens = 48;
  for (const engine::ProfileLimits& l : {Limits(), small}) {
    const auto points = engine::DesignProfile(l, 300);
    EXPECT_GT(points.size(), 100u);
    std::set<std::vector<int32_t>> seen;
    for (const engine::ProfilePoint& p : points) {
      EXPECT_TRUE(seen.insert({p.prefill_tokens, p.prefill_context, p.decodes, p.decode_context}).second);
      EXPECT_GE(p.prefill_tokens + p.decodes, 1);
      EXPECT_LE(p.prefill_tokens + p.decodes, l.max_step_tokens);
      EXPECT_LE(p.prefill_tokens + p.prefill_context, l.max_context);
      EXPECT_LE(p.decodes, l.max_decodes);
      EXPECT_LE(p.decode_context, l.max_context);
      EXPECT_EQ(p.decodes > 0, p.decode_context > 0);
      EXPECT_LE(BlocksOf(l, p), l.num_blocks);
    }
  }
}

// A measurement that stops early has covered the whole range.
TEST(DesignProfile, FirstPointsCoverTheSpace) {
  const auto points = engine::DesignProfile(Limits(), 36);
  ASSERT_EQ(points.size(), 36u);
  const auto most = [&](auto field) {
    int32_t value = 0;
    for (size_t i = 0; i < 12; ++i) value = std::max(value, points[i].*field);
    return value;
  };
  EXPECT_EQ(most(&engine::ProfilePoint::prefill_tokens), 512);
  EXPECT_EQ(most(&engine::ProfilePoint::prefill_context), 2032);
  EXPECT_EQ(most(&engine::ProfilePoint::decodes), 64);
  EXPECT_EQ(most(&engine::ProfilePoint::decode_context), 2048);
  // The first 36 points reach each third of an axis (in ratios).
  const auto thirds = [&](auto field, double high) {
    std::set<int> met;
    for (const engine::ProfilePoint& p : points) {
      if (p.*field > 0) met.insert(std::min(2, static_cast<int>(3 * std::log(p.*field) / std::log(high))));
    }
    return met.size();
  };
  EXPECT_EQ(thirds(&engine::ProfilePoint::prefill_tokens, 512), 3u);
  EXPECT_EQ(thirds(&engine::ProfilePoint::decodes, 64), 3u);
  EXPECT_EQ(thirds(&engine::ProfilePoint::prefill_context, 2048),
            2u);  // a context is 0 or at least 16: beyond the first third
}

// Takes the time of a formula, every seventh step four times as long (a disturbance), and reports plans for which a
// real executor would read unwritten memory.
class ScriptedExecutor final : public Executor {
 public:
  explicit ScriptedExecutor(int32_t block_size) : block_size_(block_size) {}
  ExecutorTraits traits() const override { return {}; }
  void SetWakeup(std::function<void()>) override {}
  void Submit(const StepPlan& plan) override {
    for (const TableUpdate& u : plan.table_updates) {
      auto& table = tables_[u.slot];
      table.resize(static_cast<size_t>(std::max<int32_t>(static_cast<int32_t>(table.size()), u.first_index + u.count)));
      std::copy_n(plan.table_blocks.begin() + u.offset, u.count, table.begin() + u.first_index);
    }
    for (const BlockCopy& c : plan.copies) {
      if (written_.count(c.from) == 0) violation = "a copy of an unwritten block";
      written_.insert(c.to);
    }
    double ms = 0.5;
    std::set<BlockId> used;
    for (const StepItem& item : plan.items) {
      const auto& table = tables_[item.slot];
      for (int32_t b = 0; b <= (item.first_position + item.count - 1) / block_size_; ++b) {
        const BlockId block = table.at(static_cast<size_t>(b));
        if (!used.insert(block).second) violation = "two sequences share a block";
        if (b < item.first_position / block_size_ && written_.count(block) == 0)
          violation = "KV that was never written";
        written_.insert(block);
      }
      const double context = item.first_position, tokens = item.count;
      ms += 0.02 * tokens + (tokens == 1 ? 1e-4 * (context + 1) : 1e-6 * tokens * (context + tokens / 2));
    }
    if (plan.tokens.size() != static_cast<size_t>(plan.num_tokens)) violation = "tokens are missing";
    if (++steps_ % 7 == 0) ms *= 4;
    plan_ = &plan;
    took_ns_ = static_cast<DurationNs>(ms * 1e6);
  }
  bool Poll(StepResult* result) override {
    if (plan_ == nullptr) return false;
    result->Clear();
    result->step = plan_->step;
    result->items.resize(plan_->items.size());
    result->start_ns = now_ns_;
    result->end_ns = now_ns_ += took_ns_;
    plan_ = nullptr;
    return true;
  }
  std::string violation;

 private:
  const int32_t block_size_;
  std::map<SlotId, std::vector<BlockId>> tables_;
  std::set<BlockId> written_;
  const StepPlan* plan_ = nullptr;
  TimeNs now_ns_ = 0;
  DurationNs took_ns_ = 0;
  int64_t steps_ = 0;
};

TEST(StepProfiler, MeasuresMediansOfValidPlansAndWritesAProfile) {
  const engine::ProfileLimits limits = Limits();
  ScriptedExecutor executor(limits.block_size);
  engine::StepProfiler profiler(&executor, limits);
  engine::MeasuredProfile profile;
  profile.remarks = {{"model", "made up"}, {"threads", "2"}};
  for (const engine::ProfilePoint& p : engine::DesignProfile(limits, 150)) {
    const auto sample = profiler.Measure(p, 20 * kMillisecond);
    ASSERT_TRUE(sample.ok()) << sample.status().ToString();
    ASSERT_EQ(executor.violation, "");
    double ms = 0.5 + 0.02 * p.decodes + p.decodes * 1e-4 * p.decode_context + 0.02 * p.prefill_tokens;
    const double c = p.prefill_tokens, k = p.prefill_context;
    if (c == 1) ms += 1e-4 * (k + 1);
    if (c > 1) ms += 1e-6 * c * (k + c / 2);
    ASSERT_NEAR(sample->step_ms, ms, 1e-5) << "the median excludes disturbed runs";
    profile.samples.push_back(*sample);
  }
  const std::string path = ::testing::TempDir() + "profile_test.csv";
  std::ofstream(path) << engine::ProfileText(profile);
  const auto loaded = cost::LoadStepProfile(path);
  std::remove(path.c_str());
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ((*loaded)->remarks().at("model"), "made up");
  EXPECT_EQ((*loaded)->error().rows, 150);
  // An unmeasured step, with two chunks.
  const ChunkShape chunks[] = {{700, 100}, {0, 60}};
  StepShape shape;
  shape.chunks = chunks;
  shape.decodes = 20;
  shape.decode_context_tokens = 20 * 900;
  const double truth = 0.5 + 0.02 * 180 + 1e-4 * 18000 + 1e-6 * (100 * 750 + 60 * 30);
  EXPECT_NEAR(static_cast<double>((*loaded)->StepTimeNs(shape)) * 1e-6 / truth, 1.0, 0.03);
}

// Takes ten times as long where sequences start, as in a warm-up.
class ColdExecutor final : public Executor {
 public:
  ExecutorTraits traits() const override { return {}; }
  void SetWakeup(std::function<void()>) override {}
  void Submit(const StepPlan& plan) override { plan_ = &plan; }
  bool Poll(StepResult* result) override {
    if (plan_ == nullptr) return false;
    result->Clear();
    result->step = plan_->step;
    result->items.resize(plan_->items.size());
    result->start_ns = 0;
    result->end_ns = !plan_->starts.empty() && plan_->num_decodes > 0 ? 10 * kMillisecond : kMillisecond;
    plan_ = nullptr;
    return true;
  }

 private:
  const StepPlan* plan_ = nullptr;
};

TEST(StepProfiler, FirstRunOfAVisitCountsOnlyWithoutTimeForThreeMore) {
  for (const auto& [enough_ns, counted] :
       {std::pair{2 * kMillisecond, std::vector<DurationNs>(3, kMillisecond)}, {kMillisecond, {10 * kMillisecond}}}) {
    ColdExecutor executor;
    engine::StepProfiler profiler(&executor, Limits());
    std::vector<DurationNs> times;
    ASSERT_TRUE(profiler.Visit({.decodes = 1, .decode_context = 1}, enough_ns, &times).ok());
    EXPECT_EQ(times, counted) << enough_ns;
  }
}

// Up to two steps in flight, each 1 ms, and 9 ms more where none is in flight: the time in which a host launches it.
class PairedExecutor final : public Executor {
 public:
  ExecutorTraits traits() const override { return {.max_in_flight = 2}; }
  void SetWakeup(std::function<void()>) override {}
  void Submit(const StepPlan& plan) override {
    most = std::max(most, plans_.size() + 1);
    for (const auto& [other, ns] : plans_) same_plan |= other == &plan;
    plans_.emplace_back(&plan, plans_.empty() ? 10 * kMillisecond : kMillisecond);
    steps.push_back(plan.step);
  }
  bool Poll(StepResult* result) override {
    if (plans_.empty()) return false;
    const auto [plan, took_ns] = plans_.front();
    result->Clear();
    result->step = plan->step;
    result->items.resize(plan->items.size());
    result->start_ns = 0;
    result->end_ns = took_ns;
    plans_.erase(plans_.begin());
    return true;
  }
  size_t in_flight() const { return plans_.size(); }
  std::vector<StepId> steps;
  size_t most = 0;
  bool same_plan = false;

 private:
  std::vector<std::pair<const StepPlan*, DurationNs>> plans_;
};

TEST(StepProfiler, StepsThatFollowEachOtherCountWhereTheExecutorTakesTwo) {
  PairedExecutor executor;
  engine::StepProfiler profiler(&executor, Limits());
  for (const auto& [enough_ns, counted] : {std::pair{2 * kMillisecond, size_t{3}}, {5 * kMillisecond, size_t{5}}}) {
    std::vector<DurationNs> times;
    ASSERT_TRUE(profiler.Visit({.decodes = 2, .decode_context = 20}, enough_ns, &times).ok());
    EXPECT_EQ(times, std::vector<DurationNs>(counted, kMillisecond)) << enough_ns;
  }
  EXPECT_EQ(executor.most, 2u);
  EXPECT_FALSE(executor.same_plan) << "a plan was changed while it was in flight";
  EXPECT_EQ(executor.in_flight(), 0u) << "a step was left in flight";
  for (size_t i = 1; i < executor.steps.size(); ++i) EXPECT_EQ(executor.steps[i], executor.steps[i - 1] + 1);
}

EngineOptions TinyModel() {
  EngineOptions engine;
  engine.model = test::SourcePath("tests/golden/data/llama-gqa");
  engine.device = "cpu";
  engine.threads = 1;
  engine.max_num_seqs = 4;
  engine.kv_cache_memory.bytes = 4 << 20;
  return engine;
}

TEST(ProfileModel, MeasuresARealModelAndKeepsPartialResults) {
  engine::ProfileOptions options;
  options.time_limit_ns = 60 * kSecond;  // not reached: the points run out
  options.max_points = 12;
  options.max_rounds = 2;
  auto all = engine::ProfileModel(TinyModel(), options, SystemClock());
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  EXPECT_FALSE(all->interrupted);
  EXPECT_GE(all->samples.size(), 8u);
  for (const cost::StepSample& s : all->samples) EXPECT_GT(s.step_ms, 0);
  EXPECT_EQ(all->remarks.at("threads"), "1");

  options.progress = [](const engine::ProfileProgress& p) { return p.points < 3; };
  auto some = engine::ProfileModel(TinyModel(), options, SystemClock());
  ASSERT_TRUE(some.ok());
  EXPECT_TRUE(some->interrupted);
  EXPECT_EQ(some->samples.size(), 3u);
}

// The spread covers single runs, not medians: every seventh step of ScriptedExecutor takes four times as long, which no
// median shows. ln 4 in a seventh of all runs is a deviation of ln 4 sqrt(6 / 49) = 0.485.
TEST(ProfileModel, ProfileContainsTheSpreadOfSingleSteps) {
  ScriptedExecutor executor(Limits().block_size);
  ManualClock clock;
  engine::ProfileOptions options;
  options.max_points = 60;
  options.max_rounds = 2;
  auto profile = engine::MeasureSteps(&executor, Limits(), options, clock);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_EQ(profile->samples.size(), 60u);
  EXPECT_GE(profile->single_steps.size(), 60u * 2 * 3) << "three runs per visit, two visits per point";
  const auto fitted = engine::FitMeasured(&*profile);
  ASSERT_TRUE(fitted.ok()) << fitted.status().ToString();
  EXPECT_LT((*fitted)->error().fit_median, 0.02) << "the medians are undisturbed";
  const auto read = cost::ParseStepProfile("profile.csv", engine::ProfileText(*profile));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const auto spread = cost::NotedSpread((*read)->remarks());
  ASSERT_TRUE(spread.ok() && spread->has_value()) << engine::ProfileText(*profile).substr(0, 300);
  EXPECT_NEAR((*spread)->with_prompts, 0.485, 0.06);
  EXPECT_NEAR((*spread)->decodes_only, 0.485, 0.06);
}

// Steps of `faster_from` tokens or more take half the time in two parts, others twice.
class SplittingExecutor final : public Executor {
 public:
  explicit SplittingExecutor(int64_t faster_from) : faster_from_(faster_from) {}
  ExecutorTraits traits() const override { return {}; }
  void SetWakeup(std::function<void()>) override {}
  void Submit(const StepPlan& plan) override {
    plan_ = &plan;
    tokens_ = plan.num_tokens;
  }
  bool Poll(StepResult* result) override {
    if (plan_ == nullptr) return false;
    result->Clear();
    result->step = plan_->step;
    result->items.resize(plan_->items.size());
    result->start_ns = 0;
    result->end_ns = static_cast<DurationNs>(Ms(tokens_, tokens_ >= limit_) * 1e6);
    plan_ = nullptr;
    return true;
  }
  std::optional<OverlapTimes> MeasureOverlap() override {
    return OverlapTimes{
        .compute = 2, .memory = 1, .together = 2.3, .whole = Ms(tokens_, false), .split = Ms(tokens_, true)};
  }
  void SplitStepsFrom(int64_t tokens) override { limit_ = tokens; }
  double Ms(int64_t tokens, bool split) const {
    const double ms = 1 + 0.01 * static_cast<double>(tokens);
    return !split ? ms : tokens >= faster_from_ ? ms / 2 : ms * 2;
  }

 private:
  const int64_t faster_from_;
  const StepPlan* plan_ = nullptr;
  int64_t tokens_ = 0, limit_ = kLeastSplitTokens;
};

// A server that reads the file cuts the same steps in two as those whose times are in it.
TEST(ProfileModel, MeasuresStepsAsAServerWithTheMeasuredLimitRunsThem) {
  for (const int64_t faster_from : {20, 400}) {
    SplittingExecutor executor(faster_from);
    ManualClock clock;
    engine::ProfileOptions options;
    options.max_points = 60;
    options.max_rounds = 1;
    options.overlap = true;
    auto profile = engine::MeasureSteps(&executor, Limits(), options, clock);
    ASSERT_TRUE(profile.ok()) << profile.status().ToString();
    ASSERT_TRUE(profile->overlap.has_value());
    EXPECT_DOUBLE_EQ(profile->overlap->interference, 0.3);
    const int64_t limit = profile->overlap->least_split_tokens;
    EXPECT_LE(limit, faster_from);
    std::set<bool> split;
    for (const cost::StepSample& s : profile->samples) {
      const int64_t tokens = int64_t{s.prefill_tokens} + s.decodes;
      EXPECT_NEAR(s.step_ms, executor.Ms(tokens, tokens >= limit), 1e-6) << tokens << " tokens, limit " << limit;
      split.insert(tokens >= limit);
    }
    EXPECT_EQ(split.size(), 2u) << "limit " << limit;
    ASSERT_TRUE(engine::FitMeasured(&*profile).ok());
    const auto read = cost::ParseStepProfile("profile.csv", engine::ProfileText(*profile));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    const auto noted = cost::NotedOverlap((*read)->remarks());
    ASSERT_TRUE(noted.ok() && noted->has_value());
    EXPECT_EQ((*noted)->least_split_tokens, limit) << "the file names another limit than that of its steps";
  }
}

TEST(ProfileModel, InterruptionWhileTheLimitOfSplitStepsIsMeasuredEndsIt) {
  SplittingExecutor executor(20);
  ManualClock clock;
  engine::ProfileOptions options;
  options.overlap = true;
  int64_t calls = 0;
  options.progress = [&](const engine::ProfileProgress&) { return ++calls < 5; };
  const auto profile = engine::MeasureSteps(&executor, Limits(), options, clock);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_TRUE(profile->interrupted);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(profile->split_steps.size(), 4u);
  EXPECT_FALSE(profile->overlap.has_value());
  EXPECT_TRUE(profile->samples.empty());
}

TEST(ProfileModel, UnknownModelIsRefused) {
  EngineOptions engine = TinyModel();
  engine.model = "no-such-model";
  const auto measured = engine::ProfileModel(engine, {}, SystemClock());
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.status().code(), StatusCode::kNotFound);
}

TEST(ProfileModel, ProfilePathNamesModelAndDevice) {
  EXPECT_NE(engine::DefaultProfilePath("/models/a/SmolLM2.Q4_1.gguf", "2t").find("/profiles/SmolLM2.Q4_1-2t.csv"),
            std::string::npos);
  const auto here = engine::DefaultProfilePath(TinyModel(), SystemClock());
  ASSERT_TRUE(here.ok()) << here.status().ToString();
  EXPECT_NE(here->find("/profiles/llama-gqa-1t.csv"), std::string::npos) << *here;
}

}  // namespace
}  // namespace tactus
