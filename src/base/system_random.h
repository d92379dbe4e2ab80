// The system's randomness, for what must not be guessed: keys of the KV cache, salts. Everything else draws from
// base/rng.h. Any thread.
#pragma once

#include "base/hash.h"
#include "tactus/status.h"

namespace tactus {

// kUnavailable where the system gives none; there is nothing to fall back to.
Result<Hash128> SystemRandom();

}  // namespace tactus
