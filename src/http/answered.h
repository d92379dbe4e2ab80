// An answered request, as the access log and traces report it: no header, no body, no prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "http/message.h"

namespace tactus::http {

// The place of a span in a trace (W3C Trace Context).
struct TraceContext {
  Hash128 trace;
  uint64_t span = 0;
  uint64_t parent = 0;  // 0: the trace begins here
  bool sampled = true;  // spans are exported
};

// The context of a new span for a request: within the trace of its `traceparent`, if that is valid, else in a new one.
TraceContext BeginTrace(const HttpRequest& request);
// A span within another.
TraceContext ChildOf(const TraceContext& parent);
// "00-TRACE-SPAN-FLAGS", the header for requests that a span causes.
std::string TraceParentText(const TraceContext& context);

// A replica that received a request from a router.
struct TriedReplica {
  std::string address;
  int status = 0;  // 0: no answer
  TimeNs start_ns = 0, end_ns = 0;
  TraceContext trace;
};

// What a handler knows of a request. -1 and empty: not known.
struct RequestFacts {
  std::string client;  // "key 1"; empty: the client's address
  std::string model;
  std::string finish;  // of the answer, as its finish_reason; "error": its status has the reason
  std::string cause;   // what it waited for or computed most of the time; for an error, its kind
  std::string missed;  // objectives, separated by commas
  bool stream = false;
  int64_t prompt_tokens = -1, cached_tokens = -1, output_tokens = -1, max_tokens = -1, choices = -1, preemptions = -1;
  DurationNs queue_ns = -1, ttft_ns = -1, longest_gap_ns = -1;
  std::optional<TraceContext> trace;  // of the request's span, if others refer to it
  std::vector<TriedReplica> replicas;
};

struct Answered {
  const HttpRequest& request;   // its method is empty if no valid head arrived
  std::string_view request_id;  // X-Request-Id of the answer
  int status = 0;
  bool complete = false;                               // the client has received the whole answer
  int64_t request_bytes = 0, answer_bytes = 0;         // of bodies; of the whole answer
  TimeNs start_ns = 0, first_byte_ns = 0, end_ns = 0;  // its head arrived; the answer's bytes were written
  const RequestFacts* facts = nullptr;                 // may be null
};

}  // namespace tactus::http
