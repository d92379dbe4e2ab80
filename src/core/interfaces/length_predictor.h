// How many tokens a request will generate: the only way a policy may know anything about an output's length. The engine
// binds sequences at arrival and reports ends; policies ask. Deterministic: what it answers follows from the calls
// before. Thread rule: engine thread only.
#pragma once

#include <span>

#include "base/hash.h"
#include "base/units.h"
#include "tactus/request.h"

namespace tactus::core {

// What --predictor says for none; and the one that a scheduler gets where it asks for one and none is named. What
// else there is: core/predict/predictor.h.
inline constexpr const char* kNoPredictor = "none";
inline constexpr const char* kUsualPredictor = "history";

// What may be known of a request when it arrives.
struct PredictionFeatures {
  int32_t prompt_tokens = 0;
  int32_t max_output_tokens = 0;
  uint64_t client = 0;  // hash of Request::client; 0: unknown
  std::span<const Hash128>
      prefix_keys;  // of the prompt's full blocks, first block first; empty: unknown. Valid during Bind only
  const Request* request = nullptr;  // for predictors that only simulation may use (oracle, noisy)
};

class LengthPredictor {
 public:
  virtual ~LengthPredictor() = default;
  virtual const char* name() const = 0;
  // Whether its answers follow from what it is told by Bind and Ended. False: a recording must keep them (oracle,
  // noisy).
  virtual bool learns() const = 0;
  // A sequence takes the slot / its answer is complete (output_tokens generated; cut_off: by an error or a cancel).
  virtual void Bind(SlotId slot, const PredictionFeatures& features) = 0;
  virtual void Ended(SlotId slot, int32_t output_tokens, bool cut_off) = 0;
  // Predicted output tokens in all (not what is left), in [1, max_output_tokens]. `attempt` counts earlier predictions
  // for this sequence that proved too short: the answer grows with it.
  virtual int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const = 0;
};

}  // namespace tactus::core
