// The tokens of a step grouped by expert: a row for each token and each of its experts, the rows of an expert one after
// another, tokens ascending. An expert's weights are then read once for all of its tokens.
//
// Sized once: grouping allocates nothing. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/config/config.h"

namespace tactus::compute {

class ExpertRows {
 public:
  // For steps of at most `max_tokens` tokens through any layer of the model.
  ExpertRows(const ModelConfig& config, int64_t max_tokens);
  static int64_t Bytes(const ModelConfig& config, int64_t max_tokens);

  // The choice that Group reads: chosen()[tokens * chosen + n], experts ascending for each token, and their weights.
  int32_t* chosen() { return chosen_.data(); }
  float* weights() { return weights_.data(); }
  void Group(const ExpertsBlock& block, int64_t tokens);

  int64_t rows() const { return first_[experts_]; }
  int64_t first(int64_t expert) const { return first_[static_cast<size_t>(expert)]; }
  int64_t count(int64_t expert) const { return first(expert + 1) - first(expert); }
  std::span<const int32_t> active() const { return active_; }  // experts with rows, those with most rows first
  // The tokens of rows [first(expert), first(expert + 1)).
  const int32_t* tokens(int64_t expert) const { return token_.data() + first(expert); }
  int64_t token(int64_t row) const { return token_[static_cast<size_t>(row)]; }
  float weight_of_row(int64_t row) const { return row_weight_[static_cast<size_t>(row)]; }
  // The row of a token's nth expert, and that expert's weight.
  int64_t row(int64_t token, int32_t n) const { return row_[static_cast<size_t>(token * per_token_ + n)]; }
  float weight(int64_t token, int32_t n) const { return weights_[static_cast<size_t>(token * per_token_ + n)]; }

 private:
  size_t experts_ = 0;
  int32_t per_token_ = 1;
  std::vector<int32_t> chosen_, row_, token_, active_;  // of tokens * experts per token; active_: experts
  std::vector<float> weights_, row_weight_;
  std::vector<int32_t> first_, next_;  // [experts + 1]
};

}  // namespace tactus::compute
