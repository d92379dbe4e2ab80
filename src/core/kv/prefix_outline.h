// Outlines the prefix tree for viewers. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kv/prefix_blocks.h"
#include "tactus/prefix_outline.h"

namespace tactus::core {

// A tree of more blocks is not outlined: reading it would delay a step.
inline constexpr int32_t kMostOutlinedBlocks = 1 << 16;

// The `most` largest branches. Reads every node of the tree and changes nothing.
PrefixOutline OutlineOf(const PrefixBlocks& blocks, size_t most);

}  // namespace tactus::core
