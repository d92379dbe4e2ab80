// A job on a scripted engine: every line has one result, after any failure and any stop.
#include "offline/job/runner.h"

#include <fmt/format.h>

#include <atomic>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "api/chat/conversation.h"
#include "offline/job/end_job.h"
#include "offline/job/job_folder.h"
#include "offline/job/job_line.h"
#include "serve/fake_engine.h"

namespace tactus::offline {
namespace {

using json = SortedJson;

const std::string kX(40, 'x'), kY(40, 'y');

class RunnerTest : public JobFolder {
 protected:
  // An engine on hold is released after a while, so that a run that does not end by itself fails its test.
  Status Run(FakeEngine& engine, RunnerOptions options = {}, const JobOptions& job_options = {}) {
    auto job = Open(job_options);
    if (!job.ok()) return job.status();
    options.limits = api::LimitsOf(engine, 100);
    options.progress = [&engine, said = 0, inner = options.progress](const RunProgress& progress) mutable {
      if (++said == kMostReports) {
        ADD_FAILURE() << "the run did not end in time";
        engine.Release();
      }
      return !inner || inner(progress);
    };
    const Status status = RunJob(job->get(), &engine, options, SystemClock());
    counts_ = (*job)->counts();
    engine.AwaitLive(0);
    EXPECT_EQ(static_cast<int64_t>(Lines(files_.output).size()), counts_.out);
    EXPECT_EQ(static_cast<int64_t>(Lines(files_.errors).size()), counts_.errors);
    return status;
  }
  Status Run() {
    FakeEngine engine;
    return Run(engine);
  }
  int64_t Recorded(const std::string& column, int64_t line) const {
    const auto state = Database::Open(files_.state);
    return *(*state)->Number("SELECT " + column + " FROM line WHERE number = " + std::to_string(line));
  }
  std::vector<std::string> Ids() const {
    std::vector<std::string> ids;
    for (const std::string& path : {files_.output, files_.errors})
      for (const json& line : Lines(path)) ids.push_back(line["custom_id"].is_null() ? "null" : line["custom_id"]);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  std::string ErrorOf(const std::string& body) {
    Write(files_.input, R"({"custom_id":"x","method":"POST","url":"/v1/completions","body":)" + body + "}\n");
    for (const std::string& path : {files_.output, files_.errors, files_.state}) std::filesystem::remove(path);
    EXPECT_TRUE(Run().ok());
    const auto lines = Lines(files_.errors);
    return lines.empty() ? "no error" : lines[0]["error"]["message"].get<std::string>();
  }

  static constexpr int kMostReports = 100;  // five per second

  JobCounts counts_;
};

TEST_F(RunnerTest, AnswersEqualTheServers) {
  Write(
      files_.input,
      Request("two", {{"prompt", {"ab", "c"}}, {"n", 2}, {"max_tokens", 3}, {"echo", true}}) +
          R"({"custom_id":"chat","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"x"}],"max_tokens":2}})"
          "\n \t\r\n"
          R"({"custom_id":"response","method":"POST","url":"/responses/","body":{"input":"hi","max_output_tokens":2}})"
          "\n\n");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(counts_.lines, 3) << "empty lines do not count";
  EXPECT_EQ(counts_.out, 3);
  for (const json& line : Lines(files_.output)) {
    const json& body = line["response"]["body"];
    EXPECT_EQ(line["response"]["status_code"], 200);
    if (line["custom_id"] == "response") {
      EXPECT_EQ(body["object"], "response");
      EXPECT_EQ(body["id"].get<std::string>().rfind("resp_batch_req_", 0), 0u);
      EXPECT_EQ(body["output"][0]["content"][0]["text"], "Hello");
      EXPECT_EQ(body["usage"]["output_tokens"], 2);
      EXPECT_EQ(Recorded("output_tokens", 4), 2) << "its number in the file";
    } else if (line["custom_id"] == "chat") {
      EXPECT_EQ(body["object"], "chat.completion");
      EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello");
      EXPECT_EQ(body["usage"]["completion_tokens"], 2);
      EXPECT_EQ(Recorded("output_tokens", 2), 2);
    } else {
      EXPECT_EQ(Recorded("output_tokens", 1), 12);
      EXPECT_EQ(Recorded("prompt_tokens", 1), body["usage"]["prompt_tokens"]);
      ASSERT_EQ(body["choices"].size(), 4u);
      EXPECT_EQ(body["choices"][0]["text"], "abHello wor");
      EXPECT_EQ(body["choices"][3]["text"], "cHello wor");
      EXPECT_EQ(body["usage"]["completion_tokens"], 12);
    }
  }
}

TEST_F(RunnerTest, ABadLineFailsAndTheRestRuns) {
  Write(files_.input, Request("a") + "\n" + Request("b", {{"prompt", ""}, {"n", 0}}) + "{\n" + Request("a") +
                          Request("c", {{"prompt", "x"}, {"model", "other"}}) + Request("d") + "\xff\n" +
                          Request("e", {{"prompt", std::string(5000, 'x')}}));
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(counts_.lines, 8) << "the empty line does not count";
  EXPECT_EQ(counts_.out, 2);
  EXPECT_EQ(counts_.errors, 6);
  std::map<int64_t, std::string> errors;
  for (const json& line : Lines(files_.errors)) errors[line["error"]["line"]] = line["error"]["message"];
  EXPECT_EQ(errors[3].substr(0, 12), "line 3: n: 0");
  EXPECT_EQ(errors[4].substr(0, 36), "line 4: invalid JSON at line 4, colu");
  EXPECT_EQ(errors[5], "line 5: custom_id: 'a' is also that of line 1, which came first; each line needs a unique one");
  EXPECT_EQ(errors[6], "line 6: model 'other' does not exist here; this server has 'fake'");
  EXPECT_EQ(errors[8].substr(0, 20), "line 8: invalid JSON");
  EXPECT_NE(errors[9].find("exceed the context of 4096 tokens"), std::string::npos) << errors[9];
}

TEST_F(RunnerTest, AJobMayBeRestrictedToOneUrl) {
  Write(
      files_.input,
      Request("a") +
          R"({"custom_id":"chat","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"x"}],"max_tokens":2}})"
          "\n");
  FakeEngine engine;
  RunnerOptions options;
  options.url = api::kChatApi.path;
  ASSERT_TRUE(Run(engine, std::move(options)).ok());
  EXPECT_EQ(Lines(files_.output).at(0)["custom_id"], "chat");
  const json error = Lines(files_.errors).at(0)["error"];
  EXPECT_EQ(error["code"], "invalid_line");
  EXPECT_EQ(error["param"], "url");
  EXPECT_EQ(error["message"].get<std::string>().rfind("line 1: url: '/v1/completions' is not the batch's endpoint", 0),
            0u)
      << error;
}

TEST_F(RunnerTest, AJobThatEndsEarlyHasAnErrorForEveryOtherLine) {
  Write(files_.input, Request("a") + "{broken\n" + Request("b"));
  {
    auto job = Open();
    ASSERT_TRUE(job.ok());
    ASSERT_TRUE((*job)->Commit({{.line = 1, .ok = true, .text = "{\"custom_id\":\"a\"}\n", .output_tokens = 4}}).ok());
    ASSERT_TRUE(EndWaiting(job->get(), "batch_expired", "too late").ok());
    EXPECT_EQ((*job)->counts().left(), 0);
    EXPECT_EQ((*job)->tokens()->output, 4);
    ASSERT_TRUE(EndWaiting(job->get(), "batch_expired", "too late").ok()) << "nothing is left";
  }
  const auto lines = Lines(files_.errors);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["custom_id"], nullptr);
  EXPECT_EQ(lines[1]["custom_id"], "b");
  EXPECT_EQ(lines[1]["response"], nullptr);
  EXPECT_EQ(lines[1]["error"],
            json({{"code", "batch_expired"}, {"message", "line 3: too late"}, {"param", nullptr}, {"line", 3}}));
}

TEST_F(RunnerTest, EndingAJobMayBeInterrupted) {
  WriteInput(600);
  auto job = Open();
  ASSERT_TRUE(job.ok());
  int groups = 0;
  const auto go_on = [&groups] { return ++groups <= 1; };
  EXPECT_EQ(EndWaiting(job->get(), "batch_expired", "too late", go_on).code(), StatusCode::kCancelled);
  const int64_t ended = (*job)->counts().errors;
  EXPECT_GT(ended, 0);
  EXPECT_LT(ended, 600);
  ASSERT_TRUE(EndWaiting(job->get(), "batch_expired", "too late").ok());
  EXPECT_EQ((*job)->counts().errors, 600);
  EXPECT_TRUE(EndWaiting(job->get(), "batch_expired", "too late", [] { return false; }).ok()) << "nothing is left";
}

TEST_F(RunnerTest, AStreamAndALineBeyondTheLimitAreRefused) {
  EXPECT_EQ(ErrorOf(R"({"prompt":"x","stream":true})"),
            "line 1: stream: true has no meaning in a batch, whose answers are complete; leave it out");
  EXPECT_EQ(ErrorOf(R"({"prompt":"x","stream":false})"), "no error");
  EXPECT_EQ(ErrorOf(R"({"prompt":"x","not_known":1})"), "no error") << "as by the server";
  WriteInput(2);
  std::filesystem::remove(files_.state);
  std::filesystem::remove(files_.output);
  std::filesystem::remove(files_.errors);
  FakeEngine engine;
  const auto job = Open({.most_line_bytes = 20});
  RunnerOptions options;
  options.limits = api::LimitsOf(engine, 100);
  ASSERT_TRUE(RunJob(job->get(), &engine, options, SystemClock()).ok());
  EXPECT_EQ(Lines(files_.errors)[1]["error"]["message"],
            fmt::format("line 2: {} bytes are more than 20, the limit of a line (--max-line); shorten it",
                        Request("a1").size() - 1));
  EXPECT_EQ(engine.submitted().size(), 0u);
}

// The engine's queue is the read-ahead: no further line is read, and a full queue is not polled.
TEST_F(RunnerTest, LinesWaitForRoomInTheEngine) {
  WriteInput(40);
  FakeEngine engine;
  engine.SetQueueLimit(3);
  engine.Hold();
  auto released = std::async(std::launch::async, [&engine] {
    engine.AwaitSubmitted(3);
    engine.Release();
  });
  ASSERT_TRUE(Run(engine).ok());
  released.get();
  EXPECT_EQ(counts_.out, 40);
  EXPECT_EQ(engine.most_live(), 3u) << "the queue was not kept full";
  EXPECT_EQ(engine.found_full(), 0) << "a line was submitted before there was room";
}

TEST_F(RunnerTest, LinesRunInTheOrderOfTheFileOrOfThePlan) {
  WriteInput(4);
  FakeEngine engine;
  ASSERT_TRUE(Run(engine).ok());
  std::vector<std::string> ids;
  for (const auto& request : engine.submitted()) ids.push_back(request.id.substr(request.id.rfind('_')));
  EXPECT_EQ(ids, (std::vector<std::string>{"_1", "_2", "_3", "_4"}));

  for (const std::string& path : {files_.output, files_.errors, files_.state}) std::filesystem::remove(path);
  // Lines 1 and 3 share a prefix, 2 and 4 another: depth-first they are adjacent.
  Write(files_.input, Request("a", {{"prompt", kX + "1"}}) + Request("b", {{"prompt", kY + "1"}}) +
                          Request("c", {{"prompt", kX + "2"}}) + Request("d", {{"prompt", kY + "2"}}));
  RunnerOptions options;
  options.order.order = PlanOrder::kDfs;
  FakeEngine other;
  ASSERT_TRUE(Run(other, options).ok());
  ids.clear();
  for (const auto& request : other.submitted()) ids.push_back(request.id.substr(request.id.rfind('_')));
  EXPECT_EQ(ids, (std::vector<std::string>{"_1", "_3", "_2", "_4"}));
  std::vector<int32_t> positions;
  for (const auto& request : other.submitted()) positions.push_back(request.planned.position);
  EXPECT_EQ(positions, (std::vector<int32_t>{0, 1, 2, 3}));
}

// In every order each line runs once, with the same answer and seed.
TEST_F(RunnerTest, EveryOrderRunsEveryLineWithTheSameAnswer) {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    SortedJson body = {{"prompt", std::string(static_cast<size_t>(20 + i % 7), static_cast<char>('a' + i % 3))},
                       {"max_tokens", 1 + i % 5}};
    if (i % 10 == 3) body = {{"prompt", {kX + std::to_string(i), "z"}}, {"n", 2}, {"max_tokens", 2}};
    if (i % 10 == 4) body = {{"prompt", std::string(5000, 'x')}};
    text += i % 10 == 5 ? "{broken\n" : Request("a" + std::to_string(i), body);
  }
  std::map<std::string, std::string> expected;
  for (const PlanOrder order : {PlanOrder::kFcfs, PlanOrder::kDfs, PlanOrder::kRandom, PlanOrder::kBalance,
                                PlanOrder::kBlend, PlanOrder::kBlendDualScan}) {
    for (const std::string& path : {files_.output, files_.errors, files_.state}) std::filesystem::remove(path);
    Write(files_.input, text);
    RunnerOptions options;
    options.order = {.order = order, .sample_share = 0.1, .seed = 3, .kv_tokens = 1000};
    options.max_queue = 16;
    PlanReport plan;
    options.plan = &plan;
    FakeEngine engine;
    engine.SetQueueLimit(16);
    JobOptions job;
    job.seed = 5;
    ASSERT_TRUE(Run(engine, options, job).ok());
    EXPECT_EQ(counts_.out, 48);
    EXPECT_EQ(counts_.errors, 12);
    std::map<std::string, std::string> answers;
    for (const json& line : Lines(files_.output))
      answers[line["custom_id"]] = line["response"]["body"]["choices"].dump();
    for (const auto& request : engine.submitted())
      answers["seed of " + request.id.substr(request.id.rfind('_'))] = std::to_string(request.sampling.seed);
    if (expected.empty()) expected = answers;
    EXPECT_EQ(answers, expected) << static_cast<int>(order);
    EXPECT_EQ(engine.refused().size(), 6u) << "each line that never fits counts once, planned or not";
    const bool planned = order != PlanOrder::kFcfs, sampled = order >= PlanOrder::kBalance;
    EXPECT_EQ(plan.requests, planned ? 42 + 6 * 4 : 0) << "a request for each sequence";
    EXPECT_EQ(plan.sample > 0, sampled);
    if (planned) {
      EXPECT_DOUBLE_EQ(plan.work_share > 0 ? 1 : 0, 1);
      EXPECT_EQ(plan.summary.requests, plan.requests);
      EXPECT_GT(plan.summary.optimal_sharing, 0);
    }
  }
}

// Bounds in seconds are reported only if the machine's speed is known for both kinds of work.
TEST_F(RunnerTest, BoundsAreReportedIfTheMachineIsKnown) {
  WriteInput(40);
  for (const double kv_token_s : {0.0, 1e-6}) {
    for (const std::string& path : {files_.output, files_.errors, files_.state}) std::filesystem::remove(path);
    FakeEngine engine;
    engine.mutable_model().num_parameters = 1000;
    engine.mutable_model().kv_bytes_per_token = 64;
    engine.mutable_model().prompt_token_s = 1e-3;
    engine.mutable_model().kv_token_s = kv_token_s;
    RunnerOptions options;
    options.order = {.order = PlanOrder::kDfs, .kv_tokens = 1000};
    PlanReport plan;
    options.plan = &plan;
    double bound_s = 0;
    options.progress = [&](const RunProgress& p) { return bound_s = std::max(bound_s, p.bound_s), true; };
    ASSERT_TRUE(Run(engine, options).ok());
    EXPECT_EQ(plan.rated, kv_token_s > 0);
    EXPECT_EQ(bound_s > 0, kv_token_s > 0);
    EXPECT_DOUBLE_EQ(plan.work_share, 1);
    if (!plan.rated) continue;
    // Three prompt tokens ("ab" and the first token) and sixteen answer tokens each, at a millisecond.
    EXPECT_NEAR(plan.summary.compute_s, 40 * (3 + 16) * 1e-3, 1e-6);
    EXPECT_NEAR(plan.summary.memory_s, 40 * (3 * 16 + 16 * 16 / 2) * 1e-6, 1e-9);
    EXPECT_DOUBLE_EQ(plan.summary.practical_bound_s, plan.summary.sequential_s) << "nothing overlaps";
  }
}

// The sample's answers are awaited with little else in the queue, and determine the order of the rest.
TEST_F(RunnerTest, TheRestIsPlannedByTheSamplesLengths) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += Request("a" + std::to_string(i), {{"prompt", (i % 2 ? kX : kY) + std::to_string(i)}, {"max_tokens", 50}});
  Write(files_.input, text);
  FakeEngine engine;
  engine.SetQueueLimit(10);
  engine.SetLengths({3});
  engine.Hold();
  RunnerOptions options;
  options.order = {.order = PlanOrder::kBlend, .sample_share = 0.01, .kv_tokens = 1000};
  options.max_queue = 10;
  PlanReport plan;
  options.plan = &plan;
  // Ten would fit; one place stays free for lines that are planned better. Three more reports pass before the engine is
  // released.
  int reports = 0;
  options.progress = [&](const RunProgress& progress) {
    if (progress.in_engine < 9 || ++reports < 4) return true;
    if (reports == 4) {
      EXPECT_EQ(engine.submitted().size(), 9u) << "beside the sample only as many as the next steps need";
      engine.Release();
    }
    return true;
  };
  ASSERT_TRUE(Run(engine, options).ok());
  EXPECT_GE(reports, 4);
  EXPECT_EQ(counts_.out, 40);
  const auto submitted = engine.submitted();
  ASSERT_EQ(submitted.size(), 40u);
  for (int i = 0; i < plan.sample; ++i) EXPECT_EQ(submitted[static_cast<size_t>(i)].planned, PlannedPlace()) << i;
  EXPECT_GT(plan.sample, 0);
  EXPECT_LT(plan.sample, 10);
  EXPECT_EQ(submitted[static_cast<size_t>(plan.sample)].planned.kv_tokens,
            static_cast<int32_t>(submitted[static_cast<size_t>(plan.sample)].prompt->size()))
      << "beside the sample no lengths are known";
  EXPECT_EQ(submitted.back().planned.kv_tokens, static_cast<int32_t>(submitted.back().prompt->size()) + 1)
      << "half of the 3 tokens of the sample's answers";
}

// Lines that are done do not run again, and their lengths are known.
TEST_F(RunnerTest, AResumedJobIsPlannedByItsAnswersLengths) {
  WriteInput(30);
  FakeEngine engine;
  engine.SetLengths({4});
  engine.SetQueueLimit(3);
  engine.HoldAfter(1);
  RunnerOptions options;
  options.order = {.order = PlanOrder::kBlend, .sample_share = 0.1, .kv_tokens = 1000};
  bool stopped = false;
  options.progress = [&](const RunProgress& progress) {
    if (stopped) engine.Release();  // not before the stop
    stopped |= progress.generating == 3;
    return !stopped;
  };
  ASSERT_EQ(Run(engine, options).code(), StatusCode::kCancelled);
  const int64_t done = counts_.done();
  ASSERT_GT(done, 0);
  ASSERT_LT(done, 30);
  FakeEngine second;
  second.SetLengths({4});
  options.progress = {};
  PlanReport plan;
  options.plan = &plan;
  ASSERT_TRUE(Run(second, options).ok());
  EXPECT_EQ(counts_.out, 30);
  EXPECT_EQ(plan.requests, 30 - done);
  EXPECT_EQ(second.submitted().size(), static_cast<size_t>(30 - done));
  EXPECT_EQ(second.submitted().back().planned.kv_tokens, 3 + 2) << "the prompt and half of an answer";
}

TEST_F(RunnerTest, AStopDuringPlanningStartsNoLine) {
  WriteInput(400);
  FakeEngine engine;
  RunnerOptions options;
  options.order.order = PlanOrder::kDfs;
  std::atomic<bool> stopped{false};
  engine.OnText([&](StopToken) {
    while (!stopped) std::this_thread::yield();  // planning lasts until the stop
  });
  bool planning = false;
  options.progress = [&](const RunProgress& progress) {
    planning |= progress.planning;
    stopped = true;
    return false;
  };
  EXPECT_EQ(Run(engine, options).code(), StatusCode::kCancelled);
  EXPECT_TRUE(planning);
  EXPECT_EQ(engine.submitted().size(), 0u);
  EXPECT_EQ(counts_.done(), 0);
}

TEST_F(RunnerTest, AJobBeyondThePlannersMemoryIsRefusedWithTheFix) {
  WriteInput(1000);
  FakeEngine engine;
  RunnerOptions options;
  options.order = {.order = PlanOrder::kBlend, .memory_bytes = 1 << 20};
  const Status status = Run(engine, options);
  EXPECT_EQ(status.code(), StatusCode::kTooLarge);
  EXPECT_NE(status.message().find("planner"), std::string::npos) << status.message();
  EXPECT_EQ(counts_.done(), 0);
}

// Every process plans the whole job and runs its own part: together they run each line once, in any order.
TEST_F(RunnerTest, ShardsRunEveryLineOnce) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += i % 10 == 5 ? "{broken\n"
                        : Request("a" + std::to_string(i),
                                  {{"prompt", (i % 3 ? kX : kY) + std::string(i, 'z')}, {"max_tokens", 1 + i % 50}});
  }
  Write(files_.input, text);
  const JobFiles given = files_;
  std::multiset<std::string> ids;
  std::set<std::string> cuts;
  int64_t errors = 0;
  for (const int32_t shard : {0, 1, 2}) {
    const std::string tag = std::to_string(shard);
    files_ = {given.input, given.output + tag, given.errors + tag, given.state + tag};
    RunnerOptions options;
    options.order = {.order = shard == 1 ? PlanOrder::kFcfs : PlanOrder::kBlend, .kv_tokens = 1000};
    options.order.shard = shard;
    options.order.shards = 3;
    // A run that is ended and resumed: the stored assignment is used, also if another order would cut differently.
    FakeEngine first;
    first.SetQueueLimit(5);
    first.HoldAfter(1);
    bool stop = false;
    options.progress = [&](const RunProgress& p) {
      if (stop) first.Release();  // by now no further line starts
      stop = stop || p.in_engine >= 5 || p.counts.done() > 0;
      return !stop;
    };
    EXPECT_EQ(Run(first, options).code(), StatusCode::kCancelled);
    options.progress = {};
    options.order.order = shard == 2 ? PlanOrder::kFcfs : PlanOrder::kDfs;
    FakeEngine second;
    ASSERT_TRUE(Run(second, options).ok());
    EXPECT_EQ(counts_.left(), 0);
    EXPECT_GT(counts_.lines, 10);
    EXPECT_EQ(counts_.lines + counts_.elsewhere, 100);
    for (const json& line : Lines(files_.output)) ids.insert(line["custom_id"].get<std::string>());
    errors += counts_.errors;
    cuts.insert((*Open())->cut());
  }
  EXPECT_EQ(cuts.size(), 1u) << "the shards were cut differently";
  EXPECT_EQ(ids.size(), 90u);
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 90u);
  EXPECT_EQ(errors, 10);
}

TEST_F(RunnerTest, ARequestThatFailsInTheEngineIsAnErrorOfItsLine) {
  WriteInput(3);
  FakeEngine engine;
  engine.FailAfter(1);
  ASSERT_TRUE(Run(engine).ok());
  EXPECT_EQ(counts_.errors, 3);
  EXPECT_EQ(Lines(files_.errors)[0]["response"]["status_code"], 500);
  EXPECT_EQ(Lines(files_.errors)[0]["error"]["code"], "server_error");
}

// Ctrl-C: generating lines finish, waiting lines do not start, and the next run does the rest.
TEST_F(RunnerTest, AStopLetsGeneratingLinesFinish) {
  WriteInput(10);
  FakeEngine engine;
  engine.SetQueueLimit(3);
  engine.HoldAfter(1);  // three generate; the fourth waits for room
  RunnerOptions options;
  bool stopped = false;
  options.progress = [&](const RunProgress& progress) {
    if (stopped) engine.Release();  // not before the stop
    stopped |= progress.generating == 3 && progress.in_engine == 4;
    return !stopped;
  };
  EXPECT_EQ(Run(engine, options).code(), StatusCode::kCancelled);
  EXPECT_EQ(counts_.out, 3);
  EXPECT_EQ(counts_.errors, 0);
  EXPECT_EQ(engine.submitted().size(), 3u);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(counts_.out, 10);
  const auto ids = Ids();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 10u) << "a line was lost or run twice";
}

TEST_F(RunnerTest, AStopDropsLinesWithoutATokenYet) {
  WriteInput(5);
  FakeEngine engine;
  engine.SetQueueLimit(2);
  engine.Hold();
  RunnerOptions options;
  options.progress = [](const RunProgress& progress) { return progress.in_engine < 3; };
  EXPECT_EQ(Run(engine, options).code(), StatusCode::kCancelled);
  EXPECT_EQ(counts_.done(), 0);
  EXPECT_EQ(engine.submitted().size(), 2u);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(counts_.out, 5);
}

TEST_F(RunnerTest, APermanentEngineFailureEndsTheRunAndNoLine) {
  WriteInput(5);
  FakeEngine engine;
  engine.SetQueueLimit(2);
  engine.Hold();
  engine.SetHealthy(false);
  const Status status = Run(engine);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "the engine failed three steps in a row");
  EXPECT_EQ(counts_.done(), 0);

  FakeEngine draining;
  draining.Drain(0);
  EXPECT_EQ(Run(draining).code(), StatusCode::kUnavailable);
  EXPECT_EQ(counts_.done(), 0);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(counts_.out, 5);
}

// The output can no longer be written: a changed input simulates a full disk (which tests/e2e tests).
TEST_F(RunnerTest, AResultThatCannotBeWrittenEndsTheRun) {
  WriteInput(200);
  FakeEngine engine;
  engine.SetQueueLimit(2);
  RunnerOptions options;
  engine.on_submit = [this, &engine, begun = 0]() mutable {
    if (++begun == 1) Append(files_.input, "\n");
    if (begun == 100) engine.Hold();  // more than a group of results, so that the rest waits until those are written
  };
  EXPECT_EQ(Run(engine, options).code(), StatusCode::kDataLoss);
  EXPECT_EQ(counts_.done(), 0);
  EXPECT_LT(engine.submitted().size(), 200u) << "lines ran although results could not be written";
}

TEST_F(RunnerTest, OutOfMemoryEndsTheRunAndLosesNoLine) {
  WriteInput(20);
  FakeEngine engine;
  engine.SetQueueLimit(4);
  RunnerOptions options;
  options.progress = [](const RunProgress&) -> bool { throw std::bad_alloc(); };
  const Status status = Run(engine, options);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  options.progress = nullptr;
  ASSERT_TRUE(Run(engine, options).ok());
  EXPECT_EQ(counts_.out, 20);
  const auto ids = Ids();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 20u);
}

TEST_F(RunnerTest, AStopDoesNotHideAFailedWrite) {
  WriteInput(10);
  FakeEngine engine;
  engine.SetQueueLimit(3);
  engine.HoldAfter(1);
  RunnerOptions options;
  bool stopped = false;
  options.progress = [&](const RunProgress& progress) {
    if (stopped) engine.Release();
    if (!stopped && progress.generating == 3) {
      stopped = true;
      Append(files_.input, "\n");
    }
    return !stopped;
  };
  EXPECT_EQ(Run(engine, options).code(), StatusCode::kDataLoss);
  EXPECT_EQ(counts_.done(), 0);
}

TEST_F(RunnerTest, SeedsThatALineLeavesOutComeFromTheJob) {
  Write(files_.input,
        Request("a") + Request("b", {{"prompt", "x"}, {"seed", 5}}) + Request("c", {{"prompt", {"x", "y"}}}));
  FakeEngine engine;
  ASSERT_TRUE(Run(engine).ok());
  const auto job = Open();
  const auto submitted = engine.submitted();
  ASSERT_EQ(submitted.size(), 4u);
  for (const auto& request : submitted) EXPECT_TRUE(request.sampling.has_seed);
  EXPECT_EQ(submitted[0].sampling.seed, (*job)->SeedOf(1, 0));
  EXPECT_EQ(submitted[1].sampling.seed, 5u);
  EXPECT_EQ(submitted[2].sampling.seed, (*job)->SeedOf(3, 0));
  EXPECT_EQ(submitted[3].sampling.seed, (*job)->SeedOf(3, 1));
}

}  // namespace
}  // namespace tactus::offline
