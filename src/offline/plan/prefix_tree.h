// The compressed prefix tree of a job's prompts: inner nodes where prompts diverge, and one leaf per request. It is one
// array in depth-first order, so that a subtree is a range and a node has no pointers: its children are found by
// stepping from one subtree's end to the next. At most 2 nodes per request, 16 bytes each.
//
// Invariants: node 0 is the root, of depth 0; a parent comes before its children and has less depth, except the nodes
// of groups, which have the root's depth; a leaf's depth is its whole prompt. Immutable except for Reorder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "offline/plan/prompt_set.h"

namespace tactus::offline {

struct TreeNode {
  int32_t depth = 0;     // prompt tokens from the root to its end, common to all requests below it
  int32_t end = 0;       // index after its last descendant
  int32_t parent = -1;   // -1: the root
  int32_t request = -1;  // of a leaf; otherwise -1
  bool is_leaf() const { return request >= 0; }
};

class PrefixTree {
 public:
  // One pass over the sorted prompts. Children are in the order in which the job first names them.
  static PrefixTree Build(const PromptSet& prompts);

  std::span<const TreeNode> nodes() const { return nodes_; }
  const TreeNode& operator[](int32_t i) const { return nodes_[static_cast<size_t>(i)]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  template <class Visit>
  void ForEachChild(int32_t node, Visit visit) const {
    for (int32_t c = node + 1; c < (*this)[node].end; c = (*this)[c].end) visit(c);
  }
  // The deepest common ancestor. Precondition: two different leaves.
  int32_t CommonAncestor(int32_t a, int32_t b) const;
  // Sorts the children of every node, stably. Node indices change.
  void Reorder(const std::function<bool(int32_t, int32_t)>& goes_before);

 private:
  std::vector<TreeNode> nodes_;
};

}  // namespace tactus::offline
