// Predictors of output lengths by name, the values of --predictor. Each implements core/interfaces/length_predictor.h.
//
//   none            no predictor; only for schedulers that need none
//   history         running averages of output lengths so far (history.cc)
//   oracle          the true length; simulation only
//   noisy:<sigma>   the true length times a log-normal error of that deviation; simulation only
//   stated          the prediction in the workload file; simulation only
//
// Thread rule of the predictors: engine thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/interfaces/length_predictor.h"
#include "tactus/status.h"

namespace tactus::core {

// Names of predictors.
inline constexpr const char* kTruth = "oracle";
inline constexpr const char* kStated = "stated";

struct PredictorOptions {
  int32_t slot_capacity = 0;        // most live sequences
  int32_t max_model_len = 0;        // L_max: no answer is longer
  uint64_t seed = 0;                // of the noise
  bool true_lengths_known = false;  // requests are SimRequests: oracle, noisy and stated are allowed
  bool lean = false;                // as in KvCacheConfig: tables grow with what is learnt
};

// A value of --predictor and its help in `tactus sim --list`.
struct PredictorInfo {
  const char* name;
  const char* help;
};
const std::vector<PredictorInfo>& Predictors();

// Null for "none". kInvalidArgument: an unknown name, a bad sigma, or a predictor that needs true lengths while
// true_lengths_known is false.
Result<std::unique_ptr<LengthPredictor>> MakePredictor(const std::string& name, const PredictorOptions& options);

// Whether the named predictor's predictions follow from the run (LengthPredictor::learns); true for "none", false for
// an unknown name.
bool Learns(const std::string& name);

std::unique_ptr<LengthPredictor> MakeHistory(const PredictorOptions& options);
std::unique_ptr<LengthPredictor> MakeOracle(const PredictorOptions& options);
std::unique_ptr<LengthPredictor> MakeStated(const PredictorOptions& options);
// `sigma` >= 0: standard deviation of the logarithm of predicted over true length.
std::unique_ptr<LengthPredictor> MakeNoisy(const PredictorOptions& options, double sigma);

// A prediction that proved too short `attempt` times doubles each time; the result is in [1, most].
int32_t GrownPrediction(int64_t tokens, int32_t attempt, int32_t most);

}  // namespace tactus::core
