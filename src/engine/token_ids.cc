#include "engine/token_ids.h"

#include <fmt/format.h>

namespace tactus::engine {

Status CheckTokenIds(const Request& request, int64_t vocab_size) {
  if (!request.prompt) return InvalidArgument("the prompt is empty; it needs at least 1 token", "prompt");
  const auto check = [vocab_size](TokenId id, const char* param) {
    if (id >= 0 && id < vocab_size) return Status();
    return InvalidArgument(fmt::format("token id {} is outside the vocabulary [0, {})", id, vocab_size), param);
  };
  for (const TokenId id : *request.prompt) TACTUS_RETURN_IF_ERROR(check(id, "prompt"));
  for (const auto& bias : request.sampling.logit_bias) TACTUS_RETURN_IF_ERROR(check(bias.first, "logit_bias"));
  return Status();
}

}  // namespace tactus::engine
