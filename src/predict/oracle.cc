// Knows the true output length of every request: the upper bound of what a predictor can do. Simulation only.
#include <algorithm>
#include <vector>

#include "base/sim_request.h"
#include "predict/predictor.h"

namespace tactus::predict {
namespace {

class Oracle final : public LengthPredictor {
 public:
  explicit Oracle(const PredictorOptions& options)
      : length_(static_cast<size_t>(options.slot_capacity), 1), most_(static_cast<size_t>(options.slot_capacity), 1) {}
  const char* name() const override { return kTruth; }
  bool learns() const override { return false; }
  void Bind(SlotId slot, const PredictionFeatures& features) override {
    const auto s = static_cast<size_t>(slot);
    length_[s] = static_cast<const SimRequest*>(features.request)->output_tokens;
    most_[s] = features.max_output_tokens;
  }
  void Ended(SlotId, int32_t, bool) override {}
  int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const override {
    const auto s = static_cast<size_t>(slot);
    return GrownPrediction(length_[s], attempt, most_[s]);
  }

 private:
  std::vector<int32_t> length_, most_;  // [capacity]
};

}  // namespace

std::unique_ptr<LengthPredictor> MakeOracle(const PredictorOptions& options) {
  return std::make_unique<Oracle>(options);
}

}  // namespace tactus::predict
