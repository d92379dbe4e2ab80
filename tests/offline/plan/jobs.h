// Jobs for the planner's tests, and a slow reference for the planner's results, computed from the tokens themselves.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "offline/plan/cost_model.h"
#include "offline/plan/prefix_tree.h"
#include "offline/plan/prompt_set.h"

namespace tactus::testing {

struct JobRequest {
  std::vector<TokenId> prompt;
  offline::RequestTraits traits;
};
using Job = std::vector<JobRequest>;

inline constexpr int32_t kKeyTokens = 4;  // of a prefix tree's keys

inline offline::PromptSet SetOf(const Job& job, int32_t key_tokens = kKeyTokens) {
  offline::PromptSet prompts(0, key_tokens);
  for (const JobRequest& r : job) EXPECT_TRUE(prompts.Add(r.prompt, r.traits).ok());
  return prompts;
}

// Prompts derived from one another: shared prefixes of all depths, equal prompts, prompts that are another's prefix.
inline Job RandomJob(uint64_t seed, int32_t requests) {
  Rng rng(seed, 77);
  Job job;
  for (int32_t i = 0; i < requests; ++i) {
    JobRequest r;
    if (!job.empty() && rng.Uniform() < 0.8) {
      r = job[static_cast<size_t>(rng.UniformInt(0, i - 1))];
      if (rng.Uniform() < 0.9) {
        r.prompt.resize(static_cast<size_t>(rng.UniformInt(1, static_cast<int64_t>(r.prompt.size()))));
      }
    }
    const int64_t more = rng.UniformInt(r.prompt.empty() ? 1 : 0, 30);
    for (int64_t k = 0; k < more; ++k) r.prompt.push_back(static_cast<TokenId>(rng.UniformInt(0, 3)));
    r.traits.max_output_tokens = static_cast<int32_t>(rng.UniformInt(1, rng.Uniform() < 0.3 ? 300 : 20));
    r.traits.output_is_known = rng.Uniform() < 0.3;
    if (seed % 3 == 0) r.traits.group = static_cast<uint32_t>(rng.UniformInt(0, 2));
    job.push_back(std::move(r));
  }
  return job;
}

// Common prompt tokens that a cache with blocks of key_tokens can share; -1: different groups.
inline int32_t SharedTokens(const JobRequest& a, const JobRequest& b, int32_t key_tokens) {
  if (a.traits.group != b.traits.group) return -1;
  const size_t most = std::min(a.prompt.size(), b.prompt.size()) - 1;
  size_t same = 0;
  while (same < most && a.prompt[same] == b.prompt[same]) ++same;
  return static_cast<int32_t>(same) / key_tokens * key_tokens;
}

// [request] its leaf's node.
inline std::vector<int32_t> LeafNodes(const offline::PrefixTree& tree, size_t requests) {
  std::vector<int32_t> leaves(requests, -1);
  for (int32_t i = 0; i < tree.size(); ++i) {
    if (tree[i].is_leaf()) leaves[static_cast<size_t>(tree[i].request)] = i;
  }
  return leaves;
}

struct SlowTotals {
  int64_t prompt_tokens = 0, computed_tokens = 0;
  double compute_s = 0, memory_s = 0;
};

// Counts with a trie over the blocks of these requests' prompts, each block named by all tokens up to its end.
inline SlowTotals TotalsOf(const Job& job, const std::vector<int32_t>& requests, const std::vector<int32_t>& outputs,
                           const offline::BatchCostModel& cost, int32_t key_tokens) {
  SlowTotals totals;
  std::set<std::pair<uint32_t, std::vector<TokenId>>> trie;
  for (const int32_t i : requests) {
    const JobRequest& r = job[static_cast<size_t>(i)];
    const auto p = static_cast<int32_t>(r.prompt.size());
    const int32_t output = outputs[static_cast<size_t>(i)];
    const int32_t blocks = (p - 1) / key_tokens;
    for (int32_t b = 1; b <= blocks; ++b) {
      if (!trie.insert({r.traits.group, {r.prompt.begin(), r.prompt.begin() + b * key_tokens}}).second) continue;
      totals.computed_tokens += key_tokens;
      totals.compute_s += cost.PrefixSeconds(b * key_tokens) - cost.PrefixSeconds((b - 1) * key_tokens);
    }
    totals.prompt_tokens += p;
    totals.computed_tokens += p - blocks * key_tokens;
    totals.compute_s += cost.ComputeSeconds(p, output) - cost.PrefixSeconds(blocks * key_tokens);
    totals.memory_s += cost.MemorySeconds(p, output);
  }
  return totals;
}

// Llama-3.1-8B on one A100-80GB.
inline offline::BatchCostModel Llama8bOnA100() {
  return {.flops_per_token = 2 * 8.03e9,
          .attention_flops = 4.0 * 4096 * 32,
          .kv_bytes_per_token = 4.0 * 8 * 128 * 32,
          .flops_per_s = 312e12,
          .bytes_per_s = 2.0e12};
}

}  // namespace tactus::testing
