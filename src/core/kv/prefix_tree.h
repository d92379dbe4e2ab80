// The prefix tree: full blocks by chain key, with parent links and counts of children. A node has one owner block,
// which matches return. Blocks without a user can be dropped leaf by leaf.
//
// A flat open-addressing table (linear probing, backward-shift deletion) over a node pool: all operations are O(1)
// expected, nothing allocates after construction unless the tree is lean. The table stores a part of each key, so that
// a probe reads only the node it looks for: in a large cache every node read is a cache miss. Thread rule: engine
// thread only.
#pragma once

#include <cstdint>

#include "base/free_ids.h"
#include "base/hash.h"
#include "base/huge_pages.h"
#include "base/prefetch.h"
#include "base/units.h"

namespace tactus::core {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

class PrefixTree {
 public:
  struct alignas(32) Node {  // within one cache line
    Hash128 key;
    BlockId owner = kNoBlock;  // kNoBlock: the node is not in use
    NodeId parent = kNoNode;
    int32_t children = 0;
    int32_t depth = 0;  // 0: no parent
  };

  // `lean`: as in KvCacheConfig; the table then grows with the number of nodes.
  explicit PrefixTree(int64_t num_blocks, bool lean = false);

  NodeId Find(const Hash128& key) const;
  // The node of the key if it is at `depth` of its chain. Then all blocks before it are in the tree as well. A key
  // identifies its chain, so that only keys from a broken file are found at another depth.
  NodeId FindAt(const Hash128& key, int32_t depth) const {
    const NodeId id = Find(key);
    return id != kNoNode && node(id).depth == depth ? id : kNoNode;
  }
  struct Entered {
    NodeId node = kNoNode;
    bool is_new = false;  // it has the parent and owner that were passed
  };
  // The key's node, inserted if the tree has none. At most one node per block exists.
  Entered FindOrInsert(const Hash128& key, NodeId parent, BlockId owner);
  // Precondition: no children.
  void Erase(NodeId node);
  // Prefetch the memory that Find or FindOrInsert of the key, or Erase of the node, will read. PrefetchNode comes
  // before PrefetchErase, which reads the node.
  void PrefetchFind(const Hash128& key) const { Prefetch(&table_[Home(key)]); }
  void PrefetchNode(NodeId id) const { Prefetch(&nodes_[static_cast<size_t>(id)]); }
  void PrefetchErase(NodeId id) const {
    const size_t home = Home(node(id).key);
    Prefetch(&table_[home]);
    Prefetch(&table_[(home + 1) & mask_]);  // Erase always reads the next place
  }
  // Probably the key's node, from one table entry: a hint for prefetching only. kNoNode: the entry is empty.
  NodeId LikelyNode(const Hash128& key) const { return table_[Home(key)].node; }

  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  // Ids from here on were never in use.
  int32_t ids_used() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t size() const { return static_cast<int32_t>(free_.count() - free_.size()); }

 private:
  struct Place {
    NodeId node = kNoNode;
    uint32_t key = 0;  // PartOf the node's key, which determines Home
  };
  static uint32_t PartOf(const Hash128& key) { return static_cast<uint32_t>(key.low); }
  void Grow();
  void FileAt(NodeId id, uint32_t part);
  size_t Home(uint32_t part) const { return part & mask_; }
  size_t Home(const Hash128& key) const { return Home(PartOf(key)); }

  FreeIds free_;
  HugePageVector<Node> nodes_;   // [ids_used], room for all
  HugePageVector<Place> table_;  // power of two, at most a quarter full: few probes, and few moves in Erase
  size_t mask_ = 0;
};

}  // namespace tactus::core
