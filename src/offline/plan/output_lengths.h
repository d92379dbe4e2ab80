// How long answers will be (BlendServe, 3.2): a sample of the job runs first, and what it generated is the estimate for
// the rest. Requests with like prompts have answers of like lengths, so the mean of the smallest subtree that has
// samples holds for all in it; a subtree without any thereby takes its siblings' mean.
//
// Which are sampled follows from the seed and each request's index alone.
#pragma once

#include <cstdint>
#include <vector>

#include "offline/plan/prefix_tree.h"
#include "offline/plan/prompt_set.h"

namespace tactus::offline {

struct SampleOptions {
  double share = 0.01;        // of the requests whose length is not known; (0, 1]
  int32_t least_per_top = 4;  // of each subtree below the root (ours); at most twice the share is sampled for it
  uint64_t seed = 0;
};

// The requests to run first, ascending. None of known length; none where all are known.
std::vector<int32_t> ChooseSample(const PrefixTree& tree, const PromptSet& prompts, const SampleOptions& options);

// [request] output tokens. `measured`: [request] what those that have run have generated, 0 for the others; -n: it runs
// still, and has generated at least n. May be empty. Known lengths are taken as they are.
//
// The mean of answers some of which run still: all that has been generated, over those that have ended, as if an answer
// ended with the same chance after each token (ours). Long answers would be missing from the mean of those that have
// ended. Where none has ended, and without any measurement, it is each request's own max_tokens (ours): a task that is
// thought too long starts too late, one that is thought too short starts all at once.
std::vector<int32_t> EstimateOutputs(const PrefixTree& tree, const PromptSet& prompts,
                                     const std::vector<int32_t>& measured);

}  // namespace tactus::offline
