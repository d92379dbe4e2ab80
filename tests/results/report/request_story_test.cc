// `tactus explain` for one request of a run file.
#include "results/report/request_story.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "results/report/run_files.h"

namespace tactus::results {
namespace {

RunStep StepAt(int64_t number, int64_t start_ms, int64_t end_ms, int64_t prompt_tokens, int64_t decodes) {
  RunStep step;
  step.step = number;
  step.start_ns = start_ms * kMillisecond;
  step.end_ns = end_ms * kMillisecond;
  step.prompt_tokens = prompt_tokens;
  step.decodes = decodes;
  step.running = decodes;
  step.waiting = 3;
  step.kv_used = 0.25;
  return step;
}

// One request that waits for one step, computes its prompt in one step and decodes in three, the second of them after
// another request's prompt; a step of another replica; another request, which was faster except for its end.
std::string WriteStory(const test::TempFolder& folder) {
  std::string path = folder / "story.run";
  RunAbout about;
  about.interval_ns = kSecond / 10;
  auto file = RunFileWriter::Create(path, about, RunFileWriter::WhenBehind::kWait);
  EXPECT_TRUE(file.ok());
  RunStep steps[] = {StepAt(0, 0, 10, 100, 0),   StepAt(1, 10, 40, 64, 2),  StepAt(2, 40, 60, 0, 2),
                     StepAt(3, 60, 160, 500, 0), StepAt(4, 160, 180, 0, 4), StepAt(5, 180, 200, 0, 4)};
  steps[4].longest_gap_ns = 120 * kMillisecond;
  steps[4].preemptions = 1;
  steps[3].kv_used = 0.75;
  for (const RunStep& step : steps) (*file)->Add(step);
  RunStep elsewhere = StepAt(0, 0, 200, 4000, 0);
  elsewhere.replica = 1;
  (*file)->Add(elsewhere);
  for (int64_t i = 0; i < 2; ++i) {
    RunRequest r;
    r.number = i;
    r.id = i == 0 ? "mine" : "other";
    r.replica = 0;
    r.arrival_ns = 5 * kMillisecond;
    r.scheduled_ns = 10 * kMillisecond;
    r.first_token_ns = (i == 0 ? 40 : 30) * kMillisecond;
    r.done_ns = (i == 0 ? 200 : 300) * kMillisecond;
    r.prompt_tokens = 64;
    r.output_tokens = 4;
    r.longest_gap_ns = (i == 0 ? 120 : 20) * kMillisecond;
    r.finish = "length";
    r.slo.tbt_ns = 100 * kMillisecond;
    if (i == 0) r.missed_by[1] = "prefill";
    (*file)->Add(r);
  }
  for (int64_t i = 0; i < 4; ++i) {
    RunInterval interval;
    interval.from_ns = i * about.interval_ns;
    interval.in_flight = i < 2 ? i + 2 : 100;  // the last two intervals are after its end
    (*file)->Add(interval);
  }
  EXPECT_TRUE((*file)->Close("{}").ok());
  return path;
}

TEST(RequestStoryTest, ReportsPhasesAndObjectives) {
  const test::TempFolder folder;
  const std::string path = folder / "a.run";
  test::WriteRun(path, {});
  EXPECT_TRUE(IsArchive(path));
  EXPECT_FALSE(IsArchive(folder / "none"));
  for (const char* id : {"0", "an \\id"}) {
    const auto story = RequestStory(path, id);
    ASSERT_TRUE(story.ok()) << story.status().message();
    EXPECT_EQ((*story)["waited_ms"], 5);
    EXPECT_EQ((*story)["prompt_ms"], 55);
    EXPECT_EQ((*story)["answer_ms"], 140);
    ASSERT_EQ((*story)["objectives"].size(), 1u);
    EXPECT_EQ((*story)["objectives"][0]["cause"], "prefill");
    EXPECT_NE(StoryTable(*story).find("missed, by prefill"), std::string::npos) << StoryTable(*story);
  }
  EXPECT_EQ(RequestStory(path, "2").status().code(), StatusCode::kNotFound);
}

TEST(RequestStoryTest, ReportsTheStepsOfEachPhase) {
  const test::TempFolder folder;
  const auto story = RequestStory(WriteStory(folder), "mine");
  ASSERT_TRUE(story.ok()) << story.status().message();
  const Json& phases = (*story)["phases"];
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[0], Json({{"phase", "waited"},
                             {"ms", 5.0},
                             {"steps", 1},
                             {"longest_step_ms", 10.0},
                             {"prompt_tokens", 100},
                             {"decodes", 0},
                             {"preemptions", 0},
                             {"running", 0.0},
                             {"waiting", 3.0},
                             {"kv_used", 0.25}}));
  EXPECT_EQ(phases[1]["steps"], 1);
  EXPECT_EQ(phases[1]["prompt_tokens"], 64);
  EXPECT_EQ(phases[2]["steps"], 4);
  EXPECT_EQ(phases[2]["longest_step_ms"], 100);
  EXPECT_EQ(phases[2]["decodes"], 10);
  EXPECT_EQ(phases[2]["preemptions"], 1);
  EXPECT_EQ(phases[2]["kv_used"], 0.75);
  // By time: 20 ms with 2, 100 ms with none, 40 ms with 4.
  EXPECT_DOUBLE_EQ(phases[2]["running"].get<double>(), (20 * 2 + 40 * 4) / 160.0);
}

TEST(RequestStoryTest, ReportsTheWorkWithinTheLongestGap) {
  const test::TempFolder folder;
  const auto story = RequestStory(WriteStory(folder), "0");
  ASSERT_TRUE(story.ok()) << story.status().message();
  const Json& gap = (*story)["longest_gap"];
  EXPECT_EQ(gap["step"], 4);
  EXPECT_DOUBLE_EQ(gap["from_s"].get<double>(), 0.06);
  EXPECT_DOUBLE_EQ(gap["to_s"].get<double>(), 0.18);
  EXPECT_EQ(gap["steps"], 2);
  EXPECT_EQ(gap["prompt_tokens"], 500);
  EXPECT_EQ(gap["decodes"], 4);
  const std::string text = StoryTable(*story);
  EXPECT_NE(text.find("until 0.180 s; 2 steps, to step 4: 500 prompt tokens, 4 decodes"), std::string::npos) << text;
}

TEST(RequestStoryTest, ReportsTheRankAmongOtherRequests) {
  const test::TempFolder folder;
  const std::string path = WriteStory(folder);
  const auto mine = RequestStory(path, "mine"), other = RequestStory(path, "other");
  ASSERT_TRUE(mine.ok() && other.ok());
  EXPECT_EQ((*mine)["others"], 1);
  EXPECT_EQ((*mine)["slower_than"], Json({{"ttft", 1.0}, {"e2e", 0.0}, {"longest_gap", 1.0}}));
  EXPECT_EQ((*other)["slower_than"], Json({{"ttft", 0.0}, {"e2e", 1.0}, {"longest_gap", 0.0}}));
  EXPECT_DOUBLE_EQ((*mine)["in_flight"].get<double>(), 2.5);
  const std::string text = StoryTable(*mine);
  EXPECT_NE(text.find("TTFT 100 %, longest gap 100 %, total 0 % of 1 request; in flight meanwhile: 2.5"),
            std::string::npos)
      << text;
}

// The file of a load test has no steps.
TEST(RequestStoryTest, WithoutStepsThePhasesHaveOnlyTimes) {
  const test::TempFolder folder;
  const std::string path = folder / "bench.run";
  auto file = RunFileWriter::Create(path, RunAbout(), RunFileWriter::WhenBehind::kWait);
  ASSERT_TRUE(file.ok());
  RunRequest r;
  r.first_token_ns = 30 * kMillisecond;
  r.done_ns = 80 * kMillisecond;
  r.finish = "completed";
  (*file)->Add(r);
  ASSERT_TRUE((*file)->Close("{}").ok());
  const auto story = RequestStory(path, "0");
  ASSERT_TRUE(story.ok()) << story.status().message();
  ASSERT_EQ((*story)["phases"].size(), 1u);
  EXPECT_EQ((*story)["phases"][0]["phase"], "answer");
  EXPECT_TRUE((*story)["longest_gap"].is_null());
  EXPECT_TRUE((*story)["slower_than"]["ttft"].is_null());
  EXPECT_EQ(StoryTable(*story).find("step"), std::string::npos) << StoryTable(*story);
  EXPECT_TRUE(StoryTable(*story).starts_with("request 0: ended by ")) << "without an id: " << StoryTable(*story);
}

}  // namespace
}  // namespace tactus::results
