// Predicted output lengths, as orders, admissions and preemptions use them.
#pragma once

#include <algorithm>

#include "core/sched/policy.h"

namespace tactus::core {

// The prediction made when the sequence was last queued: written by orders that use it, read by choices that compare
// with it. A sequence that outlives its prediction gets a longer one.
struct PredictionNote {
  int64_t output_tokens;  // total; 0: the order predicts nothing
};

// What an admission reserved by prediction, and how often that was too little.
struct ReservationNote {
  int32_t reserved_tokens;  // total length of the sequence
  int32_t retries;
};

inline int32_t GeneratedTokens(const StepView& view, SlotId slot) {
  return view.seq.known_committed[slot] - view.seq.prompt_tokens[slot];
}

// Output tokens in total, from the current predictor; more than generated so far, unless the sequence has reached its
// limit.
inline int32_t PredictOutput(const LengthPredictor& predictor, const StepView& view, SlotId slot, int32_t attempt) {
  const int32_t generated = GeneratedTokens(view, slot), most = view.seq.max_output_tokens[slot];
  int32_t predicted = predictor.PredictOutputTokens(slot, attempt);
  while (predicted <= generated && predicted < most) predicted = predictor.PredictOutputTokens(slot, ++attempt);
  return predicted;
}

// The noted prediction, or a new one if the sequence has generated more than that.
inline int64_t ExpectedOutput(const PredictionNote& note, const LengthPredictor& predictor, const StepView& view,
                              SlotId slot) {
  const int64_t noted = note.output_tokens;
  return noted > GeneratedTokens(view, slot) ? noted : PredictOutput(predictor, view, slot, 1);
}

}  // namespace tactus::core
