#include "offline/plan/prefix_tree.h"

#include <algorithm>
#include <numeric>

namespace tactus::offline {
namespace {

// Neighbours in sorted order that all share exactly `keys` keys.
struct Stretch {
  int32_t begin = 0, end = 0;  // among the sorted prompts
  int32_t keys = 0;
};

// All stretches of at least two prompts, without duplicates, sorted by begin, the longest first.
std::vector<Stretch> FindStretches(const PromptSet& prompts, const std::vector<int32_t>& sorted) {
  const auto n = static_cast<int32_t>(sorted.size());
  std::vector<Stretch> found, open;
  for (int32_t i = 1; i <= n; ++i) {
    const int32_t keys = i < n ? prompts.SharedKeys(sorted[static_cast<size_t>(i - 1)], sorted[static_cast<size_t>(i)])
                               : -2;  // ends all open stretches
    int32_t begin = i - 1;
    while (!open.empty() && open.back().keys > keys) {
      begin = open.back().begin;
      found.push_back({begin, i, open.back().keys});
      open.pop_back();
    }
    if (keys > -2 && (open.empty() || open.back().keys < keys)) open.push_back({begin, 0, keys});
  }
  std::sort(found.begin(), found.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  return found;
}

void SetEnds(std::vector<TreeNode>* nodes) {
  for (size_t i = nodes->size(); i-- > 0;) {
    TreeNode& node = (*nodes)[i];
    node.end = std::max(node.end, static_cast<int32_t>(i) + 1);
    if (node.parent >= 0) {
      TreeNode& parent = (*nodes)[static_cast<size_t>(node.parent)];
      parent.end = std::max(parent.end, node.end);
    }
  }
}

}  // namespace

PrefixTree PrefixTree::Build(const PromptSet& prompts) {
  const int32_t n = prompts.size();
  std::vector<int32_t> sorted(static_cast<size_t>(n));
  std::iota(sorted.begin(), sorted.end(), 0);
  // A merge sort: it stays within bounds even if keys collide and the order contradicts itself.
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return prompts.SortsBefore(a, b); });
  PrefixTree tree;
  {
    const std::vector<Stretch> stretches = FindStretches(prompts, sorted);
    tree.nodes_.reserve(static_cast<size_t>(n) + stretches.size() + 1);
    tree.nodes_.push_back({});
    struct Open {
      int32_t node, end;
    };
    std::vector<Open> open{{0, n}};
    size_t next = 0;
    // A stretch of all prompts without a common key is the root itself.
    if (!stretches.empty() && stretches[0].end - stretches[0].begin == n && stretches[0].keys <= 0) ++next;
    for (int32_t i = 0; i < n; ++i) {
      while (open.back().end <= i) open.pop_back();
      for (; next < stretches.size() && stretches[next].begin == i; ++next) {
        const int32_t depth = std::max(0, stretches[next].keys) * prompts.key_tokens();
        tree.nodes_.push_back({.depth = depth, .parent = open.back().node});
        open.push_back({tree.size() - 1, stretches[next].end});
      }
      const int32_t request = sorted[static_cast<size_t>(i)];
      tree.nodes_.push_back({.depth = prompts.prompt_tokens(request), .parent = open.back().node, .request = request});
    }
  }
  std::vector<int32_t>().swap(sorted);
  SetEnds(&tree.nodes_);

  std::vector<int32_t> first(tree.nodes_.size(), n);
  for (int32_t i = tree.size(); i-- > 0;) {
    int32_t& own = first[static_cast<size_t>(i)];
    if (tree[i].is_leaf()) own = tree[i].request;
    if (i > 0) {
      int32_t& parents = first[static_cast<size_t>(tree[i].parent)];
      parents = std::min(parents, own);
    }
  }
  tree.Reorder([&](int32_t a, int32_t b) { return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)]; });
  return tree;
}

int32_t PrefixTree::CommonAncestor(int32_t a, int32_t b) const {
  int32_t node = (*this)[a].parent;
  while (b < node || b >= (*this)[node].end) node = (*this)[node].parent;
  return node;
}

void PrefixTree::Reorder(const std::function<bool(int32_t, int32_t)>& goes_before) {
  struct Pending {
    int32_t node, new_parent;
  };
  std::vector<TreeNode> ordered;
  ordered.reserve(nodes_.size());
  std::vector<Pending> pending{{0, -1}};
  std::vector<int32_t> children;
  while (!pending.empty()) {
    const Pending at = pending.back();
    pending.pop_back();
    const TreeNode& node = (*this)[at.node];
    ordered.push_back({.depth = node.depth, .parent = at.new_parent, .request = node.request});
    const auto self = static_cast<int32_t>(ordered.size()) - 1;
    children.clear();
    ForEachChild(at.node, [&](int32_t c) { children.push_back(c); });
    std::stable_sort(children.begin(), children.end(), goes_before);
    for (auto it = children.rbegin(); it != children.rend(); ++it) pending.push_back({*it, self});
  }
  SetEnds(&ordered);
  nodes_ = std::move(ordered);
}

}  // namespace tactus::offline
