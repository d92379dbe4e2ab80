// Charts are the same bytes on every machine. To change a chart on purpose: run with TACTUS_WRITE_GOLDEN=1, check
// tests/results/report/golden/*.svg in a browser, light and dark, and commit them.
#include "results/report/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

#include "support/source_path.h"

namespace tactus::results {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

void ExpectGolden(const std::string& name, const std::string& svg) {
  const std::string path = test::SourcePath("tests/results/report/golden/" + name + ".svg");
  if (std::getenv("TACTUS_WRITE_GOLDEN") != nullptr) std::ofstream(path) << svg;
  std::ifstream in(path);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  size_t at = 0;
  while (at < std::min(svg.size(), golden.size()) && svg[at] == golden[at]) ++at;
  EXPECT_TRUE(svg == golden) << path << " differs from byte " << at << " on: '" << svg.substr(at, 80)
                             << "' instead of '" << golden.substr(at, 80) << "'";
}

LinePlot Gaps() {
  LinePlot plot;
  plot.id = "tbt";
  plot.title = "Time between tokens";
  plot.x_label = "time (s)";
  plot.y_label = "gap (ms)";
  Line longest{.name = "longest", .colour = 1, .x = {0, 1, 2, 3, 4}, .y = {40, 55, 180, kMissing, 45}};
  Line median{.name = "median", .x = {0, 1, 2, 3, 4}, .y = {20, 22, 25, 24, 21}};
  median.least = {15, 16, 18, 17, 16};
  median.most = {30, 31, 33, 36, 29};
  plot.lines = {longest, median};
  plot.limit = {"objective 100 ms", 100};
  plot.marks = {{2, 100, 180}};
  plot.marks_name = "stall";
  return plot;
}

BarPlot Kept() {
  BarPlot plot;
  plot.id = "attainment";
  plot.title = "Objectives kept, by class";
  plot.y_label = "share of requests (%)";
  plot.y_top = 100;
  plot.categories = {"chat", "a class with a name that is too long for its place under the axis of this plot, by far"};
  plot.series = {{"TTFT", 0, {99.5, 80}}, {"TBT", 1, {87.25, kMissing}}};
  return plot;
}

TEST(ChartTest, DrawsLinesWithABandALimitAndMarks) {
  ExpectGolden("lines", Svg(Gaps(), true));
}

// On a phone's 390 pixels a chart's text is about as large as the page's; a separate file is wider.
TEST(ChartTest, APictureOfAPageIsAsWideAsAPhone) {
  EXPECT_NE(Svg(Gaps(), false).find("viewBox=\"0 0 400 "), std::string::npos);
  EXPECT_NE(Svg(Kept(), false).find("viewBox=\"0 0 400 "), std::string::npos);
  EXPECT_NE(Svg(Gaps(), true).find("viewBox=\"0 0 720 "), std::string::npos);
  ExpectGolden("page_lines", Svg(Gaps(), false));
}

TEST(ChartTest, AdjacentMarksFormOneArea) {
  LinePlot plot = Gaps();
  plot.lines[0] = {.name = "longest", .x = {0, 1, 2, 3, 4}, .y = {40, 150, 150, 150, 45}};
  plot.marks = {{1, 100, 150, 1}, {2, 100, 150, 1}, {3, 100, 150, 1}};
  const std::string svg = Svg(plot, false);
  const size_t at = svg.find("class=\"mark\" d=\"");
  ASSERT_NE(at, std::string::npos);
  std::vector<double> left, right;
  for (size_t m = svg.find('M', at); m < svg.find("/>", at); m = svg.find('M', m + 1)) {
    left.push_back(std::stod(svg.substr(m + 1)));
    right.push_back(std::stod(svg.substr(svg.find('H', m) + 1)));
  }
  ASSERT_EQ(left.size(), 3u);
  EXPECT_NEAR(right[0], left[1], 0.11);
  EXPECT_NEAR(right[1], left[2], 0.11);
}

TEST(ChartTest, DrawsALogarithmicAxis) {
  LinePlot plot = Gaps();
  plot.log_y = true;
  plot.lines[0].y[2] = 9000;
  plot.marks[0].to = 9000;
  ExpectGolden("log", Svg(plot, true));
}

TEST(ChartTest, DrawsStackedAreas) {
  LinePlot plot = Gaps();
  plot.stacked = true;
  plot.limit.reset();
  plot.marks.clear();
  plot.lines[0].y[3] = 60;
  ExpectGolden("stacked", Svg(plot, true));
}

TEST(ChartTest, DrawsGroupedBars) {
  ExpectGolden("bars", Svg(Kept(), true));
}

TEST(ChartTest, DrawsStackedBars) {
  BarPlot plot = Kept();
  plot.stacked = true;
  plot.y_top.reset();
  ExpectGolden("stacked_bars", Svg(plot, true));
}

TEST(ChartTest, AnEmptyChartSaysNothingToShow) {
  LinePlot plot;
  plot.title = "Empty";
  EXPECT_NE(Svg(plot, false).find("Nothing to show."), std::string::npos);
  EXPECT_NE(Svg(BarPlot(), false).find("Nothing to show."), std::string::npos);
  plot.lines.push_back({.name = "nothing", .x = {1, 2}, .y = {kMissing, kMissing}});
  EXPECT_NE(Svg(plot, false).find("Nothing to show."), std::string::npos);
}

// For any values a chart is finite and contains only numbers that browsers can read.
TEST(ChartTest, ExtremeValuesGiveAValidChart) {
  for (const double value : {0.0, 1e-300, 1e-9, 1.0, 1e300, -5.0, std::numeric_limits<double>::infinity()}) {
    for (const bool log : {false, true}) {
      LinePlot plot;
      plot.log_y = log;
      plot.lines.push_back({.name = "a", .x = {0, value}, .y = {1, value}});
      const std::string svg = Svg(plot, false);
      EXPECT_EQ(svg.find("nan"), std::string::npos) << value;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << value;
    }
  }
}

TEST(ChartTest, NamesAreEscaped) {
  BarPlot plot = Kept();
  plot.categories[0] = "<script>alert(\"1\")</script>\x01\xff";
  const std::string svg = Svg(plot, false);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find('\x01'), std::string::npos);
  EXPECT_EQ(svg.find('\xff'), std::string::npos);
  EXPECT_EQ(Escaped("a & 'b'"), "a &amp; &#39;b&#39;");
}

TEST(ChartTest, TicksAreRoundAndCover) {
  EXPECT_EQ(Ticks(0, 100, 6), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(Ticks(0, 7, 6), (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(Ticks(3, 3, 6).size(), 6u);  // a range of length 0
}

TEST(ChartTest, NumbersAreShort) {
  EXPECT_EQ(Number(0), "0");
  EXPECT_EQ(Number(0.25), "0.25");
  EXPECT_EQ(Number(1500), "1500");
  EXPECT_EQ(Number(15000), "15k");
  EXPECT_EQ(Number(2.5e6), "2.5M");
}

TEST(ChartTest, CsvHasEveryPoint) {
  EXPECT_EQ(Csv(Kept()),
            "category,series,value\nchat,TTFT,99.5\nchat,TBT,87.25\na class with a name that is too long for its place "
            "under the axis of this plot_ by far,TTFT,80\na class with a name that is too long for its place under the "
            "axis of this plot_ by far,TBT,\n");
  BarPlot numbered = Kept();
  numbered.full_names = {"one", "two", "three"};
  EXPECT_NE(Csv(numbered).find("\none,TTFT,99.5\n"), std::string::npos) << Csv(numbered);
  EXPECT_NE(Csv(Gaps()).find("longest,2,180,,\n"), std::string::npos);
  EXPECT_NE(Csv(Gaps()).find("median,0,20,15,30\n"), std::string::npos);
}

}  // namespace
}  // namespace tactus::results
