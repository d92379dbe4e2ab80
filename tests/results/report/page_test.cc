// From run files to a page: its contents, no external resources, escaped names.
#include "results/report/page.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <set>

#include "results/report/run_files.h"

namespace tactus::results {
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
  EXPECT_NE(page.find("tactus sim --rate 8</p>"), std::string::npos) << "the stated options, without output files";
  EXPECT_NE(page.find("<td>TTFT</td><td>60</td>"), std::string::npos);
}

TEST(PageTest, AnIntervalIsDrawnAtItsMiddleAndTheLastEndsWithTheRun) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {});  // 230 ms within an interval of a second
  const auto run = ViewRun(folder / "a.run");
  ASSERT_TRUE(run.ok()) << run.status().message();
  const TimeBins& tokens = run->output_tokens_per_s;
  ASSERT_FALSE(tokens.bins().empty());
  EXPECT_DOUBLE_EQ(tokens.bins().back().mean(), 8 / 0.23);
  EXPECT_EQ((static_cast<int64_t>(tokens.bins().size()) - 1) * tokens.width_ns() / kMillisecond,
            115 * kMillisecond / tokens.width_ns() * tokens.width_ns() / kMillisecond);
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

TEST(PageTest, RunsAreLabelledByTheirDifferences) {
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
  EXPECT_FALSE(ids.contains("compare-e2e")) << "no run has this metric";
  for (const Figure& figure : report.comparison) {
    if (figure.id() != "load-ttft") continue;
    const auto& plot = std::get<LinePlot>(figure.plot);
    ASSERT_EQ(plot.lines.size(), 4u);
    EXPECT_EQ(plot.lines[0].name, "vllm-v0 P99") << "in the order of the runs";
    EXPECT_EQ(plot.lines[0].x, (std::vector<double>{4, 8}));
    EXPECT_EQ(plot.lines[0].y, (std::vector<double>{61, 61}));
    EXPECT_EQ(plot.x_label, "requests per second");
  }
}

// A shell sorts run-16, run-20, run-8: figures and tables sort by the number.
TEST(PageTest, RunsAreSortedByTheirNumbers) {
  const test::TempFolder folder;
  std::vector<std::string> paths;
  for (const char* scheduler : {"vllm", "tactus"}) {
    for (const char* rate : {"16", "20", "8"}) {
      paths.push_back(folder / (std::string(scheduler) + rate + ".run"));
      test::WriteRun(paths.back(), {.scheduler = scheduler, .rate = rate});
    }
  }
  const Report report = MakeReport(View(paths));
  std::vector<std::string> labels;
  for (const RunView& run : report.runs) labels.push_back(run.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"vllm, rate 8", "vllm, rate 16", "vllm, rate 20", "tactus, rate 8",
                                              "tactus, rate 16", "tactus, rate 20"}));
  for (const Figure& figure : report.comparison) {
    if (figure.id() != "load-ttft") continue;
    const auto& lines = std::get<LinePlot>(figure.plot).lines;
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0].name, "vllm P99");
    EXPECT_EQ(lines[0].x, (std::vector<double>{8, 16, 20}));
    EXPECT_EQ(lines[2].name, "tactus P99");
  }
}

TEST(PageTest, TimesAndSizesAreSortedByValue) {
  const test::TempFolder folder;
  std::vector<std::string> paths;
  for (const char* interval : {"1s", "1500ms", "200ms"}) {
    paths.push_back(folder / (std::string(interval) + ".run"));
    test::WriteRun(paths.back(), {.rate = interval});  // for any option
  }
  const Report report = MakeReport(View(paths));
  EXPECT_EQ(report.runs[0].label, "rate 200ms");
  EXPECT_EQ(report.runs[1].label, "rate 1s");
  EXPECT_EQ(report.runs[2].label, "rate 1500ms");
}

// Steps alternate with and without prompt tokens: a band and a mean are drawn, instead of a zigzag line.
TEST(PageTest, AlternatingStepsAreDrawnAsABand) {
  RunView run;
  for (int step = 0; step < 5000; ++step) {
    run.decodes.Add(step * 20 * kMillisecond, 30, 20e6);
    run.prompt_tokens.Add(step * 20 * kMillisecond, step % 2 == 0 ? 482 : 0, 20e6);
  }
  for (const Figure& figure : RunFigures(run, "")) {
    if (figure.id() != "batch") continue;
    const auto& plot = std::get<LinePlot>(figure.plot);
    EXPECT_FALSE(plot.stacked);
    ASSERT_EQ(plot.lines.size(), 2u);
    const Line& prompts = plot.lines[0];
    EXPECT_EQ(prompts.name, "prompt tokens");
    EXPECT_LE(prompts.x.size(), 120u);
    EXPECT_GT(prompts.x.size(), 60u);
    for (size_t i = 0; i + 1 < prompts.x.size(); ++i) {
      EXPECT_EQ(prompts.least[i], 0);
      EXPECT_EQ(prompts.most[i], 482);
      EXPECT_NEAR(prompts.y[i], 241, 60);
      EXPECT_EQ(plot.lines[1].y[i], 30);
    }
    return;
  }
  FAIL() << "no picture of steps";
}

TEST(PageTest, RunsOfDifferentCommandsAreLabelledByCommand) {
  const test::TempFolder folder;
  test::WriteRun(folder / "served.run", {.command = "serve", .interval = "100ms"});
  test::WriteRun(folder / "sent.run", {.rate = "9", .command = "bench"});
  const Report report = MakeReport(View({folder / "served.run", folder / "sent.run"}));
  EXPECT_EQ(report.runs[0].label, "serve, rate 8") << "output options do not distinguish runs";
  EXPECT_EQ(report.runs[1].label, "bench, rate 9");
}

// A group whose name is too long for the legend keeps its line, named by its runs' numbers.
TEST(PageTest, AGroupWithALongNameIsStillOneLine) {
  const test::TempFolder folder;
  const std::string scheduler = "a-scheduler-whose-name-is-longer-than-a-legend-has-room-for";
  std::vector<std::string> paths;
  for (const char* rate : {"4", "8", "12"}) {
    paths.push_back(folder / ("long" + std::string(rate) + ".run"));
    test::WriteRun(paths.back(), {.scheduler = scheduler, .rate = rate});
  }
  paths.push_back(folder / "other.run");
  test::WriteRun(paths.back(), {.scheduler = "", .rate = "4"});
  const Report report = MakeReport(View(paths));
  EXPECT_EQ(report.runs[3].label, "no scheduler, rate 4");
  for (const Figure& figure : report.comparison) {
    if (figure.id() != "load-ttft") continue;
    const auto& lines = std::get<LinePlot>(figure.plot).lines;
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0].name, "runs 1, 2, 3 P99");
    EXPECT_EQ(lines[0].x, (std::vector<double>{4, 8, 12}));
    EXPECT_EQ(lines[2].name, "no scheduler P99");
    return;
  }
  FAIL() << "no picture of latencies against load";
}

TEST(PageTest, TheKvMemoryAxisReaches100PercentIfMuchIsUsed) {
  for (const double used : {0.5, 0.05}) {
    RunView run;
    run.kv_used.Add(0, used);
    const auto figures = RunFigures(run, "");
    ASSERT_EQ(figures.size(), 1u);
    const auto& plot = std::get<LinePlot>(figures[0].plot);
    EXPECT_EQ(plot.y_top.has_value(), used > 0.4);
    EXPECT_NE(figures[0].caption.find(used > 0.4 ? "At most 50 %" : "At most 5 %"), std::string::npos);
  }
}

TEST(PageTest, TheSlowestRequestsAreNamed) {
  const test::TempFolder folder;
  const std::string path = folder / "slow.run";
  auto file = RunFileWriter::Create(path, RunAbout(), RunFileWriter::WhenBehind::kWait);
  ASSERT_TRUE(file.ok());
  for (int64_t i = 0; i < 20; ++i) {
    RunRequest r;
    r.number = i;
    r.id = i == 7 ? "<b>seven</b>" : "";
    r.first_token_ns = (i == 7 ? 900 : 100 + i) * kMillisecond;
    r.longest_gap_ns = (i == 3 ? 800 : 20) * kMillisecond;
    r.done_ns = kSecond;
    r.finish = "length";
    (*file)->Add(r);
  }
  ASSERT_TRUE((*file)->Close("{}").ok());
  const Report report = MakeReport(View({path}));
  std::vector<int64_t> first, gaps;
  for (const SlowRequest& s : report.runs[0].last_first_tokens) first.push_back(s.number);
  for (const SlowRequest& s : report.runs[0].longest_gaps) gaps.push_back(s.number);
  EXPECT_EQ(first, (std::vector<int64_t>{7, 19, 18, 17, 16}));
  EXPECT_EQ(gaps, (std::vector<int64_t>{3, 0, 1, 2, 4}));
  const std::string page = Page(report);
  EXPECT_NE(page.find("<td>7 &lt;b&gt;seven&lt;/b&gt;</td><td>900</td><td>20</td><td>1000</td>"), std::string::npos);
  EXPECT_NE(page.find("tactus explain slow.run 7</p>"), std::string::npos);
  EXPECT_EQ(page.find("<th>class</th>"), std::string::npos) << "no run has one";
  test::WriteRun(folder / "classes.run", {});
  EXPECT_NE(Page(MakeReport(View({folder / "classes.run"}))).find("<th>class</th>"), std::string::npos);
}

TEST(PageTest, ThePageLoadsNoExternalResources) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {});
  const std::string page = Page(MakeReport(View({folder / "a.run"})));
  for (const char* asks : {"http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe"})
    EXPECT_EQ(page.find(asks), std::string::npos) << asks;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos) << "the policy forbids external resources";
  EXPECT_LT(page.size(), 60'000u);
}

TEST(PageTest, TheDarkSchemeIsForScreensAndThePageFitsOnPaper) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {});
  const std::string page = Page(MakeReport(View({folder / "a.run"})));
  EXPECT_NE(page.find("@media screen and (prefers-color-scheme:dark){\nbody{"), std::string::npos);
  EXPECT_EQ(page.find("(not print)"), std::string::npos) << "browsers do not know this condition, so it never applies";
  EXPECT_NE(page.find("white-space:normal"), std::string::npos) << "table headings must wrap, or columns are cut off";
  for (const char* rule : {"@page{size:landscape", ".scroll{overflow:visible}"})
    EXPECT_NE(page.find(rule, page.find("@media print{")), std::string::npos) << rule;
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
  EXPECT_NE(page.find("was not closed"), std::string::npos);
}

TEST(PageTest, ResultsOfAnotherShapeAreTolerated) {
  const test::TempFolder folder;
  const std::string path = folder / "odd.run";
  RunAbout about;
  auto file = RunFileWriter::Create(path, about, RunFileWriter::WhenBehind::kWait);
  ASSERT_TRUE(file.ok());
  (*file)->Add(RunStep());
  ASSERT_TRUE((*file)
                  ->Close(R"({"ttft_ms": 3, "classes": {"a": 1, "b": {"slo_attainment": "x"}},
                              "bubbles": {"stages": [1, {"busy_s": 2}, {"busy_s": []}]}, "requests": [1]})")
                  .ok());
  EXPECT_FALSE(Page(MakeReport(View({path}))).empty());
}

TEST(PageTest, ManyRunsAreOnlyCompared) {
  const test::TempFolder folder;
  std::vector<std::string> paths;
  for (size_t i = 0; i <= kMostRunsInDetail; ++i) {
    paths.push_back(folder / (std::to_string(i) + ".run"));
    test::WriteRun(paths.back(), {.rate = std::to_string(i + 1)});
  }
  const Report report = MakeReport(View(paths));
  EXPECT_TRUE(report.details.empty());
  EXPECT_NE(Page(report).find("the page only compares them"), std::string::npos);
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
}  // namespace tactus::results
