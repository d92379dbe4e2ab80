#include "base/step.h"

namespace tactus {

SamplingSpec SamplingOf(const Request& request, std::span<const TokenId> output) {
  SamplingSpec spec;
  spec.params = request.sampling;
  spec.prompt_logprobs = request.prompt_logprobs;
  spec.max_tokens = static_cast<int32_t>(request.stop.max_tokens);
  const bool penalties = request.sampling.NeedsHistory();
  if (request.prompt != nullptr && (penalties || request.prompt_logprobs)) spec.prompt = *request.prompt;
  if (penalties || request.grammar != nullptr) spec.output.assign(output.begin(), output.end());
  spec.grammar = request.grammar;
  return spec;
}

}  // namespace tactus
