// A job on an engine that does what the test says: every line has one result, whoever fails, and whoever stops it.
#include "batch_run/runner.h"

#include <fmt/format.h>

#include <future>

#include "api/conversation.h"
#include "batch_run/end_job.h"
#include "batch_run/job_folder.h"
#include "batch_run/job_line.h"
#include "serve/fake_engine.h"

namespace tactus::batch {
namespace {

using nlohmann::json;

class RunnerTest : public JobFolder {
 protected:
  // An engine that is held back goes on after a while, so that a run which does not end by itself fails its test.
  Status Run(FakeEngine& engine, RunnerOptions options = {}) {
    auto job = Open();
    if (!job.ok()) return job.status();
    options.limits = api::LimitsOf(engine.model(), 100);
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

  static constexpr int kMostReports = 100;  // five in a second

  JobCounts counts_;
};

TEST_F(RunnerTest, AnswersAreTheServers) {
  Write(
      files_.input,
      Request("two", {{"prompt", {"ab", "c"}}, {"n", 2}, {"max_tokens", 3}, {"echo", true}}) +
          R"({"custom_id":"chat","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"x"}],"max_tokens":2}})"
          "\n");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(counts_.out, 2);
  for (const json& line : Lines(files_.output)) {
    const json& body = line["response"]["body"];
    EXPECT_EQ(line["response"]["status_code"], 200);
    if (line["custom_id"] == "chat") {
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
  EXPECT_EQ(counts_.lines, 9);
  EXPECT_EQ(counts_.out, 2);
  EXPECT_EQ(counts_.errors, 7);
  std::map<int64_t, std::string> errors;
  for (const json& line : Lines(files_.errors)) errors[line["error"]["line"]] = line["error"]["message"];
  EXPECT_EQ(errors[2], "line 2: the line is empty; remove it, or write a request into it");
  EXPECT_EQ(errors[3].substr(0, 12), "line 3: n: 0");
  EXPECT_EQ(errors[4].substr(0, 36), "line 4: invalid JSON at line 4, colu");
  EXPECT_EQ(errors[5], "line 5: custom_id: 'a' is that of line 1 too, which is run; give each line one of its own");
  EXPECT_EQ(errors[6], "line 6: model 'other' does not exist here; this server has 'fake'");
  EXPECT_EQ(errors[8].substr(0, 20), "line 8: invalid JSON");
  EXPECT_NE(errors[9].find("exceed the context of 4096 tokens"), std::string::npos) << errors[9];
}

TEST_F(RunnerTest, AJobMayBeOfOneUrl) {
  Write(
      files_.input,
      Request("a") +
          R"({"custom_id":"chat","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"x"}],"max_tokens":2}})"
          "\n");
  FakeEngine engine;
  RunnerOptions options;
  options.url = kChatUrl;
  ASSERT_TRUE(Run(engine, std::move(options)).ok());
  EXPECT_EQ(Lines(files_.output).at(0)["custom_id"], "chat");
  const json error = Lines(files_.errors).at(0)["error"];
  EXPECT_EQ(error["code"], "invalid_line");
  EXPECT_EQ(error["param"], "url");
  EXPECT_EQ(error["message"].get<std::string>().rfind("line 1: url: '/v1/completions' is not the batch's endpoint", 0),
            0u)
      << error;
}

TEST_F(RunnerTest, AJobThatEndsEarlyGivesEveryLineItsError) {
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

TEST_F(RunnerTest, AStreamIsRefusedAndALineBeyondTheLimit) {
  EXPECT_EQ(ErrorOf(R"({"prompt":"x","stream":true})"),
            "line 1: stream: true has no meaning in a batch, whose answers are complete; leave it out");
  EXPECT_EQ(ErrorOf(R"({"prompt":"x","stream":false})"), "no error");
  EXPECT_EQ(ErrorOf(R"({"prompt":"x","not_known":1})"), "no error") << "as the server";
  WriteInput(2);
  std::filesystem::remove(files_.state);
  std::filesystem::remove(files_.output);
  std::filesystem::remove(files_.errors);
  FakeEngine engine;
  const auto job = Open({.most_line_bytes = 20});
  RunnerOptions options;
  options.limits = api::LimitsOf(engine.model(), 100);
  ASSERT_TRUE(RunJob(job->get(), &engine, options, SystemClock()).ok());
  EXPECT_EQ(Lines(files_.errors)[1]["error"]["message"],
            fmt::format("line 2: {} bytes are more than 20, the limit of a line (--max-line); shorten it",
                        Request("a1").size() - 1));
  EXPECT_EQ(engine.submitted().size(), 0u);
}

// The engine's room is what is read ahead: no line more, and no polling of a full queue.
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
  EXPECT_EQ(engine.found_full(), 0) << "it asked before there was room";
}

TEST_F(RunnerTest, LinesRunInTheOrderOfTheFileOrAsTheJobIsOrdered) {
  WriteInput(4);
  FakeEngine engine;
  ASSERT_TRUE(Run(engine).ok());
  std::vector<std::string> ids;
  for (const auto& request : engine.submitted()) ids.push_back(request.id.substr(request.id.rfind('_')));
  EXPECT_EQ(ids, (std::vector<std::string>{"_1", "_2", "_3", "_4"}));

  for (const std::string& path : {files_.output, files_.errors, files_.state}) std::filesystem::remove(path);
  const auto job = Open();
  std::vector<LinePlace> places = *(*job)->Waiting(0, 100);
  RunnerOptions options;
  options.limits = api::LimitsOf(engine.model(), 100);
  options.next = [&places]() -> Result<std::optional<LinePlace>> {
    if (places.empty()) return std::optional<LinePlace>();
    const LinePlace place = places.back();
    places.pop_back();
    return std::optional<LinePlace>(place);
  };
  FakeEngine other;
  ASSERT_TRUE(RunJob(job->get(), &other, options, SystemClock()).ok());
  ids.clear();
  for (const auto& request : other.submitted()) ids.push_back(request.id.substr(request.id.rfind('_')));
  EXPECT_EQ(ids, (std::vector<std::string>{"_4", "_3", "_2", "_1"}));
}

TEST_F(RunnerTest, ARequestThatTheEngineFailsIsAnErrorOfItsLine) {
  WriteInput(3);
  FakeEngine engine;
  engine.FailAfter(1);
  ASSERT_TRUE(Run(engine).ok());
  EXPECT_EQ(counts_.errors, 3);
  EXPECT_EQ(Lines(files_.errors)[0]["response"]["status_code"], 500);
  EXPECT_EQ(Lines(files_.errors)[0]["error"]["code"], "server_error");
}

// Ctrl-C: what generates goes on to its end, what only waits does not begin, and the next run does the rest.
TEST_F(RunnerTest, AStopLetsWhatHasBegunFinish) {
  WriteInput(10);
  FakeEngine engine;
  engine.SetQueueLimit(3);
  engine.HoldAfter(1);  // three begin to generate; the fourth waits for room
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
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 10u) << "a line was lost or done twice";
}

TEST_F(RunnerTest, AStopDropsWhatHasNotBegun) {
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

TEST_F(RunnerTest, AnEngineThatFailsForGoodEndsTheRunAndNoLine) {
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

// The output can no longer be written: an input that changed stands for a disk that is full (tests/e2e has that).
TEST_F(RunnerTest, AResultThatCannotBeWrittenEndsTheRun) {
  WriteInput(200);
  FakeEngine engine;
  engine.SetQueueLimit(2);
  RunnerOptions options;
  engine.on_submit = [this, written = false]() mutable {
    if (!written) Append(files_.input, "\n");
    written = true;
  };
  EXPECT_EQ(Run(engine, options).code(), StatusCode::kDataLoss);
  EXPECT_EQ(counts_.done(), 0);
  EXPECT_LT(engine.submitted().size(), 200u) << "it went on for nothing";
}

TEST_F(RunnerTest, AStopDoesNotHideThatResultsWereNotWritten) {
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

TEST_F(RunnerTest, SeedsThatALineLeavesOutAreTheJobs) {
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
}  // namespace tactus::batch
