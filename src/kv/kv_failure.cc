// What becomes of blocks that a step was to fill and did not. Rare, so it may be slow and may allocate.
#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace tactus {

void KvCache::Impl::DropVoid(StepId step, std::vector<SlotId>* recompute) {
  // From a sequence's first void block on, whatever is computed in `step` or later is void too, and so on through
  // everyone who shares such a block. What was complete before `step` stays good.
  std::vector<uint8_t> hit(slots.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (SlotId s = 0; s < config.max_slots; ++s) {
      const Slot& slot = At(s);
      const BlockId* table = TableOf(s);
      int32_t first = 0;
      while (first < slot.blocks && void_blocks[static_cast<size_t>(table[first])] == 0 &&
             !(slot.copied_from_step >= step && first == slot.copied_index)) {
        ++first;
      }
      if (first == slot.blocks) continue;
      if (hit[static_cast<size_t>(s)] == 0) changed = true;
      hit[static_cast<size_t>(s)] = 1;
      for (int32_t i = first; i < slot.blocks; ++i) {
        uint8_t& gone = void_blocks[static_cast<size_t>(table[i])];
        if (gone != 0 || block(table[i]).computed_by < step) continue;
        gone = 1;
        changed = true;
      }
    }
  }
  DropVoidFromTree();
  if (recompute != nullptr) {
    for (SlotId s = 0; s < config.max_slots; ++s) {
      if (hit[static_cast<size_t>(s)] != 0) recompute->push_back(s);
    }
  }
  void_blocks.assign(void_blocks.size(), 0);
}

void KvCache::Impl::DropVoidFromTree() {
  std::vector<uint8_t> gone(static_cast<size_t>(tree.capacity()), 0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto b = static_cast<BlockId>(i);
    if (void_blocks[i] != 0 && block(b).node != kNoNode && !Owns(b)) DropDuplicate(b);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto b = static_cast<BlockId>(i);
    if (void_blocks[i] == 0 || block(b).node == kNoNode) continue;
    const NodeId n = block(b).node;
    if (!HandOver(n)) gone[static_cast<size_t>(n)] = 1;   // a sequence that computed the same block keeps the node alive
  }
  for (bool changed = true; changed;) {   // nothing below a node that is gone could be found again
    changed = false;
    for (NodeId n = 0; n < tree.capacity(); ++n) {
      const PrefixTree::Node& node = tree.node(n);
      if (node.owner == kNoBlock || node.parent == kNoNode || gone[static_cast<size_t>(n)] != 0) continue;
      if (gone[static_cast<size_t>(node.parent)] == 0) continue;
      gone[static_cast<size_t>(n)] = 1;
      changed = true;
    }
  }
  for (NodeId start = 0; start < tree.capacity(); ++start) {
    // Leaves first, then upwards.
    for (NodeId n = start; n != kNoNode && gone[static_cast<size_t>(n)] != 0 && tree.node(n).children == 0;) {
      const NodeId parent = tree.node(n).parent;
      const BlockId owner = tree.node(n).owner;
      gone[static_cast<size_t>(n)] = 0;
      LeaveTree(n);
      if (block(owner).users == 0 && block(owner).busy_until <= ended) {   // it was cached
        Unlink(&lru, owner);
        block(owner) = Block{};
        free.push_back(owner);
      }
      n = parent;
    }
  }
}

}  // namespace tactus
