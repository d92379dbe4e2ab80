// A request that converts text or tokens and does not use the scheduler: /tokenize, /detokenize, count_tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/calls/call.h"
#include "serve/calls/generation.h"

namespace tactus::serve {

class TextCall final : public Call {
 public:
  // From api/token_routes.h.
  using Answer = Result<std::string> (*)(std::string_view body, const Engine& engine, const api::RequestLimits& limits,
                                         StopToken stop, std::vector<std::string>* ignored);

  TextCall(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange, Answer answer,
           http::Headers headers, http::ClientCounts::Places places);

 private:
  void Work() override;

  const std::shared_ptr<const GenerationContext> context_;
  const Answer answer_;
};

}  // namespace tactus::serve
