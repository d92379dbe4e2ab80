// The refusal of a request that can never fit into the context: one sentence, whoever finds it out.
#pragma once

#include <cstdint>

#include "tactus/status.h"

namespace tactus {

// Of a prompt of at least 1 token. `max_tokens`: what is asked for; 1 where nothing is. kInvalidArgument with the three
// numbers; at fault is `prompt_param` where the prompt leaves no room, else max_tokens.
Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context, const char* prompt_param = "prompt");

}  // namespace tactus
