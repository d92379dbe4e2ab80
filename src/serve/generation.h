// One HTTP request for generated text: from its body to the last byte of its answer. One engine request per prompt, all
// feeding one exchange.
//
// Thread rule: Start runs on a worker, the sinks on the engine's delivery thread, Tick and ClientGone on the io thread;
// one mutex orders them. The engine is never called with it held. Invariants: the exchange gets one answer or one
// error; when it is over (answered, failed, client gone), every engine request that still runs has been cancelled. A
// sequence keeps its client's place until the engine has ended it, also after the client has gone; what the engine never
// got gives its places back before the answer, so that whoever reads the answer finds them free.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/request_parser.h"
#include "api/response_text.h"
#include "base/clock.h"
#include "http/server.h"
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
  std::string client;            // whose places it takes; for the engine's predictors where the body names no user
  std::string cache_salt;        // goes before the body's own; empty: none
  ClientCounts::Places places;   // one, until the body tells how many sequences there are
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `headers` go with every answer (X-Request-Id, CORS).
  Generation(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange, bool chat,
             std::string request_id, http::Headers headers, Caller caller);

  void Start();
  void Tick(TimeNs now_ns);

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

  Status Prepare();  // parses, tokenises: fills prompts_ and requests_
  Status TakePlaces();  // for every sequence of the parsed body
  void Tokenise(const api::Prompt& prompt, PromptState* state);
  void Submit();
  void OnDelta(size_t prompt, const TokenDelta& delta);
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows);
  void OnDone(size_t prompt, const Usage& usage);
  void ClientGone();
  void Fail(const Status& status);
  // With the mutex held.
  void BeginStream();
  void BeginChoice(size_t prompt, int32_t index, std::string* out);
  std::vector<RequestHandle> EndLocked();  // before the answer; what to cancel, once the mutex is free
  void CancelAll(const std::vector<RequestHandle>& handles);
  int32_t Index(size_t prompt, int32_t choice) const { return static_cast<int32_t>(prompt) * parsed_.base.n + choice; }

  const std::shared_ptr<const GenerationContext> context_;
  const std::shared_ptr<http::Exchange> exchange_;
  const bool chat_;
  const std::string request_id_;
  const http::Headers headers_;
  const std::string client_, cache_salt_;
  const TimeNs arrival_ns_;
  api::ParsedRequest parsed_;  // written by Start, before the first submit
  std::optional<api::AnswerWriter> writer_;

  std::mutex mutex_;
  ClientCounts::Places places_;  // of what the engine has not got yet
  std::vector<PromptState> prompts_;
  std::vector<ChoiceState> choices_;
  size_t prompts_done_ = 0;
  bool stream_begun_ = false, produced_ = false, over_ = false;
  TimeNs next_ping_ns_ = 0;
};

}  // namespace tactus::serve
