// What every scheduler owes, whatever its policy: no overcommit, no lost request, progress, the same tokens as any other
// scheduler, the same plan for the same input, also from a fresh instance. Run over every preset and every combination of
// choices that is not refused, on generated workloads with tiny KV, several choices, priorities, cancels, executor errors,
// pipelines of depth 1, 2 and 8 and chained inputs. The harness checks the integrity of KV and sequences after each pass.
#include <gtest/gtest.h>

#include <set>

#include "conformance/workload.h"

namespace tactus {
namespace {

using sched::Choice;
using sched::SchedulerConfig;
using testing::ExpectedOutput;
using testing::MakeWorkload;
using testing::Outcome;
using testing::Play;
using testing::RequestOutput;
using testing::Workload;

std::vector<SchedulerConfig> AllPresets() {
  std::vector<SchedulerConfig> all;
  for (const auto& preset : sched::Presets()) all.push_back({.preset = preset.name});
  return all;
}

// Every combination; the caller skips those that are refused.
std::vector<SchedulerConfig> AllCombinations() {
  std::vector<SchedulerConfig> all;
  for (const auto& order : sched::Values(Choice::kOrder))
    for (const auto& admission : sched::Values(Choice::kAdmission))
      for (const auto& composition : sched::Values(Choice::kComposition))
        for (const auto& budget : sched::Values(Choice::kBudget))
          for (const auto& preemption : sched::Values(Choice::kPreemption)) {
            SchedulerConfig c;
            c.order = order.name;
            c.admission = admission.name;
            c.composition = composition.name;
            c.budget = budget.name;
            c.preemption = preemption.name;
            all.push_back(c);
          }
  return all;
}

bool Refused(const SchedulerConfig& names, const Workload& w) {
  SchedulerConfig c = names;
  c.limits = w.config.scheduler.limits;
  c.limits.max_num_seqs = w.config.max_num_seqs;
  c.limits.max_model_len = w.config.max_model_len;
  c.limits.slot_capacity = w.config.max_queue + w.config.max_num_seqs;
  c.limits.blocks_total = w.config.num_blocks;
  c.limits.block_size = w.config.block_size;
  const auto made = sched::Scheduler::Create(c);
  EXPECT_TRUE(made.ok() || !made.status().message().empty());
  return !made.ok();
}

// What each choice must have received, cut where a cancel or an error ended it.
void ExpectModelTokens(const Workload& w, const Outcome& outcome) {
  for (const RequestOutput& out : outcome.requests) {
    for (size_t choice = 0; choice < out.choices.size(); ++choice) {
      const auto& got = out.choices[choice];
      const auto expected =
          ExpectedOutput(w.config.executor, *out.request, static_cast<int32_t>(choice), w.config.model_stop_ids);
      ASSERT_LE(got.tokens.size(), expected.size()) << w.ToString();
      for (size_t i = 0; i < got.tokens.size(); ++i) ASSERT_EQ(got.tokens[i], expected[i]) << i << " " << w.ToString();
      if (got.finish == FinishReason::kLength) {
        EXPECT_EQ(static_cast<int64_t>(got.tokens.size()), out.request->stop.max_tokens);
      }
      if (got.finish == FinishReason::kStop && got.stop_string < 0) {
        EXPECT_EQ(got.tokens, expected);
      }
      if (out.request->sampling.logprobs >= 0) {
        EXPECT_EQ(got.logprobs, got.tokens.size());
      }
    }
  }
}

TEST(Conformance, EveryPresetServesEveryWorkload) {
  for (const SchedulerConfig& preset : AllPresets()) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(preset.preset + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.cancels = seed % 3 == 0});
      const Outcome outcome = Play(w, preset);
      ASSERT_EQ(outcome.broken, "");
      ExpectModelTokens(w, outcome);
      if (seed % 3 != 0) {
        for (const RequestOutput& out : outcome.requests) {
          ASSERT_TRUE(out.done_event.finish == FinishReason::kStop || out.done_event.finish == FinishReason::kLength);
        }
      }
    }
  }
}

TEST(Conformance, OutputDoesNotDependOnTheScheduler) {
  for (uint64_t seed = 100; seed < 130; ++seed) {
    const Workload w = MakeWorkload(seed, {});
    std::vector<RequestOutput> first;
    for (const SchedulerConfig& preset : AllPresets()) {
      SCOPED_TRACE(preset.preset + " seed " + std::to_string(seed));
      Outcome outcome = Play(w, preset);
      ASSERT_EQ(outcome.broken, "");
      if (first.empty()) {
        first = std::move(outcome.requests);
        continue;
      }
      ASSERT_EQ(outcome.requests.size(), first.size());
      for (size_t i = 0; i < first.size(); ++i) {
        for (size_t c = 0; c < first[i].choices.size(); ++c) {
          EXPECT_EQ(outcome.requests[i].choices[c].tokens, first[i].choices[c].tokens);
          EXPECT_EQ(outcome.requests[i].choices[c].finish, first[i].choices[c].finish);
          EXPECT_EQ(outcome.requests[i].choices[c].stop_string, first[i].choices[c].stop_string);
        }
      }
    }
  }
}

TEST(Conformance, ExecutorErrorsEndRequestsAndNothingElse) {
  int errors = 0, served = 0;
  for (const SchedulerConfig& preset : AllPresets()) {
    for (uint64_t seed = 200; seed < 240; ++seed) {
      SCOPED_TRACE(preset.preset + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.cancels = seed % 2 == 0, .faults = true});
      const Outcome outcome = Play(w, preset);
      ASSERT_EQ(outcome.broken, "");
      ExpectModelTokens(w, outcome);   // whoever was not hit has exactly the model's tokens, dependants included
      for (const RequestOutput& out : outcome.requests) {
        if (out.done_event.finish == FinishReason::kError) {
          ++errors;
          EXPECT_FALSE(out.error.ok());
        } else {
          ++served;
        }
      }
    }
  }
  EXPECT_GT(errors, 100);
  EXPECT_GT(served, 1000);
}

TEST(Conformance, RejectedPositionsAreComputedAgain) {
  for (const SchedulerConfig& preset : AllPresets()) {
    for (uint64_t seed = 300; seed < 330; ++seed) {
      SCOPED_TRACE(preset.preset + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.rejects = true});
      const Outcome outcome = Play(w, preset);
      ASSERT_EQ(outcome.broken, "");
      ExpectModelTokens(w, outcome);
    }
  }
}

TEST(Conformance, EveryLegalCombinationServes) {
  int played = 0;
  std::set<std::string> legal;
  const auto combinations = AllCombinations();
  for (size_t i = 0; i < combinations.size(); ++i) {
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t seed = 1000 + round * 1000 + i;
      const Workload w = MakeWorkload(seed, {.cancels = round == 1, .faults = round == 2, .rejects = round == 3});
      const SchedulerConfig& c = combinations[i];
      if (Refused(c, w)) continue;
      const std::string name = c.order + "/" + c.admission + "/" + c.composition + "/" + c.budget + "/" + c.preemption;
      SCOPED_TRACE(name + " seed " + std::to_string(seed));
      const Outcome outcome = Play(w, c);
      ASSERT_EQ(outcome.broken, "");
      ExpectModelTokens(w, outcome);
      legal.insert(name);
      ++played;
    }
  }
  EXPECT_GT(legal.size(), 200u);
  EXPECT_GT(played, 700);
}

TEST(Conformance, SameInputSamePlanAlsoFromAFreshInstance) {
  for (const SchedulerConfig& preset : AllPresets()) {
    for (const char* order : {"fcfs", "priority"}) {
      for (uint64_t seed = 400; seed < 412; ++seed) {
        SCOPED_TRACE(preset.preset + " " + order + " seed " + std::to_string(seed));
        SchedulerConfig c = preset;
        c.order = order;
        const Workload w = MakeWorkload(seed, {.cancels = true, .faults = seed % 2 == 0});
        const Outcome once = Play(w, c);
        const Outcome again = Play(w, c);
        const Outcome fresh = Play(w, c, /*fresh_policies=*/true);
        ASSERT_EQ(once.broken, "");
        ASSERT_EQ(fresh.broken, "");
        EXPECT_EQ(once.hashes, again.hashes);
        EXPECT_EQ(once.hashes, fresh.hashes);
      }
    }
  }
}

// Presets whose row says that a decode is in every step: with a budget that holds all of them, no token of a running
// sequence is ever more than one step after the one before, unless it was preempted.
TEST(Conformance, DecodesAreInEveryStepWhereThePresetSaysSo) {
  for (const auto& preset : sched::Presets()) {
    if (std::string(preset.starvation).find("a decode is in every step") == std::string::npos) continue;
    for (uint64_t seed = 500; seed < 520; ++seed) {
      SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed));
      Workload w = MakeWorkload(seed, {});
      w.config.num_blocks = 10000;   // no preemption
      w.config.executor.max_in_flight = 1;
      w.config.executor.can_chain = false;
      w.config.executor.step_base_ns = kMillisecond;
      w.config.executor.step_token_ns = 0;   // every step takes the same time
      for (auto& a : w.arrivals) a.at_ns = a.at_ns / kMillisecond * kMillisecond;
      const Outcome outcome = Play(w, {.preset = preset.name});
      ASSERT_EQ(outcome.broken, "");
      EXPECT_EQ(outcome.stats.preemptions, 0);
      for (const RequestOutput& out : outcome.requests) {
        for (const auto& choice : out.choices) {
          for (size_t i = 1; i < choice.token_ns.size(); ++i) {
            ASSERT_EQ(choice.token_ns[i] - choice.token_ns[i - 1], kMillisecond);
          }
        }
      }
    }
  }
}

// Under fcfs nobody is passed over: first shares of steps come in order of arrival.
TEST(Conformance, FcfsStartsInOrderOfArrival) {
  for (const SchedulerConfig& preset : AllPresets()) {
    for (uint64_t seed = 600; seed < 620; ++seed) {
      SCOPED_TRACE(preset.preset + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {});
      const Outcome outcome = Play(w, preset);
      ASSERT_EQ(outcome.broken, "");
      TimeNs last = 0;
      for (const RequestOutput& out : outcome.requests) {
        EXPECT_GE(out.done_event.scheduled_ns, last);
        last = out.done_event.scheduled_ns;
      }
    }
  }
}

}  // namespace
}  // namespace tactus
