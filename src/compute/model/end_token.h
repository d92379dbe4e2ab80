// A token that ends an answer, and what says so.
#pragma once

#include <string>

#include "tactus/request.h"

namespace tactus::compute {

struct EndToken {
  TokenId id = -1;
  std::string text;    // as the vocabulary spells it, for people
  std::string source;  // "tokenizer.ggml.eos_token_id", "chat template"
};

}  // namespace tactus::compute
