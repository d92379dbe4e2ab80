#include "base/step.h"

#include <algorithm>

namespace tactus {

SamplingSpec SamplingOf(const Request& request, std::span<const TokenId> output, std::span<const TokenId> model_ends) {
  SamplingSpec spec;
  spec.params = request.sampling;
  spec.prompt_logprobs = request.prompt_logprobs;
  spec.max_tokens = static_cast<int32_t>(request.stop.max_tokens);
  const bool penalties = request.sampling.NeedsHistory();
  if (request.prompt != nullptr && (penalties || request.prompt_logprobs)) spec.prompt = *request.prompt;
  if (penalties || request.grammar != nullptr) spec.output.assign(output.begin(), output.end());
  spec.grammar = request.grammar;
  const int64_t least = std::min(request.stop.min_tokens, request.stop.max_tokens);
  if (least <= static_cast<int64_t>(output.size())) return spec;
  spec.unended_tokens = static_cast<int32_t>(least) - static_cast<int32_t>(output.size());
  spec.ends = request.stop.stop_token_ids;
  spec.ends.insert(spec.ends.end(), model_ends.begin(), model_ends.end());
  std::sort(spec.ends.begin(), spec.ends.end());
  spec.ends.erase(std::unique(spec.ends.begin(), spec.ends.end()), spec.ends.end());
  return spec;
}

}  // namespace tactus
