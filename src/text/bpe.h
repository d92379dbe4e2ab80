// Byte-pair merging by rank: the pair with the lowest rank first, the leftmost of equals. A heap for long words, so that
// a megabyte of one letter costs n log n; a scan for the usual short ones. MergeTable is immutable once filled.
#pragma once

#include <cstdint>
#include <vector>

#include "tactus/request.h"

namespace tactus {

class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;
    TokenId result = -1;
  };
  void Reserve(size_t merges);
  // The later of two merges of one pair counts.
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
  std::vector<Slot> slots_;  // open addressing, a power of two
  size_t used_ = 0;
};

// Merges `ids` in place until no pair is left that merges.
void MergePairs(const MergeTable& merges, std::vector<TokenId>* ids);

}  // namespace tactus
