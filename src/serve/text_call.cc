#include "serve/text_call.h"

#include <utility>

namespace tactus::serve {

TextCall::TextCall(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange,
                   bool decode, http::Headers headers, ClientCounts::Places places)
    : Call(std::move(exchange), std::move(headers), context->clock->NowNs(), context->request_timeout_ns,
           std::move(places)),
      context_(std::move(context)),
      decode_(decode) {}

void TextCall::Work() {
  Result<std::string> text = Answer();
  if (!text.ok()) return Fail(text.status());
  http::HttpResponse response;
  response.headers = headers_;
  response.body = std::move(*text);
  Respond(std::move(response));
}

Result<std::string> TextCall::Answer() const {
  const Engine& engine = *context_->engine;
  const http::Body held = exchange_->TakeBody();
  const std::string_view body = held.text();
  if (decode_) {
    TACTUS_ASSIGN_OR_RETURN(const auto tokens, api::ParseDetokenizeRequest(body, context_->limits, stop()));
    return api::DetokenizeText(engine.Detokenize(tokens));
  }
  TACTUS_ASSIGN_OR_RETURN(const auto parsed, api::ParseTokenizeRequest(body, context_->limits, stop()));
  if (!parsed.chat) {
    return api::TokenizeText(engine, engine.Tokenize(parsed.prompt, parsed.add_special_tokens, stop()),
                             parsed.return_token_strs);
  }
  TACTUS_ASSIGN_OR_RETURN(const std::string rendered, engine.ApplyChatTemplate(parsed.template_variables, stop()));
  return api::TokenizeText(engine, engine.TokenizeChat(rendered, stop()), parsed.return_token_strs);
}

}  // namespace tactus::serve
