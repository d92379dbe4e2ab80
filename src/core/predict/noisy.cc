// The oracle with an error: true length times exp(sigma * z), z standard normal, drawn from (seed, n) for the n-th
// sequence that is bound. Sequences are bound in order of arrival, so a request has the same error under every
// scheduler. Simulation only.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/sim_request.h"
#include "core/predict/predictor.h"

namespace tactus::core {
namespace {

class Noisy final : public LengthPredictor {
 public:
  Noisy(const PredictorOptions& options, double sigma)
      : seed_(options.seed),
        sigma_(sigma),
        name_(fmt::format("noisy:{}", sigma)),
        length_(static_cast<size_t>(options.slot_capacity), 1),
        most_(static_cast<size_t>(options.slot_capacity), 1) {}
  const char* name() const override { return name_.c_str(); }
  bool learns() const override { return false; }
  void Bind(SlotId slot, const PredictionFeatures& features) override {
    const auto s = static_cast<size_t>(slot);
    const auto truth = static_cast<double>(static_cast<const SimRequest*>(features.request)->output_tokens);
    // No output is longer than 2^30 tokens; above that only the cap at max_output_tokens matters.
    length_[s] = std::llround(std::clamp(truth * std::exp(sigma_ * Normal(bound_++)), 1.0, 1073741824.0));
    most_[s] = features.max_output_tokens;
  }
  void Ended(SlotId, int32_t, bool) override {}
  int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const override {
    const auto s = static_cast<size_t>(slot);
    return GrownPrediction(length_[s], attempt, most_[s]);
  }

 private:
  // Box and Muller (1958), on two counter-based uniforms.
  double Normal(uint64_t index) const {
    constexpr uint64_t kRadius = 0x6e6f697379, kAngle = kRadius + 1;
    const double radius = std::sqrt(-2.0 * std::log(1.0 - UniformAt(seed_, kRadius, index)));
    return radius * std::cos(2.0 * std::numbers::pi * UniformAt(seed_, kAngle, index));
  }

  const uint64_t seed_;
  const double sigma_;
  const std::string name_;
  uint64_t bound_ = 0;
  std::vector<int64_t> length_;  // [capacity]
  std::vector<int32_t> most_;    // [capacity]
};

}  // namespace

std::unique_ptr<LengthPredictor> MakeNoisy(const PredictorOptions& options, double sigma) {
  return std::make_unique<Noisy>(options, sigma);
}

}  // namespace tactus::core
