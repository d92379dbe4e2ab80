// Migration of sequences between two running engines with the fake executor: a block that is missing, stale or in the
// wrong place changes a token. Every preset, pipelines, drafts, swap, cancels, executor errors, migrations aborted
// half-way on either side; both recordings replay.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "base/rng.h"
#include "conformance/workload.h"
#include "core/trace/replay.h"

namespace tactus {
namespace {

using core::SchedulerConfig;
using testing::ExpectedOutput;
using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::MakeWorkload;
using testing::RequestOutput;
using testing::Tokens;
using testing::Workload;

// One migration, command by command, as an engine does it: rounds of reads while the sequence continues, then a pause,
// reads of the rest, the arrival at the destination and the end at the source.
class Move {
 public:
  Move(Harness* from, Harness* to, RequestHandle handle, int rounds, int give_up_at)
      : from_(*from), to_(*to), handle_(handle), rounds_(rounds), give_up_at_(give_up_at) {}

  bool over() const { return over_; }
  RequestHandle arrived() const { return arrived_; }  // handle at the destination; 0: not migrated
  int32_t blocks_moved() const { return sent_; }
  const Status& why() const { return why_; }

  // Sends the next command if the last one has been answered.
  void Step() {
    if (over_ || waiting_) return;
    if (commands_++ == give_up_at_) return GiveUp(Status(StatusCode::kUnavailable, "the connection broke"));
    if (!answer_.status.ok()) return GiveUp(answer_.status);
    switch (next_) {
      case Next::kRound:
        Keep();
        if (rounds_-- > 0) return Ask(from_, {.kind = core::TransferKind::kRead, .first_block = sent_, .blocks = 2});
        next_ = Next::kRest;
        paused_ = true;
        return Ask(from_, {.kind = core::TransferKind::kPause});
      case Next::kRest:
        if (!snapshot_) snapshot_ = answer_.snapshot;
        Keep();
        if (sent_ < Blocks()) return Ask(from_, {.kind = core::TransferKind::kRead, .first_block = sent_, .blocks = 3});
        next_ = Next::kRoom;
        return Step();
      case Next::kRoom:
        // In two parts, as rounds would reserve it.
        if (room_ == 0 || host_.size() < static_cast<size_t>(Blocks())) {
          if (asked_for_room_) KeepRoom();
          asked_for_room_ = true;
          const auto left = Blocks() - static_cast<int32_t>(host_.size());
          if (left > 0) {
            return Ask(to_, {.kind = core::TransferKind::kReserve, .import = room_, .blocks = (left + 1) / 2});
          }
        }
        next_ = Next::kEnd;
        return Arrive();
      case Next::kEnd:
        over_ = true;
        return;
    }
  }

 private:
  enum class Next { kRound, kRest, kRoom, kEnd };

  int32_t Blocks() const {
    const int32_t b = to_.kv().block_size();
    return (snapshot_->computed_tokens + b - 1) / b;
  }
  void Ask(Harness& whom, core::TransferCommand command) {
    if (&whom == &from_) command.handle = handle_;
    waiting_ = true;
    command.answer = [this](core::TransferAnswer answer) {
      waiting_ = false;
      answer_ = std::move(answer);
    };
    whom.loop().Transfer(std::move(command));
  }
  void Keep() {
    bytes_.insert(bytes_.end(), answer_.bytes.begin(), answer_.bytes.end());
    sent_ += answer_.blocks;
    answer_ = core::TransferAnswer();
  }
  void KeepRoom() {
    room_ = answer_.import;
    host_.insert(host_.end(), answer_.host_blocks.begin(), answer_.host_blocks.end());
    answer_ = core::TransferAnswer();
  }
  void Arrive() {
    const auto block_bytes = static_cast<size_t>(to_.executor().kv_block_bytes());
    for (size_t i = 0; i < host_.size(); ++i) to_.executor().WriteHostBlock(host_[i], bytes_.data() + i * block_bytes);
    core::ImportedSequence imported;
    imported.snapshot = *snapshot_;
    imported.import = room_;
    to_.clock().AdvanceTo(from_.clock().NowNs());  // a clock must not have times before its start
    const DurationNs shift = to_.clock().NowNs() - from_.clock().NowNs();
    core::SequenceSnapshot& s = imported.snapshot;
    for (TimeNs* at : {&s.arrival_ns, &s.last_token_ns, &s.longest_gap_end_ns}) *at += shift;
    for (TimeNs* at : {&s.scheduled_ns, &s.first_token_ns}) *at = *at == 0 ? 0 : std::max<TimeNs>(1, *at + shift);
    auto handle = to_.SubmitImported(*snapshot_->request, std::move(imported));
    if (!handle.ok()) return GiveUp(handle.status());
    arrived_ = *handle;
    paused_ = false;
    Ask(from_, {.kind = core::TransferKind::kLeave});
  }
  void GiveUp(Status why) {
    over_ = true;
    why_ = std::move(why);
    if (answer_.status.ok() && answer_.import != 0) room_ = answer_.import;
    if (room_ != 0 && arrived_ == 0) to_.loop().Transfer({.kind = core::TransferKind::kDrop, .import = room_});
    if (paused_) from_.loop().Transfer({.kind = core::TransferKind::kResume, .handle = handle_});
    if (arrived_ != 0) to_.Cancel(arrived_);  // it ended at the source at the same time
  }

  Harness &from_, &to_;
  const RequestHandle handle_;
  int rounds_;
  const int give_up_at_;  // -1: never
  int commands_ = 0;
  Next next_ = Next::kRound;
  bool waiting_ = false, over_ = false, paused_ = false, asked_for_room_ = false;
  core::TransferAnswer answer_;
  std::optional<core::SequenceSnapshot> snapshot_;
  std::vector<std::byte> bytes_;
  int32_t sent_ = 0;
  core::ImportId room_ = 0;
  std::vector<BlockId> host_;
  RequestHandle arrived_ = 0;
  Status why_;
};

struct Pair {
  Pair(const Workload& w, const SchedulerConfig& names, const std::string& trace) : workload(w) {
    HarnessConfig config = w.config;
    const core::SchedulerLimits limits = config.scheduler.limits;
    config.scheduler = names;
    config.scheduler.limits = limits;
    if (!trace.empty()) config.trace_path = trace + ".a";
    a.emplace(config);
    if (!trace.empty()) config.trace_path = trace + ".b";
    config.executor.fault_seed += 1000;
    b.emplace(config);
  }
  const Workload& workload;
  std::optional<Harness> a, b;
  std::vector<RequestHandle> handles;  // at `a`
  std::vector<std::unique_ptr<Move>> moves;
  std::map<RequestHandle, Move*> moved;
};

// Plays the workload at `a` and migrates running requests at random to `b`, which also gets every third request itself.
std::string PlayPair(Pair* p, uint64_t seed) {
  Rng rng(seed, 77);
  Harness &a = *p->a, &b = *p->b;
  if (!a.scheduler_error().ok()) return a.scheduler_error().ToString();
  const auto& arrivals = p->workload.arrivals;
  size_t next = 0;
  std::vector<size_t> cancels;
  for (int round = 0; round < 30000; ++round) {
    for (; next < arrivals.size() && arrivals[next].at_ns <= a.clock().NowNs(); ++next) {
      auto handle = a.Submit(arrivals[next].request);
      if (handle.ok()) {
        p->handles.push_back(*handle);
        if (arrivals[next].cancel_at_ns > 0) cancels.push_back(next);
      }
      if (next % 3 == 0) (void)b.Submit(arrivals[next].request);
    }
    std::erase_if(cancels, [&](size_t i) {
      if (arrivals[i].cancel_at_ns > a.clock().NowNs() || i >= p->handles.size()) return false;
      a.Cancel(p->handles[i]);
      return true;
    });
    for (const RequestHandle handle : p->handles) {
      if (p->moved.count(handle) != 0 || rng.Uniform() > 0.1) continue;
      const int give_up_at = rng.Uniform() < 0.25 ? static_cast<int>(rng.UniformInt(0, 6)) : -1;
      p->moves.push_back(std::make_unique<Move>(&a, &b, handle, static_cast<int>(rng.UniformInt(0, 3)), give_up_at));
      p->moved[handle] = p->moves.back().get();
    }
    for (const auto& move : p->moves) move->Step();
    for (Harness* h : {&a, &b}) {
      if (std::string broken = h->Settle(); !broken.empty()) return broken;
    }
    bool going = next < arrivals.size();
    for (const auto& move : p->moves) going = going || !move->over();
    const TimeNs now = std::min(a.executor().NextReadyNs(), b.executor().NextReadyNs());
    if (now == kNever && !going) break;
    for (Harness* h : {&a, &b}) {
      const TimeNs ready = h->executor().NextReadyNs();
      TimeNs until = h->clock().NowNs() + kMillisecond / 4;
      if (ready != kNever) until = std::min(until, ready);
      h->clock().AdvanceTo(std::max(until, h->clock().NowNs()));
    }
    if (round == 29999) return "no end";
  }
  for (Harness* h : {&a, &b}) {
    if (!h->loop().idle() || h->loop().live_requests() != 0) return "requests are left";
    if (h->kv().Stats().blocks_in_use != 0) return "KV is still held";
    if (h->kv().Stats().swap_blocks_used != 0) return "host blocks were lost";
    if (!h->CloseTrace().ok()) return "the recording failed";
  }
  return {};
}

struct Counts {
  int64_t moved = 0, moved_blocks = 0, stayed = 0, no_room = 0, recomputed = 0;
};

// Every finished request has all of the model's tokens, at whichever engine it ran.
void ExpectWholeAnswers(Pair* p, Counts* counts) {
  const auto& config = p->workload.config;
  for (const RequestHandle handle : p->handles) {
    const RequestOutput* out = &p->a->outputs().at(handle);
    const Move* move = p->moved.count(handle) != 0 ? p->moved[handle] : nullptr;
    const bool left = out->done_event.finish == FinishReason::kMigrated;
    if (left) {
      ASSERT_NE(move, nullptr);
      ASSERT_NE(move->arrived(), 0u) << "it left the source and did not arrive";
      const auto before = out->choices[0].tokens.size();
      out = &p->b->outputs().at(move->arrived());
      ASSERT_TRUE(out->done);
      ASSERT_GE(out->choices[0].tokens.size(), before);
      ++counts->moved;
      counts->moved_blocks += move->blocks_moved();
      counts->recomputed += out->done_event.recomputed_tokens;
    } else if (move != nullptr) {
      ++counts->stayed;
      counts->no_room += move->why().code() == StatusCode::kResourceExhausted;
    }
    for (size_t choice = 0; choice < out->choices.size(); ++choice) {
      const auto& got = out->choices[choice];
      const auto expected =
          ExpectedOutput(config.executor, *out->request, static_cast<int32_t>(choice), config.model_stop_ids);
      ASSERT_LE(got.tokens.size(), expected.size()) << p->workload.ToString();
      ASSERT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), expected.begin())) << p->workload.ToString();
      const bool whole =
          got.finish == FinishReason::kLength || (got.finish == FinishReason::kStop && got.stop_string < 0);
      if (whole) {
        EXPECT_EQ(got.tokens.size(), expected.size());
      }
      EXPECT_EQ(out->done_event.completion_tokens >= static_cast<int32_t>(got.tokens.size()), true);
    }
  }
}

TEST(MigrationConformance, MigrationDoesNotChangeOutputs) {
  Counts counts;
  for (const auto& preset : core::Presets()) {
    for (uint64_t seed = 0; seed < 24; ++seed) {
      SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed));
      const Workload w =
          MakeWorkload(seed, {.cancels = seed % 3 == 0, .faults = seed % 4 == 1, .drafts = seed % 6 == 2});
      Pair p(w, {.preset = preset.name}, "");
      ASSERT_EQ(PlayPair(&p, seed), "") << w.ToString();
      ExpectWholeAnswers(&p, &counts);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(counts.moved, 1000);
  EXPECT_GT(counts.moved_blocks, 1000);
  EXPECT_GT(counts.stayed, 500);
  EXPECT_GT(counts.no_room, 50) << "too few destinations without room";
}

TEST(MigrationConformance, BothRecordingsReplay) {
  const std::string path = ::testing::TempDir() + "tactus_migration_" + std::to_string(getpid()) + ".trace";
  int64_t moved = 0;
  for (const char* preset : {"sarathi-serve", "vllm", "fastserve", "larry", "trail"}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(std::string(preset) + " seed " + std::to_string(seed));
      const Workload w = MakeWorkload(seed, {.cancels = true, .faults = seed % 2 == 1, .drafts = seed % 3 == 0});
      Pair p(w, {.preset = preset}, path);
      ASSERT_EQ(PlayPair(&p, seed), "") << w.ToString();
      for (const auto& [h, suffix] : {std::pair(&*p.a, ".a"), std::pair(&*p.b, ".b")}) {
        const auto report = core::ReplayTrace(path + suffix);
        ASSERT_TRUE(report.ok()) << report.status().ToString();
        EXPECT_TRUE(report->identical()) << suffix << " differs at step " << report->first_difference;
        const EngineStats stats = h->loop().Stats();
        EXPECT_EQ(report->stats.migrated_in, stats.migrated_in);
        EXPECT_EQ(report->stats.migrated_out, stats.migrated_out);
        EXPECT_EQ(report->stats.swapped_in_blocks, stats.swapped_in_blocks);
        std::remove((path + suffix).c_str());
      }
      moved += p.a->loop().Stats().migrated_out;
    }
  }
  EXPECT_GT(moved, 100);
}

HarnessConfig Roomy() {
  HarnessConfig config;
  config.scheduler.preset = "sarathi-serve";
  config.num_blocks = 64;
  config.swap_blocks = 32;
  config.executor.vocab_size = 64;
  return config;
}

// Runs until the request has `tokens` tokens.
void RunTo(Harness* h, RequestHandle handle, size_t tokens) {
  while (h->outputs().at(handle).choices[0].tokens.size() < tokens) {
    ASSERT_EQ(h->Settle(), "");
    ASSERT_TRUE(h->Advance());
  }
}

void RunMove(Move* move, Harness* a, Harness* b) {
  for (int i = 0; i < 1000 && !move->over(); ++i) {
    move->Step();
    ASSERT_EQ(a->Settle(), "");
    ASSERT_EQ(b->Settle(), "");
    a->Advance();
  }
  ASSERT_TRUE(move->over());
}

// A migrated request recomputes nothing, and its figures continue as without the migration.
TEST(Migration, KeepsFiguresAndRecomputesNothing) {
  Harness a(Roomy()), b(Roomy());
  Request request = MakeRequest(Tokens(1, 30), 40);
  request.slo.tbt_ns = kMillisecond;
  request.stop.stop = {"never"};
  const RequestHandle handle = a.MustSubmit(request);
  RunTo(&a, handle, 10);
  Move move(&a, &b, handle, 2, -1);
  RunMove(&move, &a, &b);
  ASSERT_NE(move.arrived(), 0u) << move.why().ToString();
  ASSERT_EQ(a.Run(), "");
  ASSERT_EQ(b.Run(), "");
  const core::RequestDoneEvent& left = a.outputs().at(handle).done_event;
  const core::RequestDoneEvent& done = b.outputs().at(move.arrived()).done_event;
  EXPECT_EQ(left.finish, FinishReason::kMigrated);
  EXPECT_EQ(done.finish, FinishReason::kLength);
  EXPECT_EQ(done.completion_tokens, 40);
  EXPECT_EQ(done.gaps, 39);
  EXPECT_EQ(done.recomputed_tokens, 0);
  EXPECT_EQ(done.preemptions, 0) << "a migration is no preemption";
  EXPECT_GT(done.late_gaps, 5) << "gaps from before the migration are lost";
  EXPECT_EQ(b.loop().Stats().prompt_tokens, 0) << "the prompt counts where it was computed";
  EXPECT_EQ(b.plans().front().substr(0, 2), "0:");
  EXPECT_NE(b.plans().front().find("in"), std::string::npos)
      << "its first step there swaps nothing in: " << b.plans().front();
  EXPECT_EQ(a.loop().Stats().finished_error, 0);
  EXPECT_EQ(a.kv().Stats().blocks_in_use, 0);
}

// Leading blocks cached at the destination are shared instead of copied in.
TEST(Migration, SharesThePrefixCachedAtTheDestination) {
  Harness a(Roomy()), b(Roomy());
  const auto prompt = Tokens(2, 32);
  b.MustSubmit(MakeRequest(prompt, 4));
  ASSERT_EQ(b.Run(), "");
  const RequestHandle handle = a.MustSubmit(MakeRequest(prompt, 20));
  RunTo(&a, handle, 6);
  Move move(&a, &b, handle, 1, -1);
  RunMove(&move, &a, &b);
  ASSERT_NE(move.arrived(), 0u) << move.why().ToString();
  ASSERT_EQ(b.Run(), "");
  EXPECT_LE(b.kv().Stats().swapped_in_blocks, 3);
  EXPECT_EQ(b.outputs().at(move.arrived()).choices[0].tokens,
            ExpectedOutput(Roomy().executor, MakeRequest(prompt, 20), 0, {}));
}

// A paused sequence whose migration fails continues at the source, with nothing lost.
TEST(Migration, AbortedMigrationContinuesAtTheSource) {
  for (int give_up_at = 0; give_up_at < 8; ++give_up_at) {
    SCOPED_TRACE(give_up_at);
    Harness a(Roomy()), b(Roomy());
    const RequestHandle handle = a.MustSubmit(MakeRequest(Tokens(3, 20), 30));
    RunTo(&a, handle, 5);
    Move move(&a, &b, handle, 1, give_up_at);
    RunMove(&move, &a, &b);
    ASSERT_EQ(a.Run(), "");
    ASSERT_EQ(b.Run(), "");
    if (move.arrived() != 0) continue;
    EXPECT_EQ(a.outputs().at(handle).choices[0].tokens,
              ExpectedOutput(Roomy().executor, MakeRequest(Tokens(3, 20), 30), 0, {}));
    EXPECT_EQ(b.kv().Stats().swap_blocks_used, 0);
    EXPECT_EQ(b.loop().Stats().migrated_in, 0);
  }
}

TEST(Migration, UnmovableRequestsAreRefusedAndContinue) {
  Harness a(Roomy());
  Request two = MakeRequest(Tokens(4, 8), 8);
  two.n = 2;
  const RequestHandle several = a.MustSubmit(two);
  Request echo = MakeRequest(Tokens(5, 8), 8);
  echo.prompt_logprobs = true;
  const RequestHandle echoed = a.MustSubmit(echo);
  std::vector<Status> said;
  for (const RequestHandle handle : {several, echoed, RequestHandle{99}}) {
    a.loop().Transfer({.kind = core::TransferKind::kPause,
                       .handle = handle,
                       .answer = [&](core::TransferAnswer answer) { said.push_back(answer.status); }});
  }
  ASSERT_EQ(a.Run(), "");
  ASSERT_EQ(said.size(), 3u);
  EXPECT_NE(said[0].message().find("2 choices"), std::string::npos) << said[0].ToString();
  EXPECT_NE(said[1].message().find("logprobs"), std::string::npos) << said[1].ToString();
  EXPECT_EQ(said[2].code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tactus
