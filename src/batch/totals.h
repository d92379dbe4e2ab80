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

#include "batch/cost_model.h"
#include "batch/prefix_tree.h"

namespace tactus::batch {

struct NodeTotals {
  int64_t prompt_tokens = 0;    // with what is shared counted for each
  int64_t computed_tokens = 0;  // of prompts, with what is shared counted once, from the root on
  double compute_s = 0;         // likewise counted once; answers included
  double memory_s = 0;
  int32_t requests = 0;

  double density() const { return memory_s > 0 ? compute_s / memory_s : 0; }
};

// [node]. `outputs`: tokens that each request generates or is expected to; 0: it is done.
std::vector<NodeTotals> SumSubtrees(const PrefixTree& tree, const BatchCostModel& cost,
                                    const std::vector<int32_t>& outputs);

// Sorts children by density, the densest first (BlendServe, Algorithm 1), and returns the totals of the sorted tree.
std::vector<NodeTotals> SortByDensity(PrefixTree* tree, const BatchCostModel& cost,
                                      const std::vector<int32_t>& outputs);

}  // namespace tactus::batch
