#include "offline/plan/totals.h"

#include <algorithm>

#include "base/prefix_groups.h"

namespace tactus::offline {

double SequencesAtOnce(const PrefixTree& tree, const std::vector<int32_t>& outputs, int32_t max_sequences,
                       int64_t kv_tokens) {
  double tokens = 0, held = 0;  // summed over all steps of all answers
  for (const TreeNode& node : tree.nodes()) {
    if (!node.is_leaf()) continue;
    const int32_t output = outputs[static_cast<size_t>(node.request)];
    tokens += output;
    held += static_cast<double>(output) * (node.depth + output / 2);
  }
  if (kv_tokens <= 0 || held <= 0) return max_sequences;
  const double fit = std::max(1.0, static_cast<double>(kv_tokens) * tokens / held);
  return max_sequences > 0 ? std::min<double>(max_sequences, fit) : fit;
}

std::vector<double> ReadPrompts(const PrefixTree& tree, const std::vector<int32_t>& outputs, double at_once) {
  const auto size = static_cast<size_t>(tree.size());
  std::vector<int32_t> sharers(size);
  for (int32_t i = tree.size(); i-- > 0;) {
    const TreeNode& node = tree[i];
    int32_t& own = sharers[static_cast<size_t>(i)];
    if (node.is_leaf()) own = outputs[static_cast<size_t>(node.request)] > 0 ? 1 : 0;
    if (node.parent >= 0) sharers[static_cast<size_t>(node.parent)] += own;
  }
  std::vector<double> read(outputs.size()), down_to(size);  // [request], [node]
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TreeNode& node = tree[i];
    double& own = down_to[static_cast<size_t>(i)];
    own = node.depth;
    if (node.depth >= PrefixGroups::kLeastTokens) {
      // A prefix that is too short to be shared by itself is shared with its continuation.
      const bool follows = node.parent >= 0 && tree[node.parent].depth >= PrefixGroups::kLeastTokens;
      const int32_t above = follows ? tree[node.parent].depth : 0;
      const double together = std::clamp<double>(sharers[static_cast<size_t>(i)], 1.0, std::max(1.0, at_once));
      own = (follows ? down_to[static_cast<size_t>(node.parent)] : 0) + (node.depth - above) / together;
    }
    if (node.is_leaf()) read[static_cast<size_t>(node.request)] = own;
  }
  return read;
}

std::vector<NodeTotals> SumSubtrees(const PrefixTree& tree, const BatchCostModel& cost,
                                    const std::vector<int32_t>& outputs, const std::vector<double>& read) {
  std::vector<NodeTotals> totals(static_cast<size_t>(tree.size()));
  for (int32_t i = tree.size(); i-- > 0;) {
    const TreeNode& node = tree[i];
    NodeTotals& own = totals[static_cast<size_t>(i)];
    if (node.is_leaf()) {
      const int32_t output = outputs[static_cast<size_t>(node.request)];
      if (output == 0) continue;
      const double read_tokens = read.empty() ? node.depth : read[static_cast<size_t>(node.request)];
      own = {node.depth, node.depth, cost.ComputeSeconds(node.depth, output), cost.MemorySeconds(read_tokens, output),
             1};
      continue;
    }
    // Each child's total includes the path down to this node, which the children share.
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

std::vector<NodeTotals> SortByDensity(PrefixTree* tree, const BatchCostModel& cost, const std::vector<int32_t>& outputs,
                                      const std::vector<double>& read) {
  std::vector<double> density;
  density.reserve(static_cast<size_t>(tree->size()));
  for (const NodeTotals& t : SumSubtrees(*tree, cost, outputs, read)) density.push_back(t.density());
  tree->Reorder(
      [&](int32_t a, int32_t b) { return density[static_cast<size_t>(a)] > density[static_cast<size_t>(b)]; });
  return SumSubtrees(*tree, cost, outputs, read);
}

}  // namespace tactus::offline
