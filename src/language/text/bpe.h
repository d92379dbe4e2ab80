// Byte-pair merging by rank: the pair with the lowest rank first, the leftmost among equals. A scan for the usual short
// words, the queue of language/text/merge_by_rank.h for long ones. MergeTable is immutable once filled.
#pragma once

#include <cstdint>
#include <vector>

#include "tactus/request.h"
#include "tactus/stop_token.h"

namespace tactus::language {

class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;
    TokenId result = -1;
  };
  void Reserve(size_t merges);
  // Among merges of one pair the last one counts.
  void Add(TokenId left, TokenId right, Merge merge);
  // rank < 0: this pair does not merge.
  Merge Find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  void Grow(size_t slots);
  size_t Place(uint64_t key) const;
  std::vector<Slot> slots_;  // open addressing, size a power of two
  size_t used_ = 0;
};

// Merges `ids` in place until no pair can merge; when stopped, only in part. Returns the queue's steps, 0 if it was not
// used.
int64_t MergePairs(const MergeTable& merges, std::vector<TokenId>* ids, StopToken stop = {});

}  // namespace tactus::language
