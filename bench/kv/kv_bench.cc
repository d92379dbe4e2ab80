// Cost of KV bookkeeping per operation. A pool of 32768 blocks of 16 tokens, as 8 GiB hold for a 1B model.
#include <benchmark/benchmark.h>

#include <vector>

#include "core/kv/block_key.h"
#include "core/kv/kv_cache.h"

namespace tactus {
namespace {

constexpr Hash128 kSecret{1, 2};
constexpr int32_t kBlock = 16;
constexpr int64_t kBlocks = 32768;

std::vector<Hash128> Keys(int32_t tokens, TokenId first) {
  std::vector<TokenId> prompt(static_cast<size_t>(tokens), 1);
  prompt[0] = first;
  std::vector<Hash128> keys;
  core::ExtendBlockKeys(kSecret, core::RootKey(kSecret, "m", "", ""), prompt, kBlock, &keys);
  return keys;
}

// A prompt starts, is computed and ends; its prefix is found every time. Per iteration: match, pin, allocate, release.
void BM_StartAndReleaseAHit(benchmark::State& state) {
  const auto tokens = static_cast<int32_t>(state.range(0));
  core::KvCache kv({kBlocks, kBlock, 16, 4096, true});
  const auto keys = Keys(tokens, 0);
  kv.Bind(0, &keys);
  StepPlan plan;
  StepId step = 0;
  for (auto _ : state) {
    plan.Clear();
    plan.step = step;
    benchmark::DoNotOptimize(kv.Start(0, tokens, tokens, tokens, kNoSlot, &plan));
    kv.MarkPending(0, tokens, step);
    kv.StepEnded(step++, true, nullptr);
    kv.Release(0, -1);
  }
  state.SetItemsProcessed(state.iterations() * (tokens / kBlock));  // blocks
}
BENCHMARK(BM_StartAndReleaseAHit)->Arg(128)->Arg(2048)->Arg(32768);

// Every prompt is new and the pool is full of cached prefixes: each block evicts one.
void BM_StartAndReleaseAMiss(benchmark::State& state) {
  const auto tokens = static_cast<int32_t>(state.range(0));
  core::KvCache kv({kBlocks, kBlock, 16, 4096, true});
  std::vector<std::vector<Hash128>> prompts;
  for (int64_t i = 0; i < 2 * kBlocks * kBlock / tokens; ++i) prompts.push_back(Keys(tokens, static_cast<TokenId>(i)));
  StepPlan plan;
  StepId step = 0;
  size_t next = 0;
  for (auto _ : state) {
    plan.Clear();
    plan.step = step;
    kv.Bind(0, &prompts[next++ % prompts.size()]);
    benchmark::DoNotOptimize(kv.Start(0, tokens, tokens, tokens, kNoSlot, &plan));
    kv.MarkPending(0, tokens, step);
    kv.StepEnded(step++, true, nullptr);
    kv.Release(0, -1);
    kv.Unbind(0);
  }
  state.SetItemsProcessed(state.iterations() * (tokens / kBlock));
}
BENCHMARK(BM_StartAndReleaseAMiss)->Arg(128)->Arg(2048);

// One decode step of 256 sequences: each covers one more position; every 16th time that is a new block.
void BM_ExtendAndMark(benchmark::State& state) {
  core::KvCache kv({kBlocks, kBlock, 256, 4096, true});
  StepPlan plan;
  StepId step = 0;
  const auto restart = [&] {
    for (SlotId s = 0; s < 256; ++s) {
      kv.Release(s, -1);
      kv.Start(s, 1, 1, 1, kNoSlot, nullptr);
    }
  };
  for (SlotId s = 0; s < 256; ++s) kv.Bind(s, nullptr);
  restart();
  int32_t tokens = 1;
  for (auto _ : state) {
    plan.Clear();
    plan.step = step;
    if (++tokens > 1024) {
      restart();
      tokens = 2;
    }
    for (SlotId s = 0; s < 256; ++s) {
      kv.Extend(s, tokens, &plan);
      kv.MarkPending(s, tokens, step);
    }
    kv.StepEnded(step++, true, nullptr);
  }
  state.SetItemsProcessed(state.iterations() * 256);  // sequences
}
BENCHMARK(BM_ExtendAndMark);

void BM_BlockKey(benchmark::State& state) {
  const std::vector<TokenId> tokens(kBlock, 7);
  Hash128 key;
  for (auto _ : state) key = core::BlockKey(kSecret, key, tokens);
  benchmark::DoNotOptimize(key);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_BlockKey);

}  // namespace
}  // namespace tactus
