// What one caller waits for: the answers of the requests that it submits here, as they end, and their pieces where it
// asks for those.
//
// Thread rule: any thread; the engine's sinks write, one caller takes. No function but those that say so needs the GIL,
// and the engine's threads never take it: a loop of events waits on a descriptor. Invariants: an answer is taken once;
// after Cancel nothing is submitted.
#pragma once

#include <nanobind/nanobind.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/chat/answer.h"
#include "python/engine_handle.h"

namespace tactus::python {

// What one choice of a request has received.
struct ChoiceAnswer {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenLogprob>> logprobs;  // per token: chosen first, then the best
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;             // what ended it, if one of the request's did
  TokenId stop_token = -1;             // the same
  std::vector<api::AnswerPart> parts;  // where the text is read: content, reasoning, calls of tools
};

// An answer that has ended.
struct RequestAnswer {
  int64_t index = 0;  // the caller's number for it
  std::shared_ptr<const std::vector<TokenId>> prompt;
  std::vector<ChoiceAnswer> choices;
  int32_t logprobs = -1;  // as SamplingParams::logprobs
  bool read = false;      // the choices have parts
  Usage usage;
  Status status;
};

// A piece of an answer, in the order of each choice's text.
struct AnswerPiece {
  int64_t index = 0;
  TokenDelta delta;
  TokenId stop_token = -1;
  bool read = false, called = false;  // the text is read; the answer, which ends here, has called a tool
  std::vector<api::AnswerPart> parts;
};

class Answers {
 public:
  // `tells`: descriptor() can be read where there is something to take.
  Answers(std::shared_ptr<EngineHandle> engine, bool tells);
  ~Answers();  // cancels what is left

  // `pieces`: its deltas are kept for TakePieces. False: the engine has no room now (WaitForRoom). Throws StatusError
  // where it can never be taken.
  bool Submit(int64_t index, const ReadyRequest& ready, bool pieces);
  // Waits for room, or for `timeout_s` seconds.
  void WaitForRoom(const ReadyRequest& ready, double timeout_s);
  // Waits until there is something to take, or for `timeout_s` seconds.
  void Wait(double timeout_s);
  std::vector<RequestAnswer> TakeEnded();
  std::vector<AnswerPiece> TakePieces();
  void Cancel();
  void CancelOne(int64_t index);
  int descriptor() const { return inbox_->event; }  // of an eventfd; -1: it does not tell

  // For Python; with the GIL.
  static nanobind::list ToPython(const std::vector<RequestAnswer>& ended);
  static nanobind::list ToPython(const std::vector<AnswerPiece>& pieces);

 private:
  class Sink;
  // Shared with the sinks, which may outlive this.
  struct Inbox {
    explicit Inbox(bool tells);
    ~Inbox();
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;
    void Changed();  // under mutex

    int event = -1;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<RequestAnswer> ended;
    std::vector<AnswerPiece> pieces;
    std::map<int64_t, RequestHandle> open;  // by index; 0: its handle is not known yet
    bool cancelled = false;
  };

  const std::shared_ptr<EngineHandle> engine_;
  const std::shared_ptr<Inbox> inbox_;
};

}  // namespace tactus::python
