// The prefix tree: full blocks by chain key, with parent links and counts of children. A node has one owner block,
// which matches hand out, and possibly duplicates: blocks of live sequences that computed the same tokens at the same
// time and stay private. When the owner's last user goes, a duplicate takes the node over, so that a node in use always
// has its parent in use, and what nobody uses can be dropped leaf by leaf.
//
// A flat open-addressing table (linear probing, backward-shift deletion) over a node pool: all operations are O(1)
// expected, nothing allocates after construction. Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "base/units.h"

namespace tactus {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

class PrefixTree {
 public:
  struct Node {
    Hash128 key;
    BlockId owner = kNoBlock;  // kNoBlock: the node is not in use
    NodeId parent = kNoNode;
    int32_t children = 0;
    BlockId first_duplicate = kNoBlock;  // list through the blocks, oldest first
    BlockId last_duplicate = kNoBlock;
  };

  explicit PrefixTree(int64_t num_blocks);

  NodeId Find(const Hash128& key) const;
  // Precondition: the key is not in the tree. At most one node per block exists.
  NodeId Insert(const Hash128& key, NodeId parent, BlockId owner);
  // Precondition: no children.
  void Erase(NodeId node);

  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  int32_t capacity() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t size() const { return capacity() - static_cast<int32_t>(free_.size()); }

 private:
  size_t Home(const Hash128& key) const { return static_cast<size_t>(key.low) & mask_; }

  std::vector<Node> nodes_;
  std::vector<NodeId> free_;
  std::vector<NodeId> table_;  // power of two, at most half full
  size_t mask_ = 0;
};

}  // namespace tactus
