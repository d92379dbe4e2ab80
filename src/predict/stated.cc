// Answers what the workload itself predicts of each request, the column predicted_output_tokens of its file; of a
// request for which it says nothing, as much as the request may generate. Simulation only.
#include <vector>

#include "base/sim_request.h"
#include "predict/predictor.h"

namespace tactus::predict {
namespace {

class Stated final : public LengthPredictor {
 public:
  explicit Stated(const PredictorOptions& options)
      : length_(static_cast<size_t>(options.slot_capacity), 1), most_(static_cast<size_t>(options.slot_capacity), 1) {}
  const char* name() const override { return kStated; }
  bool learns() const override { return false; }
  void Bind(SlotId slot, const PredictionFeatures& features) override {
    const auto s = static_cast<size_t>(slot);
    const int32_t stated = static_cast<const SimRequest*>(features.request)->predicted_output_tokens;
    most_[s] = features.max_output_tokens;
    length_[s] = stated > 0 ? stated : most_[s];
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

std::unique_ptr<LengthPredictor> MakeStated(const PredictorOptions& options) {
  return std::make_unique<Stated>(options);
}

}  // namespace tactus::predict
