// A token that ends an answer, and the source that states it.
#pragma once

#include <string>

#include "tactus/request.h"

namespace tactus::compute {

struct EndToken {
  TokenId id = -1;
  std::string text;    // as in the vocabulary, for display
  std::string source;  // "tokenizer.ggml.eos_token_id", "chat template"
};

}  // namespace tactus::compute
