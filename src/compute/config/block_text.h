// Blocks in words and as plain fields, for `tactus models inspect`.
//
// Pure functions: any thread.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compute/config/blocks.h"

namespace tactus::compute {

// "attention 32 heads, 8 KV heads, head_dim 128, window 4096"; "feed-forward 14336 silu gated"; "128 experts, 8 per
// token, 768 wide silu gated, shared 1408".
std::string TextOf(const Block& block);
std::string TextOf(const Layer& layer);  // "attention ...; feed-forward ..."

// The same as names and values; the first is "block".
using BlockField = std::pair<const char*, std::variant<int64_t, bool, std::string>>;
std::vector<BlockField> FieldsOf(const Block& block);

// Rising numbers: "0-2", "0-4, 6-10", "0, 2 ... 22" (equal steps).
std::string RangesText(const std::vector<int64_t>& numbers);

}  // namespace tactus::compute
