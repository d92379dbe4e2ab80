// The contract of every scheduler: no overcommit, no lost request, progress, the same tokens as any other scheduler,
// the same plan for the same input, also from a fresh instance. Tested for every preset and every accepted pair of
// choices, on generated workloads with tiny KV, several choices, priorities, cancels, executor errors, pipelines of
// depth 1, 2 and 8 and chained inputs. The harness checks the integrity of KV and sequences after each pass.
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "conformance/workload.h"
#include "core/predict/predictor.h"

namespace tactus {
namespace {

using core::Choice;
using core::SchedulerConfig;
using testing::ExpectedOutput;
using testing::MakeWorkload;
using testing::Outcome;
using testing::Play;
using testing::RequestOutput;
using testing::Workload;
using testing::WorkloadOptions;

std::vector<SchedulerConfig> AllPresets() {
  std::vector<SchedulerConfig> all;
  for (const auto& preset : core::Presets()) all.push_back({.preset = preset.name});
  return all;
}

const char* KindOf(Choice choice) {
  constexpr const char* kKinds[] = {"order", "admission", "composition", "budget", "preemption"};
  return kKinds[static_cast<size_t>(choice)];
}

constexpr Choice kChoices[] = {Choice::kOrder, Choice::kAdmission, Choice::kComposition, Choice::kBudget,
                               Choice::kPreemption};

std::string& NameOf(SchedulerConfig* c, Choice choice) {
  switch (choice) {
    case Choice::kOrder:
      return c->order;
    case Choice::kAdmission:
      return c->admission;
    case Choice::kComposition:
      return c->composition;
    case Choice::kBudget:
      return c->budget;
    case Choice::kPreemption:
      return c->preemption;
    case Choice::kGate:
      break;
  }
  return c->gate;
}

std::string Describe(const SchedulerConfig& c) {
  return c.preset + ": " + c.order + "/" + c.admission + "/" + c.composition + "/" + c.budget + "/" + c.preemption;
}

// A refusal is for one of the choices: it has that choice's flag, names its value, and ends with a fix.
void ExpectRefusalWithFix(const Status& status, SchedulerConfig c) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  const auto* const choice =
      std::find_if(std::begin(kChoices), std::end(kChoices), [&](Choice any) { return status.param() == KindOf(any); });
  ASSERT_NE(choice, std::end(kChoices)) << status.ToString();
  EXPECT_NE(status.message().find("'" + NameOf(&c, *choice) + "'"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("; use --"), std::string::npos) << status.ToString();
}

bool Refused(const SchedulerConfig& names, const Workload& w) {
  SchedulerConfig c = names;
  c.limits = w.config.scheduler.limits;
  c.limits.max_num_seqs = w.config.max_num_seqs;
  c.limits.max_model_len = w.config.max_model_len;
  c.limits.slot_capacity = w.config.max_queue + w.config.max_num_seqs;
  c.limits.blocks_total = w.config.num_blocks;
  c.limits.block_size = w.config.block_size;
  c.limits.swap_blocks = w.config.swap_blocks;
  const auto name = core::Scheduler::PredictorFor(c);
  EXPECT_TRUE(name.ok()) << name.status().ToString();
  static const auto history = core::MakeHistory({.slot_capacity = 1024});
  if (*name == "history") c.limits.predictor = history.get();
  const auto made = core::Scheduler::Create(c);
  if (!made.ok()) ExpectRefusalWithFix(made.status(), c);
  return !made.ok();
}

// Fills the empty choices of `c` at random so that the scheduler accepts it. False: no such combination was found.
bool Complete(SchedulerConfig* c, const Workload& w, Rng* rng) {
  for (int attempt = 0; attempt < 4000; ++attempt) {
    SchedulerConfig tried = *c;
    for (const Choice choice : kChoices) {
      if (!NameOf(&tried, choice).empty()) continue;
      const auto& values = core::Values(choice);
      NameOf(&tried, choice) =
          values[static_cast<size_t>(rng->UniformInt(0, static_cast<int64_t>(values.size()) - 1))].name;
    }
    if (Refused(tried, w)) continue;
    *c = tried;
    return true;
  }
  return false;
}

// Checks that each choice has the model's tokens, up to a cancel or an error.
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
        EXPECT_EQ(got.logprobs.size(), got.tokens.size());
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

TEST(Conformance, ExecutorErrorsOnlyEndTheirRequests) {
  int errors = 0, served = 0;
  for (const SchedulerConfig& preset : AllPresets()) {
    for (uint64_t seed = 200; seed < 240; ++seed) {
      SCOPED_TRACE(preset.preset + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.cancels = seed % 2 == 0, .faults = true});
      const Outcome outcome = Play(w, preset);
      ASSERT_EQ(outcome.broken, "");
      ExpectModelTokens(w, outcome);  // unaffected requests have exactly the model's tokens, dependants included
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

// A sequence is cancelled while its item is in flight, and the item fails: the blocks that it should have filled are
// released but still in the prefix tree. The next request with that prefix must not find them.
TEST(Conformance, LostItemOfACancelledRequestLeavesNoCachedBlocks) {
  for (const uint64_t seed : {342, 1877, 2946, 3298}) {
    const Workload w = MakeWorkload(seed, {.cancels = true, .faults = true});
    const Outcome outcome = Play(w, {.preset = "sarathi-serve"});
    ASSERT_EQ(outcome.broken, "");
    ExpectModelTokens(w, outcome);
  }
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

// Drafts are verified in one step: they change how many tokens a step yields, and no token. Rejected ones are rolled
// back, also with errors and cancels.
TEST(Conformance, DraftsDoNotChangeOutputs) {
  int64_t accepted = 0, rejected = 0, steps = 0, steps_without = 0;
  for (const SchedulerConfig& preset : AllPresets()) {
    for (uint64_t seed = 6000; seed < 6040; ++seed) {
      SCOPED_TRACE(preset.preset + " seed " + std::to_string(seed));
      const uint64_t round = seed % 4;
      const WorkloadOptions options{.cancels = round == 1, .faults = round == 2, .rejects = round == 3, .drafts = true};
      const Workload w = MakeWorkload(seed, options);
      const Outcome outcome = Play(w, preset);
      ASSERT_EQ(outcome.broken, "");
      ExpectModelTokens(w, outcome);
      accepted += outcome.drafts_accepted;
      rejected += outcome.drafts_rejected;
      if (round != 0) continue;
      for (const RequestOutput& out : outcome.requests) {
        ASSERT_TRUE(out.done_event.finish == FinishReason::kStop || out.done_event.finish == FinishReason::kLength);
      }
      Workload plain = w;
      plain.config.executor.max_draft_tokens = 0;
      plain.config.executor.can_chain = false;
      steps += outcome.stats.steps;
      steps_without += Play(plain, preset).stats.steps;
    }
  }
  EXPECT_GT(accepted, 10000);
  EXPECT_GT(rejected, 5000);
  EXPECT_LT(steps, steps_without * 9 / 10);
}

// A sequence that waits for its tokens verifies drafts; without drafts the same sequence chains.
TEST(Conformance, SequencesChainAndVerifyAlternately) {
  int64_t both = 0;
  for (uint64_t seed = 6400; seed < 6440; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workload w = MakeWorkload(seed, {.cancels = seed % 3 == 0, .drafts = true});
    w.config.executor.max_in_flight = 2 + static_cast<int32_t>(seed % 3);
    w.config.executor.can_chain = true;
    const Outcome outcome = Play(w, {.preset = "sarathi-serve"});
    ASSERT_EQ(outcome.broken, "");
    ExpectModelTokens(w, outcome);
    both += outcome.chained_items > 0 && outcome.drafts_accepted > 0;
  }
  EXPECT_GT(both, 20);
}

// Drafts of a decode displace no other sequence's token: a preset with every decode in every step keeps this property.
TEST(Conformance, DraftsDisplaceNoDecode) {
  int64_t accepted = 0;
  for (uint64_t seed = 6100; seed < 6130; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workload w = MakeWorkload(seed, {.drafts = true});
    w.config.num_blocks = 10000;
    w.config.scheduler.limits.token_budget = w.config.max_num_seqs + 1;
    w.config.executor.max_in_flight = 1;
    w.config.executor.can_chain = false;
    w.config.executor.step_token_ns = 0;
    for (auto& a : w.arrivals) a.at_ns = a.at_ns / kMillisecond * kMillisecond;
    const Outcome outcome = Play(w, {.preset = "sarathi-serve"});
    ASSERT_EQ(outcome.broken, "");
    accepted += outcome.drafts_accepted;
    for (const RequestOutput& out : outcome.requests) {
      for (const auto& choice : out.choices) {
        for (size_t i = 1; i < choice.token_ns.size(); ++i) {
          ASSERT_LE(choice.token_ns[i] - choice.token_ns[i - 1], kMillisecond);
        }
      }
    }
  }
  EXPECT_GT(accepted, 500);
}

// Requests with equal prompts but different adapters share no KV: each gets its adapter's tokens.
TEST(Conformance, AdaptersShareNothing) {
  for (const SchedulerConfig& preset : AllPresets()) {
    for (uint64_t seed = 6200; seed < 6220; ++seed) {
      SCOPED_TRACE(preset.preset + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.drafts = seed % 2 == 0, .adapters = true});
      const Outcome outcome = Play(w, preset);
      ASSERT_EQ(outcome.broken, "");
      ExpectModelTokens(w, outcome);
    }
  }
}

// A sequence whose tokens are needed on the host before the next is sampled has no chained items; other sequences still
// chain.
TEST(Conformance, ChainingIsDecidedPerSequence) {
  int64_t fewer = 0;
  for (uint64_t seed = 6300; seed < 6340; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workload w = MakeWorkload(seed, {.tokens_on_host = true});
    w.config.executor.max_in_flight = 8;
    w.config.executor.can_chain = true;
    const Outcome some = Play(w, {.preset = "sarathi-serve"});
    w.config.tokens_on_host = false;
    const Outcome all = Play(w, {.preset = "sarathi-serve"});
    ASSERT_EQ(some.broken + all.broken, "");
    ExpectModelTokens(w, some);
    EXPECT_LE(some.chained_items, all.chained_items);
    EXPECT_EQ(some.chained_on_host, 0);
    fewer += some.chained_items > 0 && some.chained_items < all.chained_items;
  }
  EXPECT_GT(fewer, 20);
}

// LARRY with an infinite lambda is first come, first served, plan by plan.
TEST(Conformance, LarryWithoutMemoryPressureIsFcfs) {
  int differs = 0;
  for (uint64_t seed = 700; seed < 760; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workload w = MakeWorkload(seed, {.cancels = seed % 2 == 0});
    for (auto& a : w.arrivals)
      a.request.n = 1;  // later choices enter the queue late with their request's arrival; fcfs then differs
    const Outcome fcfs = Play(w, {.preset = "larry", .order = "fcfs"});
    *w.config.scheduler.limits.policy.Find<double>("larry-lambda") = std::numeric_limits<double>::infinity();
    const Outcome infinite = Play(w, {.preset = "larry"});
    *w.config.scheduler.limits.policy.Find<double>("larry-lambda") = 0.1;
    const Outcome usual = Play(w, {.preset = "larry"});
    ASSERT_EQ(fcfs.broken + infinite.broken + usual.broken, "");
    EXPECT_EQ(infinite.hashes, fcfs.hashes);
    differs += usual.hashes != fcfs.hashes;
  }
  EXPECT_GT(differs, 10);
}

// The starvation bounds in the rows of ltr and fastserve: no sequence pauses for longer than the threshold plus the
// quanta of the sequences paused before it. Every step takes a millisecond and fits every prompt.
TEST(Conformance, PausesAreWithinTheStarvationBound) {
  struct Bound {
    const char* preset;
    int64_t threshold;  // steps
    int64_t quantum;    // steps of one promoted sequence
  };
  constexpr int64_t kThreshold = 12, kQuantum = 3, kLook = 5;
  for (const Bound& bound : {Bound{"ltr", kThreshold, kQuantum}, Bound{"fastserve", kThreshold + kLook, 1}}) {
    int64_t close = 0;
    for (uint64_t seed = 800; seed < 860; ++seed) {
      SCOPED_TRACE(std::string(bound.preset) + " seed " + std::to_string(seed));
      Workload w = MakeWorkload(seed, {});
      w.config.max_num_seqs = 1;
      w.config.scheduler.limits.token_budget = 1000;
      w.config.scheduler.limits.watermark = 0;
      PolicyOptions& policy = w.config.scheduler.limits.policy;
      *policy.Find<int64_t>("ltr-starvation-steps") = kThreshold;
      *policy.Find<int64_t>("ltr-quantum-steps") = kQuantum;
      policy.Find<DurationText>("mlfq-quantum")->ns = kMillisecond / 2;
      policy.Find<DurationText>("mlfq-promotion")->ns = kThreshold * kMillisecond;
      *policy.Find<int64_t>("mlfq-promotion-steps") = kLook;
      w.config.executor.max_in_flight = 1;
      w.config.executor.can_chain = false;
      w.config.executor.step_token_ns = 0;
      int64_t choices = 0;
      for (const auto& a : w.arrivals) choices += a.request.n;
      const Outcome outcome = Play(w, {.preset = bound.preset});
      ASSERT_EQ(outcome.broken, "");
      const DurationNs most_ns = (bound.threshold + bound.quantum * choices + 1) * kMillisecond;
      for (const RequestOutput& out : outcome.requests) {
        for (const auto& choice : out.choices) {
          for (size_t i = 1; i < choice.token_ns.size(); ++i) {
            const DurationNs gap_ns = choice.token_ns[i] - choice.token_ns[i - 1];
            ASSERT_LE(gap_ns, most_ns) << w.ToString();
            close += gap_ns > bound.threshold * kMillisecond;
          }
        }
      }
    }
    EXPECT_GT(close, 20) << bound.preset << " has no pause near the bound";
  }
}

// Every pair of values of two choices, the others filled in at random: plain, with cancels, with executor errors, with
// rejected positions. Pairs without a legal completion are exactly the listed ones.
TEST(Conformance, LegalPairsOfChoicesServeEveryWorkload) {
  const std::set<std::string> impossible = {
      // no preemption frees memory, and the admission does not reserve the maximal need
      "admission prompt-fits, preemption none", "admission prompt-free, preemption none",
      "admission chunk-fits, preemption none", "admission predicted-length, preemption none",
      "admission multi-resource, preemption none", "admission promise, preemption none",
      "admission planned-mean, preemption none",
      // there is no reservation that a sequence could outgrow
      "admission max-length, preemption abort-and-requeue", "admission prompt-fits, preemption abort-and-requeue",
      "admission prompt-free, preemption abort-and-requeue", "admission chunk-fits, preemption abort-and-requeue",
      "admission multi-resource, preemption abort-and-requeue", "admission promise, preemption abort-and-requeue",
      "admission planned-mean, preemption abort-and-requeue"};
  int pairs = 0, played = 0;
  for (size_t i = 0; i < std::size(kChoices); ++i) {
    for (size_t j = i + 1; j < std::size(kChoices); ++j) {
      for (const auto& first : core::Values(kChoices[i])) {
        for (const auto& second : core::Values(kChoices[j])) {
          const std::string name =
              std::string(KindOf(kChoices[i])) + " " + first.name + ", " + KindOf(kChoices[j]) + " " + second.name;
          SCOPED_TRACE(name);
          const auto seed = static_cast<uint64_t>(1000 + pairs++);
          const uint64_t round = seed % 4;
          Workload w = MakeWorkload(seed, {.cancels = round == 1, .faults = round == 2, .rejects = round == 3});
          w.config.scheduler.limits.token_budget =
              std::max<int64_t>(w.config.scheduler.limits.token_budget, w.config.max_model_len);
          SchedulerConfig c;
          NameOf(&c, kChoices[i]) = first.name;
          NameOf(&c, kChoices[j]) = second.name;
          Rng rng(seed, 3);
          if (!Complete(&c, w, &rng)) {
            EXPECT_TRUE(impossible.count(name)) << "refused for all other choices";
            continue;
          }
          EXPECT_FALSE(impossible.count(name));
          const Outcome outcome = Play(w, c);
          ASSERT_EQ(outcome.broken, "") << Describe(c) << " seed " << seed;
          ExpectModelTokens(w, outcome);
          ++played;
        }
      }
    }
  }
  EXPECT_GT(played, 500);
}

// Two half-computed prompts hold all memory, and neither may preempt the other: the youngest is preempted. The order
// puts it first in the queue again, where it must not reclaim its blocks before the other has had its item.
TEST(Conformance, PreemptedPromptDoesNotReclaimItsBlocksAtOnce) {
  Workload w = MakeWorkload(1267, {.rejects = true});
  w.config.scheduler.limits.token_budget = w.config.max_model_len;
  const Outcome outcome = Play(w, {.order = "grouped",
                                   .admission = "chunk-fits",
                                   .composition = "slack-fill-in-order",
                                   .budget = "prefill-cap",
                                   .preemption = "most-slack-recompute"});
  ASSERT_EQ(outcome.broken, "");
  ExpectModelTokens(w, outcome);
}

// Any accepted combination of five choices, with any token budget.
TEST(Conformance, RandomLegalCombinationsServeEveryWorkload) {
  int legal = 0;
  for (uint64_t seed = 5000; seed < 5600; ++seed) {
    const uint64_t round = seed % 4;
    const Workload w = MakeWorkload(seed, {.cancels = round == 1, .faults = round == 2, .rejects = round == 3});
    SchedulerConfig c;
    Rng rng(seed, 4);
    if (!Complete(&c, w, &rng)) continue;
    ++legal;
    SCOPED_TRACE(Describe(c) + " seed " + std::to_string(seed));
    const Outcome outcome = Play(w, c);
    ASSERT_EQ(outcome.broken, "");
    ExpectModelTokens(w, outcome);
  }
  EXPECT_GT(legal, 500);
}

TEST(Conformance, PlansFollowFromTheInputAlone) {
  for (const SchedulerConfig& preset : AllPresets()) {
    for (const char* order : {"", "fcfs", "priority"}) {  // "": the preset's order
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

// With a budget for all decodes, two tokens of a running sequence are at most one step apart if the preset's row states
// that a decode is in every step, and two if it states every other step. Preempted sequences are excepted.
TEST(Conformance, DecodeGapsMatchThePresetsBound) {
  int checked = 0;
  for (const auto& preset : core::Presets()) {
    const std::string bound = preset.starvation;
    const bool every = bound.find("a decode is in every step") != std::string::npos;
    if (!every && bound.find("a decode is in every other step") == std::string::npos) continue;
    int64_t longest = 0;
    for (uint64_t seed = 500; seed < 520; ++seed) {
      SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed));
      Workload w = MakeWorkload(seed, {});
      w.config.num_blocks = 10000;  // ample memory
      w.config.executor.max_in_flight = 1;
      w.config.executor.can_chain = false;
      w.config.executor.step_base_ns = kMillisecond;
      w.config.executor.step_token_ns = 0;  // every step takes the same time
      for (auto& a : w.arrivals) a.at_ns = a.at_ns / kMillisecond * kMillisecond;
      const Outcome outcome = Play(w, {.preset = preset.name});
      ASSERT_EQ(outcome.broken, "");
      for (const RequestOutput& out : outcome.requests) {
        if (out.done_event.preemptions > 0) continue;  // preempted, or outgrew its reservation
        for (const auto& choice : out.choices) {
          for (size_t i = 1; i < choice.token_ns.size(); ++i) {
            const int64_t gap = choice.token_ns[i] - choice.token_ns[i - 1];
            longest = std::max(longest, gap);
            ASSERT_LE(gap, every ? kMillisecond : 2 * kMillisecond);
            ++checked;
          }
        }
      }
    }
    EXPECT_EQ(longest, every ? kMillisecond : 2 * kMillisecond) << preset.name << ": the bound is tight";
  }
  EXPECT_GT(checked, 10000);
}

// Presets whose row states that the queue is bounded by those before: first items come in order of arrival.
TEST(Conformance, BoundedQueuesStartInOrderOfArrival) {
  for (const SchedulerConfig& preset : AllPresets()) {
    const auto row = std::find_if(core::Presets().begin(), core::Presets().end(),
                                  [&](const core::PresetInfo& p) { return p.name == preset.preset; });
    if (std::string(row->starvation).rfind("queue: bounded by", 0) != 0) continue;
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
