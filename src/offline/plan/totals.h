// What the requests below each node of the tree cost together, and how dense they are: the compute time that is left
// when everything shared is computed once, over the memory time (BlendServe, 3.2). Those that are done already count
// for nothing.
//
// The paper has rho = (1 - s) sum Comp / sum Mem with s of the compute saved. Here s is what the shared positions cost
// exactly, not the share of tokens: a job of short prompts and long answers saves little compute by sharing all of its
// prompts.
#pragma once

#include <cstdint>
#include <vector>

#include "offline/plan/cost_model.h"
#include "offline/plan/prefix_tree.h"

namespace tactus::offline {

struct NodeTotals {
  int64_t prompt_tokens = 0;    // with what is shared counted for each
  int64_t computed_tokens = 0;  // of prompts, with what is shared counted once, from the root on
  double compute_s = 0;         // likewise counted once; answers included
  double memory_s = 0;
  int32_t requests = 0;

  double density() const { return memory_s > 0 ? compute_s / memory_s : 0; }
};

// `outputs`, everywhere: [request] tokens that it generates or is expected to; 0: it is done.

// How many sequences run beside each other: as many as the device takes, or as fit into its KV memory. Either is 0
// where it is not known; with neither the answer is 0.
double SequencesAtOnce(const PrefixTree& tree, const std::vector<int32_t>& outputs, int32_t max_sequences,
                       int64_t kv_tokens);

// [request] Prompt tokens whose K and V it reads per step, where attention reads a prefix once for all that share it
// (cascade attention: Mem -> (1 - s) Mem). Each counts its part of that: as many read it together as there are, but no
// more than run beside each other, `at_once`.
std::vector<double> ReadPrompts(const PrefixTree& tree, const std::vector<int32_t>& outputs, double at_once);

// [node]. `read`: as ReadPrompts; empty: each request reads all of its prompt.
std::vector<NodeTotals> SumSubtrees(const PrefixTree& tree, const BatchCostModel& cost,
                                    const std::vector<int32_t>& outputs, const std::vector<double>& read = {});

// Sorts children by density, the densest first (BlendServe, Algorithm 1), and returns the totals of the sorted tree.
std::vector<NodeTotals> SortByDensity(PrefixTree* tree, const BatchCostModel& cost, const std::vector<int32_t>& outputs,
                                      const std::vector<double>& read = {});

}  // namespace tactus::offline
