// What orders, admissions and preemptions share about predicted output lengths.
#pragma once

#include <algorithm>

#include "core/sched/policy.h"

namespace tactus::core {

// What was predicted when the sequence was last queued: noted by orders that go by it, read by who compares with it. A
// sequence that has outlived it is predicted again, each time for longer.
struct PredictionNote {
  int64_t output_tokens;  // in all; 0: the order predicts nothing
};

// What an admission has set aside by prediction, and how often that was too little.
struct ReservationNote {
  int32_t reserved_tokens;  // length of the sequence
  int32_t retries;
};

inline int32_t GeneratedTokens(const StepView& view, SlotId slot) {
  return view.seq.known_committed[slot] - view.seq.prompt_tokens[slot];
}

// Output tokens in all, more than were generated unless the sequence may generate no more; from the predictor as it is
// now.
inline int32_t PredictOutput(const LengthPredictor& predictor, const StepView& view, SlotId slot, int32_t attempt) {
  const int32_t generated = GeneratedTokens(view, slot), most = view.seq.max_output_tokens[slot];
  int32_t predicted = predictor.PredictOutputTokens(slot, attempt);
  while (predicted <= generated && predicted < most) predicted = predictor.PredictOutputTokens(slot, ++attempt);
  return predicted;
}

// As noted when the sequence was queued, or predicted again if it has generated more than that.
inline int64_t ExpectedOutput(const PredictionNote& note, const LengthPredictor& predictor, const StepView& view,
                              SlotId slot) {
  const int64_t noted = note.output_tokens;
  return noted > GeneratedTokens(view, slot) ? noted : PredictOutput(predictor, view, slot, 1);
}

}  // namespace tactus::core
