// The events of one pass of the step loop: collected while it commits and plans, delivered to the sink at its end. All
// times are the pass's `now`. Thread rule: engine thread only. Buffers keep their capacity.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/loop/events.h"

namespace tactus::core {

class PassEvents {
 public:
  PassEvents(EventSink* sink, size_t max_sequences, size_t max_steps);

  void Begin(TimeNs now_ns) { now_ns_ = now_ns; }
  TimeNs now_ns() const { return now_ns_; }  // the only time that decisions of this pass use
  bool wants_tokens() const { return wants_tokens_; }
  bool wants_chunks() const { return wants_chunks_; }

  void Step(const StepRecord& record) { steps_.push_back(record); }
  void Chunk(const ChunkEvent& event) { chunks_.push_back(event); }  // precondition: wants_chunks()
  void Scheduled(const ScheduledEvent& event) { scheduled_.push_back(event); }
  void PromptLogprobs(PromptLogprobsEvent event) { prompt_logprobs_.push_back(std::move(event)); }
  void Done(const RequestDoneEvent& event) { done_.push_back(event); }
  void Decided(DurationNs took_ns) { decision_ns_ = took_ns; }
  // A token was sampled `gap_ns` after its sequence's previous one.
  void Gap(DurationNs gap_ns) {
    if (open_gap_->gap_ns != gap_ns) [[unlikely]]
      OpenGap(gap_ns);
    ++open_gap_->count;
  }
  // A sequence's first token was sampled `gap_ns` after its arrival.
  void FirstGap(DurationNs gap_ns);
  // Adds an event; the pointer is valid until the next call. Precondition: wants_tokens().
  TokenEvent* Token() { return &tokens_.emplace_back(); }
  // Both return the index for TokenEvent.
  int32_t Logprobs(std::vector<TokenLogprob> of_token) {
    logprobs_.push_back(std::move(of_token));
    return static_cast<int32_t>(logprobs_.size()) - 1;
  }
  int32_t Error(const Status& status) {
    errors_.push_back(status);
    return static_cast<int32_t>(errors_.size()) - 1;
  }

  // Passes the events, if any, to the sink and clears them.
  void Deliver();

 private:
  void OpenGap(DurationNs gap_ns);

  EventSink& sink_;
  const bool wants_tokens_, wants_chunks_;
  TimeNs now_ns_ = 0;
  DurationNs decision_ns_ = -1;
  std::vector<StepRecord> steps_;
  std::vector<ChunkEvent> chunks_;
  std::vector<ScheduledEvent> scheduled_;
  std::vector<GapEvent> gaps_;
  GapEvent no_gap_{.gap_ns = std::numeric_limits<DurationNs>::min()};
  GapEvent* open_gap_ = &no_gap_;  // the last of gaps_ if Gap may add to it, else no_gap_
  std::vector<TokenEvent> tokens_;
  std::vector<PromptLogprobsEvent> prompt_logprobs_;
  std::vector<RequestDoneEvent> done_;
  std::vector<std::vector<TokenLogprob>> logprobs_;
  std::vector<Status> errors_;
};

}  // namespace tactus::core
