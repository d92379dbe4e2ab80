// The refusal of a request that can never fit into the context: one sentence, whoever finds it out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tactus/status.h"

namespace tactus {

struct ContextOverflow {
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;  // what is asked for; 1 where nothing is
  int64_t context = 0;
  bool at_least = false;                  // the prompt has this number of tokens, or more
  std::string_view field = "max_tokens";  // that asks for them, as the client calls it; kAnswer: none does
  static constexpr std::string_view kAnswer = "an answer";

  int64_t room() const { return context - prompt_tokens; }  // that the prompt leaves
};

// kInvalidArgument with the three numbers; at fault is `prompt_param` where the prompt leaves no room, else the field.
Status OverflowStatus(const ContextOverflow& overflow, const char* prompt_param = "prompt");
// The same, where it does not fit. Of a prompt of at least 1 token.
Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context, const char* prompt_param = "prompt",
                    std::string_view field = "max_tokens");
// What OverflowStatus said, for front ends that say it in words of their own; nothing: it is another message.
std::optional<ContextOverflow> OverflowIn(std::string_view message);

}  // namespace tactus
