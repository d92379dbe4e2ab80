// A loaded run, recorded and fed through the loop again, makes the same plans.
#include "engine/replay.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "base/rng.h"
#include "conformance/workload.h"

namespace tactus {
namespace {

using testing::MakeWorkload;
using testing::Outcome;
using testing::Play;
using testing::Workload;

class Replay : public ::testing::Test {
 protected:
  Replay() : path_(::testing::TempDir() + "tactus_replay_" + std::to_string(reinterpret_cast<uintptr_t>(this)) + ".trace") {}
  ~Replay() override { std::remove(path_.c_str()); }

  std::string ReadFile() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void WriteFile(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  const std::string path_;
};

TEST_F(Replay, LoadedRunsMakeTheSamePlansAgain) {
  int64_t steps = 0, cancels = 0, errors = 0, preemptions = 0;
  for (const auto& preset : sched::Presets()) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.cancels = true, .faults = seed % 2 == 1, .rejects = seed % 4 == 2});
      const Outcome recorded = Play(w, {.preset = preset.name}, false, path_);
      ASSERT_EQ(recorded.broken, "");
      const auto report = ReplayTrace(path_);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_TRUE(report->complete);
      EXPECT_EQ(report->first_difference, -1);
      EXPECT_TRUE(report->identical());
      EXPECT_EQ(report->steps_replayed, static_cast<int64_t>(recorded.hashes.size()));
      EXPECT_EQ(report->plan_hash_replayed, recorded.stats.plan_hash);
      EXPECT_EQ(report->stats.generation_tokens, recorded.stats.generation_tokens);
      EXPECT_EQ(report->stats.finished_stop, recorded.stats.finished_stop);
      EXPECT_EQ(report->stats.finished_length, recorded.stats.finished_length);
      EXPECT_EQ(report->stats.finished_cancelled, recorded.stats.finished_cancelled);
      EXPECT_EQ(report->stats.finished_error, recorded.stats.finished_error);
      EXPECT_EQ(report->stats.preemptions, recorded.stats.preemptions);
      EXPECT_EQ(report->stats.prefix_hit_tokens, recorded.stats.prefix_hit_tokens);
      steps += report->steps_replayed;
      cancels += recorded.stats.finished_cancelled;
      errors += recorded.stats.finished_error;
      preemptions += recorded.stats.preemptions;
    }
  }
  // The recordings were worth replaying.
  EXPECT_GT(steps, 1000);
  EXPECT_GT(cancels, 20);
  EXPECT_GT(errors, 20);
  EXPECT_GT(preemptions, 20);
}

// What a predictor that knows more than the recording has answered is in the recording.
TEST_F(Replay, NoisyPredictionsAreRecorded) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Workload w = MakeWorkload(seed, {.cancels = true});
    for (const char* preset : {"trail", "s3", "pia"}) {
      SCOPED_TRACE(std::string(preset) + " seed " + std::to_string(seed));
      ASSERT_EQ(Play(w, {.preset = preset, .predictor = "noisy:1"}, false, path_).broken, "");
      const auto report = ReplayTrace(path_);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_TRUE(report->identical());
    }
  }
}

// The comparison can fail: the same inputs under another composition make other plans.
TEST_F(Replay, AnotherPolicyMakesOtherPlans) {
  Workload w = MakeWorkload(3, {});
  w.config.scheduler.limits.token_budget = 7;
  ASSERT_EQ(Play(w, {.preset = "sarathi-serve"}, false, path_).broken, "");
  const std::string bytes = ReadFile();
  TraceCursor cursor(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  auto header = ReadHeader(&cursor);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->scheduler.composition, "stall-free");
  header->scheduler.limits.token_budget = 6;
  TraceBytes changed;
  PutHeader(*header, &changed);
  changed.insert(changed.end(), bytes.begin() + static_cast<ptrdiff_t>(cursor.offset()), bytes.end());
  WriteFile(std::string(changed.begin(), changed.end()));
  const auto report = ReplayTrace(path_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_GE(report->first_difference, 0);
  EXPECT_FALSE(report->identical());
}

TEST_F(Replay, CutOrCorruptFilesAreErrorsNotCrashes) {
  const Workload w = MakeWorkload(3, {.cancels = true});
  ASSERT_EQ(Play(w, {.preset = "vllm"}, false, path_).broken, "");
  const std::string bytes = ReadFile();
  ASSERT_GT(bytes.size(), 500u);
  for (size_t cut : {size_t{0}, size_t{4}, size_t{9}, size_t{60}, size_t{300}}) {
    WriteFile(bytes.substr(0, cut));
    EXPECT_FALSE(ReplayTrace(path_).ok()) << cut;
  }
  Rng rng(1);
  for (int i = 0; i < 400; ++i) {
    std::string bad = bytes;
    const auto at = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(bytes.size()) - 1));
    bad[at] = static_cast<char>(rng.UniformInt(0, 255));
    WriteFile(bad);
    (void)ReplayTrace(path_).ok();   // any answer, but an answer
  }
  // A clock that jumps to the end of time twice: refused, not overflowed.
  TraceCursor header(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  ASSERT_TRUE(ReadHeader(&header).ok());
  TraceBytes late(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(header.offset()));
  for (int i = 0; i < 2; ++i) {
    late.push_back(static_cast<uint8_t>(TraceTag::kPass));
    PutSigned(std::numeric_limits<int64_t>::max(), &late);
  }
  WriteFile(std::string(late.begin(), late.end()));
  EXPECT_EQ(ReplayTrace(path_).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ReplayTrace(testing::TempDir() + "/no_such_folder/trace").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tactus
