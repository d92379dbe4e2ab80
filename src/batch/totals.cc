#include "batch/totals.h"

namespace tactus::batch {

std::vector<NodeTotals> SumSubtrees(const PrefixTree& tree, const BatchCostModel& cost,
                                    const std::vector<int32_t>& outputs) {
  std::vector<NodeTotals> totals(static_cast<size_t>(tree.size()));
  for (int32_t i = tree.size(); i-- > 0;) {
    const TreeNode& node = tree[i];
    NodeTotals& own = totals[static_cast<size_t>(i)];
    if (node.is_leaf()) {
      const int32_t output = outputs[static_cast<size_t>(node.request)];
      if (output == 0) continue;
      own = {node.depth, node.depth, cost.ComputeSeconds(node.depth, output), cost.MemorySeconds(node.depth, output),
             1};
      continue;
    }
    // Each child counts the path down to this node, which they share.
    const double path_s = cost.PrefixSeconds(node.depth);
    tree.ForEachChild(i, [&](int32_t c) {
      const NodeTotals& child = totals[static_cast<size_t>(c)];
      if (child.requests == 0) return;
      own.prompt_tokens += child.prompt_tokens;
      own.computed_tokens += child.computed_tokens - node.depth;
      own.compute_s += child.compute_s - path_s;
      own.memory_s += child.memory_s;
      own.requests += child.requests;
    });
    if (own.requests == 0) continue;
    own.computed_tokens += node.depth;
    own.compute_s += path_s;
  }
  return totals;
}

std::vector<NodeTotals> SortByDensity(PrefixTree* tree, const BatchCostModel& cost,
                                      const std::vector<int32_t>& outputs) {
  std::vector<double> density;
  density.reserve(static_cast<size_t>(tree->size()));
  for (const NodeTotals& t : SumSubtrees(*tree, cost, outputs)) density.push_back(t.density());
  tree->Reorder(
      [&](int32_t a, int32_t b) { return density[static_cast<size_t>(a)] > density[static_cast<size_t>(b)]; });
  return SumSubtrees(*tree, cost, outputs);
}

}  // namespace tactus::batch
