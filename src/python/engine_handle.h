// The engine as used from Python: it can be closed while others still hold it, and it cannot be used in a forked
// process, which lacks its threads.
// Thread rule: any thread. Calls share the engine; Close waits for running calls, all of which are short.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <variant>
#include <vector>

#include "api/chat/conversation.h"
#include "python/option_texts.h"
#include "tactus/engine.h"
#include "tactus/stop_token.h"

namespace tactus::python {

// A request as Python passes it.
struct AskedRequest {
  std::string body;  // of /v1/completions, without prompt, or of /v1/chat/completions
  // None: a chat. A completion's prompt is separate from the body, because it may be long.
  std::variant<std::monostate, std::string, std::vector<TokenId>> prompt;
  bool context_long = false;  // without max_tokens the context limits the answer

  bool chat() const { return std::holds_alternative<std::monostate>(prompt); }
  size_t bytes() const;
};

// A request that is ready to be submitted.
struct ReadyRequest {
  Request request;
  std::shared_ptr<const api::AnswerShape> shape;  // null: all text is content, without an output rule
};

class EngineHandle {
 public:
  // Throws StatusError, like every function here.
  explicit EngineHandle(const OptionTexts& options);
  ~EngineHandle();
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;

  // Access to the engine, which stays open while the object lives.
  class Use {
   public:
    explicit Use(EngineHandle& handle);
    Engine& operator*() const { return *handle_.engine_; }
    Engine* operator->() const { return handle_.engine_.get(); }

   private:
    EngineHandle& handle_;
    std::shared_lock<std::shared_mutex> lock_;
  };

  bool forked() const;        // true if another process created it
  void CheckProcess() const;  // throws if forked()
  void Close();               // idempotent
  bool closed();
  const std::vector<std::string>& start_up_lines() const { return lines_; }
  // Parses like the server. Once `stop` is set it ends soon, with kCancelled.
  ReadyRequest Prepare(AskedRequest asked, StopToken stop);
  std::vector<TokenId> Tokenize(const std::string& text, bool add_special, StopToken stop);
  // Throws StatusError for an id outside the model's vocabulary.
  std::string Detokenize(const std::vector<TokenId>& tokens);
  std::string TokenString(TokenId token);
  std::string Outcome();  // JSON
  std::string MetricsText();
  struct Model {
    ModelInfo info;
    int64_t kv_tokens = 0;  // capacity of the KV memory in tokens
  };
  Model model();
  // Runs `cancel`, which cancels requests, unless the engine is closed: then none of them runs.
  void IfOpen(const std::function<void()>& cancel);

 private:
  const pid_t pid_;
  std::vector<std::string> lines_;
  std::shared_mutex open_;
  std::unique_ptr<Engine> engine_;  // under open_; null: closed
  int64_t block_size_ = 0;
  api::RequestLimits limits_;
};

// Checks that a body has values valid for some model and no unknown names. Throws StatusError.
void CheckBody(const std::string& body, bool chat);

// Closes all open engines of this process; those being created are closed when they are ready (python/calls.h).
void CloseEngines();

}  // namespace tactus::python
