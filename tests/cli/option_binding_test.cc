#include "cli/option_binding.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tactus/options.h"

namespace tactus::cli {
namespace {

struct Sample {
  bool fast = false;
  int64_t count = 3;
  double share = 0.5;
  std::string kind = "a";
  std::vector<std::string> key;
  DurationText wait{50'000'000};
  BytesText memory;
  template <class V>
  void VisitFields(V& v) {
    v.Group("Sample");
    v.Field("fast", fast, {.help = "be fast"});
    v.Field("count", count, {.unit = "things", .min = 1, .max = 9, .alias = "number", .help = "how many"});
    v.Field("share", share, {.min = 0, .max = 1, .help = "how much"});
    v.Field("kind", kind, {.choices = "a|b", .help = "which"});
    v.Field("key", key, {.help = "secrets", .secret = true});
    v.Field("wait", wait, {.unit = "duration", .help = "how long"});
    v.Field("memory", memory, {.unit = "bytes", .help = "how big"});
  }
};

struct Parsed {
  Sample sample;
  std::string model;
  CommandLine::Outcome outcome;
  std::string errors, output;
};

Parsed ParseArgs(const std::vector<std::string>& args) {
  Parsed p;
  CommandLine line("sample", "[MODEL]", "A sample.");
  line.Add(p.sample);
  line.Positional("MODEL", &p.model, false, "a model");
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  p.outcome = line.Parse(args);
  p.errors = testing::internal::GetCapturedStderr();
  p.output = testing::internal::GetCapturedStdout();
  return p;
}

TEST(CommandLine, ReadsEveryKindOfValue) {
  const Parsed p = ParseArgs({"--fast", "off", "model.gguf", "--number", "7", "--share=0.25", "--kind", "b", "--key",
                              "x", "--key", "y", "--wait", "1.5s", "--memory", "2GiB"});
  EXPECT_EQ(p.outcome, CommandLine::Outcome::kRun) << p.errors;
  EXPECT_EQ(p.model, "model.gguf");
  EXPECT_FALSE(p.sample.fast);
  EXPECT_EQ(p.sample.count, 7);
  EXPECT_EQ(p.sample.share, 0.25);
  EXPECT_EQ(p.sample.kind, "b");
  EXPECT_EQ(p.sample.key, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(p.sample.wait.ns, 1'500'000'000);
  EXPECT_EQ(p.sample.memory.bytes, int64_t{2} << 30);
}

TEST(CommandLine, ABooleanFlagMayStandAlone) {
  const Parsed p = ParseArgs({"--fast", "model.gguf"});
  EXPECT_TRUE(p.sample.fast);
  EXPECT_EQ(p.model, "model.gguf");
}

TEST(CommandLine, ErrorsNameFlagValueAndLimit) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--count", "10"}, "--count: 10 is out of range; give a value from 1 to 9 things"},
      {{"--count", "x"}, "--count: 'x' is not a whole number"},
      {{"--count", "99999999999999999999"}, "is not a whole number"},
      {{"--share", "nan"}, "is not a number"},
      {{"--kind", "c"}, "--kind: 'c' is not one of: a, b"},
      {{"--wait", "5 parsecs"}, "is not a duration"},
      {{"--memory", "-1"}, "is not a size"},
      {{"--nosuch", "1"}, "--nosuch"},
      {{"a", "b"}, "unexpected argument 'b'"},
  };
  for (const auto& [args, expected] : cases) {
    const Parsed p = ParseArgs(args);
    EXPECT_EQ(p.outcome, CommandLine::Outcome::kBadUsage);
    EXPECT_NE(p.errors.find(expected), std::string::npos) << p.errors;
  }
}

TEST(CommandLine, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const std::string path = testing::TempDir() + "/sample.toml";
  std::ofstream(path) << "count = 4\nshare = 0.125\nkind = \"b\"\nkey = [\"k1\", \"k2\"]\n";
  setenv("TACTUS_COUNT", "5", 1);
  setenv("TACTUS_SHARE", "0.75", 1);
  const Parsed p = ParseArgs({"--config", path, "--count", "6"});
  unsetenv("TACTUS_COUNT");
  unsetenv("TACTUS_SHARE");
  EXPECT_EQ(p.outcome, CommandLine::Outcome::kRun) << p.errors;
  EXPECT_EQ(p.sample.count, 6);
  EXPECT_EQ(p.sample.share, 0.75);
  EXPECT_EQ(p.sample.kind, "b");
  EXPECT_EQ(p.sample.key.size(), 2u);
  EXPECT_EQ(p.sample.wait.ns, 50'000'000);
}

TEST(CommandLine, AFileWithAnUnknownKeyOrBadTomlIsRefused) {
  const std::string path = testing::TempDir() + "/bad.toml";
  std::ofstream(path) << "nosuch = 4\n";
  EXPECT_NE(ParseArgs({"--config", path}).errors.find("unknown key 'nosuch'"), std::string::npos);
  std::ofstream(path) << "count = \n";
  EXPECT_NE(ParseArgs({"--config", path}).errors.find("line 1"), std::string::npos);
  EXPECT_NE(ParseArgs({"--config", testing::TempDir()}).errors.find("a folder"), std::string::npos);
}

TEST(CommandLine, PrintedConfigurationReadsBackAndHidesSecrets) {
  const Parsed p = ParseArgs({"--count", "8", "--key", "sesame", "--print-config"});
  EXPECT_EQ(p.outcome, CommandLine::Outcome::kDone);
  EXPECT_EQ(p.output.find("sesame"), std::string::npos);
  const std::string path = testing::TempDir() + "/echo.toml";
  std::ofstream(path) << p.output;
  EXPECT_EQ(ParseArgs({"--config", path}).sample.count, 8) << p.output;
}

TEST(CommandLine, HelpShowsGroupUnitRangeAndDefault) {
  const Parsed p = ParseArgs({"--help"});
  EXPECT_EQ(p.outcome, CommandLine::Outcome::kDone);
  for (const char* text : {"Sample:", "--count, --number <things>", "1 to 9", "default 3", "TACTUS_MAX_NUM_SEQS"}) {
    EXPECT_NE(p.output.find(text), std::string::npos) << text << "\n" << p.output;
  }
}

TEST(CommandLine, EveryEngineOptionHasHelpAndADistinctName) {
  EngineOptions options;
  CommandLine line("serve", "", "");
  line.Add(options);
  std::map<std::string, int> names;
  for (const FieldBinding& f : line.fields()) {
    EXPECT_STRNE(f.spec.help, "") << f.name;
    EXPECT_EQ(++names[f.name], 1) << f.name;
  }
}

}  // namespace
}  // namespace tactus::cli
