// The result object: what is counted and how it is reported.
#include "results/obs/run_result.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "support/source_path.h"

namespace tactus::results {
namespace {

TEST(ExactValues, QuantilesAreTheSmallestSufficientValues) {
  ExactValues v;
  EXPECT_FALSE(v.Summarize(1).known);
  v.Add(30);
  v.Add(20, 8);
  v.Add(10);
  const Summary s = v.Summarize(0.5);
  EXPECT_TRUE(s.known);
  EXPECT_DOUBLE_EQ(s.mean, 10.0);  // (30 + 160 + 10) / 10, halved
  EXPECT_DOUBLE_EQ(s.p50, 10.0);
  EXPECT_DOUBLE_EQ(s.p90, 10.0);  // nine of ten are 20 or less
  EXPECT_DOUBLE_EQ(s.p95, 15.0);
  EXPECT_DOUBLE_EQ(s.p99, 15.0);
  EXPECT_DOUBLE_EQ(s.max, 15.0);
  ExactValues two;
  two.Add(1);
  two.Add(2);
  EXPECT_DOUBLE_EQ(two.Summarize(1).p50, 1.0);
}

EndedRequest Ended(TimeNs arrival, DurationNs delay, DurationNs ttft, TimeNs done, int64_t prompt, int64_t completion,
                   bool ok = true) {
  EndedRequest r;
  r.ok = ok;
  r.prompt_tokens = prompt;
  r.completion_tokens = completion;
  r.arrival_ns = arrival;
  r.delay_ns = delay;
  r.ttft_ns = ttft;
  r.done_ns = done;
  return r;
}

TEST(RunResult, LatenciesCountCompletedRequestsAndDelaysAllThatRan) {
  RunAccumulator run(true);
  run.Tokens(800, 700, true);
  run.Tokens(850, 50, false, 4);
  run.Ended(Ended(100, 60, 200, 900, 20, 4));
  run.Ended(Ended(100, -1, -1, 500, 20, 0));  // no token came
  run.Ended(Ended(0, 10, 40, 90, 0, 1));
  run.Ended(Ended(0, 5, 6, 7, 20, 1, false));   // cancelled
  run.Ended(Ended(0, 7, -1, 7, 20, 1, false));  // failed
  const RunResult r = run.Outcome();
  const EngineFigures e = run.Engine();
  constexpr double kMs = 1e-6;
  EXPECT_DOUBLE_EQ(r.ttft_ms.max, 700 * kMs);
  EXPECT_DOUBLE_EQ(r.tbt_ms.mean, 50 * kMs);
  EXPECT_DOUBLE_EQ(e.scheduling_delay_ms.mean, (60 + 10 + 5 + 7) / 4.0 * kMs);
  EXPECT_DOUBLE_EQ(r.e2e_ms.mean, (800 + 400 + 90) / 3.0 * kMs);
  EXPECT_DOUBLE_EQ(r.normalized_ttft_ms.mean, 10 * kMs) << "none for a prompt of unknown length";
  EXPECT_DOUBLE_EQ(r.tpot_ms.mean, 600 / 3.0 * kMs) << "none for a single token";
  EXPECT_EQ(r.completed, 3);
  EXPECT_EQ(r.failed, 2);
  EXPECT_EQ(r.prompt_tokens, 40);
  EXPECT_EQ(r.output_tokens, 5);
  EXPECT_DOUBLE_EQ(r.duration_s, 900e-9);
}

// Ten requests, one per second from 1 s on. Request n gets its first token after n milliseconds and ends after 2.5 s;
// steps and gaps take n milliseconds too.
RunResult Windowed(RunLength warmup, RunLength measure, EngineFigures* engine = nullptr) {
  RunAccumulator run(true, RunWindow(warmup, measure, 10));
  const auto end = [&run](TimeNs arrival_s) {
    const TimeNs arrival = arrival_s * kSecond, done = arrival + 5 * kSecond / 2;
    EndedRequest r = Ended(arrival, arrival_s, arrival_s * kMillisecond, done, 10 * arrival_s, 2);
    r.slo.jct_ns = 3 * kSecond;
    run.Tokens(arrival + arrival_s * kMillisecond, arrival_s * kMillisecond, true);
    run.Tokens(done, arrival_s, false);
    run.Step(done, arrival_s * kMillisecond, 1);
    run.Ended(r);
  };
  for (int64_t s = 1; s <= 13; ++s) {
    if (s <= 10) run.Arrived(s * kSecond);
    if (s > 2 && s - 2 <= 10) end(s - 2);
  }
  if (engine != nullptr) *engine = run.Engine();
  return run.Outcome();
}

// From 3 s to 7 s: requests 3 to 6 arrived, requests 1 to 4 ended.
TEST(RunResult, AWindowCountsItsArrivalsAndThroughputItsEnds) {
  EngineFigures e;
  const RunResult r = Windowed({.ns = 2 * kSecond}, {.ns = 4 * kSecond}, &e);
  EXPECT_DOUBLE_EQ(r.duration_s, 4);
  EXPECT_DOUBLE_EQ(*r.measured_from_s, 2);
  EXPECT_EQ(r.completed, 4);
  EXPECT_EQ(r.prompt_tokens, 30 + 40 + 50 + 60);
  EXPECT_DOUBLE_EQ(r.ttft_ms.mean, 4.5);
  EXPECT_DOUBLE_EQ(r.ttft_ms.max, 6);
  EXPECT_EQ(r.objectives.stated, 4);
  EXPECT_DOUBLE_EQ(*r.goodput(), 1);
  EXPECT_DOUBLE_EQ(*r.request_throughput(), 1);
  EXPECT_DOUBLE_EQ(*r.input_token_throughput(), (10 + 20 + 30 + 40) / 4.0);
  EXPECT_DOUBLE_EQ(*r.output_token_throughput(), 2);
  EXPECT_DOUBLE_EQ(r.tbt_ms.max, 4e-6) << "the gap that ended at 6.5 s";
  EXPECT_NEAR(e.step_ms.max, 4, 0.02);
  EXPECT_DOUBLE_EQ(e.scheduling_delay_ms.max, 6e-6);
}

// The load's end is never measured: the window closes with the last arrival, at 10 s.
TEST(RunResult, AWindowClosesWithTheLastArrival) {
  const RunResult all = Windowed({}, {});
  EXPECT_DOUBLE_EQ(all.duration_s, 11.5);
  EXPECT_FALSE(all.measured_from_s.has_value());
  EXPECT_DOUBLE_EQ(*all.request_throughput(), 10 / 11.5);
  for (const RunResult& r : {Windowed({.requests = 2}, {}), Windowed({.ns = 2 * kSecond}, {.ns = kSecond * 100})}) {
    EXPECT_DOUBLE_EQ(r.duration_s, 7);
    EXPECT_EQ(r.completed, 7) << "requests 3 to 9";
    EXPECT_EQ(r.served->requests, 7) << "requests 1 to 7";
  }
  const RunResult endless = Windowed({.ns = kNever - 1}, {.ns = kNever});
  EXPECT_EQ(endless.completed, 0) << "a length beyond the range of times";
  const RunResult counted = Windowed({.requests = 1}, {.requests = 3});
  EXPECT_DOUBLE_EQ(counted.duration_s, 3);
  EXPECT_EQ(counted.completed, 3) << "requests 2 to 4, until the fifth arrives";
  EXPECT_DOUBLE_EQ(*counted.measured_from_s, 1);
  const RunResult late = Windowed({.ns = 60 * kSecond}, {});
  EXPECT_EQ(late.completed, 0);
  EXPECT_EQ(late.duration_s, 0);
  EXPECT_FALSE(late.request_throughput().has_value());
}

TEST(RunResult, RejectedRequestsLowerAttainment) {
  RunAccumulator run;
  EndedRequest kept = Ended(0, 1, 5, 10, 3, 2);
  kept.slo.jct_ns = 10;
  kept.slo_class = "chat";
  run.Ended(kept);
  run.Rejected(0, {.jct_ns = 10}, "chat", "no room");
  run.Rejected(0, {.ttft_ns = 10}, "batch", "too long");
  run.Rejected(0, {}, "batch");  // without objectives
  const RunResult r = run.Outcome();
  EXPECT_EQ(r.rejected, 3);
  EXPECT_EQ(r.first_rejection, "no room");
  EXPECT_EQ(r.objectives.slo_attainment(), 1.0 / 3);
  EXPECT_EQ(r.objectives.jct_attainment(), 0.5);
  EXPECT_EQ(r.classes.at("chat").slo_attainment(), 0.5);
  EXPECT_EQ(r.classes.at("batch").slo_attainment(), 0.0);
  EXPECT_EQ(r.classes.at("batch").jct_attainment(), std::nullopt);
  EXPECT_DOUBLE_EQ(*r.goodput(), 1 / 10e-9);
}

TEST(RunResult, AnObjectiveMetExactlyCountsAsMet) {
  EndedRequest r = Ended(100, 1, 30, 200, 3, 4);
  r.longest_gap_ns = 20;
  for (const auto& [slo, kept] : std::initializer_list<std::pair<Slo, bool>>{
           {{30, 20, 100}, true}, {{29, 20, 100}, false}, {{30, 19, 100}, false}, {{30, 20, 99}, false}, {{}, true}}) {
    r.slo = slo;
    r.ok = true;
    EXPECT_EQ(KeptSlo(r), kept) << slo.ttft_ns << " " << slo.tbt_ns << " " << slo.jct_ns;
    r.ok = false;
    EXPECT_FALSE(KeptSlo(r));
  }
  r.ok = true;
  r.slo = {30, 0, 0};
  r.ttft_ns = -1;
  EXPECT_FALSE(KeptSlo(r)) << "without a first token";
}

// Each objective counts the requests that state it; gaps count whatever the outcome of their requests.
TEST(RunResult, EveryObjectiveHasItsOwnAttainment) {
  RunAccumulator run(true);
  EndedRequest r = Ended(100, 1, 30, 200, 3, 5);  // first token after 30, end after 100
  r.longest_gap_ns = 40;
  r.gaps = 4;
  r.late_gaps = 1;
  r.slo = {30, 39, 99};  // meets only the first
  r.slo_class = "chat";
  run.Ended(r);
  r.slo = {29, 40, 100};  // meets the others
  r.late_gaps = 0;
  run.Ended(r);
  r.slo = {0, 40, 0};
  run.Ended(r);
  r.ok = false;  // met nothing, but its gaps still count
  run.Ended(r);
  run.Rejected(0, {.ttft_ns = 5, .tbt_ns = 5}, "chat");
  const RunResult all = run.Outcome();
  EXPECT_EQ(all.objectives.ttft.attainment(), 1.0 / 3);
  EXPECT_EQ(all.objectives.tbt.attainment(), 2.0 / 5);
  EXPECT_EQ(all.objectives.jct.attainment(), 1.0 / 2);
  EXPECT_EQ(all.objectives.gaps.attainment(), 15.0 / 16);
  EXPECT_EQ(all.objectives.slo_attainment(), 1.0 / 5);
  EXPECT_EQ(all.classes.at("chat").gaps.stated, 16);
}

TEST(RunResult, EachClassHasItsOwnLatencies) {
  RunAccumulator run(true);
  for (const auto& [name, ttft] : {std::pair("chat", 10), std::pair("chat", 30), std::pair("batch", 500)}) {
    EndedRequest r = Ended(0, 1, ttft, ttft + 100, 3, 3);
    r.longest_gap_ns = 60;
    r.slo_class = name;
    run.Ended(r);
  }
  EndedRequest failed = Ended(0, 1, 7, 8, 3, 1, false);
  failed.slo_class = "batch";
  run.Ended(failed);
  run.Ended(Ended(0, 1, 900, 1000, 3, 3));  // without class and objectives
  run.Rejected(0, {}, "batch");
  const RunResult r = run.Outcome();
  constexpr double kMs = 1e-6;
  ASSERT_EQ(r.classes.size(), 2u);
  const ClassFigures &chat = r.classes.at("chat"), &batch = r.classes.at("batch");
  EXPECT_EQ(chat.completed, 2);
  EXPECT_DOUBLE_EQ(chat.ttft_ms.mean, 20 * kMs);
  EXPECT_DOUBLE_EQ(chat.e2e_ms.max, 130 * kMs);
  EXPECT_DOUBLE_EQ(chat.tpot_ms.mean, 50 * kMs);
  EXPECT_DOUBLE_EQ(chat.longest_gap_ms.max, 60 * kMs);
  EXPECT_EQ(std::tie(batch.completed, batch.failed, batch.rejected), std::make_tuple(1, 1, 1));
  EXPECT_DOUBLE_EQ(batch.ttft_ms.max, 500 * kMs) << "without the failed request";
  EXPECT_EQ(batch.slo_attainment(), std::nullopt);
  const std::string table = RunTable(r);
  EXPECT_NE(table.find("\nchat                          2      -      -      -      -      -"), std::string::npos)
      << table;
}

// Clients choose class names, so the number of classes is bounded.
TEST(RunResult, ClassesBeyondTheBoundAreCountedTogether) {
  RunAccumulator run;
  for (int i = 0; i < 100; ++i) run.Rejected(0, {}, "class " + std::to_string(i));
  const RunResult r = run.Outcome();
  EXPECT_EQ(r.classes.size(), 33u);
  EXPECT_EQ(r.classes.at("other").rejected, 68);
}

// Every object has every field; a simulation's has some more.
TEST(RunResult, UnknownFieldsAreNull) {
  const auto bare = SortedJson::parse(ToJson({}));
  RunResult full;
  full.engine.emplace();
  full.simulated.emplace();
  const auto simulated = SortedJson::parse(ToJson(full));
  for (const auto& [name, value] : bare.items()) EXPECT_TRUE(simulated.contains(name)) << name;
  for (const char* name : {"ttft_ms",
                           "normalized_ttft_ms",
                           "tbt_ms",
                           "tpot_ms",
                           "e2e_ms",
                           "scheduling_delay_ms",
                           "step_ms",
                           "goodput",
                           "slo_attainment",
                           "jct_attainment",
                           "decision_us",
                           "budget_utilization",
                           "kv_utilization",
                           "prefix_sharing",
                           "mean_batch",
                           "ttft_prediction_error",
                           "draft_tokens",
                           "accepted_draft_tokens",
                           "request_throughput",
                           "input_token_throughput",
                           "output_token_throughput",
                           "steps",
                           "plan_hash",
                           "preemptions",
                           "recomputed_tokens",
                           "swapped_sequences",
                           "swapped_blocks",
                           "cached_prompt_tokens",
                           "request_rate_asked",
                           "request_rate_achieved",
                           "concurrency",
                           "first_rejection",
                           "measured_from_s"}) {
    ASSERT_TRUE(bare.contains(name)) << name;
    EXPECT_TRUE(bare[name].is_null()) << name;
  }
  EXPECT_EQ(bare["requests"]["completed"], 0);
  EXPECT_TRUE(bare["requests"]["unfinished"].is_null());
  EXPECT_EQ(simulated["steps"], 0);
  EXPECT_TRUE(simulated["mfu"].is_null());
  EXPECT_TRUE(simulated["bubbles"].is_null());
}

// docs/reference/api.md, section "Result", names every field of the object and of its requests in code spans.
TEST(RunResultPage, NamesEveryField) {
  std::ifstream file(test::SourcePath("docs/reference/api.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const size_t result = page.find("\n## Result\n");
  ASSERT_NE(result, std::string::npos);
  RunResult full;
  full.engine.emplace();
  full.simulated.emplace();
  full.classes["chat"];
  const auto json = SortedJson::parse(ToJson(full));
  for (const auto& [name, value] : json["classes"]["chat"].items()) {
    EXPECT_NE(page.find("`" + name + "`", result), std::string::npos)
        << "docs/reference/api.md, Result, does not name " << name;
  }
  for (const auto& [name, value] : json.items()) {
    EXPECT_NE(page.find("`" + name + "`", result), std::string::npos)
        << "docs/reference/api.md, Result, does not name " << name;
  }
  for (const auto& [name, value] : json["requests"].items()) {
    EXPECT_NE(page.find("`" + name + "`", result), std::string::npos)
        << "docs/reference/api.md, Result, does not name " << name;
  }
}

TEST(RunResult, EngineFiguresCountSequencesPerStepAndStepTimes) {
  RunAccumulator run;
  run.Step(0, 2000000, 3);
  run.Step(0, 4000000, 4);
  run.Decision(500);
  const EngineFigures e = run.Engine();
  EXPECT_DOUBLE_EQ(*e.mean_batch, 3.5);
  EXPECT_NEAR(e.step_ms.mean, 3, 1e-9);
  EXPECT_NEAR(*e.decision_p50_us, 0.5, 0.002);
  EXPECT_FALSE(RunAccumulator().Engine().mean_batch.has_value());
}

}  // namespace
}  // namespace tactus::results
