#include "serve/calls/text_call.h"

#include <utility>

namespace tactus::serve {

TextCall::TextCall(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange,
                   Answer answer, http::Headers headers, http::ClientCounts::Places places)
    : Call(std::move(exchange), std::move(headers), context->clock->NowNs(), context->request_timeout_ns,
           std::move(places)),
      context_(std::move(context)),
      answer_(answer) {}

void TextCall::Work() {
  std::vector<std::string> ignored;
  Result<std::string> text = [&] {
    const http::Body body = exchange_->TakeBody();  // freed as soon as the answer exists
    return answer_(body.text(), *context_->engine, context_->limits, stop(), &ignored);
  }();
  if (!text.ok()) return Fail(text.status());
  http::HttpResponse response;
  response.headers = headers_;
  AppendIgnored(ignored, &response.headers);
  response.body = std::move(*text);
  Respond(std::move(response));
}

}  // namespace tactus::serve
