#include "base/context_room.h"

#include <fmt/format.h>

namespace tactus {

Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context, const char* prompt_param) {
  const int64_t room = context - prompt_tokens;
  if (max_tokens <= room) return Status();
  const bool shorten = room < 1;
  return InvalidArgument(
      fmt::format("prompt of {} tokens + max_tokens of {} exceed the context of {} tokens; {}", prompt_tokens,
                  max_tokens, context, shorten ? "shorten the prompt" : fmt::format("give max_tokens up to {}", room)),
      shorten ? prompt_param : "max_tokens");
}

}  // namespace tactus
