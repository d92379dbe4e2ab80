// What a forwarded request tells its report: the replicas that it was sent to, each with its span, and the tokens that
// their answers state. The io thread.
#pragma once

#include <string>

#include "http/answered.h"
#include "http/client.h"
#include "http/server.h"

namespace tactus::fleet {

class ForwardFacts {
 public:
  // `on`: requests are reported. Otherwise nothing happens, and a client's `traceparent` is passed on as it is.
  ForwardFacts(bool on, http::Exchange* exchange);

  // The request is sent to a replica: gets a `traceparent` that names this try. Returns the number of the try.
  size_t Try(const std::string& address, TimeNs now_ns, http::ClientRequest* request);
  // The try has ended with this status; 0: no answer, or an incomplete one.
  void Ended(size_t number, int status, TimeNs now_ns);
  // The answer for the client; counts 0: not known.
  void Answer(bool stream, int64_t prompt_tokens, int64_t output_tokens);
  // Notes all that for the report; before the answer's end.
  void Note() const;

 private:
  const bool on_;
  http::Exchange& exchange_;
  http::RequestFacts facts_;
};

}  // namespace tactus::fleet
