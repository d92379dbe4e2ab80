// The loop on its own thread: submits, cancels and statistics from several threads (also run under TSan), and no
// allocation in the steady state.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include "base/clock.h"
#include "core/loop/harness.h"
#include "core/predict/predictor.h"
#include "core/trace/replay.h"
#include "time_limit.h"

namespace {
std::atomic<int64_t> g_allocations{0};
thread_local bool t_counting = false;
void* Counted(std::size_t size) {
  if (t_counting) g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) {
  return Counted(size);
}
void* operator new[](std::size_t size) {
  return Counted(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}

namespace tactus::core {
namespace {

class Counter final : public EventSink {
 public:
  void OnStep(const StepEvents& events) override {
    tokens.fetch_add(static_cast<int64_t>(events.tokens.size()), std::memory_order_relaxed);
    done.fetch_add(static_cast<int64_t>(events.done.size()), std::memory_order_release);
  }
  std::atomic<int64_t> tokens{0}, done{0};
};

struct Rig {
  explicit Rig(const std::string& preset, int32_t max_num_seqs = 16, int32_t max_tokens = 64,
               const std::string& trace_path = {}) {
    ReplicaConfig config;
    SchedulerConfig& sc = config.scheduler;
    sc.preset = preset;
    sc.limits.max_num_seqs = max_num_seqs;
    sc.limits.max_model_len = max_tokens + 64;
    sc.limits.blocks_total = max_num_seqs * (sc.limits.max_model_len / 16 + 1);
    config.max_queue = 512;
    if (*Scheduler::PredictorFor(WithSlots(config)) == "oracle") sc.preset = "trail";  // true lengths are unknown here
    replica = std::move(Replica::Create(std::move(config), {})).value();
    ReplicaParts parts;
    parts.executor = &executor;
    parts.clock = &SystemClock();
    parts.sink = &sink;
    if (!trace_path.empty()) parts.tap = RecordTo(trace_path);
    EXPECT_TRUE(replica->Connect(std::move(parts)).ok());
    loop = &replica->loop();
  }
  Result<RequestHandle> Submit(uint64_t seed, int64_t max_tokens) {
    auto request = std::make_shared<Request>(testing::MakeRequest(testing::Tokens(seed, 20), max_tokens));
    TACTUS_ASSIGN_OR_RETURN(PreparedRequest prepared, PrepareRequest(std::move(request), replica->limits()));
    return loop->Submit(std::move(prepared));
  }
  // For Scheduler::PredictorFor, before the replica is created.
  static SchedulerConfig WithSlots(const ReplicaConfig& config) {
    SchedulerConfig sc = config.scheduler;
    sc.limits.slot_capacity = config.slots();
    return sc;
  }
  NullExecutor executor;
  Counter sink;
  std::unique_ptr<Replica> replica;
  StepLoop* loop = nullptr;
};

TEST(LoopThread, ManyThreadsSubmitCancelAndRead) {
  const test::TimeLimit limit("an accepted request never ended, or the loop does not stop");
  Rig rig("sarathi-serve");
  std::thread engine([&] { rig.loop->Run(); });
  std::atomic<int64_t> accepted{0}, refused{0};
  std::vector<std::thread> clients;
  for (uint64_t c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (uint64_t i = 0; i < 200; ++i) {
        const auto handle = rig.Submit(c * 1000 + i, static_cast<int64_t>(1 + i % 60));
        if (!handle.ok()) {
          ++refused;
          EXPECT_EQ(handle.status().code(), StatusCode::kResourceExhausted);
          std::this_thread::yield();
          continue;
        }
        ++accepted;
        if (i % 3 == 0) rig.loop->Cancel(*handle);
        const EngineStats stats = rig.loop->Stats();
        EXPECT_LE(stats.kv_blocks_in_use, stats.kv_blocks_total);
        EXPECT_LE(stats.running, 16);
        for (const RequestTimeline& t : rig.loop->Timelines({.handle = *handle}))
          EXPECT_EQ(testing::BrokenTimeline(t), "");
      }
    });
  }
  for (std::thread& t : clients) t.join();
  while (rig.loop->live_requests() > 0) std::this_thread::yield();
  rig.loop->Stop();
  engine.join();
  EXPECT_EQ(rig.sink.done.load(), accepted.load());
  EXPECT_GT(accepted.load(), 0);
  EXPECT_TRUE(rig.loop->idle());
  EXPECT_EQ(rig.loop->CheckIntegrity(), "");
}

// Runs on real threads and a real clock all differ, but a recording of one replays identically.
TEST(LoopThread, RecordedLiveRunReplays) {
  const test::TimeLimit limit("an accepted request never ended, or the loop does not stop");
  const std::string path = ::testing::TempDir() + "tactus_live.trace";
  Rig rig("sarathi-serve", 8, 64, path);
  std::thread engine([&] { rig.loop->Run(); });
  std::vector<std::thread> clients;
  for (uint64_t c = 0; c < 3; ++c) {
    clients.emplace_back([&, c] {
      for (uint64_t i = 0; i < 100; ++i) {
        const auto handle = rig.Submit(c * 7 + i % 5, static_cast<int64_t>(1 + i % 60));  // prompts repeat
        if (handle.ok() && i % 4 == 0) rig.loop->Cancel(*handle);
      }
    });
  }
  for (std::thread& t : clients) t.join();
  while (rig.loop->live_requests() > 0) std::this_thread::yield();
  rig.loop->Stop();
  engine.join();
  ASSERT_TRUE(rig.replica->CloseTap().ok());
  const auto report = ReplayTrace(path);
  std::remove(path.c_str());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->complete);
  EXPECT_TRUE(report->identical()) << report->first_difference;
  EXPECT_EQ(report->plan_hash_replayed, rig.loop->plan_hash());
  EXPECT_GT(report->steps_replayed, 100);
}

TEST(LoopThread, StopWakesASleepingLoop) {
  const test::TimeLimit limit("the loop was not woken by a request or by Stop");
  Rig rig("vllm");
  std::thread engine([&] { rig.loop->Run(); });
  ASSERT_TRUE(rig.Submit(1, 5).ok());
  while (rig.loop->live_requests() > 0) std::this_thread::yield();
  rig.loop->Stop();
  engine.join();
  EXPECT_EQ(rig.sink.tokens.load(), 5);
}

// With every scheduler, neither planning nor committing allocates while nothing arrives or ends, except for one copy of
// the output when a preempted sequence restarts (SequenceStart::output).
TEST(LoopThread, SteadyStateDoesNotAllocate) {
  for (const auto& preset : Presets()) {
    Rig rig(preset.name, 16, 400);
    for (uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(rig.Submit(i, 400).ok());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(rig.loop->RunOnce());
    const int64_t preemptions = rig.loop->Stats().preemptions;
    g_allocations = 0;
    t_counting = true;
    for (int i = 0; i < 300; ++i) rig.loop->RunOnce();
    t_counting = false;
    EXPECT_LE(g_allocations.load(), rig.loop->Stats().preemptions - preemptions) << preset.name;
    EXPECT_GT(rig.loop->Stats().generation_tokens, 300) << preset.name;
  }
}

// The loop's calls for a sequence that is left out, cut into chunks and preempted again and again.
TEST(SteadyState, TimelinesDoNotAllocateWithoutArrivalsAndEnds) {
  class Sequences final : public Timelines::Sequences {
   public:
    Timelines::Running RunningOf(SlotId) const override { return running; }
    Timelines::Running running;
  } sequences;
  Timelines timelines(4, Timelines::kKeptSequences, &sequences);
  PreparedRequest request;
  request.request = std::make_shared<const Request>();
  request.handle = 1;
  request.arrival_ns = 0;
  const auto pass = [&](TimeNs at_ns, auto what) {
    const Timelines::Pass one(&timelines, at_ns, at_ns);
    what();
  };
  pass(1, [&] { timelines.SequenceArrived(timelines.Arrived(request), 2, 0, false, false); });
  g_allocations = 0;
  t_counting = true;
  for (TimeNs at = 2; at < 100000; at += 5) {
    const SequenceChange queued{2, ChangeKind::kQueued};
    pass(at, [&] { timelines.PlanBegins({&queued, 1}); });
    pass(at + 1, [&] { timelines.Started(2, 0, at > 2); });
    pass(at + 2, [&] { timelines.ChunkEnded(2, {.slot = 2, .count = 3, .sample = true}, 9); });
    sequences.running = {.last_step = at + 2, .last_token_ns = at + 2};
    pass(at + 3, [&] { timelines.Resumed(2); });
    pass(at + 4, [&] { timelines.Preempted(2, 5); });
  }
  t_counting = false;
  EXPECT_EQ(g_allocations.load(), 0);
  const RequestTimeline shown = timelines.Find({.handle = 1}).at(0);
  EXPECT_EQ(shown.preemptions, 20000);
  EXPECT_EQ(testing::BrokenTimeline(shown), "");
}

}  // namespace
}  // namespace tactus::core
