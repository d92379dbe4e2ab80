// A policy is one file and one line, even with a knob and a note: this program adds only patient.cc and its row, and
// everything else follows from them.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "cli/options/option_binding.h"
#include "core/loop/harness.h"
#include "core/sched/step_bed.h"
#include "core/trace/replay.h"
#include "sim/sim_options.h"
#include "tactus/options.h"

namespace tactus::core {
namespace {

using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::PresetConfig;
using testing::StepBed;
using testing::Tokens;

// The value that a command's flags set the knob to, or the error message.
template <class Options>
std::string Parsed(const std::vector<std::string>& args) {
  Options options;
  cli::CommandLine line("sample", "", "");
  line.Add(options);
  ::testing::internal::CaptureStderr();
  const bool runs = line.Parse(args) == cli::CommandLine::Outcome::kRun;
  const std::string errors = ::testing::internal::GetCapturedStderr();
  const int64_t* value = options.policy.template Find<int64_t>("patience");
  if (value == nullptr) return "there is no knob 'patience'";
  return runs ? std::to_string(*value) : errors;
}

TEST(AddedPolicy, ItsKnobIsAFlagOfServingAndOfSimulation) {
  EXPECT_EQ(Parsed<EngineOptions>({}), "1");
  EXPECT_EQ(Parsed<EngineOptions>({"--patience", "3"}), "3");
  EXPECT_EQ(Parsed<sim::SimOptions>({"--patience", "4"}), "4");
  EXPECT_NE(Parsed<EngineOptions>({"--patience", "101"}).find("give a value from 0 to 100 times"), std::string::npos);
  ASSERT_EQ(setenv("TACTUS_PATIENCE", "5", 1), 0);
  EXPECT_EQ(Parsed<sim::SimOptions>({}), "5");
  unsetenv("TACTUS_PATIENCE");

  EngineOptions options;
  cli::CommandLine line("sample", "", "");
  line.Add(options);
  const auto& fields = line.fields();
  const auto knob = std::find_if(fields.begin(), fields.end(), [](const auto& f) { return f.name == "patience"; });
  ASSERT_NE(knob, fields.end());
  EXPECT_EQ(knob->group, "Policies");
  EXPECT_STREQ(knob->spec.help, "order patient: sequences queued more often than this go last");
}

TEST(AddedPolicy, ItsKnobIsCheckedWhenASchedulerIsMade) {
  HarnessConfig c = PresetConfig("sarathi-serve");
  c.scheduler.order = "patient";
  *c.scheduler.limits.policy.Find<int64_t>("patience") = -1;
  EXPECT_NE(Harness(c).scheduler_error().message().find("patience -1 is outside [0, 100]"), std::string::npos);
}

// Slot 0 arrived first and was preempted once: queued twice.
TEST(AddedPolicy, ItsNoteIsKeptPerSequence) {
  for (const int64_t patience : {1, 2}) {
    HarnessConfig c = PresetConfig("sarathi-serve");
    c.scheduler.order = "patient";
    *c.scheduler.limits.policy.Find<int64_t>("patience") = patience;
    StepBed bed(c);
    bed.Waiting(4);
    EXPECT_EQ(bed.Plan(), "0:0+4*") << "queued for the first time";
    bed.Lose(0);
    bed.Waiting(6);
    EXPECT_EQ(bed.Plan(), patience == 1 ? "1:0+6* 0:0+5*" : "0:0+5* 1:0+6*") << "patience " << patience;
  }
}

// Little KV, so that sequences are preempted; `fresh` plans every pass with an instance that has only the view.
TEST(AddedPolicy, AFreshInstancePlansAlikeAndARecordingReplays) {
  const std::string path = ::testing::TempDir() + "tactus_added_policy.trace";
  const auto plans = [&path](const char* order, int64_t patience, bool fresh) {
    HarnessConfig c = PresetConfig("sarathi-serve", 16);
    c.scheduler.order = order;
    *c.scheduler.limits.policy.Find<int64_t>("patience") = patience;
    c.num_blocks = 10;
    c.max_model_len = 40;
    c.fresh_policies = fresh;
    c.trace_path = path;
    Harness h(c);
    for (uint64_t i = 0; i < 12; ++i) h.MustSubmit(MakeRequest(Tokens(i + 1, 6), 12));
    EXPECT_EQ(h.Run(), "");
    EXPECT_TRUE(h.CloseTrace().ok());
    EXPECT_GT(h.loop().Stats().preemptions, 2) << "else nothing is remembered";
    return h.plans();
  };
  const auto patient = plans("patient", 1, false);
  EXPECT_EQ(plans("patient", 1, true), patient);
  EXPECT_NE(plans("patient", 100, false), patient) << "the knob and the note decide";
  EXPECT_EQ(plans("patient", 1, false), patient);

  TraceHeader header;
  ReplayHooks hooks;
  hooks.header = &header;
  *header.scheduler.limits.policy.Find<int64_t>("patience") = 50;
  const auto report = ReplayTrace(path, hooks);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->identical());
  EXPECT_EQ(*header.scheduler.limits.policy.Find<int64_t>("patience"), 1);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tactus::core
