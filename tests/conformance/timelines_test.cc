// The causes of a request's timeline always add up to its latency, to the nanosecond: with several choices, preemption,
// swap, cancels, errors, drafts and pipelines, for every preset. The harness checks each request at its end, and a live
// one after each pass (Harness::TakeTimeline, BrokenTimeline).
#include <gtest/gtest.h>

#include "conformance/workload.h"

namespace tactus {
namespace {

using testing::MakeWorkload;
using testing::Outcome;
using testing::Play;
using testing::RequestOutput;
using testing::Workload;

TEST(TimelineConformance, CausesAddUpToTheLatency) {
  std::array<DurationNs, kNumCauses> total_ns{};
  std::array<int, kNumCauses> blamed{};
  int64_t requests = 0, choices = 0, swapped = 0, cancelled = 0, failed = 0;
  for (const auto& preset : core::Presets()) {
    for (uint64_t seed = 7000; seed < 7040; ++seed) {
      SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed));
      Workload w = MakeWorkload(seed, {.cancels = seed % 3 == 0,
                                       .faults = seed % 4 == 1,
                                       .rejects = seed % 8 == 3,
                                       .drafts = seed % 5 == 2,
                                       .tokens_on_host = seed % 2 == 0});
      if (seed % 2 == 1) w.config.swap_blocks = w.config.num_blocks;
      const Outcome outcome = Play(w, {.preset = preset.name});
      ASSERT_EQ(outcome.broken, "");
      swapped += outcome.stats.swapped_sequences;
      cancelled += outcome.stats.finished_cancelled;
      failed += outcome.stats.finished_error;
      for (const RequestOutput& out : outcome.requests) {
        ++requests;
        ASSERT_EQ(out.timeline.sequences.size(), out.choices.size());
        for (const SequenceTimeline& s : out.timeline.sequences) {
          ++choices;
          const auto& got = out.choices.at(static_cast<size_t>(s.choice));
          EXPECT_EQ(s.finish, got.finish);
          EXPECT_EQ(s.completion_tokens, static_cast<int32_t>(got.tokens.size()));
          if (!got.token_ns.empty()) {
            EXPECT_EQ(s.ttft_ns, got.token_ns.front() - out.done_event.arrival_ns);
          }
          for (size_t c = 0; c < kNumCauses; ++c) total_ns[c] += s.total_ns[c];
        }
        for (const Miss& m : out.done_event.misses) blamed[static_cast<size_t>(m.cause)] += m.missed;
      }
    }
  }
  EXPECT_GT(requests, 5000);
  EXPECT_GT(choices, requests);
  EXPECT_GT(swapped, 100);
  EXPECT_GT(cancelled, 100);
  EXPECT_GT(failed, 100);
  for (size_t c = 0; c < kNumCauses; ++c) {
    // In these runs requests reach the loop at their arrival and do not migrate, and no prompts are on disk.
    const auto cause = static_cast<Cause>(c);
    if (cause == Cause::kIntake || cause == Cause::kElsewhere || cause == Cause::kDisk) continue;
    EXPECT_GT(total_ns[c], kSecond) << "the runs have too little of " << CauseName(static_cast<Cause>(c));
  }
  for (const Cause cause : {Cause::kQueue, Cause::kKv, Cause::kPlaces, Cause::kPreempted, Cause::kDecode})
    EXPECT_GT(blamed[static_cast<size_t>(cause)], 10) << CauseName(cause);
}

}  // namespace
}  // namespace tactus
