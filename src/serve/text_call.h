// One request of /tokenize or /detokenize: text to tokens and back, with no engine request.
#pragma once

#include <memory>

#include "serve/call.h"
#include "serve/generation.h"

namespace tactus::serve {

class TextCall final : public Call {
 public:
  TextCall(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange, bool decode,
           http::Headers headers, http::ClientCounts::Places places);

 private:
  void Work() override;

  const std::shared_ptr<const GenerationContext> context_;
  const bool decode_;
};

}  // namespace tactus::serve
