#include "fleet/router/forward_facts.h"

#include <utility>

namespace tactus::fleet {

ForwardFacts::ForwardFacts(bool on, http::Exchange* exchange) : on_(on), exchange_(*exchange) {
  if (on_) facts_.trace = http::BeginTrace(exchange_.request());
}

size_t ForwardFacts::Try(const std::string& address, TimeNs now_ns, http::ClientRequest* request) {
  if (!on_) return 0;
  http::TriedReplica tried{.address = address, .start_ns = now_ns, .trace = http::ChildOf(*facts_.trace)};
  std::erase_if(request->headers,
                [](const auto& header) { return http::EqualsIgnoreCase(header.first, "traceparent"); });
  request->headers.emplace_back("traceparent", http::TraceParentText(tried.trace));
  facts_.replicas.push_back(std::move(tried));
  return facts_.replicas.size() - 1;
}

void ForwardFacts::Ended(size_t number, int status, TimeNs now_ns) {
  if (number >= facts_.replicas.size()) return;
  facts_.replicas[number].status = status;
  facts_.replicas[number].end_ns = now_ns;
  Note();
}

void ForwardFacts::Answer(bool stream, int64_t prompt_tokens, int64_t output_tokens) {
  if (!on_) return;
  facts_.stream = stream;
  if (prompt_tokens > 0) facts_.prompt_tokens = prompt_tokens;
  if (output_tokens > 0) facts_.output_tokens = output_tokens;
  Note();
}

void ForwardFacts::Note() const {
  if (on_) exchange_.Note(facts_);
}

}  // namespace tactus::fleet
