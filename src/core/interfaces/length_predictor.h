// Predicts how many tokens a request will generate: the only source from which a policy knows anything about an
// output's length. The engine calls Bind at arrival and Ended at the end; policies call PredictOutputTokens.
// Deterministic: predictions follow from the calls before. Thread rule: engine thread only.
#pragma once

#include <span>

#include "base/hash.h"
#include "base/units.h"
#include "tactus/request.h"

namespace tactus::core {

// The value of --predictor for no predictor, and the default for schedulers that need one. All values:
// core/predict/predictor.h.
inline constexpr const char* kNoPredictor = "none";
inline constexpr const char* kUsualPredictor = "history";

// What is known about a request at its arrival.
struct PredictionFeatures {
  int32_t prompt_tokens = 0;
  int32_t max_output_tokens = 0;
  uint64_t client = 0;  // hash of Request::client; 0: unknown
  // Keys of the prompt's full blocks, first block first; empty: unknown. Valid during Bind only.
  std::span<const Hash128> prefix_keys;
  const Request* request = nullptr;  // for predictors that only simulation may use (oracle, noisy)
};

class LengthPredictor {
 public:
  virtual ~LengthPredictor() = default;
  virtual const char* name() const = 0;
  // Whether predictions follow from the calls of Bind and Ended alone. False: a recording must store them (oracle,
  // noisy).
  virtual bool learns() const = 0;
  // Bind: a sequence enters the slot. Ended: it has ended with output_tokens tokens (cut_off: by an error or a cancel).
  virtual void Bind(SlotId slot, const PredictionFeatures& features) = 0;
  virtual void Ended(SlotId slot, int32_t output_tokens, bool cut_off) = 0;
  // Predicted total output tokens (not the rest), in [1, max_output_tokens]. `attempt`: earlier predictions for this
  // sequence that proved too short; the prediction grows with it.
  virtual int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const = 0;
};

}  // namespace tactus::core
