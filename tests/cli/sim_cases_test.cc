// Varied options: lists, ranges, combinations, and errors that are reported before any run.
#include "cli/search/sim_cases.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace tactus::cli {
namespace {

std::vector<std::string> ValuesOf(const std::string& text) {
  const auto varied = ParseVaried({}, {text});
  EXPECT_TRUE(varied.ok()) << (varied.ok() ? "" : varied.status().message());
  return varied.ok() ? varied->front().values : std::vector<std::string>();
}

std::string ErrorOf(const std::vector<std::string>& texts) {
  const auto varied = ParseVaried({}, texts);
  return varied.ok() ? "taken" : varied.status().message();
}

TEST(SimCases, VariedValuesMayBeListsOrRanges) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(ValuesOf("scheduler=vllm,sarathi-serve"), (Texts{"vllm", "sarathi-serve"}));
  EXPECT_EQ(ValuesOf("rate=1:4:1"), (Texts{"1", "2", "3", "4"}));
  EXPECT_EQ(ValuesOf("rate=0.1:0.3:0.1"), (Texts{"0.1", "0.2", "0.3"}));
  EXPECT_EQ(ValuesOf("token-budget=256:2048:x2,3000"), (Texts{"256", "512", "1024", "2048", "3000"}));
  EXPECT_EQ(ValuesOf("workload=random:in=512,out=64|chat"), (Texts{"random:in=512,out=64", "chat"}));
  EXPECT_EQ(ValuesOf("workload=trace:a.csv:scale=2,chat"), (Texts{"trace:a.csv:scale=2", "chat"}));
  EXPECT_EQ(ValuesOf("--prefix-caching=on,off"), (Texts{"on", "off"}));
}

TEST(SimCases, AnAliasIsItsOption) {
  const auto varied = ParseVaried({}, {"tp=1,2"});
  ASSERT_TRUE(varied.ok());
  EXPECT_EQ(varied->front().name, "tensor-parallel-size");
}

TEST(SimCases, CombinationsAreCompleteAndInOrder) {
  sim::SimOptions base;
  base.rate = 9;
  const auto varied = ParseVaried(base, {"scheduler=vllm,orca", "rate=1,2"});
  ASSERT_TRUE(varied.ok());
  const auto cases = MakeCases(base, *varied, 3, 12);
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  std::vector<std::string> names;
  for (const SimCase& c : *cases) names.push_back(CaseText(*varied, c));
  EXPECT_EQ(names, (std::vector<std::string>{"scheduler=vllm rate=1", "scheduler=vllm rate=2", "scheduler=orca rate=1",
                                             "scheduler=orca rate=2"}));
  EXPECT_EQ((*cases)[3].options.scheduler, "orca");
  EXPECT_EQ((*cases)[3].options.rate, 2);
}

TEST(SimCases, TooManyRunsAreRejectedWithTheirNumber) {
  const auto varied = ParseVaried({}, {"rate=1:1000:1", "token-budget=1:1000:1"});
  ASSERT_TRUE(varied.ok());
  const auto cases = MakeCases({}, *varied, 5, 10'000);
  ASSERT_FALSE(cases.ok());
  const std::string error = cases.status().message();
  for (const char* part :
       {"5000000 runs", "5 of each x 1000 of --rate x 1000 of --max-num-batched-tokens", "exceed --most-runs 10000"})
    EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(SimCases, WrongTextIsNamed) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"scheduler"}, "the form is FLAG=VALUES"},
      {{"schedular=a"}, "'schedular' is not an option"},
      {{"rate=1,x"}, "'x' is not a number"},
      {{"rate=-1,2"}, "out of range"},
      {{"rate=1:2"}, "not of the form LOW:HIGH:STEP"},
      {{"rate=3:1:1"}, "LOW not above HIGH"},
      {{"rate=1:3:0"}, "never ends"},
      {{"rate=1:3:x1"}, "never ends"},
      {{"rate=0:3:x2"}, "never ends"},
      {{"rate=1:1e6:0.001"}, "more than 100000 values"},
      {{"rate=1,1"}, "'1' is given twice"},
      {{"rate=1", "rate=2"}, "varied twice"},
      {{"seed=1,2"}, "--seeds"},
      {{"as-paper=on,off"}, "sets other options"},
      {{"steps-out=a,b"}, "not part of a configuration"},
      {{"timeseries=1s,2s"}, "not part of a configuration"},
      {{"requests=1.5"}, "not a whole number"},
  };
  for (const auto& [texts, part] : kCases) {
    const std::string error = ErrorOf(texts);
    EXPECT_NE(error.find(part), std::string::npos) << texts.front() << ": " << error;
  }
}

TEST(SimCases, TheBaseDependsOnEveryOptionThatIsNotVaried) {
  sim::SimOptions options;
  const auto base = [&options](const std::string& beyond) { return BaseOf(options, {{"rate", {"1", "2"}}}, beyond); };
  const std::string first = base("a");
  EXPECT_EQ(first.size(), 16u);
  EXPECT_NE(base("b"), first);
  options.rate = 4;
  options.seed = 7;
  EXPECT_EQ(base("a"), first);
  options.block_size = 32;
  EXPECT_NE(base("a"), first);
}

TEST(SimCases, TheBaseDependsOnTheContentsOfFiles) {
  const std::string path = testing::TempDir() + "sim_cases_lengths.csv";
  std::ofstream(path) << "100,10\n";
  sim::SimOptions options;
  options.workload = "lengths:" + path + ":scale=2";
  const std::string first = BaseOf(options, {}, "");
  const std::string varied = BaseOf({}, {{"workload", {"chat", "lengths:" + path}}}, "");
  EXPECT_EQ(BaseOf(options, {}, ""), first);
  std::ofstream(path) << "100,11\n";
  EXPECT_NE(BaseOf(options, {}, ""), first);
  EXPECT_NE(BaseOf({}, {{"workload", {"chat", "lengths:" + path}}}, ""), varied);
  std::filesystem::remove(path);
}

TEST(SimCases, SeedsBeyondTheLastNumberAreRefused) {
  SimCommandOptions options;
  options.sim.seed = std::numeric_limits<int64_t>::max();
  options.seeds = 2;
  EXPECT_NE(CheckForMany(options).message().find("is too large for --seeds 2"), std::string::npos);
}

TEST(SimCases, OutputFilesOfASingleRunAreRejected) {
  SimCommandOptions options;
  options.sim.steps_out = "s.csv";
  EXPECT_NE(CheckForMany(options).message().find("--steps-out s.csv would be overwritten"), std::string::npos);
  SimCommandOptions replay;
  replay.replay = "x";
  EXPECT_NE(CheckForMany(replay).message().find("--replay works only with"), std::string::npos);
  SimCommandOptions series;
  series.timeseries.interval.ns = kSecond;
  EXPECT_NE(CheckForMany(series).message().find("--timeseries describes one run"), std::string::npos);
}

}  // namespace
}  // namespace tactus::cli
