#include "compute/model/expert_rows.h"

#include <algorithm>

namespace tactus::compute {
namespace {

struct Most {
  explicit Most(const ModelConfig& config) {
    for (const Layer& layer : config.layers) {
      const ExpertsBlock* const block = ExpertsOf(layer);
      if (block == nullptr) continue;
      experts = std::max(experts, block->experts);
      chosen = std::max<int64_t>(chosen, block->router.chosen);
    }
  }
  int64_t experts = 0, chosen = 0;  // of any layer
};

}  // namespace

int64_t ExpertRows::Bytes(const ModelConfig& config, int64_t max_tokens) {
  const Most most(config);
  return 4 * (5 * max_tokens * most.chosen + 3 * (most.experts + 1));
}

ExpertRows::ExpertRows(const ModelConfig& config, int64_t max_tokens) {
  const Most most(config);
  const auto rows = static_cast<size_t>(max_tokens * most.chosen), experts = static_cast<size_t>(most.experts);
  for (std::vector<int32_t>* list : {&chosen_, &row_, &token_}) list->resize(rows);
  for (std::vector<float>* list : {&weights_, &row_weight_}) list->resize(rows);
  active_.reserve(experts);
  first_.resize(experts + 1);
  next_.resize(experts + 1);
}

void ExpertRows::Group(const ExpertsBlock& block, int64_t tokens) {
  experts_ = static_cast<size_t>(block.experts);
  per_token_ = block.router.chosen;
  const auto rows = static_cast<size_t>(tokens * per_token_);
  std::fill_n(first_.begin(), experts_ + 1, 0);
  for (size_t i = 0; i < rows; ++i) ++first_[static_cast<size_t>(chosen_[i]) + 1];
  for (size_t e = 0; e < experts_; ++e) first_[e + 1] += first_[e];
  std::copy_n(first_.begin(), experts_, next_.begin());
  for (size_t i = 0; i < rows; ++i) {
    const int32_t row = next_[static_cast<size_t>(chosen_[i])]++;
    row_[i] = row;
    token_[static_cast<size_t>(row)] = static_cast<int32_t>(i) / per_token_;
    row_weight_[static_cast<size_t>(row)] = weights_[i];
  }
  active_.clear();
  for (int32_t e = 0; e < static_cast<int32_t>(experts_); ++e) {
    if (count(e) > 0) active_.push_back(e);
  }
  std::sort(active_.begin(), active_.end(),
            [this](int32_t a, int32_t b) { return count(a) != count(b) ? count(a) > count(b) : a < b; });
}

}  // namespace tactus::compute
