#include "core/kv/prefix_tree.h"

#include <bit>

#include "base/check.h"

namespace tactus::core {

PrefixTree::PrefixTree(int64_t num_blocks) {
  const auto n = static_cast<size_t>(num_blocks);
  nodes_.resize(n);
  free_.reserve(n);
  for (size_t i = n; i > 0; --i) free_.push_back(static_cast<NodeId>(i - 1));
  table_.assign(std::bit_ceil(4 * n + 2), Place());
  mask_ = table_.size() - 1;
}

NodeId PrefixTree::Find(const Hash128& key) const {
  for (size_t i = Home(key);; i = (i + 1) & mask_) {
    const Place& at = table_[i];
    if (at.node == kNoNode || (at.key == PartOf(key) && node(at.node).key == key)) return at.node;
  }
}

PrefixTree::Entered PrefixTree::FindOrInsert(const Hash128& key, NodeId parent, BlockId owner) {
  size_t i = Home(key);
  for (; table_[i].node != kNoNode; i = (i + 1) & mask_) {
    if (table_[i].key == PartOf(key) && node(table_[i].node).key == key) return {table_[i].node, false};
  }
  TACTUS_CHECK(!free_.empty());
  const NodeId id = free_.back();
  free_.pop_back();
  table_[i] = {id, PartOf(key)};
  const int32_t depth = parent != kNoNode ? node(parent).depth + 1 : 0;
  if (parent != kNoNode) ++node(parent).children;
  node(id) = Node{.key = key, .owner = owner, .parent = parent, .depth = depth};
  return {id, true};
}

void PrefixTree::Erase(NodeId id) {
  Node& gone = node(id);
  TACTUS_CHECK(gone.owner != kNoBlock && gone.children == 0);
  size_t hole = Home(gone.key);
  while (table_[hole].node != id) hole = (hole + 1) & mask_;
  // Entries that probed past the hole move into it, so that no lookup ends early.
  for (size_t i = (hole + 1) & mask_; table_[i].node != kNoNode; i = (i + 1) & mask_) {
    const size_t distance = (i - Home(table_[i].key)) & mask_;
    if (distance >= ((i - hole) & mask_)) {
      table_[hole] = table_[i];
      hole = i;
    }
  }
  table_[hole] = Place();
  if (gone.parent != kNoNode) --node(gone.parent).children;
  gone = Node{};
  free_.push_back(id);
}

}  // namespace tactus::core
