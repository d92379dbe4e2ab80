// Programs in a child process: what they read, print and may use.
#include "serve/child_program.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace tactus::serve {
namespace {

Result<std::string> Shell(
    const std::string& script, const std::string& input = {}, DurationNs limit_ns = 60 * kSecond,
    const std::function<bool()>& stop = [] { return false; }) {
  ChildRun run;
  run.program = "/bin/sh";
  run.args = {"-c", script};
  run.input = input;
  run.limit_ns = limit_ns;
  return RunChild(run, SystemClock(), stop);
}

TEST(ChildProgram, ReadsItsInputAsAFileAndPrints) {
  const std::string large(300'000, 'x');
  const auto printed = Shell(std::string("cat ") + ChildRun::kInput + "; echo noise >&2", large);
  ASSERT_TRUE(printed.ok()) << printed.status().message();
  EXPECT_EQ(*printed, large);
}

// A socket that stays open in the child keeps its client waiting, and the port taken.
TEST(ChildProgram, InheritsNoOtherDescriptors) {
  constexpr int kOpen = 177;
  ASSERT_EQ(dup2(STDERR_FILENO, kOpen), kOpen);
  const auto printed = Shell("for f in /proc/self/fd/*; do echo ${f##*/}; done");
  close(kOpen);
  ASSERT_TRUE(printed.ok()) << printed.status().message();
  EXPECT_NE(printed->find("3\n"), std::string::npos) << *printed;
  EXPECT_EQ(printed->find("177"), std::string::npos) << *printed;
}

TEST(ChildProgram, AnErrorIsTheLastLineOfItsErrors) {
  const auto failed = Shell("echo first >&2; echo 'no such scheduler' >&2; exit 2");
  EXPECT_EQ(failed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failed.status().message(), "no such scheduler");
}

TEST(ChildProgram, ANegativeResultIsReadWhereOneIsExpected) {
  ChildRun run;
  run.program = "/bin/sh";
  run.args = {"-c", "echo none; echo why >&2; exit 1"};
  EXPECT_EQ(RunChild(run, SystemClock(), [] { return false; }).status().message(), "why");
  run.negative_result = true;
  const auto printed = RunChild(run, SystemClock(), [] { return false; });
  ASSERT_TRUE(printed.ok()) << printed.status().message();
  EXPECT_EQ(*printed, "none\n");
  run.args[1] = "echo none; echo wrong usage >&2; exit 2";
  EXPECT_EQ(RunChild(run, SystemClock(), [] { return false; }).status().message(), "wrong usage");
}

// A child without a library it needs, for example, ends with status 127 and a line of the loader.
TEST(ChildProgram, OnlyARefusalIsTheCallersFault) {
  ChildRun run;
  run.program = "/bin/sh";
  run.refusal = "tactus sim";
  for (const auto& [script, code] :
       {std::pair("echo 'tactus sim: no such preset' >&2; exit 2", StatusCode::kInvalidArgument),
        {"echo 'tactus sim: line 3' >&2; exit 1", StatusCode::kInvalidArgument},
        {"echo 'tactus: out of memory' >&2; exit 1", StatusCode::kInternal},
        {"echo 'tactus sim: odd' >&2; exit 127", StatusCode::kInternal},
        {"exit 1", StatusCode::kInternal}}) {
    run.args = {"-c", script};
    const Status failed = RunChild(run, SystemClock(), [] { return false; }).status();
    EXPECT_EQ(failed.code(), code) << script << ": " << failed.message();
  }
  run.args = {"-c", "echo 'cannot open shared object file' >&2; exit 127"};
  EXPECT_EQ(RunChild(run, SystemClock(), [] { return false; }).status().message(),
            "the simulation ended with status 127: cannot open shared object file");
}

TEST(ChildProgram, AMissingProgramIsUnavailable) {
  ChildRun run;
  run.program = "/no/such/program";
  EXPECT_EQ(RunChild(run, SystemClock(), [] { return false; }).status().code(), StatusCode::kUnavailable);
}

TEST(ChildProgram, ACrashIsAnInternalError) {
  const auto failed = Shell("kill -SEGV $$");
  EXPECT_EQ(failed.status().code(), StatusCode::kInternal);
  EXPECT_EQ(failed.status().message(), "the simulation was ended by signal 11");
}

TEST(ChildProgram, IsEndedAfterItsLimit) {
  const auto failed = Shell("exec sleep 3600", "", 50 * kMillisecond);
  EXPECT_EQ(failed.status().code(), StatusCode::kDeadlineExceeded) << failed.status().message();
}

TEST(ChildProgram, IsEndedAfterItsCpuTime) {
  ChildRun run;
  run.program = "/bin/sh";
  run.args = {"-c", "while :; do :; done"};
  run.cpu_s = 1;
  const auto failed = RunChild(run, SystemClock(), [] { return false; });
  EXPECT_EQ(failed.status().code(), StatusCode::kDeadlineExceeded) << failed.status().message();
  EXPECT_NE(failed.status().message().find("1 s of CPU time"), std::string::npos) << failed.status().message();
}

TEST(ChildProgram, IsEndedWhenTheCallerStops) {
  const auto failed = Shell("exec sleep 3600", "", 3600 * kSecond, [] { return true; });
  EXPECT_EQ(failed.status().code(), StatusCode::kCancelled) << failed.status().message();
}

TEST(ChildProgram, HasNoEnvironmentOfThisProcess) {
  setenv("TACTUS_SCHEDULER", "orca", 1);
  const auto printed = Shell("echo \"[$TACTUS_SCHEDULER]\"");
  unsetenv("TACTUS_SCHEDULER");
  ASSERT_TRUE(printed.ok()) << printed.status().message();
  EXPECT_EQ(*printed, "[]\n");
}

TEST(ChildProgram, RunsAtALowPriority) {
  const auto printed = Shell("while [ \"$(nice)\" != 10 ]; do :; done; echo low");
  ASSERT_TRUE(printed.ok()) << printed.status().message();
  EXPECT_EQ(*printed, "low\n");
}

TEST(ChildProgram, AMissingProgramIsNamed) {
  ChildRun run;
  run.program = "/no/such/program";
  const auto failed = RunChild(run, SystemClock(), [] { return false; });
  EXPECT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("/no/such/program"), std::string::npos) << failed.status().message();
}

}  // namespace
}  // namespace tactus::serve
