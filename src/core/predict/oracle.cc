// Predictions from a simulated request itself. `oracle`: the true length, the best that any predictor can do. `stated`:
// the column predicted_output_tokens of the workload file; max_output_tokens for a request without a value.
#include <vector>

#include "base/sim_request.h"
#include "core/predict/predictor.h"

namespace tactus::core {
namespace {

class FromRequest final : public LengthPredictor {
 public:
  FromRequest(const char* name, int32_t SimRequest::* length, const PredictorOptions& options)
      : name_(name),
        of_request_(length),
        length_(static_cast<size_t>(options.slot_capacity), 1),
        most_(static_cast<size_t>(options.slot_capacity), 1) {}
  const char* name() const override { return name_; }
  bool learns() const override { return false; }
  void Bind(SlotId slot, const PredictionFeatures& features) override {
    const auto s = static_cast<size_t>(slot);
    const int32_t said = static_cast<const SimRequest*>(features.request)->*of_request_;
    most_[s] = features.max_output_tokens;
    length_[s] = said > 0 ? said : most_[s];
  }
  void Ended(SlotId, int32_t, bool) override {}
  int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const override {
    const auto s = static_cast<size_t>(slot);
    return GrownPrediction(length_[s], attempt, most_[s]);
  }

 private:
  const char* const name_;
  int32_t SimRequest::* const of_request_;
  std::vector<int32_t> length_, most_;  // [capacity]
};

}  // namespace

std::unique_ptr<LengthPredictor> MakeOracle(const PredictorOptions& options) {
  return std::make_unique<FromRequest>(kTruth, &SimRequest::output_tokens, options);
}

std::unique_ptr<LengthPredictor> MakeStated(const PredictorOptions& options) {
  return std::make_unique<FromRequest>(kStated, &SimRequest::predicted_output_tokens, options);
}

}  // namespace tactus::core
