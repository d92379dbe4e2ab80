#include "offline/job/line_run.h"

#include <utility>

#include "base/units.h"

namespace tactus::offline {
namespace {

constexpr DurationNs kDroppedLookNs =
    100 * kMillisecond;  // the longest that a wait for room outlasts the drop of its line

}  // namespace

LineRun::LineRun(Engine* engine, const api::Api& api, api::Prepared prepared, const api::AnswerIdentity& identity,
                 Ended ended)
    : engine_(engine),
      requests_(std::move(prepared.requests)),
      ended_(std::move(ended)),
      runner_(*engine),
      answer_(prepared.shape, api.writer(*engine, prepared.shape, identity)) {}

void LineRun::Submit() {
  // OnEnd reports an error.
  (void)runner_.Submit(requests_.size(), shared_from_this(),
                       [this](size_t prompt, const auto& sink) { return SubmitPrompt(prompt, sink); });
}

Result<RequestHandle> LineRun::SubmitPrompt(size_t prompt, const std::shared_ptr<ResponseSink>& sink) {
  while (true) {
    const Status room = engine_->WaitForRoom(requests_[prompt].n, kDroppedLookNs);
    if (runner_.cancelled()) return Status(StatusCode::kCancelled, "the line was dropped");
    if (room.code() == StatusCode::kDeadlineExceeded) continue;
    if (!room.ok()) return room;
    auto handle = engine_->Submit(requests_[prompt], sink);
    if (handle.status().code() != StatusCode::kResourceExhausted) return handle;  // another line took the room
  }
}

bool LineRun::begun() {
  std::lock_guard lock(mutex_);
  return answer_.begun();
}

void LineRun::Drop(bool unless_begun) {
  {
    std::lock_guard lock(mutex_);
    if (answer_.done() || (unless_begun && answer_.begun())) return;
    if (status_.ok()) status_ = Status(StatusCode::kCancelled, "the run was stopped");
  }
  runner_.Cancel();
}

void LineRun::OnDelta(size_t prompt, const TokenDelta& delta) {
  {
    std::lock_guard lock(mutex_);
    const Status status = answer_.OnDelta(prompt, delta, nullptr);
    if (status.ok() || !status_.ok()) return;
    status_ = status;
  }
  runner_.Cancel();
}

void LineRun::OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows) {
  std::lock_guard lock(mutex_);
  answer_.OnPromptLogprobs(prompt, rows);
}

void LineRun::OnDone(size_t prompt, const Usage& usage) {
  std::lock_guard lock(mutex_);
  answer_.OnDone(prompt, usage, nullptr);
}

void LineRun::OnRefused(const Status& refused) {
  std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = refused;
}

void LineRun::OnEnd(const Status& submitted) {
  LineAnswer answer;
  Status why;
  {
    std::lock_guard lock(mutex_);
    why = status_.ok() ? submitted : status_;
    if (why.ok()) {
      answer.usage = answer_.usage();
      answer.body = std::move(answer_).Complete();
    }
  }
  if (why.ok())
    ended_(std::move(answer));
  else
    ended_(why);
}

}  // namespace tactus::offline
