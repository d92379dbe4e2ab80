#include "core/kv/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/growing_vector.h"

namespace tactus::core {

namespace {

constexpr size_t kLeanNodes = 8;  // for which a lean tree has room at first

// Places of a table for `nodes` nodes.
size_t PlacesFor(size_t nodes) {
  return std::bit_ceil(4 * nodes + 2);
}

}  // namespace

PrefixTree::PrefixTree(int64_t num_blocks, bool lean)
    : free_(static_cast<size_t>(num_blocks)),
      nodes_(RoomFor<HugePageVector<Node>>(free_.count(), lean)),
      table_(PlacesFor(lean ? std::min(free_.count(), kLeanNodes) : free_.count())),
      mask_(table_.size() - 1) {}

void PrefixTree::FileAt(NodeId id, uint32_t part) {
  size_t i = Home(part);
  while (table_[i].node != kNoNode) i = (i + 1) & mask_;
  table_[i] = {id, part};
}

void PrefixTree::Grow() {
  const HugePageVector<Place> old = std::exchange(table_, HugePageVector<Place>(2 * table_.size()));
  mask_ = table_.size() - 1;
  for (const Place& place : old) {
    if (place.node != kNoNode) FileAt(place.node, place.key);
  }
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
  const NodeId id = free_.Take();
  MakeUpTo(&nodes_, static_cast<size_t>(id));
  if (PlacesFor(static_cast<size_t>(size())) > table_.size()) [[unlikely]] {
    Grow();
    FileAt(id, PartOf(key));
  } else {
    table_[i] = {id, PartOf(key)};
  }
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
  free_.Return(id);
}

}  // namespace tactus::core
