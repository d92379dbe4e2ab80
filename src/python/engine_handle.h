// The engine as Python holds it: one that may be closed while others still have it, and that is of no use in a process
// that was forked from the one that made it (its threads are not there).
//
// Thread rule: any thread. Calls share the engine; Close waits for those under way, none of which lasts long.
#pragma once

#include <sys/types.h>

#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "api/conversation.h"
#include "python/option_texts.h"
#include "tactus/engine.h"

namespace tactus::python {

// A request that is ready to be submitted.
struct ReadyRequest {
  Request request;
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
  int64_t block_size() const { return block_size_; }  // of KV, in tokens

  // A body of /v1/completions with one prompt, or of /v1/chat/completions, as the server reads it. `context_long`:
  // without max_tokens the answer may be as long as the context allows.
  ReadyRequest Prepare(const std::string& body, bool chat, bool context_long);
  // Throws StatusError for an id that is none of the model's.
  std::string Detokenize(const std::vector<TokenId>& tokens);
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

// Whether a body has values that can be right for some model. Throws StatusError.
void CheckBody(const std::string& body, bool chat);

}  // namespace tactus::python
