// The total cost and the density of the requests below each node of the tree: compute time with everything shared
// counted once, divided by memory time (BlendServe, 3.2). Requests that are done do not count.
//
// The paper has rho = (1 - s) sum Comp / sum Mem, where s is the saved share of compute. Here s is the exact cost of
// the shared positions, not their share of tokens: a job of short prompts and long answers saves little compute even if
// all prompts are shared.
#pragma once

#include <cstdint>
#include <vector>

#include "offline/plan/cost_model.h"
#include "offline/plan/prefix_tree.h"

namespace tactus::offline {

struct NodeTotals {
  int64_t prompt_tokens = 0;    // shared tokens counted for each request
  int64_t computed_tokens = 0;  // prompt tokens, shared ones counted once, including the path from the root
  double compute_s = 0;         // likewise counted once; including answers
  double memory_s = 0;
  int32_t requests = 0;

  double density() const { return memory_s > 0 ? compute_s / memory_s : 0; }
};

// `outputs`, in all functions: [request] tokens that it generates or is expected to generate; 0: it is done.

// Number of sequences that run at once: the device's maximum, or as many as fit into its KV memory if fewer. Either
// limit is 0 if it is not known; with neither the result is 0.
double SequencesAtOnce(const PrefixTree& tree, const std::vector<int32_t>& outputs, int32_t max_sequences,
                       int64_t kv_tokens);

// [request] Prompt tokens whose K and V it reads per step, if attention reads a prefix once for all requests that share
// it (cascade attention: Mem -> (1 - s) Mem). Each request counts its part: the sharers of a prefix divide it, but at
// most `at_once` of them run together.
std::vector<double> ReadPrompts(const PrefixTree& tree, const std::vector<int32_t>& outputs, double at_once);

// [node]. `read`: from ReadPrompts; empty: each request reads its whole prompt.
std::vector<NodeTotals> SumSubtrees(const PrefixTree& tree, const BatchCostModel& cost,
                                    const std::vector<int32_t>& outputs, const std::vector<double>& read = {});

// Sorts children by density, the densest first (BlendServe, Algorithm 1), and returns the totals of the sorted tree.
std::vector<NodeTotals> SortByDensity(PrefixTree* tree, const BatchCostModel& cost, const std::vector<int32_t>& outputs,
                                      const std::vector<double>& read = {});

}  // namespace tactus::offline
