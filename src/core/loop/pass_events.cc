#include "core/loop/pass_events.h"

namespace tactus::core {

PassEvents::PassEvents(EventSink* sink, size_t max_sequences, size_t max_steps)
    : sink_(*sink), wants_tokens_(sink->wants_tokens()), wants_chunks_(sink->wants_chunks()) {
  steps_.reserve(max_steps);
  if (wants_chunks_) chunks_.reserve(max_sequences);
  gaps_.reserve(max_sequences);
  tokens_.reserve(4 * max_sequences);
}

void PassEvents::OpenGap(DurationNs gap_ns) {
  open_gap_ = &gaps_.emplace_back(GapEvent{.gap_ns = gap_ns});
}

void PassEvents::FirstGap(DurationNs gap_ns) {
  const bool joins = open_gap_ == &no_gap_ && !gaps_.empty() && gaps_.back().gap_ns == gap_ns;
  open_gap_ = &no_gap_;
  if (!joins) gaps_.push_back({.gap_ns = gap_ns, .first = true});
  ++gaps_.back().count;
}

void PassEvents::Deliver() {
  if (!gaps_.empty() || !tokens_.empty() || !done_.empty() || !steps_.empty() || !scheduled_.empty()) {
    StepEvents events;
    events.now_ns = now_ns_;
    events.decision_ns = decision_ns_;
    events.steps = steps_;
    events.chunks = chunks_;
    events.scheduled = scheduled_;
    events.gaps = gaps_;
    events.tokens = tokens_;
    events.prompt_logprobs = prompt_logprobs_;
    events.done = done_;
    events.logprobs = logprobs_;
    events.errors = errors_;
    sink_.OnStep(events);
  }
  decision_ns_ = -1;
  steps_.clear();
  chunks_.clear();
  scheduled_.clear();
  gaps_.clear();
  open_gap_ = &no_gap_;
  tokens_.clear();
  prompt_logprobs_.clear();
  done_.clear();
  logprobs_.clear();
  errors_.clear();
}

}  // namespace tactus::core
