// Groups the decodes of a step that begin with the same KV blocks, so that attention reads these once for all of them.
// Uses only block tables: sequences that share a block share all blocks before it, and the shared blocks of a group
// have been compared.
//
// A sequence is in at most one group, and a group has one prefix: if some of its sequences share more than the others,
// the cut that saves the most reads is chosen, and the others may form further groups. A group is dropped if its
// sequences read more unshared tokens than it saves, because reading those in smaller pieces costs a sixth more.
//
// One thread at a time. Allocates only if there are more sequences than in any call before.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace tactus {

class PrefixGroups {
 public:
  static constexpr int32_t kLeastTokens = 128;
  // The most groups among sequences that share the first kLeastTokens, which bounds the time.
  static constexpr int32_t kMostPerPrefix = 8;

  struct Sequence {
    const BlockId* blocks = nullptr;
    int32_t tokens = 0;         // tokens that it reads, from the first on; the table covers them. 0: do not group
    int32_t group = -1;         // set by Find: sequences of a group have the same blocks ...
    int32_t shared_tokens = 0;  // ... for this many tokens, a multiple of the block size. No group: -1 and 0
  };

  PrefixGroups(int32_t block_size, int32_t sequences);
  // Sets group and shared_tokens. Returns the number of saved token reads.
  int64_t Find(std::span<Sequence> sequences);

 private:
  struct Entry {
    BlockId last = kNoBlock;  // last block of the first kLeastTokens
    int32_t sequence = 0;
    int32_t common = 0;  // blocks in common with the leader
  };
  int64_t FindAmong(std::span<Sequence> sequences, std::span<Entry> entries);
  int32_t CommonBlocks(const Sequence& a, const Sequence& b) const;

  const int32_t block_size_, least_blocks_;
  int32_t groups_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace tactus
