// Handles blocks that a step failed to fill. Rare, so it may be slow and may allocate.
#include <algorithm>

#include "core/kv/kv_cache_impl.h"

namespace tactus::core {

void KvCache::Impl::DropVoid(StepId step, std::vector<SlotId>* recompute) {
  // Blocks that `step` or a later one computes after a void block are void too. The producer may have ended by now, but
  // the predecessor cannot have been reused, because the same sequence released both. Blocks complete before `step` are
  // good.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (void_blocks[b] != 0 || blocks[b].computed_by < step || blocks[b].after == kNoBlock) continue;
      if (void_blocks[static_cast<size_t>(blocks[b].after)] == 0) continue;
      void_blocks[b] = 1;
      changed = true;
    }
  }
  DropVoidFromTree();
  if (recompute != nullptr) {
    for (SlotId s = 0; s < config.max_slots; ++s) {
      const BlockId* table = TableOf(s);
      const auto is_void = [this](BlockId b) { return void_blocks[static_cast<size_t>(b)] != 0; };
      if (std::any_of(table, table + At(s).blocks, is_void)) recompute->push_back(s);
    }
  }
  void_blocks.assign(void_blocks.size(), 0);
}

void KvCache::Impl::DropVoidFromTree() {
  std::vector<uint8_t> gone(static_cast<size_t>(tree.capacity()), 0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto b = static_cast<BlockId>(i);
    if (void_blocks[i] == 0) continue;
    if (block(b).node == kUnlisted) Unlist(b);  // blocks after it are void as well
    if (Filed(b) && !block(b).owns) DropDuplicate(b);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto b = static_cast<BlockId>(i);
    if (void_blocks[i] == 0 || block(b).node == kNoNode) continue;
    // No duplicate becomes the owner: a sequence that holds the void block may hold good children of the node, and
    // their parent would then become free before them.
    gone[static_cast<size_t>(block(b).node)] = 1;
  }
  for (bool changed = true; changed;) {  // descendants of a removed node could never be found again
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
      if (Unused(owner)) {  // it was cached
        lru.Remove(owner);
        block(owner) = Block{};
        free.push_back(owner);
      }
      n = parent;
    }
  }
}

}  // namespace tactus::core
