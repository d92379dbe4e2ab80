#include "offline/job/line_run.h"

#include <utility>

#include "base/units.h"

namespace tactus::offline {
namespace {

constexpr DurationNs kDroppedLookNs =
    100 * kMillisecond;  // the longest that a wait for room outlasts the drop of its line

}  // namespace

class LineRun::PromptSink final : public ResponseSink {
 public:
  PromptSink(std::shared_ptr<LineRun> line, size_t prompt) : line_(std::move(line)), prompt_(prompt) {}
  void OnDelta(const TokenDelta& delta) override { line_->OnDelta(prompt_, delta); }
  void OnPromptLogprobs(const std::vector<std::vector<TokenLogprob>>& rows) override {
    line_->OnPromptLogprobs(prompt_, rows);
  }
  void OnDone(const Usage& usage) override { line_->OnDone(prompt_, usage); }

 private:
  const std::shared_ptr<LineRun> line_;
  const size_t prompt_;
};

LineRun::LineRun(Engine* engine, const api::Api& api, api::Prepared prepared, const api::AnswerIdentity& identity,
                 Ended ended)
    : engine_(engine),
      requests_(std::move(prepared.requests)),
      ended_(std::move(ended)),
      answer_(prepared.shape, api.writer(*engine, prepared.shape, identity)),
      handles_(requests_.size()),
      open_(requests_.size()) {}

void LineRun::Submit() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    const auto handle = SubmitPrompt(i);
    std::unique_lock lock(mutex_);
    if (!handle.ok()) {
      open_ -= requests_.size() - i;  // the remaining prompts were never submitted
      return Fail(handle.status(), std::move(lock));
    }
    if (open_ == 0) return;         // all have ended already
    if (answer_.done(i)) continue;  // this prompt has ended
    handles_[i] = *handle;
    if (!over()) continue;
    lock.unlock();
    engine_->Cancel(*handle);  // dropped before its handle was known
  }
}

Result<RequestHandle> LineRun::SubmitPrompt(size_t prompt) {
  while (true) {
    const Status room = engine_->WaitForRoom(requests_[prompt].n, kDroppedLookNs);
    {
      std::lock_guard lock(mutex_);
      if (over()) return status_;
    }
    if (room.code() == StatusCode::kDeadlineExceeded) continue;
    if (!room.ok()) return room;
    auto handle = engine_->Submit(requests_[prompt], std::make_shared<PromptSink>(shared_from_this(), prompt));
    if (handle.status().code() != StatusCode::kResourceExhausted) return handle;  // another line took the room
  }
}

bool LineRun::begun() {
  std::lock_guard lock(mutex_);
  return answer_.begun();
}

void LineRun::Drop(bool unless_begun) {
  std::unique_lock lock(mutex_);
  if (unless_begun && answer_.begun()) return;
  Fail(Status(StatusCode::kCancelled, "the run was stopped"), std::move(lock));
}

void LineRun::Fail(Status why, std::unique_lock<std::mutex> lock) {
  if (!over()) status_ = std::move(why);
  const std::vector<RequestHandle> running = handles_;
  EndIfDone(std::move(lock));
  for (const RequestHandle handle : running) {
    if (handle != 0) engine_->Cancel(handle);
  }
}

void LineRun::OnDelta(size_t prompt, const TokenDelta& delta) {
  std::unique_lock lock(mutex_);
  const Status status = answer_.OnDelta(prompt, delta, nullptr);
  if (!status.ok() && !over()) Fail(status, std::move(lock));
}

void LineRun::OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows) {
  std::lock_guard lock(mutex_);
  answer_.OnPromptLogprobs(prompt, rows);
}

void LineRun::OnDone(size_t prompt, const Usage& usage) {
  std::unique_lock lock(mutex_);
  answer_.OnDone(prompt, usage, nullptr);
  handles_[prompt] = 0;
  --open_;
  EndIfDone(std::move(lock));
}

void LineRun::EndIfDone(std::unique_lock<std::mutex> lock) {
  if (open_ > 0 || !ended_) return;
  const Ended ended = std::exchange(ended_, nullptr);
  if (over()) {
    const Status why = status_;
    lock.unlock();
    return ended(why);
  }
  LineAnswer answer;
  answer.usage = answer_.usage();
  answer.body = std::move(answer_).Complete();
  lock.unlock();
  ended(std::move(answer));
}

}  // namespace tactus::offline
