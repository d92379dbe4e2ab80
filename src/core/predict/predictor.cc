#include "core/predict/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/unit_text.h"

namespace tactus::core {
namespace {

constexpr const char* kKnown = "none, history, and in simulations oracle, noisy:<sigma> and stated";

Status Refuse(const std::string& name) {
  return InvalidArgument(
      fmt::format("--predictor {} needs {}, which only a simulation has; use --predictor "
                  "history (scheduler trail instead of trail-oracle)",
                  name, name == kStated ? "the workload file's predictions" : "the true lengths of all answers"),
      "predictor");
}

}  // namespace

int32_t GrownPrediction(int64_t tokens, int32_t attempt, int32_t most) {
  const int64_t grown = std::max<int64_t>(1, tokens) << std::clamp(attempt, 0, 31);
  return static_cast<int32_t>(std::clamp<int64_t>(grown, 1, std::max(1, most)));
}

const std::vector<PredictorInfo>& Predictors() {
  static const std::vector<PredictorInfo> known = {
      {kNoPredictor, "no predictor, for schedulers that need none"},
      {kUsualPredictor, "running averages of the lengths of answers so far"},
      {kTruth, "the true length; in simulation only"},
      {"noisy:SIGMA", "the true length times a log-normal error of deviation SIGMA; in simulation only"},
      {kStated, "the workload file's column predicted_output_tokens; in simulation only"}};
  return known;
}

Result<std::unique_ptr<LengthPredictor>> MakePredictor(const std::string& name, const PredictorOptions& options) {
  if (name.empty() || name == kNoPredictor) return std::unique_ptr<LengthPredictor>();
  if (name == kUsualPredictor) return MakeHistory(options);
  if (name == kTruth) {
    if (!options.true_lengths_known) return Refuse(name);
    return MakeOracle(options);
  }
  if (name == kStated) {
    if (!options.true_lengths_known) return Refuse(name);
    return MakeStated(options);
  }
  const std::string noisy = "noisy:";
  if (name.rfind(noisy, 0) == 0) {
    const std::string number = name.substr(noisy.size());
    double sigma = 0;
    if (!ParsePlainNumber(number, &sigma) || sigma < 0 || sigma > 10) {
      return InvalidArgument(
          fmt::format("--predictor {}: '{}' is not a deviation; use noisy:<sigma> with sigma from 0 to 10, "
                      "such as noisy:0.5",
                      name, number),
          "predictor");
    }
    if (!options.true_lengths_known) return Refuse(name);
    return MakeNoisy(options, sigma);
  }
  return InvalidArgument(fmt::format("unknown predictor '{}'; known: {}", name, kKnown), "predictor");
}

bool Learns(const std::string& name) {
  const auto made = MakePredictor(name, {.slot_capacity = 1, .max_model_len = 1, .true_lengths_known = true});
  return made.ok() && (*made == nullptr || (*made)->learns());
}

}  // namespace tactus::core
