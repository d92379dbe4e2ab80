// The engine as Python holds it: one that may be closed while others still have it, and that is of no use in a process
// that was forked from the one that made it (its threads are not there).
//
// Thread rule: any thread. Calls share the engine; Close waits for those under way, none of which lasts long.
#pragma once

#include <sys/types.h>

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

// A request as Python gives it.
struct AskedRequest {
  std::string body;  // of /v1/completions, without a prompt, or of /v1/chat/completions
  // None: a chat. A completion's prompt comes beside the body, because it may be long.
  std::variant<std::monostate, std::string, std::vector<TokenId>> prompt;
  bool context_long = false;  // without max_tokens the answer may be as long as the context allows

  bool chat() const { return std::holds_alternative<std::monostate>(prompt); }
  size_t bytes() const;
};

// A request that is ready to be submitted.
struct ReadyRequest {
  Request request;
  std::shared_ptr<const api::AnswerShape> shape;  // null: all of its text is content, and no rule binds it
};

class EngineHandle {
 public:
  // Throws StatusError, as everything here.
  explicit EngineHandle(const OptionTexts& options);
  ~EngineHandle();
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;

  // The engine, which stays open as long as this lives.
  class Use {
   public:
    explicit Use(EngineHandle& handle);
    Engine& operator*() const { return *handle_.engine_; }
    Engine* operator->() const { return handle_.engine_.get(); }

   private:
    EngineHandle& handle_;
    std::shared_lock<std::shared_mutex> lock_;
  };

  bool forked() const;        // this is not the process that made it
  void CheckProcess() const;  // throws where it is not
  void Close();               // again: no effect
  bool closed();
  const std::vector<std::string>& start_up_lines() const { return lines_; }
  // As the server reads it. Once `stop` is set it ends soon, with kCancelled.
  ReadyRequest Prepare(AskedRequest asked, StopToken stop);
  std::vector<TokenId> Tokenize(const std::string& text, bool add_special, StopToken stop);
  // Throws StatusError for an id that is none of the model's.
  std::string Detokenize(const std::vector<TokenId>& tokens);
  std::string TokenString(TokenId token);
  std::string Outcome();  // JSON
  std::string MetricsText();
  struct Model {
    ModelInfo info;
    int64_t kv_tokens = 0;  // whose K and V fit
  };
  Model model();
  // Cancels what is left of it. No effect where the engine is closed.
  void Cancel(const std::vector<RequestHandle>& requests);

 private:
  const pid_t pid_;
  std::vector<std::string> lines_;
  std::shared_mutex open_;
  std::unique_ptr<Engine> engine_;  // under open_; null: closed
  int64_t block_size_ = 0;
  api::RequestLimits limits_;
};

// Whether a body has values that can be right for some model, and no name that is not known. Throws StatusError.
void CheckBody(const std::string& body, bool chat);

// All of this process that are open; what is being made is closed when it is (python/calls.h).
void CloseEngines();

}  // namespace tactus::python
