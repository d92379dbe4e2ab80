// Estimates the lengths of answers (BlendServe, 3.2): a sample of the job runs first, and its lengths are the estimate
// for the rest. Requests with similar prompts have answers of similar lengths, so every request gets the mean of the
// smallest subtree around it that has samples; a subtree without samples thereby gets its siblings' mean.
//
// The sample depends only on the seed and on each request's index.
#pragma once

#include <cstdint>
#include <vector>

#include "offline/plan/prefix_tree.h"
#include "offline/plan/prompt_set.h"

namespace tactus::offline {

struct SampleOptions {
  double share = 0.01;        // of the requests of unknown length; (0, 1]
  int32_t least_per_top = 4;  // of each subtree below the root (ours); the sample grows to at most twice the share
  uint64_t seed = 0;
};

// The requests to run first, ascending. Requests of known length are never sampled.
std::vector<int32_t> ChooseSample(const PrefixTree& tree, const PromptSet& prompts, const SampleOptions& options);

// [request] output tokens. `measured`: [request] generated tokens of those that have ended, 0 for the others; -n: it
// still runs, and has generated at least n. May be empty. Known lengths are returned as they are.
//
// The mean of answers of which some still run: all generated tokens divided by the number of ended answers, as if an
// answer ended with the same probability after each token (ours). The mean of the ended answers alone would miss the
// long ones. If none has ended, or without measurements, the estimate is each request's own max_tokens (ours): a
// request estimated too long starts too late; requests estimated too short all start at once.
std::vector<int32_t> EstimateOutputs(const PrefixTree& tree, const PromptSet& prompts,
                                     const std::vector<int32_t>& measured);

}  // namespace tactus::offline
