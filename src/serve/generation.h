// One HTTP request for generated text: from its body to the last byte of its answer. One engine request per prompt, all
// feeding one exchange.
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

#include "api/request_parser.h"
#include "api/response_text.h"
#include "base/clock.h"
#include "http/server.h"
#include "serve/call.h"
#include "serve/client_counts.h"
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
  std::string client;           // whose places it takes; for the engine's predictors where the body names no user
  std::string cache_salt;       // goes before the body's own; empty: none
  ClientCounts::Places places;  // one, until the body tells how many sequences there are
};

class Generation final : public Call {
 public:
  Generation(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange, bool chat,
             std::string request_id, http::Headers headers, Caller caller);

 private:
  class PromptSink;
  struct PromptState {
    std::shared_ptr<const std::vector<TokenId>> tokens;
    std::string echo;
    std::vector<std::vector<TokenLogprob>> echo_logprobs;
    RequestHandle handle = 0;
    bool done = false;
    Usage usage;
  };
  struct ChoiceState {
    api::ChoiceText text;
    int64_t text_offset = 0;
    bool begun = false;  // its first chunk was written
  };

  void Work() override;
  void WhileWaiting(TimeNs now_ns) override;  // pings
  void AnswerError(const Status& status) override;
  void LetGo() override;
  std::shared_ptr<Generation> Self() { return std::static_pointer_cast<Generation>(shared_from_this()); }
  Status Prepare();     // parses, tokenises: fills prompts_ and requests_
  Status TakePlaces();  // for every sequence of the parsed body
  Status Tokenise(const api::Prompt& prompt, PromptState* state);
  Status CheckFits(std::string_view text) const;  // by its bytes, before it is tokenised
  void Submit();
  void OnDelta(size_t prompt, const TokenDelta& delta);
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows);
  void OnDone(size_t prompt, const Usage& usage);
  // With the mutex held.
  void BeginStream();
  void BeginChoice(size_t prompt, int32_t index, std::string* out);
  int32_t Index(size_t prompt, int32_t choice) const { return static_cast<int32_t>(prompt) * parsed_.base.n + choice; }

  const std::shared_ptr<const GenerationContext> context_;
  const bool chat_;
  const std::string request_id_;
  const std::string client_, cache_salt_;
  api::ParsedRequest parsed_;  // written by Work, before the first submit
  std::optional<api::AnswerWriter> writer_;

  std::vector<PromptState> prompts_;
  std::vector<ChoiceState> choices_;
  size_t prompts_done_ = 0;
  bool stream_begun_ = false, produced_ = false;
  TimeNs next_ping_ns_ = 0;
};

}  // namespace tactus::serve
