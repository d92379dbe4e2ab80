#include "python/answers.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <system_error>
#include <utility>

#include "api/chat/conversation_runner.h"

namespace tactus::python {

namespace nb = nanobind;

namespace {

std::atomic<uint64_t> read_answers = 0;  // per process: their numbers are part of call ids

std::unique_ptr<api::Answer> ReaderOf(const Engine& engine, const ReadyRequest& ready) {
  if (ready.shape == nullptr) return nullptr;
  api::AnswerIdentity identity;
  identity.request_id = fmt::format("{}-{}", getpid(), ++read_answers);
  return std::make_unique<api::Answer>(engine, *ready.shape, std::move(identity));
}

}  // namespace

Answers::Inbox::Inbox(bool tells) {
  if (!tells) return;
  event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "no descriptor for answers");
}

Answers::Inbox::~Inbox() {
  if (event >= 0) close(event);
}

void Answers::Inbox::Changed() {
  changed.notify_all();
  if (event >= 0) (void)eventfd_write(event, 1);
}

// One request in the engine: a conversation of one prompt.
class Answers::Running final : public api::ConversationRunner::User {
 public:
  Running(std::shared_ptr<Inbox> inbox, int64_t index, const ReadyRequest& ready, Engine& engine, bool pieces)
      : runner_(engine),
        inbox_(std::move(inbox)),
        stop_ids_(ready.request.stop.stop_token_ids),
        reader_(ReaderOf(engine, ready)),
        read_(ready.shape != nullptr && ready.shape->reading),
        pieces_(pieces) {
    answer_.index = index;
    answer_.prompt = ready.request.prompt;
    answer_.choices.resize(static_cast<size_t>(ready.request.n));
    answer_.logprobs = ready.request.sampling.logprobs;
    answer_.read = read_;
  }

  api::ConversationRunner& runner() { return runner_; }

  void OnDelta(size_t, const TokenDelta& delta) override {
    const TokenId stop_token = StopTokenOf(delta);
    ChoiceAnswer& choice = answer_.choices[static_cast<size_t>(delta.choice)];
    choice.text += delta.text;
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    choice.finish = delta.finish;
    choice.stop_string = delta.stop_string;
    choice.stop_token = stop_token;
    const Status status = Read(delta, &choice);
    if (!status.ok() && answer_.status.ok()) answer_.status = status;
    if (!pieces_) return;
    AnswerPiece piece{answer_.index, delta, stop_token, read_, false, {}};
    piece.delta.error = status;
    if (read_) {
      piece.parts = reader_->parts();
      piece.called = delta.finish == FinishReason::kStop && api::CallsToRun(choice.parts, choice.stop_string);
    }
    std::lock_guard lock(inbox_->mutex);
    inbox_->pieces.push_back(std::move(piece));
    inbox_->Changed();
  }

  void OnDone(size_t, const Usage& usage) override {
    answer_.usage = usage;
    std::lock_guard lock(inbox_->mutex);
    inbox_->open.erase(answer_.index);
    inbox_->ended.push_back(std::move(answer_));
    inbox_->Changed();
  }

 private:
  TokenId StopTokenOf(const TokenDelta& delta) const {
    if (delta.finish != FinishReason::kStop || !delta.stop_string.empty() || delta.tokens.empty()) return -1;
    const TokenId last = delta.tokens.back();
    return std::find(stop_ids_.begin(), stop_ids_.end(), last) != stop_ids_.end() ? last : -1;
  }
  // An error if the choice ended without an answer.
  Status Read(const TokenDelta& delta, ChoiceAnswer* choice) {
    if (reader_ != nullptr) {
      TACTUS_RETURN_IF_ERROR(reader_->OnDelta(0, delta, nullptr));
      if (read_) {
        for (const api::AnswerPart& part : reader_->parts()) api::AppendPart(part, &choice->parts);
      }
      return Status();
    }
    if (delta.finish != FinishReason::kError && delta.finish != FinishReason::kCancelled) return Status();
    return delta.error.ok() ? Internal("the engine gave no reason") : delta.error;
  }

  api::ConversationRunner runner_;
  const std::shared_ptr<Inbox> inbox_;
  const std::vector<TokenId> stop_ids_;
  const std::unique_ptr<api::Answer> reader_;  // null: all text is content, without an output rule
  const bool read_, pieces_;
  RequestAnswer answer_;
};

Answers::Answers(std::shared_ptr<EngineHandle> engine, bool tells)
    : engine_(std::move(engine)), inbox_(std::make_shared<Inbox>(tells)) {}

Answers::~Answers() {
  Cancel();
}

bool Answers::Submit(int64_t index, const ReadyRequest& ready, bool pieces) {
  const EngineHandle::Use engine(*engine_);
  const auto running = std::make_shared<Running>(inbox_, index, ready, *engine, pieces);
  {
    std::lock_guard lock(inbox_->mutex);
    if (inbox_->cancelled) throw StatusError(Status(StatusCode::kCancelled, "the requests were cancelled"));
    inbox_->open[index] = running;
  }
  const Status submitted = running->runner().Submit(1, running, [&](size_t, std::shared_ptr<ResponseSink> sink) {
    return engine->Submit(ready.request, std::move(sink));
  });
  if (submitted.ok()) return true;
  {
    std::lock_guard lock(inbox_->mutex);
    inbox_->open.erase(index);
  }
  if (submitted.code() == StatusCode::kResourceExhausted) return false;
  throw StatusError(submitted);
}

void Answers::WaitForRoom(const ReadyRequest& ready, double timeout_s) {
  const EngineHandle::Use engine(*engine_);
  const Status status = engine->WaitForRoom(ready.request.n, static_cast<int64_t>(timeout_s * 1e9));
  if (status.code() != StatusCode::kDeadlineExceeded) Check(status);
}

void Answers::Wait(double timeout_s) {
  engine_->CheckProcess();  // a lock held by another thread at the fork is never released
  std::unique_lock lock(inbox_->mutex);
  inbox_->changed.wait_for(lock, std::chrono::duration<double>(timeout_s),
                           [this] { return !inbox_->ended.empty() || !inbox_->pieces.empty(); });
}

std::vector<RequestAnswer> Answers::TakeEnded() {
  engine_->CheckProcess();  // a lock held by another thread at the fork is never released
  eventfd_t count = 0;
  std::lock_guard lock(inbox_->mutex);
  if (inbox_->event >= 0 && inbox_->pieces.empty()) (void)eventfd_read(inbox_->event, &count);
  return std::exchange(inbox_->ended, {});
}

std::vector<AnswerPiece> Answers::TakePieces() {
  engine_->CheckProcess();  // a lock held by another thread at the fork is never released
  eventfd_t count = 0;
  std::lock_guard lock(inbox_->mutex);
  if (inbox_->event >= 0 && inbox_->ended.empty()) (void)eventfd_read(inbox_->event, &count);
  return std::exchange(inbox_->pieces, {});
}

void Answers::Cancel() {
  if (engine_->forked()) return;
  std::vector<std::weak_ptr<Running>> running;
  {
    std::lock_guard lock(inbox_->mutex);
    inbox_->cancelled = true;
    for (const auto& [index, request] : inbox_->open) running.push_back(request);
  }
  Cancel(running);
}

void Answers::CancelOne(int64_t index) {
  if (engine_->forked()) return;
  std::vector<std::weak_ptr<Running>> running;
  {
    std::lock_guard lock(inbox_->mutex);
    if (const auto entry = inbox_->open.find(index); entry != inbox_->open.end()) running.push_back(entry->second);
  }
  Cancel(running);
}

void Answers::Cancel(const std::vector<std::weak_ptr<Running>>& requests) {
  engine_->IfOpen([&] {
    for (const auto& request : requests) {
      if (const auto running = request.lock()) running->runner().Cancel();
    }
  });
}

namespace {

// "stop", "tool_calls", "length"; None while it runs, or if it ended without an answer.
nb::object FinishOf(FinishReason finish, bool called) {
  const std::string_view text = api::FinishText(finish, called);
  return text.empty() ? nb::none() : nb::object(nb::str(text.data(), text.size()));
}

// The parts of an answer: (kind, text, name, id, call); None: all of it is content.
nb::object PartsOf(const std::vector<api::AnswerPart>& parts, bool read) {
  if (!read) return nb::none();
  nb::list list;
  for (const api::AnswerPart& p : parts) {
    list.append(nb::make_tuple(static_cast<int>(p.kind), nb::str(p.text.data(), p.text.size()),
                               nb::str(p.name.data(), p.name.size()), nb::str(p.id.data(), p.id.size()), p.call));
  }
  return list;
}

// The request's stop string or token that ended it; None: the model's end of text, or the length.
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

nb::list Answers::ToPython(const std::vector<RequestAnswer>& ended) {
  nb::list all;
  for (const RequestAnswer& answer : ended) {
    nb::list choices;
    for (const ChoiceAnswer& c : answer.choices) {
      choices.append(nb::make_tuple(nb::str(c.text.data(), c.text.size()), IdsOf(c.tokens),
                                    answer.logprobs < 0 ? nb::none() : nb::object(RowsOf(c.logprobs)),
                                    FinishOf(c.finish, api::CallsToRun(c.parts, c.stop_string)),
                                    StopOf(c.stop_string, c.stop_token), PartsOf(c.parts, answer.read)));
    }
    all.append(nb::make_tuple(answer.index, IdsOf(*answer.prompt), answer.usage.cached_tokens, choices,
                              ErrorOf(answer.status)));
  }
  return all;
}

nb::list Answers::ToPython(const std::vector<AnswerPiece>& pieces) {
  nb::list all;
  for (const AnswerPiece& piece : pieces) {
    const TokenDelta& d = piece.delta;
    all.append(nb::make_tuple(piece.index, d.choice, nb::str(d.text.data(), d.text.size()), IdsOf(d.tokens),
                              RowsOf(d.logprobs), FinishOf(d.finish, piece.called),
                              StopOf(d.stop_string, piece.stop_token), PartsOf(piece.parts, piece.read),
                              ErrorOf(d.error)));
  }
  return all;
}

}  // namespace tactus::python
