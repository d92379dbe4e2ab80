// The identity of a KV block: a keyed hash of (parent key, tokens). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/units.h"

namespace tactus::core {

// Root of every chain: what must be equal for two prompts to share KV at all. `secret` is drawn once per process (or
// fixed for tests and replays).
Hash128 RootKey(const Hash128& secret, std::string_view model, std::string_view adapter, std::string_view cache_salt);

// Key of the block that holds exactly `tokens` after `parent`.
Hash128 BlockKey(const Hash128& secret, const Hash128& parent, std::span<const TokenId> tokens);

// Appends the keys of all full blocks of `tokens` that `keys` lacks; keys->size() blocks are already there.
void ExtendBlockKeys(const Hash128& secret, const Hash128& root, std::span<const TokenId> tokens, int32_t block_size,
                     std::vector<Hash128>* keys);

}  // namespace tactus::core
