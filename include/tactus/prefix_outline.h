// The shape of a KV cache's prefix tree: runs of blocks without a branch between them.
#pragma once

#include <cstdint>
#include <vector>

namespace tactus {

// Blocks that follow each other in the tree, each the only child of the one before it.
struct PrefixBranch {
  int32_t parent = -1;  // index in PrefixOutline::branches; -1: begins at the root
  int32_t depth = 0;    // blocks of its chain before it
  int32_t blocks = 0;
  int32_t below = 0;      // blocks of its descendants, listed or not
  int32_t in_use = 0;     // of `blocks`: in the table of a live sequence
  int32_t sequences = 0;  // live sequences that hold its first block
};

struct PrefixOutline {
  int64_t blocks = 0;                  // of the whole tree
  bool too_large = false;              // no branches are listed
  std::vector<PrefixBranch> branches;  // largest `blocks + below` first, so that parents come before children
};

}  // namespace tactus
