#include "core/kv/void_blocks.h"

#include <algorithm>

namespace tactus::core {

VoidBlocks::VoidBlocks(PrefixBlocks* blocks, const BlockTables* tables)
    : blocks_(*blocks), tables_(*tables), marked_(static_cast<size_t>(blocks->pool().size())) {}

void VoidBlocks::MarkBlocksOf(StepId step) {
  for (BlockId b = 0; b < blocks_.pool().used(); ++b) {
    // Chunks and decodes of several steps may fill one block; the failure of any makes it void.
    if (blocks_[b].begun_by <= step && step <= blocks_[b].computed_by) Mark(b);
  }
}

void VoidBlocks::MarkRestored(StepId saved_by) {
  for (SlotId s = 0; s < tables_.size(); ++s) {
    const SavedKv& saved = tables_[s].saved;
    if (saved.saved_by != saved_by) continue;
    for (int32_t i = saved.restored_begin; i < saved.restored_end; ++i) Mark(tables_[s].table[i]);
  }
}

// The producer may have ended by now, but the predecessor cannot have been reused, because the same sequence released
// both. Blocks complete before `step` are good.
void VoidBlocks::MarkDependants(StepId step) {
  for (bool changed = true; changed;) {
    changed = false;
    for (BlockId b = 0; b < blocks_.pool().used(); ++b) {
      const BlockId after = blocks_[b].after;
      if (Marked(b) || blocks_[b].computed_by < step || after == kNoBlock || !Marked(after)) continue;
      Mark(b);
      changed = true;
    }
  }
}

void VoidBlocks::Drop(StepId step, std::vector<SlotId>* recompute) {
  MarkDependants(step);
  DropFromTree();
  if (recompute != nullptr) {
    for (SlotId s = 0; s < tables_.size(); ++s) {
      const std::span<const BlockId> held = tables_[s].held();
      if (std::any_of(held.begin(), held.end(), [this](BlockId b) { return Marked(b); })) recompute->push_back(s);
    }
  }
  marked_.assign(marked_.size(), 0);
}

void VoidBlocks::Rollback(std::span<const BlockId> blocks) {
  // Void blocks and blocks computed after them must not be found any more.
  for (const BlockId b : blocks) Mark(b);
  if (std::any_of(blocks.begin(), blocks.end(), [this](BlockId b) { return blocks_[b].keyed(); })) DropFromTree();
  for (const BlockId b : blocks) {
    marked_[static_cast<size_t>(b)] = 0;
    blocks_.SetComputedBy(b, -1);
  }
}

// The nodes of marked blocks, and their descendants, which could never be found again.
std::vector<uint8_t> VoidBlocks::NodesToRemove() const {
  const PrefixTree& tree = blocks_.tree();
  std::vector<uint8_t> removed(static_cast<size_t>(tree.ids_used()), 0);
  for (BlockId b = 0; b < blocks_.pool().used(); ++b) {
    if (Marked(b) && blocks_[b].filed()) removed[static_cast<size_t>(blocks_[b].node)] = 1;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId n = 0; n < tree.ids_used(); ++n) {
      const PrefixTree::Node& node = tree.node(n);
      if (node.owner == kNoBlock || node.parent == kNoNode || removed[static_cast<size_t>(n)] != 0) continue;
      if (removed[static_cast<size_t>(node.parent)] == 0) continue;
      removed[static_cast<size_t>(n)] = 1;
      changed = true;
    }
  }
  return removed;
}

void VoidBlocks::DropFromTree() {
  for (BlockId b = 0; b < blocks_.pool().used(); ++b) {
    if (Marked(b)) blocks_.Separate(b);  // blocks after an unlisted one are void as well
  }
  // No duplicate becomes the owner: a sequence that holds the void block may hold good children of the node, and their
  // parent would then become free before them.
  std::vector<uint8_t> removed = NodesToRemove();
  const PrefixTree& tree = blocks_.tree();
  for (NodeId start = 0; start < tree.ids_used(); ++start) {
    // Leaves first, then upwards.
    for (NodeId n = start; n != kNoNode && removed[static_cast<size_t>(n)] != 0 && tree.node(n).children == 0;) {
      const NodeId parent = tree.node(n).parent;
      removed[static_cast<size_t>(n)] = 0;
      blocks_.RemoveNode(n);
      n = parent;
    }
  }
}

}  // namespace tactus::core
