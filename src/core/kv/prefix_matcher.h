// Finds the cached prefix of a sequence. Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/hash.h"
#include "core/kv/block_tables.h"
#include "core/kv/prefix_blocks.h"

namespace tactus::core {

// The cached prefix that a start would find, and its cost.
struct PrefixMatch {
  int32_t blocks = 0;
  int32_t pinned = 0;  // of them: unused; a start takes them from the evictable blocks
  NodeId last = kNoNode;
  bool operator==(const PrefixMatch&) const = default;
};

// Leading blocks of the chain `keys` that are in the tree.
int32_t BlocksInTree(const PrefixTree& tree, std::span<const Hash128> keys);
// Writes the match's blocks to `table` and returns how many of them are unused. Precondition: the match is of the keys.
int32_t ReadChain(const PrefixBlocks& blocks, std::span<const Hash128> keys, const PrefixMatch& match, BlockId* table);

class PrefixMatcher {
 public:
  // `blocks` outlives it.
  PrefixMatcher(const PrefixBlocks* blocks, int32_t block_size) : blocks_(*blocks), block_size_(block_size) {}

  // The keys of the leading blocks that the slot may share, without the block of the last token. A slot with OwnKeys
  // shares none: its blocks are not in the tree.
  std::span<const Hash128> Shareable(const SlotKv& slot, int32_t prompt_tokens) const;
  // Called up to three times for one start, so the last result is kept until Forget.
  const PrefixMatch& Match(SlotId s, const SlotKv& slot, int32_t prompt_tokens);
  // Called before every change of the tree or of a block's users. Growing keys need no call.
  void Forget() { last_slot_ = kNoSlot; }

  // Verifies that the kept result is right. Empty: it is.
  std::string CheckIntegrity(const BlockTables& tables) const;

 private:
  PrefixMatch Find(std::span<const Hash128> keys) const;

  const PrefixBlocks& blocks_;
  const int32_t block_size_;
  SlotId last_slot_ = kNoSlot;  // kNoSlot: no result is kept
  int32_t last_shareable_ = 0;
  Hash128 last_key_;  // of the last shareable block; identifies all blocks before it
  PrefixMatch last_match_;
};

}  // namespace tactus::core
