// The schedule of a request explained from a recording is the observed one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "conformance/workload.h"
#include "core/trace/replay.h"

namespace tactus::core {
namespace {

using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::MakeWorkload;
using testing::Outcome;
using testing::Play;
using testing::Tokens;

class ExplainRecording : public ::testing::Test {
 protected:
  ExplainRecording()
      : path_(::testing::TempDir() + "tactus_explain_" + std::to_string(reinterpret_cast<uintptr_t>(this)) + ".trace") {
  }
  ~ExplainRecording() override { std::remove(path_.c_str()); }

  std::vector<RequestTimeline> Explain(const std::string& id) const {
    ReplayHooks::Explain explain;
    explain.id = id;
    ReplayHooks hooks;
    hooks.explain = &explain;
    const auto report = ReplayTrace(path_, hooks);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return explain.found;
  }
  // All fields as text.
  static std::string TextOf(const RequestTimeline& t) {
    std::string text = fmt::format("{} ended {} {} arrival {} prompt {} preempted {}", t.handle, t.ended,
                                   static_cast<int>(t.finish), t.arrival_ns, t.prompt_tokens, t.preemptions);
    for (const Miss& m : t.misses) text += fmt::format(" {} {} {},", m.missed, CauseName(m.cause), m.cost_ns);
    for (const SequenceTimeline& s : t.sequences) {
      text += fmt::format("\n{} {} {} {} {} gap {} {} {} beside {}:", s.choice, static_cast<int>(s.finish),
                          s.completion_tokens, s.ttft_ns, s.end_ns, s.longest_gap_ns, s.longest_gap_end_ns,
                          CauseName(s.longest_gap_cause), s.prefill_beside_others_ns);
      for (const TimelineSegment& g : s.segments)
        text += fmt::format(" {} {} {} {} {}", CauseName(g.cause), g.from_ns, g.to_ns, g.steps, g.mixed);
    }
    return text;
  }

  const std::string path_;
};

TEST_F(ExplainRecording, ReturnsTheObservedSchedule) {
  int64_t compared = 0, preempted = 0, missed = 0;
  for (const char* preset : {"sarathi-serve", "vllm", "fastserve", "ltr"}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const auto w = MakeWorkload(seed, {.cancels = seed % 2 == 0, .faults = seed % 3 == 1, .drafts = seed == 5});
      const Outcome recorded = Play(w, {.preset = preset}, false, path_);
      ASSERT_EQ(recorded.broken, "");
      for (size_t i = 0; i < recorded.requests.size(); i += 3) {
        const RequestTimeline& observed = recorded.requests[i].timeline;
        SCOPED_TRACE(fmt::format("{} seed {} request {}", preset, seed, observed.handle));
        const auto found = Explain(std::to_string(observed.handle));
        ASSERT_EQ(found.size(), 1u);
        ASSERT_EQ(TextOf(found[0]), TextOf(observed));
        ++compared;
        preempted += observed.preemptions > 0;
        for (const Miss& m : observed.misses) missed += m.missed;
      }
    }
  }
  EXPECT_GT(compared, 50);
  EXPECT_GT(preempted, 3);
  EXPECT_GT(missed, 10);
}

TEST_F(ExplainRecording, FindsRequestsByIdThenByNumber) {
  HarnessConfig config;
  config.trace_path = path_;
  Harness h(config);
  for (const char* id : {"first", "2", "twice", "twice", "", "p-0", "p-1"}) {
    Request r = MakeRequest(Tokens(7, 9), 2);
    r.id = id;
    h.MustSubmit(std::move(r));
  }
  ASSERT_EQ(h.Run(), "");
  ASSERT_TRUE(h.CloseTrace().ok());
  const auto handles = [&](const std::string& id) {
    std::string text;
    for (const RequestTimeline& t : Explain(id)) text += fmt::format("{}:{} ", t.handle, t.id);
    return text;
  };
  EXPECT_EQ(handles("first"), "1:first ");
  EXPECT_EQ(handles("2"), "2:2 ") << "the id has priority; here it is also the number";
  EXPECT_EQ(handles("3"), "3:twice ");
  EXPECT_EQ(handles("twice"), "3:twice 4:twice ");
  EXPECT_EQ(handles("5"), "5: ");
  EXPECT_EQ(handles("p"), "6:p-0 7:p-1 ");
  EXPECT_EQ(handles("p-1"), "7:p-1 ");
  for (const char* none : {"8", "0", "-1", "05", "", "second"}) EXPECT_EQ(handles(none), "") << none;
}

}  // namespace
}  // namespace tactus::core
