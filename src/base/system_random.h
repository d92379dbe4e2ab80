// The system's random numbers, for secrets: keys of the KV cache, salts. Everything else uses base/rng.h. Any thread.
#pragma once

#include "base/hash.h"
#include "tactus/status.h"

namespace tactus {

// kUnavailable if the system returns none; there is no fallback.
Result<Hash128> SystemRandom();

}  // namespace tactus
