// The replay of a recorded run under load makes the same plans.
#include "core/trace/replay.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "base/rng.h"
#include "conformance/workload.h"
#include "core/trace/change_header.h"

namespace tactus::core {
namespace {

using testing::ChangeHeader;
using testing::MakeWorkload;
using testing::Outcome;
using testing::Play;
using testing::RepeatStepTimesOfConstruction;
using testing::Workload;

class Replay : public ::testing::Test {
 protected:
  Replay()
      : path_(::testing::TempDir() + "tactus_replay_" + std::to_string(reinterpret_cast<uintptr_t>(this)) + ".trace") {}
  ~Replay() override { std::remove(path_.c_str()); }

  std::string ReadFile() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void WriteFile(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  const std::string path_;
};

TEST_F(Replay, LoadedRunsReplayToTheSamePlans) {
  int64_t steps = 0, cancels = 0, errors = 0, preemptions = 0, drafts = 0;
  for (const auto& preset : Presets()) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.cancels = true,
                                             .faults = seed % 2 == 1,
                                             .rejects = seed % 4 == 2,
                                             .drafts = seed % 3 == 1,
                                             .tokens_on_host = seed % 3 == 2});
      const Outcome recorded = Play(w, {.preset = preset.name}, false, path_);
      ASSERT_EQ(recorded.broken, "");
      drafts += recorded.drafts_accepted;
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
  // The recordings have all these events.
  EXPECT_GT(steps, 1000);
  EXPECT_GT(cancels, 20);
  EXPECT_GT(errors, 20);
  EXPECT_GT(preemptions, 20);
  EXPECT_GT(drafts, 1000);
}

TEST_F(Replay, AFailedDeviceIsRecorded) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workload w = MakeWorkload(seed, {});
    w.config.executor.device_fails_at = 12;
    w.faults = true;
    const Outcome recorded = Play(w, {}, false, path_);
    ASSERT_EQ(recorded.broken, "");
    EXPECT_FALSE(recorded.stats.healthy);
    EXPECT_GT(recorded.stats.finished_error, 0);
    const auto report = ReplayTrace(path_);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_TRUE(report->identical());
    EXPECT_EQ(report->stats.finished_error, recorded.stats.finished_error);
    EXPECT_FALSE(report->stats.healthy);
  }
}

// Predictions of a predictor that does not learn are recorded.
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

// Steps depend on a request's place in a job's plan, so places are recorded.
TEST_F(Replay, PlacesInAPlanAreRecorded) {
  int64_t placed = 0, scanned = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Workload w = MakeWorkload(seed, {.cancels = true});
    for (const char* order : {"dfs", "balance", "blend", "blend-dual-scan"}) {
      SCOPED_TRACE(std::string(order) + " seed " + std::to_string(seed));
      const Outcome recorded = Play(w, {.preset = "sarathi-serve", .order = order}, false, path_);
      ASSERT_EQ(recorded.broken, "");
      std::vector<RecordedRequest> requests;
      ReplayHooks hooks;
      hooks.requests = &requests;
      const auto report = ReplayTrace(path_, hooks);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_TRUE(report->identical()) << "the first step that differs is " << report->first_difference;
      for (const RecordedRequest& r : requests) {
        placed += r.request->planned.position >= 0;
        scanned += r.request->planned.end != PlanEnd::kNone;
      }
    }
  }
  EXPECT_GT(placed, 100) << "too few recorded requests have a place";
  EXPECT_GT(scanned, 50) << "too few recorded requests have an end of the plan";
}

// The hooks return the recorded requests, and the steps with their times.
TEST_F(Replay, HooksReturnTheRecordedRunsRequestsAndSteps) {
  int64_t cancelled = 0, keys = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Workload w = MakeWorkload(seed, {.cancels = true});
    const Outcome recorded = Play(w, {.preset = "sarathi-serve"}, false, path_);
    ASSERT_EQ(recorded.broken, "");
    std::vector<RecordedRequest> requests;
    std::vector<std::pair<TimeNs, TimeNs>> steps;
    TraceHeader header;
    ReplayHooks hooks;
    hooks.requests = &requests;
    hooks.header = &header;
    hooks.on_step = [&](const StepPlan& plan, TimeNs start_ns, TimeNs end_ns) {
      EXPECT_EQ(plan.step, static_cast<StepId>(steps.size()));
      EXPECT_EQ(end_ns - start_ns, kMillisecond + plan.num_tokens * 10 * kMicrosecond)
          << "the fake executor's step time";
      steps.push_back({start_ns, end_ns});
    };
    const auto report = ReplayTrace(path_, hooks);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(header.kv.num_blocks, w.config.num_blocks);
    EXPECT_EQ(report->arrivals, static_cast<int64_t>(requests.size()));
    EXPECT_GT(report->passes, static_cast<int64_t>(steps.size()) / 8);
    EXPECT_EQ(report->steps_recorded, report->steps_replayed);
    EXPECT_EQ(report->plan_hash_recorded, report->plan_hash_replayed);
    EXPECT_EQ(static_cast<int64_t>(steps.size()), report->steps_replayed);
    ASSERT_EQ(requests.size(), recorded.requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const RecordedRequest& r = requests[i];
      const Request& was = *recorded.requests[i].request;
      const RequestDoneEvent& done = recorded.requests[i].done_event;
      EXPECT_EQ(r.handle, static_cast<RequestHandle>(i + 1));
      EXPECT_EQ(r.arrival_ns, done.arrival_ns);
      EXPECT_EQ(r.prompt_tokens, static_cast<int32_t>(was.prompt->size()));
      EXPECT_EQ(r.client != 0, !was.client.empty());
      EXPECT_EQ(r.request->n, was.n);
      EXPECT_EQ(r.request->priority, was.priority);
      EXPECT_EQ(r.request->stop.max_tokens, was.stop.max_tokens);
      EXPECT_EQ(r.request->prompt_logprobs, was.prompt_logprobs);
      EXPECT_EQ(r.request->slo.ttft_ns, was.slo.ttft_ns);
      EXPECT_EQ(r.request->slo.tbt_ns, was.slo.tbt_ns);
      EXPECT_EQ(r.request->slo.jct_ns, was.slo.jct_ns);
      EXPECT_EQ(r.has_keys, w.config.prefix_caching && !was.prompt_logprobs);
      if (r.has_keys) {
        EXPECT_EQ(static_cast<int32_t>(r.prompt_keys.size()), r.prompt_tokens / w.config.block_size);
      }
      if (done.finish == FinishReason::kCancelled) {
        EXPECT_EQ(r.cancelled_ns, done.done_ns);
        ++cancelled;
      }
      for (const auto& key : r.generated_keys) EXPECT_LT(key.choice, was.n);
      keys += static_cast<int64_t>(r.generated_keys.size());
    }
  }
  EXPECT_GT(cancelled, 5);
  EXPECT_GT(keys, 20);
}

// The comparison can fail: the same inputs with another token budget make other plans.
TEST_F(Replay, AnotherBudgetMakesOtherPlans) {
  Workload w = MakeWorkload(3, {});
  w.config.scheduler.limits.token_budget = 7;
  ASSERT_EQ(Play(w, {.preset = "sarathi-serve"}, false, path_).broken, "");
  ChangeHeader(path_, [](TraceHeader* header) {
    EXPECT_EQ(header->scheduler.composition, "stall-free");
    header->scheduler.limits.token_budget = 6;
  });
  const auto report = ReplayTrace(path_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_GE(report->first_difference, 0);
  EXPECT_FALSE(report->identical());
}

// In recordings of earlier programs every choice of `tactus` has read the times that its construction needs; today one
// model, which the choices share, reads them.
TEST_F(Replay, StepTimesThatConstructionDoesNotReadAreSkipped) {
  struct PerToken final : StepTimeModel {
    DurationNs StepTimeNs(const StepShape& shape) const override {
      return kMillisecond + 10 * kMicrosecond * shape.tokens();
    }
  };
  const PerToken model;
  Workload w = MakeWorkload(3, {});
  w.config.scheduler.limits.step_time = &model;
  ASSERT_EQ(Play(w, {.preset = "tactus"}, false, path_).broken, "");
  RepeatStepTimesOfConstruction(path_);
  const auto report = ReplayTrace(path_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->identical());
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
  // One wrong byte: the file is refused, as damaged or for an impossible value, or its plans are compared.
  WriteFile(bytes);
  const auto intact = ReplayTrace(path_);
  ASSERT_TRUE(intact.ok()) << intact.status().ToString();
  int refused = 0, different = 0, unnoticed = 0;
  Rng rng(1);
  for (int i = 0; i < 400; ++i) {
    std::string bad = bytes;
    const auto at = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(bytes.size()) - 1));
    bad[at] = static_cast<char>(rng.UniformInt(0, 255));
    WriteFile(bad);
    const auto report = ReplayTrace(path_);
    if (!report.ok()) {
      ++refused;
      const Status& status = report.status();
      EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument ||
                  (status.code() == StatusCode::kDataLoss && status.message().find(path_) != std::string::npos))
          << "byte " << at << ": " << status.ToString();
    } else if (report->identical()) {
      ++unnoticed;
      EXPECT_LE(report->steps_replayed, intact->steps_replayed) << "byte " << at;
    } else {
      ++different;
      EXPECT_LE(report->first_difference, intact->steps_replayed) << "byte " << at;
    }
  }
  EXPECT_GT(refused, 50) << "of 400; " << unnoticed << " have the recorded plans";
  EXPECT_GT(different, 40) << "of 400; " << unnoticed << " have the recorded plans";
  // Two passes at the largest time: refused without overflow.
  TraceCursor header(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  ASSERT_TRUE(ReadHeader(&header).ok());
  TraceBytes late(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(header.offset()));
  for (int i = 0; i < 2; ++i) {
    late.push_back(static_cast<uint8_t>(TraceTag::kPass));
    PutSigned(std::numeric_limits<int64_t>::max(), &late);
  }
  WriteFile(std::string(late.begin(), late.end()));
  EXPECT_EQ(ReplayTrace(path_).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ReplayTrace(path_ + ".absent").status().code(), StatusCode::kNotFound);
}

// Builds a trace by hand, after the header of a real recording.
class ByHand {
 public:
  explicit ByHand(const TraceHeader& header) { PutHeader(header, &bytes_); }
  ByHand& Pass(int64_t later_ns = 1) { return Tag(TraceTag::kPass).Signed(later_ns); }
  ByHand& Arrival(RequestHandle handle, int32_t prompt, int32_t max_tokens) {
    Tag(TraceTag::kArrival)
        .Varint(handle)
        .Signed(0)
        .Varint(static_cast<uint64_t>(prompt))
        .Varint(static_cast<uint64_t>(max_tokens));
    return Varint(1).Signed(0).Varint(0).Varint(0).Varint(0).Varint(0).Varint(0).Varint(0).Varint(0);
  }
  ByHand& Result(StepId step) {
    return Tag(TraceTag::kResult).Varint(static_cast<uint64_t>(step)).Signed(0).Signed(0).Varint(1).Varint(0);
  }
  ByHand& Key(RequestHandle handle) {
    Tag(TraceTag::kKey).Varint(handle).Varint(0).Varint(0);
    PutHash({1, 2}, &bytes_);
    return *this;
  }
  ByHand& Tag(TraceTag tag) {
    bytes_.push_back(static_cast<uint8_t>(tag));
    return *this;
  }
  ByHand& Varint(uint64_t v) {
    PutVarint(v, &bytes_);
    return *this;
  }
  ByHand& Signed(int64_t v) {
    PutSigned(v, &bytes_);
    return *this;
  }
  std::string text() const { return {bytes_.begin(), bytes_.end()}; }

 private:
  TraceBytes bytes_;
};

TEST_F(Replay, ImpossibleRecordsAreErrors) {
  const Workload w = MakeWorkload(3, {});
  TraceHeader header;
  ReplayHooks with_header;
  with_header.header = &header;
  const auto answer = [this](const ByHand& trace, bool collect = false) {
    WriteFile(trace.text());
    std::vector<RecordedRequest> requests;
    ReplayHooks hooks;
    if (collect) hooks.requests = &requests;
    const auto report = ReplayTrace(path_, hooks);
    if (report.ok())
      return std::string(report->complete ? "complete" : "not ended") + fmt::format(", {} passes", report->passes);
    EXPECT_EQ(report.status().code(), StatusCode::kDataLoss);
    return report.status().message().substr(report.status().message().rfind(": ") + 2);
  };
  ASSERT_EQ(Play(w, {.preset = "vllm"}, false, path_).broken, "");
  ASSERT_TRUE(ReplayTrace(path_, with_header).ok());

  EXPECT_EQ(answer(ByHand(header)), "not ended, 0 passes");
  EXPECT_EQ(answer(ByHand(header).Tag(TraceTag::kEnd)), "complete, 0 passes");
  EXPECT_EQ(answer(ByHand(header).Pass().Pass().Tag(TraceTag::kEnd)), "complete, 2 passes");
  EXPECT_EQ(answer(ByHand(header).Pass().Pass()), "not ended, 2 passes");
  EXPECT_EQ(answer(ByHand(header).Tag(TraceTag::kCancel).Varint(1)), "cut off or corrupt")
      << "a record outside any pass";
  EXPECT_EQ(answer(ByHand(header).Pass().Tag(TraceTag::kStored).Varint(0).Varint(0)), "cut off or corrupt")
      << "a record about an arrival before any arrival";
  EXPECT_EQ(answer(ByHand(header).Pass().Tag(static_cast<TraceTag>(99))), "cut off or corrupt") << "an unknown record";
  EXPECT_EQ(answer(ByHand(header).Pass().Tag(TraceTag::kCancel)), "cut off or corrupt") << "half a record";
  EXPECT_EQ(answer(ByHand(header).Pass(int64_t{1} << 60)), "not ended, 1 passes") << "the latest accepted time";
  EXPECT_EQ(answer(ByHand(header).Pass((int64_t{1} << 60) + 1)), "cut off or corrupt");
  EXPECT_EQ(answer(ByHand(header).Pass(int64_t{1} << 60).Pass(1)), "cut off or corrupt") << "beyond the latest time";
  EXPECT_EQ(answer(ByHand(header).Pass().Tag(TraceTag::kCancel).Varint(5), true), "not ended, 1 passes")
      << "an unknown request";
  EXPECT_EQ(answer(ByHand(header).Pass().Arrival(2, 1, 1)), "arrivals are out of order or beyond the slots");
  EXPECT_EQ(answer(ByHand(header).Pass().Arrival(0, 1, 1)), "arrivals are out of order or beyond the slots");
  EXPECT_EQ(answer(ByHand(header).Pass().Arrival(1, 0, 1)), "cut off or corrupt") << "an empty prompt";
  EXPECT_EQ(answer(ByHand(header).Pass().Arrival(1, 1, 0)), "cut off or corrupt") << "no output tokens";
  EXPECT_EQ(answer(ByHand(header).Pass().Result(0)), "a result of a step that was never submitted");
  EXPECT_EQ(answer(ByHand(header).Pass().Key(1), true), "a key of a request that has not arrived");
  EXPECT_EQ(answer(ByHand(header).Pass().Key(0), true), "a key of a request that has not arrived");
  EXPECT_EQ(answer(ByHand(header).Pass().Key(0).Tag(TraceTag::kEnd)), "complete, 1 passes")
      << "an unused key is no error";

  TraceHeader odd = header;
  odd.slot_capacity = header.kv.max_slots + 1;
  EXPECT_EQ(answer(ByHand(odd)), "the header's sizes are inconsistent");
  odd = header;
  odd.scheduler.limits.slot_capacity = header.slot_capacity - 1;
  EXPECT_EQ(answer(ByHand(odd)), "the header's sizes are inconsistent");
  odd = header;
  odd.kv.max_blocks_per_slot = static_cast<int32_t>((int64_t{1} << 31) / header.kv.max_slots) + 1;
  EXPECT_EQ(answer(ByHand(odd)), "the header's sizes are inconsistent");
}

}  // namespace
}  // namespace tactus::core
