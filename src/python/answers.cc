#include "python/answers.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace tactus::python {

namespace nb = nanobind;

class Answers::Sink final : public ResponseSink {
 public:
  Sink(std::shared_ptr<Inbox> inbox, int64_t index, const Request& request)
      : inbox_(std::move(inbox)), stop_ids_(request.stop.stop_token_ids) {
    answer_.index = index;
    answer_.prompt = request.prompt;
    answer_.choices.resize(static_cast<size_t>(request.n));
    answer_.logprobs = request.sampling.logprobs;
  }

  void OnDelta(const TokenDelta& delta) override {
    const TokenId stop_token = StopTokenOf(delta);
    if (inbox_->keep_pieces) {
      std::lock_guard lock(inbox_->mutex);
      inbox_->pieces.push_back({answer_.index, delta, stop_token});
      inbox_->changed.notify_all();
    }
    ChoiceAnswer& choice = answer_.choices[static_cast<size_t>(delta.choice)];
    choice.text += delta.text;
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    choice.finish = delta.finish;
    choice.stop_string = delta.stop_string;
    choice.stop_token = stop_token;
    const bool bad = delta.finish == FinishReason::kError || delta.finish == FinishReason::kCancelled;
    if (bad && answer_.status.ok())
      answer_.status = delta.error.ok() ? Internal("the engine gave no reason") : delta.error;
  }

  void OnDone(const Usage& usage) override {
    answer_.usage = usage;
    std::lock_guard lock(inbox_->mutex);
    inbox_->open.erase(answer_.index);
    inbox_->ended.push_back(std::move(answer_));
    inbox_->changed.notify_all();
  }

 private:
  TokenId StopTokenOf(const TokenDelta& delta) const {
    if (delta.finish != FinishReason::kStop || !delta.stop_string.empty() || delta.tokens.empty()) return -1;
    const TokenId last = delta.tokens.back();
    return std::find(stop_ids_.begin(), stop_ids_.end(), last) != stop_ids_.end() ? last : -1;
  }

  const std::shared_ptr<Inbox> inbox_;
  const std::vector<TokenId> stop_ids_;
  RequestAnswer answer_;
};

Answers::Answers(std::shared_ptr<EngineHandle> engine, bool pieces)
    : engine_(std::move(engine)), inbox_(std::make_shared<Inbox>(pieces)) {}

Answers::~Answers() {
  Cancel();
}

bool Answers::Submit(int64_t index, const ReadyRequest& ready) {
  const EngineHandle::Use engine(*engine_);
  {
    std::lock_guard lock(inbox_->mutex);
    if (inbox_->cancelled) throw StatusError(Status(StatusCode::kCancelled, "the requests were cancelled"));
    inbox_->open[index] = 0;
  }
  const auto handle = engine->Submit(ready.request, std::make_shared<Sink>(inbox_, index, ready.request));
  std::lock_guard lock(inbox_->mutex);
  const auto entry = inbox_->open.find(index);
  if (!handle.ok()) {
    inbox_->open.erase(entry);
    if (handle.status().code() == StatusCode::kResourceExhausted) return false;
    throw StatusError(handle.status());
  }
  if (entry == inbox_->open.end()) return true;  // it has ended by now
  entry->second = *handle;
  if (inbox_->cancelled) engine->Cancel(*handle);
  return true;
}

void Answers::WaitForRoom(const ReadyRequest& ready, double timeout_s) {
  const EngineHandle::Use engine(*engine_);
  const Status status = engine->WaitForRoom(ready.request.n, static_cast<int64_t>(timeout_s * 1e9));
  if (status.code() != StatusCode::kDeadlineExceeded) Check(status);
}

void Answers::Wait(double timeout_s) {
  engine_->CheckProcess();  // who held the lock when it was forked is not here
  std::unique_lock lock(inbox_->mutex);
  inbox_->changed.wait_for(lock, std::chrono::duration<double>(timeout_s),
                           [this] { return !inbox_->ended.empty() || !inbox_->pieces.empty(); });
}

std::vector<RequestAnswer> Answers::TakeEnded() {
  engine_->CheckProcess();  // who held the lock when it was forked is not here
  std::lock_guard lock(inbox_->mutex);
  return std::exchange(inbox_->ended, {});
}

std::vector<AnswerPiece> Answers::TakePieces() {
  engine_->CheckProcess();  // who held the lock when it was forked is not here
  std::lock_guard lock(inbox_->mutex);
  return std::exchange(inbox_->pieces, {});
}

void Answers::Cancel() {
  if (engine_->forked()) return;
  std::vector<RequestHandle> running;
  {
    std::lock_guard lock(inbox_->mutex);
    inbox_->cancelled = true;
    for (const auto& [index, handle] : inbox_->open) {
      if (handle != 0) running.push_back(handle);
    }
  }
  if (!running.empty()) engine_->Cancel(running);
}

namespace {

// "stop", "length"; None while it goes on.
nb::object FinishOf(FinishReason finish) {
  if (finish == FinishReason::kNone) return nb::none();
  return nb::str(FinishReasonName(finish));
}

// What of the request's own ended it; None: the model's end of text, or the answer's length.
nb::object StopOf(const std::string& stop_string, TokenId stop_token) {
  if (!stop_string.empty()) return nb::str(stop_string.data(), stop_string.size());
  return stop_token >= 0 ? nb::object(nb::int_(stop_token)) : nb::none();
}

nb::list IdsOf(const std::vector<TokenId>& tokens) {
  nb::list ids;
  for (const TokenId token : tokens) ids.append(token);
  return ids;
}

// Per token a list of (id, logprob), the chosen one first.
nb::list RowsOf(const std::vector<std::vector<TokenLogprob>>& rows) {
  nb::list all;
  for (const auto& row : rows) {
    nb::list list;
    for (const TokenLogprob& entry : row) list.append(nb::make_tuple(entry.token, entry.logprob));
    all.append(list);
  }
  return all;
}

nb::object ErrorOf(const Status& status) {
  return status.ok() ? nb::none() : ExceptionOf(status);
}

}  // namespace

nb::list Answers::EndedToPython() {
  nb::list all;
  for (const RequestAnswer& answer : TakeEnded()) {
    nb::list choices;
    for (const ChoiceAnswer& c : answer.choices) {
      choices.append(nb::make_tuple(nb::str(c.text.data(), c.text.size()), IdsOf(c.tokens),
                                    answer.logprobs < 0 ? nb::none() : nb::object(RowsOf(c.logprobs)),
                                    FinishOf(c.finish), StopOf(c.stop_string, c.stop_token)));
    }
    all.append(nb::make_tuple(answer.index, IdsOf(*answer.prompt), answer.usage.cached_tokens, choices,
                              ErrorOf(answer.status)));
  }
  return all;
}

nb::list Answers::PiecesToPython() {
  nb::list all;
  for (const AnswerPiece& piece : TakePieces()) {
    const TokenDelta& d = piece.delta;
    all.append(nb::make_tuple(piece.index, d.choice, nb::str(d.text.data(), d.text.size()), IdsOf(d.tokens),
                              RowsOf(d.logprobs), FinishOf(d.finish), StopOf(d.stop_string, piece.stop_token),
                              ErrorOf(d.error)));
  }
  return all;
}

}  // namespace tactus::python
