// Checks the token ids of a request. Any thread.
#pragma once

#include <cstdint>

#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::engine {

// Ids index the embedding and the logits: an id out of range is a client's error, found before any kernel.
Status CheckTokenIds(const Request& request, int64_t vocab_size);

}  // namespace tactus::engine
