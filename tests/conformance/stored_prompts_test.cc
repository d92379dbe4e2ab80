// Prompts whose leading blocks are stored on disk, with the fake executor: a block read from the prefix cache under a
// key has that key's KV, restored blocks are as good as computed ones, and blocks that are missing, late or fewer than
// expected are computed. Every preset, pipelines, drafts, swap, cancels, executor errors; the recordings replay.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "base/rng.h"
#include "conformance/workload.h"
#include "core/trace/replay.h"

namespace tactus::stored_prompts_test {
namespace {

using testing::ExpectedOutput;
using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::MakeWorkload;
using testing::RequestOutput;
using testing::Tokens;
using testing::Workload;

using Disk = std::map<Hash128, std::vector<std::byte>>;

struct Counts {
  int64_t fetched = 0, partly = 0, late = 0, cached_tokens = 0, disk_tokens = 0, stored = 0;
};

// Acts as the engine's storage threads, sequentially: stores new blocks and restores stored ones.
class Store {
 public:
  Store(Disk* disk, Harness* h, uint64_t seed, Counts* counts)
      : disk_(*disk), h_(*h), rng_(seed, 99), counts_(*counts) {
    h->prepare = [this](core::PreparedRequest* p) {
      stored_.clear();
      if (!p->has_keys) return;
      const std::vector<Hash128>& keys = p->choices[0].keys;
      const auto shareable = static_cast<size_t>((p->prompt_tokens - 1) / h_.kv().block_size());
      for (size_t i = 0; i < std::min(shareable, keys.size()) && disk_.count(keys[i]) != 0; ++i)
        stored_.push_back(keys[i]);
      stored_.resize(std::min(stored_.size(), static_cast<size_t>(h_.kv().swap_blocks_total())));
      p->stored_blocks = static_cast<int32_t>(stored_.size());
    };
  }
  void Submitted(RequestHandle handle) {
    if (stored_.empty()) return;
    waits_.push_back({handle, h_.clock().NowNs() + 20 * kMillisecond});
    core::TransferCommand reserve{.kind = core::TransferKind::kReserve, .handle = handle};
    reserve.blocks = static_cast<int32_t>(stored_.size());
    reserve.answer = [this, handle, keys = stored_](core::TransferAnswer answer) {
      if (answer.status.ok()) jobs_.push_back({handle, keys, answer.import, std::move(answer.host_blocks)});
    };
    h_.loop().Transfer(std::move(reserve));
  }
  void Step() {
    if (!asked_) {
      asked_ = true;
      core::TransferCommand read{.kind = core::TransferKind::kReadEntered};
      read.blocks = 3;
      read.wanted = [this](const Hash128& key) { return disk_.count(key) == 0; };
      read.answer = [this](core::TransferAnswer answer) {
        asked_ = false;
        Keep(answer);
      };
      h_.loop().Transfer(std::move(read));
    }
    if (!jobs_.empty() && rng_.Uniform() < 0.5) {
      const Job job = std::move(jobs_.front());
      jobs_.erase(jobs_.begin());
      Bring(job);
    }
    std::erase_if(waits_, [this](const Wait& wait) {
      if (wait.end_ns > h_.clock().NowNs()) return false;
      Tell(wait.handle, 0, 0, CacheEnd::kLate);
      return true;
    });
  }
  bool busy() const { return !jobs_.empty() || !waits_.empty(); }
  void Keep(const core::TransferAnswer& answer) {
    const auto size = static_cast<std::ptrdiff_t>(h_.executor().kv_block_bytes());
    for (size_t i = 0; i < answer.keys.size(); ++i) {
      const auto begin = answer.bytes.begin() + static_cast<std::ptrdiff_t>(i) * size;
      std::vector<std::byte> bytes(begin, begin + size);
      const auto [at, is_new] = disk_.try_emplace(answer.keys[i], bytes);
      EXPECT_TRUE(is_new || at->second == bytes) << "one key has two different blocks";
      ++counts_.stored;
    }
  }

 private:
  struct Job {
    RequestHandle handle = 0;
    std::vector<Hash128> keys;
    core::ImportId reservation = 0;
    std::vector<BlockId> host;
  };
  struct Wait {
    RequestHandle handle = 0;
    TimeNs end_ns = 0;
  };
  void Bring(const Job& job) {
    ASSERT_EQ(job.host.size(), job.keys.size());
    auto blocks = static_cast<int32_t>(job.keys.size());
    // The blocks after these are damaged.
    if (rng_.Uniform() < 0.2) blocks = static_cast<int32_t>(rng_.UniformInt(0, blocks));
    const bool all = blocks == static_cast<int32_t>(job.keys.size());
    for (size_t i = 0; i < static_cast<size_t>(blocks); ++i)
      h_.executor().WriteHostBlock(job.host[i], disk_.at(job.keys[i]).data());
    ++(all ? counts_.fetched : counts_.partly);
    Tell(job.handle, job.reservation, blocks, all ? CacheEnd::kUnknown : CacheEnd::kDamaged);
  }
  void Tell(RequestHandle handle, core::ImportId reservation, int32_t blocks, CacheEnd end) {
    core::TransferCommand fetched{.kind = core::TransferKind::kFetched, .handle = handle, .import = reservation};
    fetched.blocks = blocks;
    fetched.end = end;
    h_.loop().Transfer(std::move(fetched));
  }

  Disk& disk_;
  Harness& h_;
  Rng rng_;
  Counts& counts_;
  std::vector<Hash128> stored_;  // of the request being submitted
  std::vector<Job> jobs_;
  std::vector<Wait> waits_;
  bool asked_ = false;
};

std::string Play(const Workload& w, const char* preset, uint64_t seed, Disk* disk, Counts* counts,
                 const std::string& trace, EngineStats* stats) {
  HarnessConfig config = w.config;
  const core::SchedulerLimits limits = config.scheduler.limits;
  config.scheduler = {.preset = preset};
  config.scheduler.limits = limits;
  config.trace_path = trace;
  config.list_entered = true;
  config.import_blocks = std::vector<int64_t>{1, 4, 40}[seed % 3];
  Harness h(config);
  if (!h.scheduler_error().ok()) return h.scheduler_error().ToString();
  Store store(disk, &h, seed, counts);
  std::vector<std::pair<TimeNs, RequestHandle>> cancels;
  size_t next = 0;
  for (int round = 0;; ++round) {
    if (round == 30000) return "no end";
    for (; next < w.arrivals.size() && w.arrivals[next].at_ns <= h.clock().NowNs(); ++next) {
      const auto handle = h.Submit(w.arrivals[next].request);
      if (!handle.ok()) continue;
      store.Submitted(*handle);
      if (w.arrivals[next].cancel_at_ns > 0) cancels.emplace_back(w.arrivals[next].cancel_at_ns, *handle);
    }
    std::erase_if(cancels, [&](const auto& cancel) {
      if (cancel.first > h.clock().NowNs()) return false;
      h.Cancel(cancel.second);
      return true;
    });
    store.Step();
    if (std::string broken = h.Settle(); !broken.empty()) return broken;
    const TimeNs ready = h.executor().NextReadyNs();
    if (ready == kNever && next == w.arrivals.size() && !store.busy()) break;
    TimeNs until = h.clock().NowNs() + kMillisecond / 4;
    if (ready != kNever) until = std::min(until, ready);
    h.clock().AdvanceTo(std::max(until, h.clock().NowNs()));
  }
  if (!h.loop().idle() || h.loop().live_requests() != 0) return "requests are left";
  // Reads the blocks that were not read during the run.
  for (;;) {
    const core::TransferAnswer rest =
        h.loop().ReadEntered(7, [&](const Hash128& key) { return disk->count(key) == 0; });
    if (rest.keys.empty()) break;
    store.Keep(rest);
  }
  if (h.kv().Stats().blocks_in_use != 0) return "KV is still held";
  if (h.kv().Stats().swap_blocks_used != 0) return "host blocks were lost";
  if (!h.CloseTrace().ok()) return "the recording failed";
  for (const RequestHandle handle : h.handles()) {
    const RequestOutput& out = h.outputs().at(handle);
    if (out.timeline.cache) {
      const CacheMatch& match = *out.timeline.cache;
      counts->cached_tokens += match.tokens;
      counts->disk_tokens += match.disk_tokens;
      counts->late += match.end == CacheEnd::kLate;
      if (match.disk_tokens < 0 || match.disk_tokens > match.tokens || match.tokens != out.done_event.cached_tokens)
        return "the timeline's cached tokens are inconsistent";
      const bool whole = match.tokens / config.block_size == (out.timeline.prompt_tokens - 1) / config.block_size;
      if (config.prefix_caching && !out.request->prompt_logprobs && whole != (match.end == CacheEnd::kPrompt))
        return "CacheEnd::kPrompt does not agree with the length of the match";
    }
    for (size_t choice = 0; choice < out.choices.size(); ++choice) {
      const auto& got = out.choices[choice].tokens;
      const auto expected =
          ExpectedOutput(config.executor, *out.request, static_cast<int32_t>(choice), config.model_stop_ids);
      if (got.size() > expected.size() || !std::equal(got.begin(), got.end(), expected.begin())) return "wrong tokens";
      if (out.choices[choice].finish == FinishReason::kLength && got.size() != expected.size())
        return "tokens are missing";
    }
  }
  *stats = h.loop().Stats();
  return {};
}

TEST(StoredPromptsConformance, StoredKvDoesNotChangeOutputs) {
  const std::string path = ::testing::TempDir() + "tactus_stored_" + std::to_string(getpid()) + ".trace";
  Counts counts;
  for (const auto& preset : core::Presets()) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const Workload w = MakeWorkload(seed, {.cancels = seed % 3 == 0,
                                             .faults = seed % 4 == 1,
                                             .drafts = seed % 6 == 2,
                                             .tokens_on_host = seed % 5 == 3});
      Disk disk;
      for (int run = 0; run < 2; ++run) {
        SCOPED_TRACE(std::string(preset.name) + " seed " + std::to_string(seed) + " run " + std::to_string(run));
        EngineStats stats;
        ASSERT_EQ(Play(w, preset.name, seed, &disk, &counts, path, &stats), "") << w.ToString();
        const auto report = core::ReplayTrace(path);
        ASSERT_TRUE(report.ok()) << report.status().ToString();
        EXPECT_TRUE(report->identical()) << "differs at step " << report->first_difference << "; " << w.ToString();
        EXPECT_EQ(report->stats.swapped_in_blocks, stats.swapped_in_blocks);
        std::remove(path.c_str());
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(counts.fetched, 500);
  EXPECT_GT(counts.partly, 50);
  EXPECT_GT(counts.late, 20) << "too few requests waited until the time limit";
  EXPECT_GT(counts.disk_tokens, 2000);
  EXPECT_GT(counts.cached_tokens, counts.disk_tokens);
  EXPECT_GT(counts.stored, 2000);
}

HarnessConfig Roomy() {
  HarnessConfig config;
  config.scheduler.preset = "sarathi-serve";
  config.import_blocks = 16;
  config.list_entered = true;
  config.executor.vocab_size = 64;
  return config;
}

// A request that waits for its KV is planned only afterwards, and its timeline has the cause of the wait.
TEST(StoredPrompts, HeldRequestWaitsForDiskKv) {
  Harness h(Roomy());
  h.prepare = [](core::PreparedRequest* p) { p->stored_blocks = 3; };
  const RequestHandle handle = h.MustSubmit(MakeRequest(Tokens(1, 20), 4));
  ASSERT_EQ(h.Settle(), "");
  EXPECT_FALSE(h.Advance()) << "it was planned before its KV was there";
  EXPECT_EQ(h.loop().Stats().waiting, 1);
  h.clock().AdvanceTo(h.clock().NowNs() + 5 * kMillisecond);
  core::TransferCommand fetched{.kind = core::TransferKind::kFetched, .handle = handle};
  fetched.end = CacheEnd::kLate;
  h.loop().Transfer(std::move(fetched));
  ASSERT_EQ(h.Run(), "");
  const RequestOutput& out = h.outputs().at(handle);
  ASSERT_TRUE(out.done);
  EXPECT_EQ(out.choices[0].tokens.size(), 4u);
  EXPECT_EQ(out.timeline.sequences[0].total_ns[static_cast<size_t>(Cause::kDisk)], 5 * kMillisecond);
  ASSERT_TRUE(out.timeline.cache.has_value());
  EXPECT_EQ(out.timeline.cache->tokens, 0);
  EXPECT_EQ(out.timeline.cache->end, CacheEnd::kLate);
}

TEST(StoredPrompts, CachedPromptDoesNotWait) {
  Harness h(Roomy());
  h.MustSubmit(MakeRequest(Tokens(1, 20), 4));
  ASSERT_EQ(h.Run(), "");
  h.prepare = [](core::PreparedRequest* p) { p->stored_blocks = 4; };
  const RequestHandle handle = h.MustSubmit(MakeRequest(Tokens(1, 20), 4));
  Status answered;
  core::TransferCommand reserve{.kind = core::TransferKind::kReserve, .handle = handle};
  reserve.blocks = 4;
  reserve.answer = [&](core::TransferAnswer answer) { answered = answer.status; };
  h.loop().Transfer(std::move(reserve));
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(answered.code(), StatusCode::kNotFound) << "host blocks were reserved for nothing";
  EXPECT_EQ(h.outputs().at(handle).done_event.cached_tokens, 16);
  EXPECT_EQ(h.kv().Stats().swap_blocks_used, 0);
}

TEST(StoredPrompts, HeldRequestIsNotMoved) {
  Harness h(Roomy());
  h.prepare = [](core::PreparedRequest* p) { p->stored_blocks = 3; };
  const RequestHandle handle = h.MustSubmit(MakeRequest(Tokens(1, 20), 4));
  Status answered;
  h.loop().Transfer({.kind = core::TransferKind::kPause, .handle = handle, .answer = [&](core::TransferAnswer answer) {
                       answered = answer.status;
                     }});
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(answered.code(), StatusCode::kUnavailable) << answered.ToString();
  EXPECT_NE(answered.message().find("waits for its KV"), std::string::npos) << answered.message();
  h.loop().Transfer({.kind = core::TransferKind::kFetched, .handle = handle});
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs().at(handle).choices[0].tokens.size(), 4u);
}

TEST(StoredPrompts, WithdrawnReservationLetsTheNextOnePass) {
  Harness h(Roomy());  // 16 host blocks for imports
  h.prepare = [](core::PreparedRequest* p) { p->stored_blocks = 9; };
  std::map<RequestHandle, core::TransferAnswer> answers;
  const auto reserve = [&](uint64_t seed, int32_t blocks) {
    const RequestHandle handle = h.MustSubmit(MakeRequest(Tokens(seed, 40), 4));
    core::TransferCommand command{.kind = core::TransferKind::kReserve, .handle = handle, .blocks = blocks};
    command.answer = [&answers, handle](core::TransferAnswer answer) { answers[handle] = std::move(answer); };
    h.loop().Transfer(std::move(command));
    return handle;
  };
  const RequestHandle first = reserve(1, 9), second = reserve(2, 9), third = reserve(3, 5);
  ASSERT_EQ(h.Settle(), "");
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_TRUE(answers.at(first).status.ok());
  for (const RequestHandle handle : {first, second})  // the first has its blocks already: nothing to withdraw
    h.loop().Transfer({.kind = core::TransferKind::kWithdraw, .handle = handle});
  ASSERT_EQ(h.Settle(), "");
  EXPECT_TRUE(answers.at(first).status.ok());
  ASSERT_EQ(answers.count(second), 1u) << "it still waits for blocks";
  EXPECT_EQ(answers.at(second).status.code(), StatusCode::kResourceExhausted);
  ASSERT_EQ(answers.count(third), 1u) << "there are blocks for it, and no command is before it";
  EXPECT_TRUE(answers.at(third).status.ok());
  for (const RequestHandle handle : {first, second, third})
    h.loop().Transfer({.kind = core::TransferKind::kFetched, .handle = handle, .import = answers.at(handle).import});
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.kv().Stats().swap_blocks_used, 0);
}

TEST(StoredPrompts, ManyUnwantedBlocksDoNotHideAWantedOne) {
  HarnessConfig config = Roomy();
  config.num_blocks = 9000;
  config.max_model_len = 4 * 8800;
  config.check_every_pass = false;
  Harness h(config);
  h.MustSubmit(MakeRequest(Tokens(1, 4 * 8700), 1));
  ASSERT_EQ(h.Run(), "");
  int asked = 0, read = 0;
  const auto wanted = [&asked](const Hash128&) { return ++asked == 8400; };
  const core::TransferAnswer first = h.loop().ReadEntered(1, [](const Hash128&) { return true; });
  EXPECT_EQ(first.blocks, 1);
  EXPECT_FALSE(first.more);
  core::TransferCommand command{.kind = core::TransferKind::kReadEntered, .blocks = 1};
  command.wanted = wanted;
  command.answer = [&read](core::TransferAnswer answer) { read = answer.blocks; };
  h.loop().Transfer(std::move(command));
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(read, 1) << "the search ended after " << asked;
  EXPECT_FALSE(h.loop().ReadEntered(1, [](const Hash128&) { return false; }).more);
}

}  // namespace
}  // namespace tactus::stored_prompts_test
