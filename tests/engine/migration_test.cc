// Sequences that move between two engines with a real (dummy) model, in one process: their tokens equal those of a
// sequence that stayed, bit for bit, for all kernels, KV formats and loads.
#include "engine/facade_fixture.h"

#include "compute/exec/make_backend.h"
#include "compute/kernels/ops.h"
#include "compute/model/loader.h"
#include "engine/create_engine.h"
#include "support/slow_backend.h"
#include "tactus/migration.h"
#include "time_limit.h"

namespace tactus::engine {
namespace {

constexpr const char* kSecret = "a secret of enough bytes";

EngineOptions Movable(EngineOptions o) {
  o.kv_secret = kSecret;
  o.swap_space.bytes = 1 << 20;
  return o;
}

// Moves the sequence in `rounds` reads of up to `blocks` blocks, as a server does over the network.
Result<RequestHandle> MoveTo(Engine& from, Engine& to, RequestHandle handle, std::shared_ptr<ResponseSink> sink,
                             int rounds = 3, int32_t blocks = 4) {
  MigrationPort &a = *from.migration(), &b = *to.migration();
  TACTUS_RETURN_IF_ERROR(CheckSameFormat(b.format(), a.format()));
  uint64_t reservation = 0;
  int32_t sent = 0;
  const auto ship = [&]() -> Result<int32_t> {
    TACTUS_ASSIGN_OR_RETURN(const auto kv, a.Read(handle, sent, blocks, kNoLimitNs));
    if (kv.blocks == 0) return 0;
    TACTUS_ASSIGN_OR_RETURN(reservation, b.Reserve(reservation, kv.blocks, kNoLimitNs));
    TACTUS_RETURN_IF_ERROR(b.Write(reservation, sent, kv.bytes));
    sent += kv.blocks;
    return kv.blocks;
  };
  const auto give_up = [&](const Status& why) {
    a.Resume(handle);
    b.DropReservation(reservation);
    return why;
  };
  for (int i = 0; i < rounds; ++i) {
    const auto shipped = ship();
    if (!shipped.ok()) return give_up(shipped.status());
  }
  auto moving = a.Pause(handle, kNoLimitNs);
  if (!moving.ok()) {
    b.DropReservation(reservation);
    return moving.status();
  }
  const int32_t b_size = a.format().block_size;
  while (sent < (moving->computed_tokens + b_size - 1) / b_size) {
    const auto shipped = ship();
    if (!shipped.ok()) return give_up(shipped.status());
    if (*shipped == 0) return give_up(Internal("a paused sequence has blocks that cannot be read"));
  }
  auto arrived = b.Arrive(reservation, std::move(*moving), std::move(sink));
  if (!arrived.ok()) return give_up(arrived.status());
  TACTUS_RETURN_IF_ERROR(a.Leave(handle, kNoLimitNs));
  return arrived;
}

class MigrationTest : public FacadeTest {
 protected:
  // Steps take a millisecond longer, so that no answer ends before it has moved.
  static std::unique_ptr<Engine> MakeSlow(const EngineOptions& options) {
    auto description = compute::DescribeModel(options.model);
    EXPECT_TRUE(description.ok()) << description.status().ToString();
    auto backend = compute::MakeBackend(options, *description, SystemClock());
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    EngineParts parts{.clock = &SystemClock(), .stopwatch = nullptr, .backend = nullptr};
    parts.backend = std::make_unique<SlowBackend>(std::move(*backend), std::chrono::milliseconds(1));
    auto engine = CreateEngine(options, {}, std::move(parts));
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  static Request Sampled(const Engine& engine, int i, int64_t tokens) {
    Request r = Ask(engine, "Sequence " + std::to_string(i * i) + " begins here and goes on for a while.", tokens);
    r.sampling.temperature = 1.2f;
    r.sampling.frequency_penalty = 0.6f;
    r.sampling.presence_penalty = 0.3f;
    r.sampling.repetition_penalty = 1.1f;
    r.sampling.seed = static_cast<uint64_t>(100 + i);
    r.sampling.has_seed = true;
    r.sampling.logprobs = 2;
    return r;
  }
};

// The statistics of a pass are published at its end, after its events.
void AwaitNothingHeld(const Engine& engine) {
  const auto held = [&] {
    const EngineStats stats = engine.Stats();
    return stats.kv_blocks_in_use + stats.swap_blocks_used;
  };
  for (int i = 0; i < 3000 && held() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(held(), 0) << "KV or host blocks are still held";
}

void ExpectSame(const Collector& stayed, const Collector& moved) {
  const auto &a = stayed.choices[0], &b = moved.choices[0];
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.finish, b.finish);
  EXPECT_EQ(a.stop_string, b.stop_string);
  EXPECT_EQ(stayed.usage.completion_tokens, moved.usage.completion_tokens);
  EXPECT_EQ(stayed.usage.prompt_tokens, moved.usage.prompt_tokens);
}

TEST_F(MigrationTest, AMovedSequenceHasTheTokensOfOneThatStayed) {
  const test::TimeLimit limit("a move does not come to its end");
  std::vector<std::string> kernels;
  for (const char* name : {"scalar", "avx2", "avxvnni", "avx512", "amx"}) {
    if (compute::SelectOps(name) != nullptr) kernels.push_back(name);
  }
  ASSERT_FALSE(kernels.empty());
  for (const std::string& name : kernels) {
    for (const char* kv : {"bfloat16", "int8", "float32"}) {
      if (name != kernels.back() && std::string(kv) != "bfloat16") continue;
      SCOPED_TRACE(name + " " + kv);
      EngineOptions o = Movable(Options());
      o.kernels = name;
      o.kv_cache_dtype = kv;
      if (o.kv_cache_dtype == "float32") o.dtype = "float32";
      auto a = MakeSlow(o), b = Make(o);
      ASSERT_TRUE(a != nullptr && b != nullptr);
      for (const bool greedy : {true, false}) {
        Request request = Sampled(*a, 3, 120);
        if (greedy) request.sampling.temperature = 0;
        const auto stayed = Run(*b, request);
        auto here = std::make_shared<Collector>(1), there = std::make_shared<Collector>(1);
        const auto handle = a->Submit(request, here);
        ASSERT_TRUE(handle.ok());
        here->WaitForTokens(20);
        const auto arrived = MoveTo(*a, *b, *handle, there);
        ASSERT_TRUE(arrived.ok()) << arrived.status().ToString();
        here->Wait();
        there->Wait();
        EXPECT_EQ(here->choices[0].finish, FinishReason::kMigrated);
        EXPECT_LT(here->choices[0].tokens.size(), 120u) << "it was over before it moved";
        ExpectSame(*stayed, *there);
        // Its logprobs after the move equal those of the sequence that stayed.
        const auto &all = stayed->choices[0].logprobs, &rest = there->choices[0].logprobs;
        ASSERT_LE(rest.size(), all.size());
        for (size_t i = 0; i < rest.size(); ++i) {
          const auto& want = all[all.size() - rest.size() + i];
          ASSERT_EQ(rest[i].size(), want.size());
          for (size_t k = 0; k < want.size(); ++k) {
            EXPECT_EQ(rest[i][k].token, want[k].token);
            EXPECT_EQ(rest[i][k].logprob, want[k].logprob);
          }
        }
      }
      AwaitNothingHeld(*a);
      AwaitNothingHeld(*b);
      EXPECT_EQ(b->Stats().migrated_in, 2);
      EXPECT_EQ(b->Stats().recomputed_tokens, 0);
      EXPECT_GT(b->Stats().swapped_in_blocks, 0);
      EXPECT_EQ(a->Stats().migrated_out, 2);
    }
  }
}

// Moves back and forth several times, with other sequences on both engines.
TEST_F(MigrationTest, SequencesThatMoveUnderLoadKeepTheirTokens) {
  const test::TimeLimit limit("moves under load do not come to their end");
  EngineOptions o = Movable(Options());
  o.max_model_len = 1024;
  auto a = MakeSlow(o), b = MakeSlow(o);
  constexpr int kCount = 5;
  std::vector<std::shared_ptr<Collector>> stayed;
  {
    auto alone = Make(o);
    for (int i = 0; i < kCount; ++i) stayed.push_back(Run(*alone, Sampled(*alone, i, 300)));
  }
  std::vector<std::shared_ptr<Collector>> at;
  std::vector<RequestHandle> handles;
  for (int i = 0; i < kCount; ++i) {
    at.push_back(std::make_shared<Collector>(1));
    const auto handle = a->Submit(Sampled(*a, i, 300), at.back());
    ASSERT_TRUE(handle.ok());
    handles.push_back(*handle);
  }
  Engine *from = a.get(), *to = b.get();
  int moved = 0;
  for (int trip = 0; trip < 4; ++trip, std::swap(from, to)) {
    for (int i = 0; i < kCount; ++i) {
      auto there = std::make_shared<Collector>(1);
      at[static_cast<size_t>(i)]->WaitForTokens(static_cast<size_t>(20 + 40 * trip));
      const auto arrived = MoveTo(*from, *to, handles[static_cast<size_t>(i)], there, 2, 2);
      if (!arrived.ok()) {
        ASSERT_EQ(arrived.status().code(), StatusCode::kNotFound) << arrived.status().ToString();
        continue;  // it has ended
      }
      ++moved;
      at[static_cast<size_t>(i)] = there;
      handles[static_cast<size_t>(i)] = *arrived;
    }
  }
  EXPECT_GE(moved, kCount);
  for (size_t i = 0; i < kCount; ++i) {
    at[i]->Wait();
    if (at[i]->choices[0].finish != FinishReason::kMigrated) ExpectSame(*stayed[i], *at[i]);
  }
}

// The first half of a stop string was generated before the move and the second after it; the withheld text moves too.
TEST_F(MigrationTest, AStopStringAcrossAMoveEndsTheText) {
  const test::TimeLimit limit("a stop string is not found");
  EngineOptions o = Movable(Options());
  auto a = MakeSlow(o), b = Make(o);
  Request request = Sampled(*a, 1, 100);
  const auto free = Run(*a, request);
  const std::string& text = free->choices[0].text;
  ASSERT_GT(text.size(), 60u);
  request.stop.stop = {text.substr(text.size() / 2, 12)};
  const auto stayed = Run(*b, request);
  auto here = std::make_shared<Collector>(1), there = std::make_shared<Collector>(1);
  const auto handle = a->Submit(request, here);
  ASSERT_TRUE(handle.ok());
  here->WaitForTokens(4);
  const auto arrived = MoveTo(*a, *b, *handle, there, 1);
  ASSERT_TRUE(arrived.ok()) << arrived.status().ToString();
  there->Wait();
  ExpectSame(*stayed, *there);
}

TEST_F(MigrationTest, APausedSequenceIsResumedWhereItsMoveFails) {
  const test::TimeLimit limit("a paused sequence does not go on");
  EngineOptions o = Movable(Options());
  auto a = MakeSlow(o);
  Request request = Sampled(*a, 2, 200);
  const auto stayed = Run(*a, request);
  auto here = std::make_shared<Collector>(1);
  const auto handle = a->Submit(request, here);
  ASSERT_TRUE(handle.ok());
  here->WaitForTokens(5);
  for (int i = 0; i < 5; ++i) {
    const auto paused = a->migration()->Pause(*handle, kNoLimitNs);
    ASSERT_TRUE(paused.ok()) << paused.status().ToString();
    EXPECT_FALSE(a->migration()->Pause(*handle, kNoLimitNs).ok()) << "paused twice";
    a->migration()->Resume(*handle);
  }
  here->Wait();
  ExpectSame(*stayed, *here);
  EXPECT_EQ(a->migration()->Pause(*handle, kNoLimitNs).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(a->migration()->Leave(*handle, kNoLimitNs).code(), StatusCode::kNotFound);
}

TEST_F(MigrationTest, ACancelDuringAMoveEndsTheRequestOnce) {
  const test::TimeLimit limit("a cancelled move does not end");
  auto a = Make(Movable(LongOptions()));
  auto here = std::make_shared<Collector>(1);
  const auto handle = a->Submit(Ask(*a, "for ever", 100000), here);
  ASSERT_TRUE(handle.ok());
  here->WaitForTokens(20);
  const auto moving = a->migration()->Pause(*handle, kNoLimitNs);
  ASSERT_TRUE(moving.ok());
  a->Cancel(*handle);
  here->Wait();
  EXPECT_EQ(here->choices[0].finish, FinishReason::kCancelled);
  EXPECT_FALSE(a->migration()->Read(*handle, 0, 1, kNoLimitNs).ok());
  EXPECT_EQ(a->migration()->Leave(*handle, kNoLimitNs).code(), StatusCode::kNotFound);
  AwaitNothingHeld(*a);
}

TEST_F(MigrationTest, ADestinationWithoutRoomRefusesTheMove) {
  const test::TimeLimit limit("a full destination does not answer");
  EngineOptions o = Movable(Options());
  auto a = MakeSlow(o);
  o.swap_space.bytes = 8 << 10;
  auto little = Make(o);
  o = Movable(Options());
  o.kv_cache_memory.bytes = 128 << 10;
  auto full = MakeSlow(o);
  auto busy = std::make_shared<Collector>(1);
  ASSERT_TRUE(full->Submit(Ask(*full, std::string(300, 'x'), 200), busy).ok());
  busy->WaitForTokens(1);
  auto here = std::make_shared<Collector>(1);
  const auto handle = a->Submit(Ask(*a, std::string(200, 'y'), 300), here);
  ASSERT_TRUE(handle.ok());
  here->WaitForTokens(1);
  const auto no_arena = MoveTo(*a, *little, *handle, std::make_shared<Collector>(1), 1, 32);
  EXPECT_EQ(no_arena.status().code(), StatusCode::kResourceExhausted) << no_arena.status().ToString();
  EXPECT_NE(no_arena.status().message().find("--swap-space"), std::string::npos) << no_arena.status().ToString();
  const auto no_kv = full->migration()->Reserve(0, 31, kNoLimitNs);
  EXPECT_EQ(no_kv.status().code(), StatusCode::kResourceExhausted) << no_kv.status().ToString();
  EXPECT_NE(no_kv.status().message().find("31 KV blocks are needed"), std::string::npos) << no_kv.status().ToString();
  here->Wait();
  EXPECT_EQ(here->choices[0].finish, FinishReason::kLength);
  AwaitNothingHeld(*little);
}

TEST_F(MigrationTest, AnotherFormatIsRefusedByName) {
  EngineOptions o = Movable(Options());
  auto a = Make(o);
  const auto refused = [&](EngineOptions other) {
    auto b = Make(other);
    return CheckSameFormat(b->migration()->format(), a->migration()->format()).message();
  };
  EngineOptions other = o;
  other.kv_cache_dtype = "int8";
  EXPECT_NE(refused(other).find("KV dtype"), std::string::npos) << refused(other);
  other = o;
  other.block_size = 32;
  EXPECT_NE(refused(other).find("block size: here '32', there '16'"), std::string::npos) << refused(other);
  other = o;
  other.served_model_name = {"another"};
  EXPECT_NE(refused(other).find("model: here 'another'"), std::string::npos) << refused(other);
  other = o;
  other.seed = 2;
  EXPECT_NE(refused(other).find("weights"), std::string::npos) << refused(other);
  EXPECT_EQ(refused(o), "");
}

TEST_F(MigrationTest, WithoutASecretNothingMoves) {
  EXPECT_EQ(Make(Options())->migration(), nullptr);
}

TEST_F(MigrationTest, ARoomThatDidNotGrowInTimeIsDropped) {
  auto b = MakeSlow(Movable(Options()));
  auto busy = std::make_shared<Collector>(1);  // a reservation grows only after the steps in flight have ended
  const auto handle = b->Submit(Ask(*b, "hello", 400), busy);
  ASSERT_TRUE(handle.ok()) << handle.status().ToString();
  MigrationPort& port = *b->migration();
  const std::string block(static_cast<size_t>(port.format().block_bytes), 'x');
  bool late = false;
  for (int i = 0; i < 1000 && !late; ++i) {
    const auto reservation = port.Reserve(0, 2, kNoLimitNs);
    ASSERT_TRUE(reservation.ok()) << reservation.status().ToString();
    const auto grown = port.Reserve(*reservation, 1, 0);
    late = grown.status().code() == StatusCode::kDeadlineExceeded;
    if (late) {
      EXPECT_EQ(port.Write(*reservation, 0, block).code(), StatusCode::kNotFound);
      EXPECT_EQ(port.Reserve(*reservation, 1, kNoLimitNs).status().code(), StatusCode::kNotFound);
    }
    port.DropReservation(*reservation);
  }
  EXPECT_TRUE(late) << "the engine always answered at once";
  b->Cancel(*handle);
  AwaitNothingHeld(*b);
}

// Input from another process is not trusted.
TEST_F(MigrationTest, AnInvalidSequenceIsRefused) {
  auto b = Make(Movable(Options()));
  MigrationPort& port = *b->migration();
  MovingSequence good;
  good.request = Ask(*b, "hello", 10);
  const auto refused = [&](const std::function<void(MovingSequence*)>& spoil) {
    MovingSequence moving = good;
    spoil(&moving);
    const auto arrived = port.Arrive(0, std::move(moving), std::make_shared<Collector>(1));
    return arrived.ok() ? std::string("taken") : arrived.status().message();
  };
  EXPECT_NE(refused([](auto* m) { m->computed_tokens = 5; }).find("there is room for 0"), std::string::npos);
  EXPECT_NE(refused([](auto* m) { m->computed_tokens = -5; }), "taken");
  EXPECT_NE(refused([](auto* m) { m->output.assign(10, 1); }).find("cannot go on"), std::string::npos);
  EXPECT_NE(refused([](auto* m) { m->request.n = 2; }).find("2 choices"), std::string::npos);
  EXPECT_NE(refused([](auto* m) { m->request.prompt = nullptr; }), "taken");
  EXPECT_NE(refused([](auto* m) { m->output = {1 << 30}; }).find("vocabulary"), std::string::npos);
  EXPECT_NE(refused([](auto* m) { m->request.stop.max_tokens = 100000; }), "taken");
  const auto reservation = port.Reserve(0, 2, kNoLimitNs);
  ASSERT_TRUE(reservation.ok());
  EXPECT_FALSE(port.Write(*reservation, 0, "too short").ok());
  const std::string block(static_cast<size_t>(port.format().block_bytes), 'x');
  EXPECT_TRUE(port.Write(*reservation, 1, block).ok());
  EXPECT_FALSE(port.Write(*reservation, 2, block).ok()) << "outside its reservation";
  EXPECT_FALSE(port.Write(*reservation, -1, block).ok());
  port.DropReservation(*reservation);
  EXPECT_FALSE(port.Write(*reservation, 0, block).ok()) << "its reservation is gone";
  AwaitNothingHeld(*b);
}

}  // namespace
}  // namespace tactus::engine
