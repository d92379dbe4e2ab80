#include "api/chat/conversation_runner.h"

#include <chrono>
#include <utility>

#include "base/on_exit.h"

namespace tactus::api {

class ConversationRunner::PromptSink final : public ResponseSink {
 public:
  PromptSink(ConversationRunner* runner, size_t prompt, std::shared_ptr<User> user)
      : runner_(*runner), prompt_(prompt), user_(std::move(user)) {}
  void OnDelta(const TokenDelta& delta) override { user_->OnDelta(prompt_, delta); }
  void OnPromptLogprobs(const std::vector<std::vector<TokenLogprob>>& rows) override {
    user_->OnPromptLogprobs(prompt_, rows);
  }
  void OnDone(const Usage& usage) override { runner_.OnDone(prompt_, usage, *user_); }

 private:
  ConversationRunner& runner_;
  const size_t prompt_;
  const std::shared_ptr<User> user_;
};

Status ConversationRunner::Submit(size_t prompts, const std::shared_ptr<User>& user, const SubmitPrompt& submit) {
  {
    std::lock_guard lock(mutex_);
    prompts_.resize(prompts);
    open_ = prompts;
  }
  for (size_t i = 0; i < prompts; ++i) {
    const Status status = SubmitOne(i, user, submit);
    if (status.ok()) continue;
    {
      std::lock_guard lock(mutex_);
      submitted_ = status;
    }
    if (i > 0) user->OnRefused(status);
    End(prompts - i, *user);
    Cancel();
    return status;
  }
  return Status();
}

Status ConversationRunner::SubmitOne(size_t prompt, const std::shared_ptr<User>& user, const SubmitPrompt& submit) {
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return Status(StatusCode::kCancelled, "the conversation was cancelled");
    prompts_[prompt].submitting = true;
  }
  const OnExit done([&] {
    {
      std::lock_guard lock(mutex_);
      prompts_[prompt].submitting = false;
    }
    was_submitted_.notify_all();
  });
  TACTUS_ASSIGN_OR_RETURN(const RequestHandle handle, submit(prompt, std::make_shared<PromptSink>(this, prompt, user)));
  bool late = false;
  {
    std::lock_guard lock(mutex_);
    prompts_[prompt].handle = handle;
    late = cancelled_;
  }
  if (late) engine_.Cancel(handle);  // Cancel ran before the handle was known
  return Status();
}

void ConversationRunner::OnDone(size_t prompt, const Usage& usage, User& user) {
  {
    std::lock_guard lock(mutex_);
    prompts_[prompt].ended = true;
  }
  user.OnDone(prompt, usage);
  End(1, user);
}

void ConversationRunner::End(size_t prompts, User& user) {
  Status submitted;
  {
    std::lock_guard lock(mutex_);
    open_ -= prompts;
    if (open_ > 0) return;
    submitted = submitted_;
  }
  user.OnEnd(submitted);
}

void ConversationRunner::Cancel() {
  for (size_t i = 0;; ++i) {
    RequestHandle handle = 0;
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      if (i >= prompts_.size()) return;
      if (!prompts_[i].ended) handle = prompts_[i].handle;
    }
    if (handle != 0) engine_.Cancel(handle);
  }
}

bool ConversationRunner::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

bool ConversationRunner::submitted() const {
  std::lock_guard lock(mutex_);
  return !prompts_.empty() && prompts_.back().handle != 0;
}

RequestHandle ConversationRunner::handle(size_t prompt) const {
  std::lock_guard lock(mutex_);
  if (prompt >= prompts_.size() || prompts_[prompt].ended) return 0;
  return prompts_[prompt].handle;
}

RequestHandle ConversationRunner::AwaitHandle(size_t prompt, DurationNs timeout_ns) const {
  std::unique_lock lock(mutex_);
  was_submitted_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                          [&] { return prompt >= prompts_.size() || !prompts_[prompt].submitting; });
  return prompt >= prompts_.size() || prompts_[prompt].ended ? 0 : prompts_[prompt].handle;
}

RequestHandle ConversationRunner::accepted_handle(size_t prompt) const {
  std::lock_guard lock(mutex_);
  return prompt < prompts_.size() ? prompts_[prompt].handle : 0;
}

}  // namespace tactus::api
