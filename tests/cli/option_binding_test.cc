#include "cli/options/option_binding.h"

#include "cli/options/help_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "tactus/options.h"

namespace tactus::cli {
namespace {

struct Sample {
  bool fast = false;
  int64_t count = 3;
  double share = 0.5;
  std::string kind = "a";
  std::vector<std::string> key;
  DurationText wait{50'000'000}, beat{kAutoDuration};
  BytesText memory;
  bool plain = false;
  std::string word;
  std::vector<std::string> name;
  int64_t shift = 0;
  std::optional<double> warmth;
  std::optional<int64_t> best;
  template <class V>
  void VisitFields(V& v) {
    v.Group("Sample");
    v.Field("fast", fast, {.help = "be fast"});
    v.Field("count", count, {.unit = "things", .min = 1, .max = 9, .alias = "number", .help = "how many"});
    v.Field("share", share, {.min = 0, .max = 1, .help = "how much"});
    v.Field("kind", kind, {.choices = "a|b", .help = "which"});
    v.Field("key", key, {.help = "secrets", .secret = true});
    v.Field("wait", wait, {.unit = "duration", .help = "how long"});
    v.Field("beat", beat, {.unit = "duration", .choices = "auto|none", .help = "how long, or not at all"});
    v.Field("memory", memory, {.unit = "bytes", .help = "how big"});
    v.Field("word", word, {.help = "any text"});
    v.Field("name", name, {.help = "names", .several = true});
    v.Field("shift", shift, {.help = "any number"});
    v.Field("plain", plain, {.help = "nothing fancy", .implies = "number=9 kind=b"});
    v.Field("warmth", warmth, {.min = 0, .max = 2, .help = "default: as it is"});
    v.Field("best", best, {.unit = "tokens", .min = -1, .max = 9, .help = "default: all"});
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

// An optional number stays unset until it is given, on the command line, in a file and in the printed configuration.
TEST(CommandLine, OptionalNumbersStayUnset) {
  EXPECT_FALSE(ParseArgs({"m"}).sample.warmth);
  const Parsed given = ParseArgs({"--warmth", "0", "--best", "-1"});
  EXPECT_EQ(given.sample.warmth, 0.0) << given.errors;
  EXPECT_EQ(given.sample.best, -1);
  EXPECT_NE(ParseArgs({"--warmth", "3"}).errors.find("--warmth: 3 is out of range; give a value from 0 to 2"),
            std::string::npos);
  EXPECT_NE(ParseArgs({"--best", "1.5"}).errors.find("--best: '1.5' is not a whole number"), std::string::npos);
  const std::string help = ParseArgs({"--help"}).output;
  EXPECT_NE(help.find("--warmth <number>"), std::string::npos) << help;
  EXPECT_NE(help.find("default: as it is; 0 to 2\n"), std::string::npos) << help;
  const std::string path = ::testing::TempDir() + "tactus_unset.toml";
  for (const Parsed& p :
       {ParseArgs({"--print-config"}), ParseArgs({"--print-config", "--warmth", "1", "--best", "7"})}) {
    std::ofstream(path) << p.output;
    const Parsed again = ParseArgs({"--config", path});
    EXPECT_EQ(again.outcome, CommandLine::Outcome::kRun) << again.errors << p.output;
    EXPECT_EQ(again.sample.warmth, p.sample.warmth) << p.output;
    EXPECT_EQ(again.sample.best, p.sample.best) << p.output;
  }
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
      {{"--share", "0x1p-1"}, "--share: '0x1p-1' is not a number"},
      {{"--share", "0X0"}, "--share: '0X0' is not a number"},
      {{"--kind", "c"}, "--kind: 'c' is not one of: a, b"},
      {{"--wait", "5 parsecs"}, "is not a duration"},
      {{"--memory", "-1"}, "is not a size"},
      {{"--wait", "none"}, "--wait: 'none' is not a duration"},
      {{"--beat", "0"}, "--beat: '0' is not a duration of more than 0 such as 50ms, 1.5s or 2m, nor auto or none"},
      {{"--beat", "0ms"}, "--beat: '0ms' is not a duration of more than 0"},
      {{"--beat", "-5ms"}, "--beat: '-5ms' is not a duration of more than 0"},
      {{"--beat", "abc"}, "--beat: 'abc' is not a duration of more than 0"},
      {{"--nosuch", "1"}, "--nosuch"},
      {{"a", "b"}, "unexpected argument 'b'"},
  };
  for (const auto& [args, expected] : cases) {
    const Parsed p = ParseArgs(args);
    EXPECT_EQ(p.outcome, CommandLine::Outcome::kBadUsage);
    EXPECT_NE(p.errors.find(expected), std::string::npos) << p.errors;
  }
}

// A duration may be a word, for automatic or off; the printed value reads back.
TEST(CommandLine, ADurationMayBeAutoOrNone) {
  EXPECT_EQ(ParseArgs({}).sample.beat.ns, kAutoDuration);
  EXPECT_EQ(ParseArgs({"--beat", "none"}).sample.beat.ns, 0);
  EXPECT_EQ(ParseArgs({"--beat", "auto"}).sample.beat.ns, kAutoDuration);
  EXPECT_EQ(ParseArgs({"--beat", "20ms"}).sample.beat.ns, 20'000'000);
  EXPECT_NE(ParseArgs({"--help"}).output.find("--beat <duration>|auto|none"), std::string::npos);
  for (const auto& [given, shown] :
       {std::pair("auto", "beat = 'auto'"), std::pair("none", "beat = 'none'"), std::pair("20ms", "beat = '20ms'")}) {
    const Parsed p = ParseArgs({"--beat", given, "--print-config"});
    EXPECT_NE((p.output + p.errors).find(shown), std::string::npos) << p.output << p.errors;
  }
  EXPECT_NE(ParseArgs({"--print-config", "--wait", "0"}).output.find("wait = '0s'"), std::string::npos);
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

class ConfigFile : public testing::Test {
 protected:
  // The error that the file's text causes; empty: none.
  Parsed Read(const std::string& text, std::vector<std::string> args = {}) {
    std::ofstream(path_, std::ios::binary) << text;
    args.insert(args.begin(), {"--config", path_});
    return ParseArgs(args);
  }
  const std::string path_ = testing::TempDir() + "/typed.toml";
};

TEST_F(ConfigFile, AValueOfTheWrongTypeIsRefusedWithKeyValueTypeAndFile) {
  const std::pair<const char*, const char*> cases[] = {
      {"count = [1, 2]", "'count' = [ 1, 2 ] is a list; it takes a whole number"},
      {"count = [1]", "is a list"},
      {"count = []", "is a list"},
      {"count = \"4\"", "is a string; it takes a whole number"},
      {"count = 4.0", "is a number; it takes a whole number"},
      {"count = true", "is a boolean"},
      {"count = 1979-05-27", "is a date or a time"},
      {"count = 07:32:00", "is a date or a time"},
      {"count = {a = 1}", "is a table"},
      {"[count]\na = 1", "is a table"},
      {"count.a = 1", "is a table"},
      {"share = \"0.5\"", "is a string; it takes a number"},
      {"share = false", "is a boolean; it takes a number"},
      {"fast = 1", "is a whole number; it takes true or false"},
      {"kind = 5", "is a whole number; it takes a string"},
      {"kind = [\"a\"]", "is a list; it takes a string"},
      {"wait = true", "it takes a duration"},
      {"wait = [\"1s\"]", "it takes a duration"},
      {"memory = 1979-05-27", "it takes a size"},
      {"count = 10", "10 is out of range"},
      {"count = 9223372036854775808", "('count')"},
      {"nosuch = 1", "unknown key 'nosuch'"},
      {"count = 1\ncount = 2", "line 2 ('count')"},
      {"count = 1\nnumber = 2", "are the same option"},
      {"fast = \"maybe\"", "'maybe' is not on or off"},
  };
  for (const auto& [text, expected] : cases) {
    const Parsed p = Read(text);
    EXPECT_EQ(p.outcome, CommandLine::Outcome::kBadUsage) << text;
    EXPECT_NE(p.errors.find(expected), std::string::npos) << text << "\n" << p.errors;
    EXPECT_NE(p.errors.find(path_), std::string::npos) << p.errors;
    EXPECT_NE(p.errors.find("line "), std::string::npos) << p.errors;
  }
  // A wrong type is an error even if a flag overrides the value.
  EXPECT_EQ(Read("count = [1]", {"--count", "2"}).outcome, CommandLine::Outcome::kBadUsage);
}

TEST_F(ConfigFile, SecretsAreNotRepeated) {
  for (const char* text : {"key = [\"sesame\", 5]", "key = [[\"sesame\"]]", "key = {sesame = 1}", "key = \"sesame"}) {
    const Parsed p = Read(text);
    EXPECT_EQ(p.outcome, CommandLine::Outcome::kBadUsage) << text;
    EXPECT_EQ(p.errors.find("sesame"), std::string::npos) << p.errors;
    EXPECT_NE(p.errors.find("'key'"), std::string::npos) << p.errors;
  }
}

TEST_F(ConfigFile, ValuesAreReadInEveryFormOfTheirType) {
  Parsed p =
      Read("fast = true\ncount = 9\nshare = 1\nkind = \"b\"\nkey = [\"x\", \"y\"]\nwait = \"2m\"\nmemory = \"1KiB\"\n");
  ASSERT_EQ(p.outcome, CommandLine::Outcome::kRun) << p.errors;
  EXPECT_TRUE(p.sample.fast);
  EXPECT_EQ(p.sample.count, 9);
  EXPECT_EQ(p.sample.share, 1.0);
  EXPECT_EQ(p.sample.kind, "b");
  EXPECT_EQ(p.sample.key, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(p.sample.wait.ns, 120'000'000'000);
  EXPECT_EQ(p.sample.memory.bytes, 1024);
  p = Read("fast = \"on\"\nkey = \"one\"\nwait = \"250ms\"\nmemory = 4096\n");
  ASSERT_EQ(p.outcome, CommandLine::Outcome::kRun) << p.errors;
  EXPECT_TRUE(p.sample.fast);
  EXPECT_EQ(p.sample.key, (std::vector<std::string>{"one"}));
  EXPECT_EQ(p.sample.wait.ns, 250'000'000);
  EXPECT_EQ(p.sample.memory.bytes, 4096);
}

TEST_F(ConfigFile, AMissingFileIsNamed) {
  const std::string missing = testing::TempDir() + "/no_such_folder/c.toml";
  EXPECT_NE(ParseArgs({"--config", missing}).errors.find(missing), std::string::npos);
  const Parsed endless = ParseArgs({"--config", "/dev/zero"});
  EXPECT_EQ(endless.outcome, CommandLine::Outcome::kBadUsage);
  EXPECT_NE(endless.errors.find("1048576"), std::string::npos) << endless.errors;
}

TEST(CommandLine, AFlagWithTwoValuesIsAContradictionAndAListMayRepeat) {
  const Parsed p = ParseArgs({"--count", "1", "--number", "2"});
  EXPECT_EQ(p.outcome, CommandLine::Outcome::kBadUsage);
  EXPECT_NE(p.errors.find("--count is given twice ('1' and '2')"), std::string::npos) << p.errors;
  EXPECT_EQ(ParseArgs({"--count", "2", "--count", "2"}).sample.count, 2);
  EXPECT_EQ(ParseArgs({"--fast", "--fast", "off"}).outcome, CommandLine::Outcome::kBadUsage);
  EXPECT_EQ(ParseArgs({"--key", "a", "--key", "b"}).sample.key.size(), 2u);
}

TEST(CommandLine, LimitsAreInclusive) {
  EXPECT_EQ(ParseArgs({"--count", "1"}).sample.count, 1);
  EXPECT_EQ(ParseArgs({"--count", "9"}).sample.count, 9);
  EXPECT_EQ(ParseArgs({"--count", "0"}).outcome, CommandLine::Outcome::kBadUsage);
  EXPECT_EQ(ParseArgs({"--share", "0"}).sample.share, 0);
  EXPECT_EQ(ParseArgs({"--share", "1"}).sample.share, 1);
  for (const char* bad : {"1.0001", "-0.0001", "inf", "0.5x", ""})
    EXPECT_EQ(ParseArgs({"--share", bad}).outcome, CommandLine::Outcome::kBadUsage) << bad;
  for (const char* bad : {"1.0", " 1", "0x1", ""})
    EXPECT_EQ(ParseArgs({"--count", bad}).outcome, CommandLine::Outcome::kBadUsage) << bad;
  for (const char* bad : {"", "A", "a|b"})
    EXPECT_EQ(ParseArgs({"--kind", bad}).outcome, CommandLine::Outcome::kBadUsage) << bad;
}

TEST(CommandLine, ABooleanAcceptsSeveralWords) {
  for (const char* word : {"on", "true", "1", "yes"}) EXPECT_TRUE(ParseArgs({"--fast", word}).sample.fast) << word;
  for (const char* word : {"off", "false", "0", "no"}) EXPECT_FALSE(ParseArgs({"--fast", word}).sample.fast) << word;
}

TEST(CommandLine, DurationsAndSizesHaveUnits) {
  const std::pair<const char*, int64_t> durations[] = {
      {"2s", 2'000'000'000},   {"1.5ms", 1'500'000},      {"3us", 3000}, {"7ns", 7},
      {"2m", 120'000'000'000}, {"1h", 3'600'000'000'000}, {"0", 0},      {"0s", 0},
      {"2 s", 2'000'000'000}};
  for (const auto& [text, ns] : durations) EXPECT_EQ(ParseDuration(text)->ns, ns) << text;
  const std::pair<const char*, int64_t> sizes[] = {{"5", 5},        {"5B", 5},          {"2K", 2048},
                                                   {"2KiB", 2048},  {"1M", 1 << 20},    {"1MiB", 1 << 20},
                                                   {"1G", 1 << 30}, {"1GiB", 1 << 30},  {"1TiB", int64_t{1} << 40},
                                                   {"3KB", 3000},   {"3MB", 3'000'000}, {"3GB", 3'000'000'000},
                                                   {"0.5KiB", 512}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(ParseBytes(text)->bytes, bytes) << text;
  for (const char* bad : {"", "s", "-1s", "1d", "nan", "inf", "1e30s", "1ss"})
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  EXPECT_EQ(ParseBytes("1024TiB")->bytes, int64_t{1} << 50);
  for (const char* large : {"1025TiB", "5000000TiB", "8388608TiB", "9e18", "1e30GiB"})
    EXPECT_NE(ParseBytes(large).status().message().find("is more than 1024TiB"), std::string::npos) << large;
  for (const char* large : {"876001h", "1e18s", "9.3e18ns"})
    EXPECT_NE(ParseDuration(large).status().message().find("is more than 876000h"), std::string::npos) << large;
  for (const char* bad : {"", "GiB", "-1", "1kb", "1e30", "1 parsec"}) EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  for (const int64_t ns : {0L, 1L, 999L, 1000L, 1001L, 1'000'000L, 50'000'000L, 1'000'000'000L, 61'000'000'000L}) {
    EXPECT_EQ(ParseDuration(FormatDuration(ns))->ns, ns) << FormatDuration(ns);
  }
  EXPECT_EQ(FormatDuration(50'000'000), "50ms");
  EXPECT_EQ(FormatDuration(1'500'000), "1500us");
  EXPECT_EQ(FormatDuration(2'000'000'000), "2s");
  EXPECT_EQ(FormatBytes(int64_t{3} << 30), "3GiB");
  EXPECT_EQ(FormatBytes(int64_t{1536} << 20), "1536MiB");
  EXPECT_EQ(FormatBytes(1000), "1000");
  EXPECT_EQ(FormatBytes(0), "0");
}

// 500 could mean half a second or eight minutes.
TEST(CommandLine, ADurationWithoutAUnitIsRefusedWithBothReadings) {
  for (const char* bare : {"500", "1.5", "1e3", "500 "}) {
    const Parsed flag = ParseArgs({"--wait", bare});
    EXPECT_EQ(flag.outcome, CommandLine::Outcome::kBadUsage) << bare;
    EXPECT_NE(flag.errors.find("has no unit: write "), std::string::npos) << flag.errors;
    EXPECT_FALSE(ParseDuration(bare).ok());
  }
  EXPECT_NE(ParseArgs({"--wait", "500"}).errors.find("--wait: '500' has no unit: write 500ms or 500s"),
            std::string::npos);
  EXPECT_EQ(ParseArgs({"--wait", "0"}).sample.wait.ns, 0) << "is 0 in every unit";
  setenv("TACTUS_WAIT", "30", 1);
  const Parsed environment = ParseArgs({});
  unsetenv("TACTUS_WAIT");
  EXPECT_NE(environment.errors.find("'30' has no unit: write 30ms or 30s"), std::string::npos) << environment.errors;
  for (const auto& [line, fix] : std::initializer_list<std::pair<const char*, const char*>>{
           {"wait = 500\n", "write \"500ms\" or \"500s\""},
           {"wait = 1.5\n", "write \"1.5ms\" or \"1.5s\""},
           {"wait = \"500\"\n", "'500' has no unit: write 500ms or 500s"}}) {
    const std::string path = testing::TempDir() + "/bare.toml";
    std::ofstream(path) << line;
    const Parsed file = ParseArgs({"--config", path});
    EXPECT_EQ(file.outcome, CommandLine::Outcome::kBadUsage) << line;
    EXPECT_NE(file.errors.find(fix), std::string::npos) << file.errors;
  }
  const std::string path = testing::TempDir() + "/zero.toml";
  std::ofstream(path) << "wait = 0\n";
  EXPECT_EQ(ParseArgs({"--config", path}).sample.wait.ns, 0);
}

TEST(CommandLine, DurationsAndSizesKeepEveryDigit) {
  EXPECT_EQ(ParseDuration("1234567891ns")->ns, 1'234'567'891);
  for (const char* none : {"0x10ms", "0X1p3s", "infs", "nanms", "-1ms", "ms"})
    EXPECT_FALSE(ParseDuration(none).ok()) << none;
  EXPECT_EQ(ParseArgs({"--wait", "1234567891ns"}).sample.wait.ns, 1'234'567'891);
  EXPECT_EQ(ParseArgs({"--memory", "1234567891"}).sample.memory.bytes, 1'234'567'891);
  EXPECT_EQ(ParseArgs({"--memory", "1234567.5KiB"}).sample.memory.bytes, 1'264'197'120);
}

TEST(CommandLine, AnEmptyEnvironmentVariableIsAValue) {
  setenv("TACTUS_KIND", "", 1);
  const Parsed p = ParseArgs({});
  unsetenv("TACTUS_KIND");
  EXPECT_EQ(p.outcome, CommandLine::Outcome::kBadUsage);
  EXPECT_NE(p.errors.find("TACTUS_KIND: --kind: '' is not one of: a, b"), std::string::npos) << p.errors;
}

TEST(CommandLine, TheEnvironmentIsReadByNameAndAlias) {
  setenv("TACTUS_NUMBER", "7", 1);
  EXPECT_EQ(ParseArgs({}).sample.count, 7);
  setenv("TACTUS_NUMBER", "70", 1);
  const Parsed p = ParseArgs({});
  unsetenv("TACTUS_NUMBER");
  EXPECT_NE(p.errors.find("TACTUS_COUNT: --count: 70 is out of range"), std::string::npos) << p.errors;
}

TEST(CommandLine, PrintedConfigurationReadsBackAndHidesSecrets) {
  const Parsed p = ParseArgs({"--count", "8", "--key", "sesame", "--print-config"});
  EXPECT_EQ(p.outcome, CommandLine::Outcome::kDone);
  EXPECT_EQ(p.output.find("sesame"), std::string::npos);
  const std::string path = testing::TempDir() + "/echo.toml";
  std::ofstream(path) << p.output;
  EXPECT_EQ(ParseArgs({"--config", path}).sample.count, 8) << p.output;
}

// For any characters in a value, the printed configuration restores every field.
TEST(CommandLine, EveryValueReadsBackFromThePrintedConfiguration) {
  const std::string path = testing::TempDir() + "/values.toml";
  const auto round_trip = [&path](const std::vector<std::string>& args) {
    std::vector<std::string> printing = args;
    printing.push_back("--print-config");
    const Parsed printed = ParseArgs(printing);
    EXPECT_EQ(printed.outcome, CommandLine::Outcome::kDone) << printed.errors;
    std::ofstream(path) << printed.output;
    const Parsed given = ParseArgs(args), read = ParseArgs({"--config", path});
    EXPECT_EQ(read.outcome, CommandLine::Outcome::kRun) << read.errors << printed.output;
    EXPECT_EQ(read.model, given.model) << printed.output;
    EXPECT_EQ(read.sample.word, given.sample.word) << printed.output;
    EXPECT_EQ(read.sample.name, given.sample.name) << printed.output;
    EXPECT_EQ(read.sample.share, given.sample.share) << printed.output;
    EXPECT_EQ(read.sample.shift, given.sample.shift) << printed.output;
    EXPECT_EQ(read.sample.wait.ns, given.sample.wait.ns) << printed.output;
    EXPECT_EQ(read.sample.memory.bytes, given.sample.memory.bytes) << printed.output;
    return given;
  };
  for (const char* text : {"",
                           "plain",
                           "it's",
                           "\"quoted\"",
                           "both ' and \"",
                           "back\\slash",
                           "C:\\dir\\",
                           "new\nline",
                           "tab\t",
                           "\x01\x1f\x7f",
                           "'''",
                           "\"\"\"",
                           "# no comment",
                           "[a,b]",
                           "[[a],[b]]",
                           "{}",
                           "a = 1",
                           "-5",
                           " ",
                           "ünïcode ☃",
                           "%%",
                           "\r\n"}) {
    const Parsed p = round_trip({"--word", text, "--name", text, "--name", "x", std::string("m") + text});
    EXPECT_EQ(p.sample.word, text);
    EXPECT_EQ(p.sample.name, (std::vector<std::string>{text, "x"}));
    EXPECT_EQ(p.model, std::string("m") + text);
  }
  EXPECT_EQ(round_trip({"{}"}).model, "{}");
  EXPECT_EQ(round_trip({"[a,b]"}).model, "[a,b]");
  for (const char* number : {"0", "1", "0.1", "1e-300", "0.12345678901234567", "0.3333333333333333"})
    round_trip({"--share", number});
  for (const char* number : {"-1", "-9223372036854775808", "9223372036854775807"}) round_trip({"--shift", number});
  for (const char* time : {"0s", "1ns", "1.5s", "90m", "1234567891ns", "3h"}) round_trip({"--wait", time});
  for (const char* size : {"0", "1", "1000", "1KiB", "3MiB", "1.5GiB", "2TiB", "999999999999"})
    round_trip({"--memory", size});
}

TEST(CommandLine, ASecretIsNotPrintedAndItsMaskIsRejected) {
  const std::string path = testing::TempDir() + "/secret.toml";
  const Parsed none = ParseArgs({"--print-config"});
  EXPECT_NE(none.output.find("# key: none is set\n"), std::string::npos) << none.output;
  const Parsed two = ParseArgs({"--key", "sesame", "--key", "thyme", "--print-config"});
  EXPECT_NE(two.output.find("# key: 2 are set, and left out here as a secret; set it with TACTUS_KEY"),
            std::string::npos)
      << two.output;
  std::ofstream(path) << two.output;
  EXPECT_TRUE(ParseArgs({"--config", path}).sample.key.empty());
  for (const char* mask : {"*", "***", "********"}) {
    const Parsed p = ParseArgs({"--key", mask});
    EXPECT_EQ(p.outcome, CommandLine::Outcome::kBadUsage);
    EXPECT_NE(p.errors.find("is the mask of a secret"), std::string::npos) << p.errors;
    std::ofstream(path) << "key = [\"a\", \"" << mask << "\"]\n";
    EXPECT_EQ(ParseArgs({"--config", path}).outcome, CommandLine::Outcome::kBadUsage);
  }
  EXPECT_EQ(ParseArgs({"--key", "a*b***"}).outcome, CommandLine::Outcome::kRun);
}

// As in vLLM's --served-model-name.
TEST(CommandLine, SeveralValuesMayFollowAFlagWhereNoArgumentIsMissing) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(ParseArgs({"model", "--name", "a", "b", "c"}).sample.name, (Names{"a", "b", "c"}));
  EXPECT_EQ(ParseArgs({"model", "--name", "a", "b", "--fast", "--name=c", "d"}).sample.name,
            (Names{"a", "b", "c", "d"}));
  const Parsed model = ParseArgs({"--name", "a", "b"});
  EXPECT_EQ(model.sample.name, Names{"a"});
  EXPECT_EQ(model.model, "b");
  EXPECT_NE(ParseArgs({"model", "--word", "a", "b"}).errors.find("unexpected argument 'b'"), std::string::npos);
}

// The command line overrides the file.
TEST(CommandLine, APositionalArgumentIsAKeyOfAFile) {
  const std::string path = testing::TempDir() + "/model.toml";
  std::ofstream(path) << "model = 'from the file'\n";
  EXPECT_EQ(ParseArgs({"--config", path}).model, "from the file");
  EXPECT_EQ(ParseArgs({"--config", path, "given"}).model, "given");
  std::ofstream(path) << "model = 5\n";
  EXPECT_EQ(ParseArgs({"--config", path}).outcome, CommandLine::Outcome::kBadUsage);
}

TEST(CommandLine, ImpliedValuesApplyUnlessGiven) {
  const auto of = [](const std::vector<std::string>& args) {
    const Parsed p = ParseArgs(args);
    EXPECT_EQ(p.outcome, CommandLine::Outcome::kRun) << p.errors;
    return std::pair(p.sample.count, p.sample.kind);
  };
  using Found = std::pair<int64_t, std::string>;
  EXPECT_EQ(of({}), Found(3, "a"));
  EXPECT_EQ(of({"--plain"}), Found(9, "b"));
  EXPECT_EQ(of({"--plain", "off"}), Found(3, "a"));
  EXPECT_EQ(of({"--count", "3", "--plain"}), Found(3, "b")) << "also if the given value is the default";
  setenv("TACTUS_KIND", "a", 1);
  EXPECT_EQ(of({"--plain"}), Found(9, "a"));
  unsetenv("TACTUS_KIND");
  const std::string path = testing::TempDir() + "/implied.toml";
  std::ofstream(path) << "plain = true\nnumber = 4\n";
  EXPECT_EQ(of({"--config", path}), Found(4, "b"));
  // The printed configuration is the effective one, and reads back as such.
  const std::string echo = ParseArgs({"--plain", "--kind", "a", "--print-config"}).output;
  EXPECT_NE(echo.find("count = 9"), std::string::npos) << echo;
  std::ofstream(path) << echo;
  EXPECT_EQ(of({"--config", path}), Found(9, "a"));
}

TEST(CommandLine, FieldsAreSetWithoutACommandLine) {
  const auto apply = [](const std::vector<std::pair<std::string, std::string>>& values, Sample* sample) {
    CommandLine line("sample", "", "");
    line.Add(*sample);
    return line.Apply(values);
  };
  setenv("TACTUS_SHARE", "0.9", 1);
  Sample sample;
  ASSERT_TRUE(apply({{"kind", "a"}, {"plain", "on"}, {"key", "x"}, {"key", "y"}}, &sample).ok());
  unsetenv("TACTUS_SHARE");
  EXPECT_EQ(sample.kind, "a") << "a given value overrides an implied one";
  EXPECT_EQ(sample.count, 9) << "--plain implies it";
  EXPECT_EQ(sample.key, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(sample.share, 0.5) << "the environment is not read";

  const Status unknown = apply({{"colour", "red"}}, &sample);
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_EQ(unknown.param(), "colour");
  EXPECT_EQ(apply({{"count", "10"}}, &sample).message(),
            "--count: 10 is out of range; give a value from 1 to 9 things");
  const Status twice = apply({{"count", "1"}, {"number", "2"}}, &sample);
  EXPECT_EQ(twice.message(), "--count is given twice; give it once");
}

TEST(CommandLine, HelpShowsGroupUnitRangeAndDefault) {
  const Parsed p = ParseArgs({"--help"});
  EXPECT_EQ(p.outcome, CommandLine::Outcome::kDone);
  for (const char* text : {"Sample:", "--count, --number <things>", "1 to 9", "default 3", "TACTUS_MAX_NUM_SEQS"}) {
    EXPECT_NE(p.output.find(text), std::string::npos) << text << "\n" << p.output;
  }
}

TEST(CommandLine, HelpShowsEachGroupOnceAndNumbersWithTheirUnit) {
  Sample sample;
  std::string name;
  int64_t places = 0;
  CommandLine line("sample", "", "");
  line.Add(sample);
  line.Group("Other");
  line.Field("name", name, {.help = "what it is called"});
  line.Group("Sample");
  line.Field("places", places, {.help = "how many"});
  const std::string help = HelpText(line, {});
  EXPECT_EQ(help.find("\nSample:\n"), help.rfind("\nSample:\n")) << help;
  EXPECT_LT(help.find("--places <number>"), help.find("\nOther:\n")) << help;
  EXPECT_LT(help.find("--memory"), help.find("--places")) << help;
  EXPECT_NE(help.find("--name <text>"), std::string::npos) << help;
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
