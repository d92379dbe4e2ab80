// From tokens to text, off the engine thread: copies each step's events, and on a thread of its own detokenises them,
// withholds what may be the beginning of a stop string, and calls the requests' sinks. Ends of sequences were decided
// by the step loop; nothing here decides anything.
//
// Thread rule: Register and Forget on any thread; OnStep on the engine thread (copies, never blocks on a sink); sinks
// are called on the delivery thread alone. Memory is bounded by what the live requests may still generate.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/loop/events.h"
#include "language/text/tokenizer.h"
#include "tactus/engine.h"

namespace tactus::engine {

class Delivery final : public core::EventSink {
 public:
  // Both outlive this. `forward` also sees every event, on the engine thread, first (metrics); may be null. `ends`: the
  // model's stop ids.
  Delivery(const language::Tokenizer* tokenizer, core::EventSink* forward, std::vector<TokenId> ends = {});
  ~Delivery() override;  // delivers what has been handed over, then joins

  // The token that PreparedRequest::user carries. Forget it again when the loop refuses the request; otherwise it goes
  // with the request's RequestDoneEvent.
  void* Register(std::shared_ptr<const Request> request, std::shared_ptr<ResponseSink> sink);
  void Forget(void* user);
  // For a request that has run elsewhere: its sink hears the tokens of its one choice again, before all that the loop
  // tells of it. `submit` gives it to the loop; where that refuses it, the sink hears nothing. `logprobs`: of the
  // tokens; may be empty.
  Result<RequestHandle> TellAgain(void* user, std::span<const TokenId> tokens,
                                  std::vector<std::vector<TokenLogprob>> logprobs,
                                  const std::function<Result<RequestHandle>()>& submit);

  void OnStep(const core::StepEvents& events) override;

  // Returns when every registered request has been answered or forgotten. Not on the delivery thread.
  void WaitUntilEmpty();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The longest end of `text` that is a proper beginning of one of `stops`: what must be withheld. Exposed for tests.
size_t WithheldLength(const std::string& text, const std::vector<std::string>& stops);

}  // namespace tactus::engine
