// Which decodes of a step begin with the same KV blocks, so that attention reads those once for all of them. Found from
// block tables alone: sequences share a block only where they share all before it, and what a group is said to share
// has been compared.
//
// A sequence is in one group at most, and a group has one prefix: where some of a group share more than the rest, the
// cut that spares the most reading is taken, and the rest may make groups of their own. A group is left alone when its
// sequences read more of their own than it spares: they would read that in smaller pieces, which costs a sixth of it.
//
// One thread at a time. Allocates only when there are more sequences than ever before.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace tactus {

class PrefixGroups {
 public:
  static constexpr int32_t kLeastTokens = 128;
  // Of the sequences that share the first kLeastTokens, so many groups are looked for: what it takes is bounded.
  static constexpr int32_t kMostPerPrefix = 8;

  struct Sequence {
    const BlockId* blocks = nullptr;
    int32_t tokens = 0;         // that it reads, from the first on; the table covers them. 0: not one to group
    int32_t group = -1;         // Find: >= 0, those of one group have the same blocks ...
    int32_t shared_tokens = 0;  // ... for so many tokens, a multiple of the block size; -1: of no group, 0
  };

  PrefixGroups(int32_t block_size, int32_t sequences);
  // Fills group and shared_tokens. Returns how many tokens need not be read again.
  int64_t Find(std::span<Sequence> sequences);

 private:
  struct Entry {
    BlockId last = kNoBlock;  // of the first kLeastTokens
    int32_t sequence = 0;
    int32_t common = 0;  // blocks that are the leader's
  };
  int64_t FindAmong(std::span<Sequence> sequences, std::span<Entry> entries);
  int32_t CommonBlocks(const Sequence& a, const Sequence& b) const;

  const int32_t block_size_, least_blocks_;
  int32_t groups_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace tactus
