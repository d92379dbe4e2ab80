// The events of the step loop: one flat batch per pass, without text. Serving copies them to its delivery thread; the
// simulator and the benchmarks count them.
//
// Thread rule: OnStep is called on the engine thread after the next step has been submitted. It must not block, and the
// spans are valid only during the call.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/units.h"
#include "core/interfaces/sequence_columns.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/timeline.h"

namespace tactus::core {

// One generated token, or an end without one (token < 0: cancelled, failed, or a late stop). Tokens of one choice are
// in order. The last event of a choice has finish != kNone; `user` and `handle` are those of the PreparedRequest.
struct TokenEvent {
  void* user = nullptr;
  RequestHandle handle = 0;
  int32_t choice = 0;
  TokenId token = -1;
  FinishReason finish = FinishReason::kNone;
  bool first_token = false;  // of this choice
  int32_t stop_string = -1;  // index in Request::stop of the stop string that this token completed
  int32_t logprobs = -1;     // index in StepEvents::logprobs
  int32_t error = -1;        // index in StepEvents::errors, with kError and kCancelled
  DurationNs gap_ns = 0;     // since this choice's previous token; for its first token: since arrival
  int32_t number = 0;        // of the token in its choice, from 1; 0: an end without a token
};

// `count` tokens, each `gap_ns` after its sequence's previous token (first: after arrival). Consecutive equal gaps are
// one entry.
struct GapEvent {
  DurationNs gap_ns = 0;
  int32_t count = 0;
  bool first = false;
};

// A part of a prompt that a step has computed: positions [first_position, first_position + tokens).
struct ChunkEvent {
  StepId step = 0;
  RequestHandle handle = 0;
  int32_t choice = 0;
  int32_t first_position = 0;
  int32_t tokens = 0;
};

// A request's first choice has its first item in a step.
struct ScheduledEvent {
  void* user = nullptr;
  RequestHandle handle = 0;
  TimeNs arrival_ns = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, found in the prefix cache
};

// Requested logprobs of prompt tokens (Request::prompt_logprobs): rows [first_row, ...) of the prompt of choice 0. A
// recomputed prompt repeats rows: the first ones count.
struct PromptLogprobsEvent {
  void* user = nullptr;
  RequestHandle handle = 0;
  int32_t first_row = 0;  // entry r belongs to prompt token first_row + r + 1
  std::vector<std::vector<TokenLogprob>> rows;
};

// All choices have ended. The loop forgets the request; no later event has its `user`.
struct RequestDoneEvent {
  void* user = nullptr;
  RequestHandle handle = 0;
  TimeNs arrival_ns = 0;
  TimeNs scheduled_ns = 0;    // first item in a step; 0: never
  TimeNs first_token_ns = 0;  // of any choice; 0: never
  TimeNs done_ns = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;  // of all choices
  int32_t preemptions = 0;
  int32_t recomputed_tokens = 0;
  FinishReason finish = FinishReason::kNone;  // the worst of the choices: kError, kCancelled, kLength, kStop
  DurationNs longest_gap_ns = 0;              // between two tokens of one choice
  int32_t gaps = 0, late_gaps = 0;            // of all choices; late: longer than the request's TBT objective
  DurationNs predicted_ttft_ns = -1;          // the gate's prediction at arrival; -1: none
  bool refused = false;                       // by the gate; does not count as accepted
  std::shared_ptr<const Request> request;
  std::array<Miss, kNumObjectives> misses;  // per objective; a failed request misses the others too
};

struct StepEvents {
  TimeNs now_ns = 0;
  DurationNs decision_ns = -1;         // of the plan made in this pass; -1: none was made
  std::span<const StepRecord> steps;   // that ended in this pass, oldest first
  std::span<const ChunkEvent> chunks;  // of those steps; empty unless wants_chunks()
  std::span<const ScheduledEvent> scheduled;
  std::span<const GapEvent> gaps;      // of every token of this pass
  std::span<const TokenEvent> tokens;  // empty unless wants_tokens()
  std::span<const PromptLogprobsEvent> prompt_logprobs;
  std::span<const RequestDoneEvent> done;
  std::span<const std::vector<TokenLogprob>> logprobs;  // sampled token first, then the most likely
  std::span<const Status> errors;
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  // False: `tokens` stays empty (simulations: no token is read). Called once, when the loop is created.
  virtual bool wants_tokens() const { return true; }
  // The same for `chunks`.
  virtual bool wants_chunks() const { return false; }
  virtual void OnStep(const StepEvents& events) = 0;
};

// Passes the events to several sinks, in the order in which they were added.
class EventFanOut final : public EventSink {
 public:
  void Add(EventSink* sink) { sinks_.push_back(sink); }  // before the loop is created; outlives the loop's last pass
  bool wants_tokens() const override {
    return std::any_of(sinks_.begin(), sinks_.end(), [](const EventSink* sink) { return sink->wants_tokens(); });
  }
  bool wants_chunks() const override {
    return std::any_of(sinks_.begin(), sinks_.end(), [](const EventSink* sink) { return sink->wants_chunks(); });
  }
  void OnStep(const StepEvents& events) override {
    for (EventSink* sink : sinks_) sink->OnStep(events);
  }

 private:
  std::vector<EventSink*> sinks_;
};

}  // namespace tactus::core
