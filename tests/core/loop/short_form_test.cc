// The short form of a result ("all as planned; these items sampled the stop token") is equivalent to the long one: same
// plans, same outputs, same events, same trace.
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <fstream>
#include <map>

#include "base/rng.h"
#include "core/loop/step_loop.h"
#include "core/trace/trace_writer.h"
#include "support/fake_executor.h"
#include "support/faulty_executor.h"

namespace tactus::core {
namespace {

constexpr TokenId kStop = 1;

// A model without token ids that ends request i after length[i] tokens. 1 ms per step and 10 us per token.
class Scripted final : public Executor {
 public:
  Scripted(bool short_form, int32_t depth, ManualClock* clock)
      : traits_{.max_in_flight = depth, .can_chain = depth > 1, .has_tokens = false, .name = "scripted"},
        short_(short_form),
        clock_(*clock) {}
  ExecutorTraits traits() const override { return traits_; }
  void SetWakeup(std::function<void()>) override {}
  void Submit(const StepPlan& plan) override {
    for (const SequenceStart& start : plan.starts) {
      Slot& slot = slots_[start.slot];
      slot.request = start.request;
      slot.end = prompt[slot.request] + length[slot.request];
    }
    ready_ns_ = std::max(ready_ns_, clock_.NowNs()) + kMillisecond + plan.num_tokens * 10 * kMicrosecond;
    plans_.push_back({&plan, ready_ns_});
  }
  TimeNs NextReadyNs() const override { return plans_.empty() ? kNever : plans_.front().second; }
  bool Poll(StepResult* r) override {
    if (plans_.empty() || plans_.front().second > clock_.NowNs()) return false;
    const StepPlan& plan = *plans_.front().first;
    r->Clear();
    r->step = plan.step;
    r->end_ns = plans_.front().second;
    r->as_planned = short_;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const StepItem& item = plan.items[i];
      const bool stop = item.sample && item.first_position + item.count >= slots_[item.slot].end;
      if (short_) {
        if (stop) r->stops.push_back(static_cast<int32_t>(i));
        continue;
      }
      r->items.push_back({ItemStatus::kOk, item.count, static_cast<int32_t>(r->tokens.size()), item.sample ? 1 : 0});
      if (item.sample) r->tokens.push_back(stop ? kStop : 0);
    }
    plans_.pop_front();
    return true;
  }

  std::map<RequestHandle, int32_t> prompt, length;

 private:
  struct Slot {
    RequestHandle request = 0;
    int32_t end = 0;  // the item that computes position end - 1 samples the stop token
  };
  const ExecutorTraits traits_;
  const bool short_;
  ManualClock& clock_;
  std::map<SlotId, Slot> slots_;
  std::deque<std::pair<const StepPlan*, TimeNs>> plans_;
  TimeNs ready_ns_ = 0;
};

struct Played final : public EventSink {
  bool wants_tokens() const override { return tokens_wanted; }
  void OnStep(const StepEvents& events) override {
    for (const GapEvent& g : events.gaps) {
      gaps.insert(gaps.end(), static_cast<size_t>(g.count), {g.gap_ns, g.first});
      merged += g.count - 1;
    }
    tokens += events.tokens.size();
    for (const RequestDoneEvent& d : events.done) {
      done.push_back({static_cast<int64_t>(d.handle), d.done_ns, d.first_token_ns, d.scheduled_ns, d.completion_tokens,
                      d.preemptions, d.longest_gap_ns, static_cast<int64_t>(d.finish)});
    }
  }
  bool tokens_wanted = true;
  std::vector<std::pair<DurationNs, bool>> gaps;
  int64_t merged = 0;
  size_t tokens = 0;
  std::vector<std::array<int64_t, 8>> done;
  EngineStats stats;
  std::string trace;
};

Played Play(bool short_form, int32_t depth, bool tokens_wanted) {
  Played run;
  run.tokens_wanted = tokens_wanted;
  ManualClock clock;
  Scripted executor(short_form, depth, &clock);
  ReplicaConfig config;
  SchedulerLimits& sizes = config.scheduler.limits;
  sizes.max_num_seqs = 8;
  sizes.max_model_len = 200;
  sizes.blocks_total = 90;  // few, so that there are preemptions
  sizes.block_size = 4;
  sizes.token_budget = 48;
  config.max_queue = 256;
  config.prefix_caching = false;
  config.model_stop_ids = {kStop};
  const auto replica = std::move(Replica::Create(std::move(config), {})).value();
  const std::string path =
      ::testing::TempDir() + "tactus_short_form_" + std::to_string(reinterpret_cast<uintptr_t>(&run)) + ".trace";
  ReplicaParts parts;
  parts.executor = &executor;
  parts.clock = &clock;
  parts.sink = &run;
  parts.tap = RecordTo(path);
  EXPECT_TRUE(replica->Connect(std::move(parts)).ok());
  StepLoop& loop = replica->loop();
  Rng rng(7);
  std::vector<std::shared_ptr<Request>> alive;
  for (int i = 0; i < 120; ++i) {
    auto request = std::make_shared<Request>();
    request->stop.max_tokens = 40;
    request->stop.min_tokens = i % 3 == 0 ? 20 : 0;  // an earlier stop token does not count
    const auto handle = static_cast<RequestHandle>(i) + 1;
    executor.prompt[handle] = 1 + static_cast<int32_t>(rng.Next64() % 100);
    executor.length[handle] = 1 + static_cast<int32_t>(rng.Next64() % 60);  // above 40: ends by length
    alive.push_back(request);
    EXPECT_TRUE(loop.Submit(*PrepareWithoutTokens(request, executor.prompt[handle], {}, replica->limits())).ok());
  }
  for (int rounds = 0; !loop.idle(); ++rounds) {
    if (rounds == 100000) {
      ADD_FAILURE() << "the loop does not become idle";
      break;
    }
    for (int passes = 0; passes < 1000 && loop.RunOnce(); ++passes) {
    }
    EXPECT_EQ(loop.CheckIntegrity(), "");
    if (executor.NextReadyNs() != kNever) clock.AdvanceTo(executor.NextReadyNs());
  }
  EXPECT_TRUE(replica->CloseTap().ok());
  run.stats = loop.Stats();
  std::ifstream in(path, std::ios::binary);
  run.trace = {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::remove(path.c_str());
  return run;
}

TEST(ShortForm, EqualsTheLongForm) {
  for (const int32_t depth : {1, 3}) {
    SCOPED_TRACE(depth);
    const Played full = Play(false, depth, true);
    EXPECT_EQ(full.done.size(), 120u);
    EXPECT_GT(full.stats.finished_stop, 20);
    EXPECT_GT(full.stats.finished_length, 20);
    EXPECT_GT(full.stats.preemptions, 5);
    EXPECT_GT(full.merged, 100);  // equal gaps are one event
    for (const bool tokens_wanted : {true, false}) {
      const Played brief = Play(true, depth, tokens_wanted);
      EXPECT_EQ(brief.stats.plan_hash, full.stats.plan_hash);
      EXPECT_EQ(brief.done, full.done);
      EXPECT_EQ(brief.gaps, full.gaps);
      EXPECT_EQ(brief.stats.finished_stop, full.stats.finished_stop);
      EXPECT_EQ(brief.stats.generation_tokens, full.stats.generation_tokens);
      EXPECT_EQ(static_cast<int64_t>(brief.gaps.size()), brief.stats.generation_tokens);
      EXPECT_EQ(brief.trace, full.trace);
      EXPECT_EQ(brief.tokens == 0, !tokens_wanted);
    }
  }
}

// One sequence at a time with one token each, so that a step is a whole request. Two errors, a good step, two errors.
TEST(ShortForm, GoodStepResetsTheErrorCount) {
  FaultyExecutor executor(std::make_unique<NullExecutor>(1, false, 7, true), {{0}, {1}, {3}, {4}});
  ReplicaConfig config;
  config.scheduler.limits.max_num_seqs = 1;
  config.scheduler.limits.max_model_len = 16;
  config.scheduler.limits.blocks_total = 8;
  config.scheduler.limits.block_size = 4;
  config.max_queue = 8;
  config.prefix_caching = false;
  const auto replica = Replica::Create(std::move(config), {});
  ASSERT_TRUE(replica.ok()) << replica.status().ToString();
  ManualClock clock;
  Played run;
  ReplicaParts parts;
  parts.executor = &executor;
  parts.clock = &clock;
  parts.sink = &run;
  ASSERT_TRUE((*replica)->Connect(std::move(parts)).ok());
  StepLoop& loop = (*replica)->loop();
  for (int i = 0; i < 6; ++i) {
    auto request = std::make_shared<Request>();
    request->stop.max_tokens = 1;
    ASSERT_TRUE(loop.Submit(*PrepareWithoutTokens(request, 3, {}, (*replica)->limits())).ok());
  }
  for (int pass = 0; !loop.idle(); ++pass) {
    ASSERT_LT(pass, 1000) << "the loop does not become idle";
    loop.RunOnce();
  }
  EXPECT_TRUE(loop.healthy()) << "error, error, good, error, error has no three in a row";
  EXPECT_EQ(loop.Stats().finished_error, 4);
  EXPECT_EQ(loop.Stats().finished_length, 2);
}

}  // namespace
}  // namespace tactus::core
