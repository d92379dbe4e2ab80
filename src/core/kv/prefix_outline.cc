#include "core/kv/prefix_outline.h"

#include <algorithm>
#include <numeric>

namespace tactus::core {
namespace {

// A branch as it is found: from its last node up.
PrefixBranch BranchEndingAt(NodeId end, const PrefixBlocks& blocks, NodeId* above) {
  const PrefixTree& tree = blocks.tree();
  PrefixBranch branch;
  NodeId at = end;
  while (true) {
    const PrefixTree::Node& node = tree.node(at);
    ++branch.blocks;
    branch.sequences = blocks[node.owner].users;
    branch.in_use += branch.sequences > 0 ? 1 : 0;
    branch.depth = node.depth;
    *above = node.parent;
    if (node.parent == kNoNode || tree.node(node.parent).children != 1) return branch;
    at = node.parent;
  }
}

}  // namespace

PrefixOutline OutlineOf(const PrefixBlocks& blocks, size_t most) {
  const PrefixTree& tree = blocks.tree();
  PrefixOutline outline;
  outline.blocks = tree.size();
  // The work goes with the nodes that the tree has or had.
  outline.too_large = tree.ids_used() > kMostOutlinedBlocks;
  if (outline.too_large || tree.size() == 0) return outline;

  std::vector<PrefixBranch> found;
  std::vector<NodeId> above;                                                 // of each, the node before its first
  std::vector<int32_t> ending_at(static_cast<size_t>(tree.ids_used()), -1);  // the branch that ends at a node
  for (NodeId n = 0; n < tree.ids_used(); ++n) {
    const PrefixTree::Node& node = tree.node(n);
    if (node.owner == kNoBlock || node.children == 1) continue;
    ending_at[static_cast<size_t>(n)] = static_cast<int32_t>(found.size());
    found.push_back(BranchEndingAt(n, blocks, &above.emplace_back()));
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (above[i] != kNoNode) found[i].parent = ending_at[static_cast<size_t>(above[i])];
  }
  // Deepest first, so that a branch is complete before its parent counts it.
  std::vector<int32_t> order(found.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&found](int32_t i) -> PrefixBranch& { return found[static_cast<size_t>(i)]; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return at(a).depth > at(b).depth; });
  for (const int32_t i : order) {
    if (at(i).parent >= 0) at(at(i).parent).below += at(i).blocks + at(i).below;
  }
  const auto size = [&](int32_t i) { return at(i).blocks + at(i).below; };
  const auto larger = [&](int32_t a, int32_t b) { return size(a) != size(b) ? size(a) > size(b) : a < b; };
  const size_t kept = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), larger);
  std::vector<int32_t> place(found.size(), -1);
  for (size_t i = 0; i < kept; ++i) {
    place[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
    PrefixBranch& branch = outline.branches.emplace_back(at(order[i]));
    if (branch.parent >= 0) branch.parent = place[static_cast<size_t>(branch.parent)];
  }
  return outline;
}

}  // namespace tactus::core
