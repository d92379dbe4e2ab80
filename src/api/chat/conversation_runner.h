// Runs one conversation in an engine: submits its requests, one per prompt, passes their events on, cancels them and
// reports their end. Its users (a call of the server, a line of a batch, the terminal, Python) differ in how a request
// is submitted and in what they do with the events.
//
// Thread rule: Submit on one thread, once; the rest on any thread, also within the user's functions. The user's
// functions run on the engine's delivery thread, OnRefused in Submit, OnEnd in both. Neither the engine nor the user is
// called with the mutex held. Invariants: after Cancel no further prompt is submitted, and every request in the engine
// is cancelled, at the latest when its handle is known. OnEnd is called once, after the last OnDone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/units.h"
#include "tactus/engine.h"

namespace tactus::api {

class ConversationRunner {
 public:
  // Receives the conversation's events. OnDelta, OnPromptLogprobs and OnDone are those of ResponseSink, with the number
  // of the prompt, from 0.
  class User {
   public:
    virtual ~User() = default;
    virtual void OnDelta(size_t prompt, const TokenDelta& delta) = 0;
    virtual void OnPromptLogprobs(size_t /*prompt*/, const std::vector<std::vector<TokenLogprob>>& /*rows*/) {}
    virtual void OnDone(size_t prompt, const Usage& usage) = 0;
    // A prompt was refused after others were accepted. Called in Submit, before those are cancelled: a user that
    // reports the first error reports this one, not their cancellation.
    virtual void OnRefused(const Status& /*refused*/) {}
    // The engine has ended every request that it accepted, and gets no more. `submitted`: the result of Submit.
    virtual void OnEnd(const Status& /*submitted*/) {}
  };
  // Submits one prompt's request with the given sink. After an error the sink must not be called.
  using SubmitPrompt = std::function<Result<RequestHandle>(size_t prompt, std::shared_ptr<ResponseSink> sink)>;

  // The engine outlives the runner.
  explicit ConversationRunner(Engine& engine) : engine_(engine) {}

  // Submits the prompts in order. On the first error it submits no further prompt, calls OnRefused if it has submitted
  // one, cancels the submitted ones and returns the error; kCancelled after Cancel. An exception of `submit` passes
  // through, and OnEnd is then never called. Precondition: `user` keeps the runner alive.
  Status Submit(size_t prompts, const std::shared_ptr<User>& user, const SubmitPrompt& submit);
  // Cancels the requests that run; the user still receives their events. Allocates nothing itself.
  void Cancel();
  bool cancelled() const;
  bool submitted() const;                              // every prompt has been accepted by the engine
  RequestHandle handle(size_t prompt) const;           // 0: not accepted yet, or ended
  RequestHandle accepted_handle(size_t prompt) const;  // 0: not accepted yet
  // As handle, but waits while the prompt is being submitted: its first tokens may arrive before Submit knows the
  // handle. Not on the thread that submits.
  RequestHandle AwaitHandle(size_t prompt, DurationNs timeout_ns) const;

 private:
  class PromptSink;
  struct Prompt {
    RequestHandle handle = 0;  // 0: not known yet
    bool submitting = false, ended = false;
  };

  Status SubmitOne(size_t prompt, const std::shared_ptr<User>& user, const SubmitPrompt& submit);
  void OnDone(size_t prompt, const Usage& usage, User& user);
  void End(size_t prompts, User& user);  // subtracts `prompts` from open_

  Engine& engine_;
  mutable std::mutex mutex_;
  mutable std::condition_variable was_submitted_;
  std::vector<Prompt> prompts_;
  size_t open_ = 0;   // prompts that have neither ended nor been refused
  Status submitted_;  // the result of Submit so far
  bool cancelled_ = false;
};

}  // namespace tactus::api
