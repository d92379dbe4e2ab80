// Drops blocks that will never hold the KV of their key, because a step failed to fill them or a sequence was rolled
// back. Such blocks are marked first, then dropped together. Failures are rare, so dropping may be slow and allocate.
// Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/kv/block_tables.h"
#include "core/kv/prefix_blocks.h"

namespace tactus::core {

class VoidBlocks {
 public:
  // Both arguments outlive it.
  VoidBlocks(PrefixBlocks* blocks, const BlockTables* tables);

  void Mark(BlockId b) { marked_[static_cast<size_t>(b)] = 1; }
  // Marks the blocks that the step should have filled.
  void MarkBlocksOf(StepId step);
  // Marks the blocks that were restored from KV which the step should have saved.
  void MarkRestored(StepId saved_by);
  // Marks the blocks computed from marked ones by `step` and later steps, and drops all marked blocks from the tree.
  // Appends the slots that hold any to `recompute`, which may be null, in ascending order.
  void Drop(StepId step, std::vector<SlotId>* recompute);
  // Drops the blocks of a table whose positions are void. They stay allocated, and no step fills them.
  void Rollback(std::span<const BlockId> blocks);

  // Verifies that no block is marked between calls. Empty: none is.
  std::string CheckIntegrity() const;

 private:
  bool Marked(BlockId b) const { return marked_[static_cast<size_t>(b)] != 0; }
  void MarkDependants(StepId step);
  void DropFromTree();
  std::vector<uint8_t> NodesToRemove() const;

  PrefixBlocks& blocks_;
  const BlockTables& tables_;
  std::vector<uint8_t> marked_;  // by block; all zero between calls
};

}  // namespace tactus::core
