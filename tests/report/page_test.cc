// From run files to a page: what it shows, that it asks for nothing, that names cannot break it.
#include "report/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "report/request_story.h"
#include "report/run_files.h"

namespace tactus::report {
namespace {

std::vector<RunView> View(const std::vector<std::string>& paths) {
  std::vector<RunView> runs;
  for (const std::string& path : paths) {
    auto run = ViewRun(path);
    EXPECT_TRUE(run.ok()) << run.status().message();
    if (run.ok()) runs.push_back(std::move(*run));
  }
  LabelRuns(&runs);
  return runs;
}

std::set<std::string> Ids(const std::vector<Figure>& figures) {
  std::set<std::string> ids;
  for (const Figure& figure : figures) ids.insert(figure.id());
  return ids;
}

TEST(PageTest, OneRunHasAllItsPictures) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {});
  const Report report = MakeReport(View({folder / "a.run"}));
  ASSERT_EQ(report.details.size(), 1u);
  EXPECT_EQ(Ids(report.details[0]), (std::set<std::string>{"tbt", "ttft", "batch", "queue", "kv", "tokens", "requests",
                                                           "attainment", "misses"}));
  EXPECT_TRUE(report.comparison.empty());
  EXPECT_EQ(report.runs[0].label, "a");
  const std::string page = Page(report);
  EXPECT_NE(page.find("tactus sim --rate 8</p>"), std::string::npos) << "what was stated, without where it was written";
  EXPECT_NE(page.find("<td>time to first token</td><td>60</td>"), std::string::npos);
}

TEST(PageTest, AStallIsMarked) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {});
  const Report report = MakeReport(View({folder / "a.run"}));
  for (const Figure& figure : report.details[0]) {
    if (figure.id() != "tbt") continue;
    const auto& plot = std::get<LinePlot>(figure.plot);
    ASSERT_TRUE(plot.limit.has_value());
    EXPECT_EQ(plot.limit->y, 100);
    ASSERT_EQ(plot.marks.size(), 1u);
    EXPECT_EQ(plot.marks[0].to, 180);
    return;
  }
  FAIL() << "no picture of gaps";
}

TEST(PageTest, RunsAreLabelledByWhatSetsThemApart) {
  const test::TempFolder folder;
  std::vector<std::string> paths;
  for (const char* scheduler : {"vllm-v0", "sarathi-serve"}) {
    for (const char* rate : {"4", "8"}) {
      paths.push_back(folder / (std::string(scheduler) + rate + ".run"));
      test::WriteRun(paths.back(), {.scheduler = scheduler, .rate = rate});
    }
  }
  const Report report = MakeReport(View(paths));
  EXPECT_EQ(report.runs[0].label, "vllm-v0, rate 4");
  EXPECT_EQ(report.runs[0].group, "vllm-v0");
  EXPECT_EQ(report.runs[0].load, 4);
  const auto ids = Ids(report.comparison);
  EXPECT_TRUE(ids.contains("load-ttft")) << "latencies against load";
  EXPECT_TRUE(ids.contains("compare-requests"));
  EXPECT_FALSE(ids.contains("compare-e2e")) << "none of them knows it";
  for (const Figure& figure : report.comparison) {
    if (figure.id() != "load-ttft") continue;
    const auto& plot = std::get<LinePlot>(figure.plot);
    ASSERT_EQ(plot.lines.size(), 4u);
    EXPECT_EQ(plot.lines[0].name, "sarathi-serve P99");
    EXPECT_EQ(plot.lines[0].x, (std::vector<double>{4, 8}));
    EXPECT_EQ(plot.lines[0].y, (std::vector<double>{61, 61}));
    EXPECT_EQ(plot.x_label, "requests per second");
  }
}

TEST(PageTest, ThePageAsksForNothing) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {});
  const std::string page = Page(MakeReport(View({folder / "a.run"})));
  for (const char* asks : {"http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe"})
    EXPECT_EQ(page.find(asks), std::string::npos) << asks;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos) << "and forbids itself to";
  EXPECT_LT(page.size(), 60'000u);
}

TEST(PageTest, NamesOfARunCannotBreakThePage) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {.scheduler = "</style><script>alert(1)</script>", .slo_class = "<b>&'"});
  test::WriteRun(folder / "b.run", {.scheduler = "other"});
  const std::string page = Page(MakeReport(View({folder / "a.run", folder / "b.run"})));
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
}

TEST(PageTest, AnIncompleteRunSaysSo) {
  const test::TempFolder folder;
  {
    RunAbout about;
    about.command = "serve";
    auto file = RunFileWriter::Create(folder / "cut.run", about, RunFileWriter::WhenBehind::kWait);
    ASSERT_TRUE(file.ok());
    for (int64_t i = 0; i < 10'000; ++i) {
      RunStep step;
      step.step = i;
      step.end_ns = kMillisecond;
      (*file)->Add(step);
    }
  }
  const std::string page = Page(MakeReport(View({folder / "cut.run"})));
  EXPECT_NE(page.find("was not closed in order"), std::string::npos);
}

TEST(PageTest, ResultsOfAnotherShapeAreNoTrouble) {
  const test::TempFolder folder;
  const std::string path = folder / "odd.run";
  RunAbout about;
  auto file = RunFileWriter::Create(path, about, RunFileWriter::WhenBehind::kWait);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)
                  ->Close(R"({"ttft_ms": 3, "classes": {"a": 1, "b": {"slo_attainment": "x"}},
                              "bubbles": {"stages": [1, {"busy_s": 2}, {"busy_s": []}]}, "requests": [1]})")
                  .ok());
  EXPECT_FALSE(Page(MakeReport(View({path}))).empty());
}

TEST(PageTest, ManyRunsAreShownSideBySideAlone) {
  const test::TempFolder folder;
  std::vector<std::string> paths;
  for (size_t i = 0; i <= kMostRunsInDetail; ++i) {
    paths.push_back(folder / (std::to_string(i) + ".run"));
    test::WriteRun(paths.back(), {.rate = std::to_string(i + 1)});
  }
  const Report report = MakeReport(View(paths));
  EXPECT_TRUE(report.details.empty());
  EXPECT_NE(Page(report).find("are shown side by side alone"), std::string::npos);
}

TEST(RequestStoryTest, TellsPhasesAndObjectives) {
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

TEST(PageTest, TheJsonHasTheResults) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {});
  const auto json = ReportJson(MakeReport(View({folder / "a.run"})));
  ASSERT_EQ(json["runs"].size(), 1u);
  EXPECT_EQ(json["runs"][0]["result"]["goodput"], 4);
  EXPECT_EQ(json["runs"][0]["options"]["rate"], "8");
}

}  // namespace
}  // namespace tactus::report
