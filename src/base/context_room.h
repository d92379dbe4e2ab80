// The error for a request that can never fit into the context: one text for all places that detect it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tactus/status.h"

namespace tactus {

struct ContextOverflow {
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;  // requested tokens; 1 if the request states none
  int64_t context = 0;
  bool at_least = false;                  // the prompt has this number of tokens, or more
  std::string_view field = "max_tokens";  // the client's field that requests them; kAnswer: none
  static constexpr std::string_view kAnswer = "an answer";

  int64_t room() const { return context - prompt_tokens; }  // tokens that the prompt leaves
};

// kInvalidArgument with the three numbers; its param is `prompt_param` if the prompt leaves no room, else the field.
Status OverflowStatus(const ContextOverflow& overflow, const char* prompt_param = "prompt");
// OverflowStatus if the request does not fit, else ok. The prompt has at least 1 token.
Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context, const char* prompt_param = "prompt",
                    std::string_view field = "max_tokens");
// The numbers in a message of OverflowStatus, for front ends with their own text; nothing: another message.
std::optional<ContextOverflow> OverflowIn(std::string_view message);

}  // namespace tactus
