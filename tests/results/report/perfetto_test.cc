// A run as a trace of events.
#include "results/report/perfetto.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

#include "results/report/run_files.h"

namespace tactus::results {
namespace {

TEST(PerfettoTest, StepsAndRequestsAreEvents) {
  const test::TempFolder folder;
  test::WriteRun(folder / "a.run", {});
  const Status written = WritePerfetto(folder / "a.run", folder / "trace.json");
  ASSERT_TRUE(written.ok()) << written.message();
  std::ifstream in(folder / "trace.json");
  const auto trace = SortedJson::parse(in);

  std::map<std::string, int> kinds;
  std::map<std::pair<int, int>, double> lane_ends;  // per track of steps
  int open = 0;
  SortedJson first_step;
  std::set<std::string> requests, names;
  for (const auto& event : trace["traceEvents"]) {
    const std::string kind = event["ph"];
    ++kinds[kind];
    EXPECT_NE(event["pid"], 0) << "Perfetto treats it as no process and does not show its name";
    if (kind == "M") names.insert(event["args"]["name"]);
    EXPECT_TRUE(!event.contains("id")) << "an id of the whole trace, not of the process: " << event;
    if (kind == "b" && event["name"].get<std::string>().starts_with("request ")) requests.insert(event["name"]);
    if (kind == "X") {
      if (first_step.is_null()) first_step = event;
      double& end = lane_ends[{event["pid"], event["tid"]}];
      EXPECT_GE(event["ts"].get<double>(), end) << "steps of one track do not overlap";
      end = event["ts"].get<double>() + event["dur"].get<double>();
    }
    open += kind == "b" ? 1 : kind == "e" ? -1 : 0;
  }
  EXPECT_EQ(kinds["X"], 4);
  EXPECT_EQ(kinds["b"], 8) << "two requests, each with itself and three phases";
  EXPECT_EQ(open, 0);
  EXPECT_EQ(names, (std::set<std::string>{"requests", "replica 0", "replica 1", "steps"}));
  EXPECT_EQ(requests, (std::set<std::string>{"request 00000 an \\id", "request 00001"}))
      << "sorted by name, which is the order of arrival";
  EXPECT_EQ(first_step["name"], "prompts");
  EXPECT_EQ(first_step["dur"], 80'000);
}

TEST(PerfettoTest, UnreadableInputAndUnwritableOutputAreErrors) {
  const test::TempFolder folder;
  EXPECT_EQ(WritePerfetto(folder / "none", folder / "trace.json").code(), StatusCode::kNotFound);
  test::WriteRun(folder / "a.run", {});
  EXPECT_EQ(WritePerfetto(folder / "a.run", folder / "no/such/folder/trace.json").code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tactus::results
