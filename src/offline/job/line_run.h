// One line in the engine: its requests, one per prompt, and the resulting answer.
//
// Thread rule: Submit on one thread, Drop on any; the sinks run on the engine's delivery thread. The engine is never
// called with the mutex held. Invariant: `ended` is called once, after all the line's requests have ended in the
// engine, on the delivery thread or in Submit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/apis.h"
#include "api/chat/answer.h"
#include "api/chat/conversation.h"
#include "tactus/engine.h"

namespace tactus::offline {

struct LineAnswer {
  std::string body;  // the response object
  Usage usage;
};

class LineRun final : public std::enable_shared_from_this<LineRun> {
 public:
  // The answer, or the error.
  using Ended = std::function<void(Result<LineAnswer> answer)>;
  LineRun(Engine* engine, const api::Api& api, api::Prepared prepared, const api::AnswerIdentity& identity,
          Ended ended);

  // Waits for room without a time limit, unless the line is dropped.
  void Submit();
  bool begun();  // a token has been generated; any thread
  // Ends the line with kCancelled. With `unless_begun` only if no token has been generated.
  void Drop(bool unless_begun);

 private:
  class PromptSink;

  Result<RequestHandle> SubmitPrompt(size_t prompt);
  void OnDelta(size_t prompt, const TokenDelta& delta);
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows);
  void OnDone(size_t prompt, const Usage& usage);
  // With the mutex held.
  bool over() const { return !status_.ok(); }
  void EndIfDone(std::unique_lock<std::mutex> lock);
  void Fail(Status why, std::unique_lock<std::mutex> lock);  // cancels running requests

  Engine* const engine_;
  const std::vector<Request> requests_;
  Ended ended_;

  std::mutex mutex_;
  api::Answer answer_;
  Status status_;                       // the error that replaces the answer
  std::vector<RequestHandle> handles_;  // of requests in the engine; 0: not submitted, or ended
  size_t open_;                         // requests that have not ended
};

}  // namespace tactus::offline
