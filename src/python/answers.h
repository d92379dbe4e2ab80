// The answers of the requests that one caller submits here: complete answers as they end, and their pieces if
// requested.
// Thread rule: any thread; the engine's delivery thread writes, one caller reads. Only functions that state it need the
// GIL, and the engine's threads never take it: an event loop waits on a descriptor. Invariants: each answer is returned
// once; after Cancel nothing is submitted.
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

// The received part of one choice.
struct ChoiceAnswer {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenLogprob>> logprobs;  // per token: the chosen one first, then the most likely
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;             // the request's stop string that ended it, if any
  TokenId stop_token = -1;             // the stop token that ended it, or -1
  std::vector<api::AnswerPart> parts;  // if the text is parsed: content, reasoning, tool calls
};

// A complete answer.
struct RequestAnswer {
  int64_t index = 0;  // the caller's number of the request
  std::shared_ptr<const std::vector<TokenId>> prompt;
  std::vector<ChoiceAnswer> choices;
  int32_t logprobs = -1;  // as SamplingParams::logprobs
  bool read = false;      // the text is parsed: the choices have parts
  Usage usage;
  Status status;
};

// A piece of an answer, in order within each choice.
struct AnswerPiece {
  int64_t index = 0;
  TokenDelta delta;
  TokenId stop_token = -1;
  bool read = false, called = false;  // `read`: the text is parsed; `called`: the answer, which ends here, has called a
                                      // tool
  std::vector<api::AnswerPart> parts;
};

class Answers {
 public:
  // `tells`: creates descriptor(), which is readable while results are available.
  Answers(std::shared_ptr<EngineHandle> engine, bool tells);
  ~Answers();  // cancels the remaining requests

  // `pieces`: keeps its deltas for TakePieces. False: the engine has no room now (WaitForRoom). Throws StatusError if
  // the request can never run.
  bool Submit(int64_t index, const ReadyRequest& ready, bool pieces);
  // Waits for room, at most `timeout_s` seconds.
  void WaitForRoom(const ReadyRequest& ready, double timeout_s);
  // Waits for a result, at most `timeout_s` seconds.
  void Wait(double timeout_s);
  std::vector<RequestAnswer> TakeEnded();
  std::vector<AnswerPiece> TakePieces();
  void Cancel();
  void CancelOne(int64_t index);
  int descriptor() const { return inbox_->event; }  // of an eventfd; -1: none

  // Converts to Python objects; with the GIL.
  static nanobind::list ToPython(const std::vector<RequestAnswer>& ended);
  static nanobind::list ToPython(const std::vector<AnswerPiece>& pieces);

 private:
  class Running;
  // Shared with the running requests, which may outlive the object.
  struct Inbox {
    explicit Inbox(bool tells);
    ~Inbox();
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;
    void Changed();  // called with mutex held

    int event = -1;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<RequestAnswer> ended;
    std::vector<AnswerPiece> pieces;
    std::map<int64_t, std::weak_ptr<Running>> open;  // by index
    bool cancelled = false;
  };

  void Cancel(const std::vector<std::weak_ptr<Running>>& requests);

  const std::shared_ptr<EngineHandle> engine_;
  const std::shared_ptr<Inbox> inbox_;
};

}  // namespace tactus::python
