// One line in the engine: the requests of its conversation (api/chat/conversation_runner.h), and the resulting answer.
//
// Thread rule: Submit on one thread, Drop on any; answers arrive on the engine's delivery thread. The engine is never
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
#include "api/chat/conversation_runner.h"
#include "tactus/engine.h"

namespace tactus::offline {

struct LineAnswer {
  std::string body;  // the response object
  Usage usage;
};

class LineRun final : public api::ConversationRunner::User, public std::enable_shared_from_this<LineRun> {
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
  Result<RequestHandle> SubmitPrompt(size_t prompt, const std::shared_ptr<ResponseSink>& sink);
  void OnDelta(size_t prompt, const TokenDelta& delta) override;
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows) override;
  void OnDone(size_t prompt, const Usage& usage) override;
  void OnRefused(const Status& refused) override;
  void OnEnd(const Status& submitted) override;

  Engine* const engine_;
  const std::vector<Request> requests_;
  const Ended ended_;
  api::ConversationRunner runner_;

  std::mutex mutex_;
  api::Answer answer_;
  Status status_;  // the error that replaces the answer
};

}  // namespace tactus::offline
