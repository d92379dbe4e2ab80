// One HTTP request for generated text, from its body to the last byte of its answer. What is asked and what is answered
// is api/conversation.h and api/answer.h; here are the engine requests, one per prompt, the events and the end.
//
// Thread rule: as serve/call.h says, and the sinks run on the engine's delivery thread. The engine is never called with
// the mutex held. Invariants: the exchange gets one answer or one error; when it is over (answered, failed, client
// gone), every engine request that still runs has been cancelled. A sequence keeps its client's place until the engine
// has ended it, also after the client has gone; what the engine never got gives its places back before the answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/answer.h"
#include "api/conversation.h"
#include "base/clock.h"
#include "http/client_counts.h"
#include "http/server.h"
#include "serve/call.h"
#include "tactus/engine.h"

namespace tactus::serve {

// What all calls share. Immutable once requests are taken; the engine outlives every call.
struct GenerationContext {
  Engine* engine = nullptr;
  api::RequestLimits limits;
  Clock* clock = nullptr;
  DurationNs request_timeout_ns = 0;  // 0: none
  DurationNs ping_interval_ns = 0;
  std::string fingerprint;
};

// Who sent a request.
struct Caller {
  std::string client;        // whose places it takes
  bool one_of_many = false;  // the client is one of several keys: the engine knows it as that, whatever user it names
  std::string slo_class;     // of its requests that name none; empty: none
  std::string cache_salt;    // goes before the body's own; empty: none
  http::ClientCounts::Places places;  // one, until the body tells how many sequences there are
  std::string owner;                  // who may ask for the request's schedule; empty: everybody
};

class Generation final : public Call {
 public:
  Generation(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange, bool chat,
             std::string request_id, http::Headers headers, Caller caller);

 private:
  class PromptSink;

  void Work() override;
  void WhileWaiting(TimeNs now_ns) override;  // pings
  void AnswerError(const Status& status) override;
  void LetGo() override;
  std::shared_ptr<Generation> Self() { return std::static_pointer_cast<Generation>(shared_from_this()); }
  Result<api::ParsedRequest> Parse();      // the body, with what the caller and the headers say
  Result<std::vector<Request>> Prepare();  // what the engine gets; answer_ is ready for it
  Status TakePlaces(int64_t sequences);
  void Submit(std::vector<Request> requests);
  void OnDelta(size_t prompt, const TokenDelta& delta);
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows);
  void OnDone(size_t prompt, const Usage& usage);
  std::string Schedule() const;  // JSON; empty: not asked for
  // With the mutex held.
  void BeginStream();

  const std::shared_ptr<const GenerationContext> context_;
  const bool chat_;
  const std::string request_id_;
  const std::string client_, owner_, cache_salt_, slo_class_;
  const bool one_of_many_;
  const bool explained_;  // the answer tells its schedule

  // With the mutex held.
  std::optional<api::Answer> answer_;   // from before the first submit
  std::vector<RequestHandle> handles_;  // one per prompt; 0: not submitted
  bool stream_ = false, stream_begun_ = false;
  TimeNs next_ping_ns_ = 0;
};

}  // namespace tactus::serve
