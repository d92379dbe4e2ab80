// Mixtures of experts: the choice of experts by the definition of compute/model/router.h, the grouping of tokens by
// expert, the products of each expert's tokens, and their sum.
#pragma once

#include "compute/config/router_spec.h"
#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

// The rows of a step's tokens grouped by expert, ascending; within an expert tokens ascend. All on the device.
struct ExpertRowsView {
  int32_t* chosen = nullptr;     // [tokens, chosen], experts ascending
  float* weights = nullptr;      // [tokens, chosen]
  int32_t* first = nullptr;      // [experts + 1], first row of each expert
  int32_t* token = nullptr;      // [rows], the token of each row
  int32_t* row = nullptr;        // [tokens, chosen], the row of each choice
  float* row_weights = nullptr;  // [rows], the weight of each row; null: not written
};

// Fills view.chosen and view.weights from logits [tokens, experts], then groups. choice_bias, expert_scale [experts],
// null: none. Groups by counting: the order is that of tokens, whatever the threads do. At most 1024 experts, 64
// chosen.
//
// Against Route (compute/model/router.h): the operations and their order are the same, so choices and weights have the
// same bits where no exponential is involved. Exponentials are rounded from f64 to the nearest f32 almost always; those
// of a CPU's library may differ by one unit of the last place.
void RouteTokens(Stream& s, const RouterSpec& spec, int64_t experts, const float* logits, const float* choice_bias,
                 const float* expert_scale, int64_t tokens, const ExpertRowsView& view);

// y[row, :] = x[token[row], :] w_expert^T (+ bias) for the rows of every expert; x of `type`, or rows one after another
// where `gathered`. `w`: [experts] matrices of one shape and format, on the device; biases [experts, rows], null: none.
// Formats, limits and bits are those of MultiplyQuantized (quantized.h): an expert's row has the bits that a product
// with its matrix alone has.
struct GroupedProduct {
  const void* x = nullptr;
  bool gathered = false;  // x has a row per row, not per token
  Real type = Real::kBF16;
  const DeviceMatrix* w = nullptr;  // [experts], an array in device memory
  DeviceMatrix shape;               // of each; its addresses are not read
  const float* biases = nullptr;
  int64_t experts = 0, max_rows = 0;  // rows: tokens * chosen
  const ExpertRowsView* rows = nullptr;
  const float* weigh_inputs = nullptr;  // not null: view.row_weights, x's rows are multiplied with them (Llama 4)
  void* y = nullptr;                    // [rows, w.rows] of y_type
  Real y_type = Real::kBF16;
};
void MultiplyGrouped(Stream& s, const GroupedProduct& call);

// out[t, :] (+)= sum over the token's choices, experts ascending, of weight * y[row, :] (weights 1 where inputs were
// weighed), + shared_weight[t] * shared[t, :]. y, shared f32.
struct CombineCall {
  const float* y = nullptr;
  const float* shared = nullptr;         // [tokens, dim]; null: none
  const float* shared_logits = nullptr;  // [tokens]; weight = sigmoid; null: 1
  int64_t tokens = 0, dim = 0;
  int32_t chosen = 1;
  bool weighs_input = false;
  const ExpertRowsView* rows = nullptr;
  float* out = nullptr;
  bool adds = false;
};
void CombineExperts(Stream& s, const CombineCall& call);

}  // namespace tactus::compute::cuda
