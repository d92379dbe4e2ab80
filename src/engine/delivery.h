// Turns tokens into text, off the engine thread: copies each step's events, and on its own thread detokenises them,
// withholds text that may begin a stop string, and calls the requests' sinks. The step loop has already decided where
// sequences end; nothing here decides it.
//
// Thread rule: Register and Forget on any thread; OnStep on the engine thread (copies, never blocks on a sink); sinks
// are called on the delivery thread only. Memory is bounded by the tokens that the live requests may still generate.
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
  // `tokenizer` outlives this. `ends`: the model's stop ids.
  explicit Delivery(const language::Tokenizer* tokenizer, std::vector<TokenId> ends = {});
  ~Delivery() override;  // delivers all copied events, then joins

  // Returns the pointer that PreparedRequest::user carries. Call Forget if the loop refuses the request; otherwise it
  // is freed after the request's RequestDoneEvent.
  void* Register(std::shared_ptr<const Request> request, std::shared_ptr<ResponseSink> sink);
  void Forget(void* user);
  // For a request that ran on another engine: its sink first receives the tokens of its one choice again, then the
  // loop's events. `submit` passes the request to the loop; if the loop refuses it, the sink receives nothing.
  // `logprobs`: of the tokens; may be empty.
  Result<RequestHandle> TellAgain(void* user, std::span<const TokenId> tokens,
                                  std::vector<std::vector<TokenLogprob>> logprobs,
                                  const std::function<Result<RequestHandle>()>& submit);

  void OnStep(const core::StepEvents& events) override;

  // Returns when every registered request has been answered or forgotten. Must not run on the delivery thread.
  void WaitUntilEmpty();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Length of the longest suffix of `text` that is a proper prefix of one of `stops`: it must be withheld. Exposed for
// tests.
size_t WithheldLength(const std::string& text, const std::vector<std::string>& stops);

}  // namespace tactus::engine
