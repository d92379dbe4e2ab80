// A predictor with lengths set by the test.
#pragma once

#include <algorithm>
#include <vector>

#include "core/interfaces/length_predictor.h"

namespace tactus::testing {

// The n-th sequence to be bound is predicted to be lengths[n] long (the last one repeats), twice that after each
// attempt.
class KnownLengths final : public core::LengthPredictor {
 public:
  explicit KnownLengths(std::vector<int32_t> lengths) : lengths_(std::move(lengths)), slots_(4096, 1), most_(4096, 1) {}
  const char* name() const override { return "known"; }
  bool learns() const override { return true; }
  void Bind(SlotId slot, const core::PredictionFeatures& features) override {
    slots_[static_cast<size_t>(slot)] = lengths_[std::min(bound_++, lengths_.size() - 1)];
    most_[static_cast<size_t>(slot)] = features.max_output_tokens;
  }
  void Ended(SlotId, int32_t, bool) override {}
  int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const override {
    const int64_t tokens = int64_t{slots_[static_cast<size_t>(slot)]} << std::min(attempt, 20);
    return static_cast<int32_t>(std::clamp<int64_t>(tokens, 1, most_[static_cast<size_t>(slot)]));
  }

 private:
  const std::vector<int32_t> lengths_;
  std::vector<int32_t> slots_, most_;
  size_t bound_ = 0;
};

}  // namespace tactus::testing
