// The requests that a feed hands out: every request once, the sample first, the rest by the sample's lengths.
#include "offline/plan/job_feed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <queue>
#include <set>

#include "offline/plan/jobs.h"
#include "offline/plan/start_order.h"

namespace tactus {
namespace {

using offline::FeedOptions;
using offline::JobFeed;
using offline::kToRun;
using offline::Plan;
using offline::PlanOrder;
using offline::PrefixTree;
using offline::PromptSet;
using testing::Job;
using testing::Llama8bOnA100;
using testing::SetOf;

constexpr int64_t kKvTokens = 4000;

JobFeed FeedOf(const Job& job, FeedOptions options = {}, std::vector<int32_t> elsewhere = {}) {
  auto prompts = std::make_shared<PromptSet>(SetOf(job));
  PrefixTree tree = PrefixTree::Build(*prompts);
  prompts->DropKeys();
  if (elsewhere.empty()) elsewhere.assign(job.size(), kToRun);
  options.plan.kv_tokens = kKvTokens;
  return JobFeed(prompts, std::move(tree), Llama8bOnA100(), options, std::move(elsewhere));
}

// Answers of task t have about 10 (t + 1) tokens, regardless of max_tokens.
Job TasksOfUnknownLength(int32_t requests) {
  Rng rng(21);
  Job job;
  for (int32_t i = 0; i < requests; ++i) {
    testing::JobRequest r;
    r.prompt.assign(40, 1000 + i % 5);
    for (int32_t k = 0; k < 12; ++k) r.prompt.push_back(static_cast<TokenId>(rng.UniformInt(0, 99)));
    r.traits = {.max_output_tokens = 500};
    job.push_back(std::move(r));
  }
  return job;
}
int32_t LengthOf(int32_t request) {
  return 10 * (request % 5 + 1) + request % 3;
}

// Requests that are handed out, at most `at_once` together, end in the order in which they started.
std::vector<int32_t> RunAll(JobFeed* feed, size_t at_once) {
  std::vector<int32_t> started;
  std::queue<int32_t> running;
  while (true) {
    const auto start = running.size() < at_once ? feed->Next() : std::nullopt;
    if (start) {
      started.push_back(start->request);
      running.push(start->request);
      continue;
    }
    if (running.empty()) return started;
    feed->OnDone(running.front(), LengthOf(running.front()));
    running.pop();
  }
}

TEST(JobFeed, HandsOutEveryRequestOnce) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Job job = testing::RandomJob(seed, 60);
    for (const PlanOrder order : {PlanOrder::kFcfs, PlanOrder::kDfs, PlanOrder::kRandom, PlanOrder::kBalance,
                                  PlanOrder::kBlend, PlanOrder::kBlendDualScan}) {
      FeedOptions options{.plan = {.order = order, .seed = seed}, .sample = {.share = 0.1, .seed = seed}};
      std::vector<int32_t> elsewhere(job.size(), kToRun);
      for (size_t i = 0; i < job.size(); i += 7) elsewhere[i] = static_cast<int32_t>(i % 2);
      JobFeed feed = FeedOf(job, options, elsewhere);
      const int32_t to_run = feed.size();
      std::vector<int32_t> started = RunAll(&feed, 1 + seed % 9);
      EXPECT_EQ(feed.left(), 0);
      EXPECT_EQ(static_cast<int32_t>(started.size()), to_run);
      EXPECT_NEAR(feed.done_share(), 1, 0.9) << "estimated work differs from actual work";
      std::sort(started.begin(), started.end());
      std::vector<int32_t> expected;
      for (size_t i = 0; i < job.size(); ++i) {
        if (i % 7 != 0) expected.push_back(static_cast<int32_t>(i));
      }
      ASSERT_EQ(started, expected) << "order " << static_cast<int>(order) << ", seed " << seed;
    }
  }
}

TEST(JobFeed, TheSampleGoesFirstAndWithoutAPlace) {
  const Job job = TasksOfUnknownLength(400);
  JobFeed feed = FeedOf(job);
  const auto prompts = SetOf(job);
  const auto sample = offline::ChooseSample(PrefixTree::Build(prompts), prompts, {});
  ASSERT_GE(sample.size(), 4u);
  EXPECT_EQ(feed.sample_size(), static_cast<int32_t>(sample.size()));
  for (const int32_t request : sample) {
    const auto start = feed.Next();
    ASSERT_TRUE(start);
    EXPECT_EQ(start->request, request);
    EXPECT_EQ(start->place, PlannedPlace());
  }
  EXPECT_TRUE(feed.provisional());
  // While its answers are awaited no replica idles, and memory is reserved only for known lengths.
  ASSERT_TRUE(feed.sampling());
  const auto beside = feed.Next();
  ASSERT_TRUE(beside);
  EXPECT_GE(beside->place.position, 0);
  EXPECT_EQ(beside->place.kv_tokens, 52) << "without half of its max_tokens";
}

// The plan of the rest equals that of a caller who knows the sample's lengths from the beginning.
TEST(JobFeed, TheSamplesLengthsDecideTheOrderOfTheRest) {
  const Job job = TasksOfUnknownLength(400);
  JobFeed feed = FeedOf(job);
  std::vector<int32_t> gone, measured(job.size(), 0);
  for (int i = 0; i < feed.sample_size() + 10; ++i) gone.push_back(feed.Next()->request);
  for (int i = 0; i < feed.sample_size(); ++i) {
    EXPECT_TRUE(feed.sampling());
    const int32_t request = gone[static_cast<size_t>(i)];
    measured[static_cast<size_t>(request)] = LengthOf(request);
    feed.OnDone(request, LengthOf(request));
  }
  EXPECT_FALSE(feed.sampling());

  const auto prompts = SetOf(job);
  PrefixTree tree = PrefixTree::Build(prompts);
  auto outputs = offline::EstimateOutputs(tree, prompts, measured);
  for (const int32_t request : gone) outputs[static_cast<size_t>(request)] = 0;
  const Plan plan = Plan::Make(std::move(tree), Llama8bOnA100(), outputs, {.kv_tokens = kKvTokens});
  const auto starts = offline::StartOrder(plan, offline::StartBalance(plan), 0, plan.sequences_at_once());
  ASSERT_EQ(feed.left(), plan.size());
  int32_t as_planned = 0;
  std::set<int32_t> kv_tokens;
  for (const int32_t position : starts) {
    const auto start = feed.Next();
    ASSERT_TRUE(start);
    as_planned += start->request == plan.RequestAt(position);
    kv_tokens.insert(start->place.kv_tokens);
  }
  EXPECT_FALSE(feed.Next());
  EXPECT_EQ(as_planned, plan.size());
  EXPECT_EQ(kv_tokens.size(), 5u) << "one expected length for each task";
  EXPECT_LT(*kv_tokens.rbegin(), 52 + 40);
}

// The longest answers of a sample may take as long as a small job. Ended answers are used for the plan; a running one
// is known to be longer than those.
TEST(JobFeed, AnEndedPartOfTheSampleChangesThePlan) {
  Job job = TasksOfUnknownLength(400);
  JobFeed feed = FeedOf(job, {.sample = {.share = 0.08}});
  std::vector<int32_t> sample;
  for (int i = 0; i < feed.sample_size(); ++i) sample.push_back(feed.Next()->request);
  ASSERT_GE(sample.size(), 32u);
  // All answers except those of task 4 end after 20 tokens.
  size_t ended = 0;
  const auto next_place = [&feed](int32_t task) {
    for (auto start = feed.Next(); start; start = feed.Next()) {
      if (start->request % 5 == task) return start->place;
    }
    return PlannedPlace();
  };
  for (const int32_t request : sample) {
    if (request % 5 == 4) continue;
    feed.OnDone(request, 20);
    ++ended;
  }
  ASSERT_GT(ended, sample.size() / 2);
  EXPECT_EQ(next_place(1).kv_tokens, 52 + 10) << "measured";
  EXPECT_EQ(next_place(4).kv_tokens, 52 + 250) << "none has ended: its max_tokens";
  EXPECT_TRUE(feed.provisional()) << "more than a sixteenth still runs";
  for (const int32_t request : sample) {
    if (request % 5 == 4) feed.OnDone(request, 300);
  }
  EXPECT_FALSE(feed.provisional());
  EXPECT_EQ(next_place(4).kv_tokens, 52 + 150);
}

// Another run of the job: lengths measured by the first run count, and its sample is not sampled again.
TEST(JobFeed, LengthsOfAnEarlierRunCount) {
  const Job job = TasksOfUnknownLength(400);
  JobFeed first = FeedOf(job);
  std::vector<int32_t> elsewhere(job.size(), kToRun);
  for (int i = 0; i < first.sample_size(); ++i) {
    const int32_t request = first.Next()->request;
    elsewhere[static_cast<size_t>(request)] = LengthOf(request);
  }
  JobFeed second = FeedOf(job, {}, elsewhere);
  EXPECT_EQ(second.sample_size(), 0);
  EXPECT_FALSE(second.sampling());
  const auto start = second.Next();
  EXPECT_GE(start->place.position, 0);
  EXPECT_GT(start->place.kv_tokens, 52);
  EXPECT_LT(start->place.kv_tokens, 52 + 40);
}

TEST(JobFeed, OnlyAnOrderThatNeedsUnknownLengthsSamples) {
  const Job unknown = TasksOfUnknownLength(100);
  Job known = unknown;
  for (auto& r : known) r.traits.output_is_known = true;
  for (const PlanOrder order : {PlanOrder::kFcfs, PlanOrder::kDfs, PlanOrder::kRandom, PlanOrder::kBalance,
                                PlanOrder::kBlend, PlanOrder::kBlendDualScan}) {
    const bool by_lengths = order >= PlanOrder::kBalance;
    EXPECT_EQ(FeedOf(unknown, {.plan = {.order = order}}).sampling(), by_lengths);
    EXPECT_FALSE(FeedOf(known, {.plan = {.order = order}}).sampling());
  }
  EXPECT_FALSE(FeedOf(unknown, {.sample = {.share = 0}}).sampling());
}

// Dense and heavy requests of known length, 20 of each, in two tasks without a common prefix.
Job TwoKindsOfTasks() {
  Job job;
  for (int32_t i = 0; i < 40; ++i) {
    testing::JobRequest r;
    r.prompt.assign(32, i % 2);
    for (int32_t k = 0; k < 8; ++k) r.prompt.push_back(100 + 10 * i + k);
    r.traits = {.max_output_tokens = i % 2 == 0 ? 2 : 400, .output_is_known = true};
    job.push_back(std::move(r));
  }
  return job;
}

TEST(JobFeed, BothEndsOfAScannedPlanAreQueued) {
  const Job job = TwoKindsOfTasks();
  JobFeed feed = FeedOf(job, {.plan = {.order = PlanOrder::kBlendDualScan}});
  std::array<std::vector<int32_t>, 3> of_end;
  const auto take = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto start = feed.Next();
      of_end[static_cast<size_t>(start->place.end)].push_back(start->request);
      EXPECT_EQ(start->place.position + 1, 40 - feed.left());
    }
  };
  const auto& left = of_end[static_cast<size_t>(PlanEnd::kLeft)];
  const auto& right = of_end[static_cast<size_t>(PlanEnd::kRight)];
  EXPECT_EQ(feed.most_waiting(), offline::kScannedWaiting) << "waiting requests follow the present plan";
  take(10);
  EXPECT_EQ(left.size(), 5u);
  EXPECT_EQ(right.size(), 5u);
  for (const int32_t request : left) EXPECT_EQ(request % 2, 0) << "short answers are dense";
  for (const int32_t request : right) EXPECT_EQ(request % 2, 1);
  for (int i = 0; i < 4; ++i) feed.OnDone(left[static_cast<size_t>(i)], 2);
  take(4);
  EXPECT_EQ(left.size(), 9u) << "the end with more ended requests is refilled first";
}

// M rho of the job: the tokens that it computes, divided by the steps in which it reads a full KV memory.
TEST(JobFeed, AScannedPlanStatesItsDensities) {
  const Job job = TwoKindsOfTasks();
  FeedOptions options{.plan = {.order = PlanOrder::kBlendDualScan}};
  JobFeed feed = FeedOf(job, options);
  const auto left = feed.Next(), right = feed.Next();
  ASSERT_TRUE(left && right);
  double computed = 0, read = 0;
  for (const auto& r : job) {
    const double p = static_cast<double>(r.prompt.size()), d = r.traits.max_output_tokens;
    computed += d + 8;
    read += p * d + d * d / 2;
  }
  computed += 2 * 32;
  EXPECT_NEAR(left->place.step_tokens, computed / read * kKvTokens, 1);
  EXPECT_EQ(left->place.step_tokens, right->place.step_tokens);
  const auto density = [](double computes, double reads) { return computes / reads; };
  const double all = density(computed, read), dense = density(20 * 10 + 32, 20 * (40 * 2 + 2)),
               heavy = density(20 * 408 + 32, 20 * (40 * 400 + 80'000));
  EXPECT_NEAR(left->place.density * 1e-6, dense / all, 0.01 * dense / all)
      << "of the whole task, its prefix counted once";
  EXPECT_NEAR(right->place.density * 1e-6, heavy / all, 0.01 * heavy / all);
}

TEST(JobFeed, PlansThatAreNotScannedHaveNoEnds) {
  JobFeed feed = FeedOf(TwoKindsOfTasks(), {.plan = {.order = PlanOrder::kBlend}});
  EXPECT_EQ(feed.most_waiting(), 0);
  while (const auto start = feed.Next()) {
    EXPECT_EQ(start->place, (PlannedPlace{start->place.position, start->place.kv_tokens}));
  }
}

// A failed answer is no longer awaited, and does not count as a length.
TEST(JobFeed, AFailedSampleIsNotAwaited) {
  const Job job = TasksOfUnknownLength(100);
  JobFeed feed = FeedOf(job);
  std::vector<int32_t> sample;
  for (int i = 0; i < feed.sample_size(); ++i) sample.push_back(feed.Next()->request);
  for (const int32_t request : sample) feed.OnDone(request, 0);
  EXPECT_FALSE(feed.sampling());
  EXPECT_EQ(feed.Next()->place.kv_tokens, 52) << "no length is known";
}

TEST(JobFeed, ARequestTakenOutOfTurnIsNotHandedOutAgain) {
  const Job job = TasksOfUnknownLength(50);
  JobFeed feed = FeedOf(job);
  const int32_t first = feed.Next()->request;
  for (int32_t i = 0; i < 25; ++i) {
    if (i != first) feed.Take(i);
  }
  std::set<int32_t> rest;
  while (const auto start = feed.Next()) rest.insert(start->request);
  EXPECT_EQ(rest.size(), first < 25 ? 25u : 24u);
  EXPECT_GE(*rest.begin(), 25);
}

TEST(JobFeed, TheSummaryCountsTheActualLengths) {
  const Job job = TasksOfUnknownLength(60);
  JobFeed feed = FeedOf(job);
  const auto before = feed.Summary({});
  EXPECT_EQ(before.output_tokens, 60 * 500) << "only the limits are known";
  RunAll(&feed, 8);
  const auto after = feed.Summary({});
  EXPECT_EQ(after.requests, 60);
  int64_t expected = 0;
  for (int32_t i = 0; i < 60; ++i) expected += LengthOf(i);
  EXPECT_EQ(after.output_tokens, expected);
  EXPECT_LT(after.bound_s, before.bound_s);
}

TEST(JobFeed, PlanningIsTimedByTheCallersClock) {
  class Ticking final : public Clock {
   public:
    TimeNs NowNs() override { return now_ += 5; }
    TimeNs now_ = 0;
  } clock;
  const Job job = TasksOfUnknownLength(60);
  JobFeed feed = FeedOf(job, {.plan = {.order = PlanOrder::kDfs}, .stopwatch = &clock});
  RunAll(&feed, 8);
  EXPECT_EQ(feed.planning_ns(), 5) << "planned once";
}

}  // namespace
}  // namespace tactus
