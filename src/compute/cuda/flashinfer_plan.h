// The lists that FlashInfer's kernels read (kernels/flashinfer.h) in place of attention_plan.h's units, and for which
// models they serve. Pure functions of the batch, the heads and the number of multiprocessors. PlanFlashInfer allocates
// only if a step is larger than any before.
//
// With batch invariance all q rows are in tiles of 64, and a tile's unit has all positions: a row's sums depend on its
// position alone. Without it decodes have forms of their own, and their positions are cut where the batch has too few
// units for the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/step.h"
#include "compute/config/config.h"
#include "compute/cuda/attention_plan.h"
#include "compute/cuda/kernels/flashinfer.h"

namespace tactus::compute::cuda {

struct FlashInferShape {
  int32_t heads = 0, kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;
  int32_t multiprocessors = 0;
  bool batch_invariant = true;
  int64_t max_partials = 0;  // results of all heads of a token that there is memory for
};

// As FlashInferUnits and FlashInferCall, on the host.
struct FlashInferPlan {
  struct Units {
    std::vector<int32_t> items, q_tiles, kv_tiles;
    std::vector<uint8_t> valid;
    int32_t tile_rows = 0;
    bool split = false;
  };
  std::vector<int32_t> first_token, first_page, pages, last_page_tokens;
  std::vector<int32_t> kv_chunk, first_partial, first_of_token;
  Units decodes, chunks;
};

// `rows`: items in the order of their tokens, each with at least one query. AttentionRow::table is an index of
// `tables`.
void PlanFlashInfer(std::span<const AttentionRow> rows, std::span<const BlockId> tables, const FlashInferShape& shape,
                    FlashInferPlan* plan);

// Adds items of no query, up to `items`, and units that are not valid to a plan of decodes, so that the lengths of its
// lists take few values: a CUDA graph of the step serves other steps too.
void PadFlashInferPlan(int64_t items, FlashInferPlan* plan);

struct FlashInferUse {
  Real type = Real::kBF16;
  KvType kv_type = KvType::kBF16;
  bool overlap = false;
  bool built = false;  // HasFlashInfer()
};
// Whether FlashInfer computes the model's attention. kInvalidArgument: what it does not have, and what to change.
Status CheckFlashInfer(const ModelConfig& config, const FlashInferUse& use);

// The same for an executor's size. FlashInfer counts the positions of a step's pages in 32 bits.
Status CheckFlashInferSize(int64_t max_items, int64_t max_model_len, int32_t block_size);

}  // namespace tactus::compute::cuda
