// The identity of a KV block: a keyed hash of (parent key, tokens). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/units.h"

namespace tactus::core {

// Root of every chain: two prompts share KV only if model, adapter and cache_salt are equal. `secret` is drawn once per
// process (or fixed for tests and replays).
Hash128 RootKey(const Hash128& secret, std::string_view model, std::string_view adapter, std::string_view cache_salt);

// Key of the block that holds exactly `tokens` after `parent`.
Hash128 BlockKey(const Hash128& secret, const Hash128& parent, std::span<const TokenId> tokens);

// Appends to `keys` the keys of the full blocks of `tokens` after the first keys->size() blocks.
void ExtendBlockKeys(const Hash128& secret, const Hash128& root, std::span<const TokenId> tokens, int32_t block_size,
                     std::vector<Hash128>* keys);

}  // namespace tactus::core
