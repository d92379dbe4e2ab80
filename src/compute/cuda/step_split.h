// Cuts a step in two parts for --overlap nano (decoder_overlap.h): the first has the first half of the tokens. A cut is
// between two items, or within a chunk at a multiple of the block size.
//
// Part 1 may read K and V that part 0 stores in the same step. Part 0 must not read what part 1 stores: a step in which
// an item reads blocks of a later one is not cut.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "compute/cuda/attention_plan.h"
#include "compute/cuda/decoder.h"
#include "compute/cuda/step_buffer.h"
#include "compute/cuda/step_units.h"

namespace tactus::compute::cuda {

class StepSplit {
 public:
  StepSplit(int32_t block_size, int64_t num_blocks);

  // The whole step: its items, and those with logits, whose `count` is that of their logit rows. `tables`:
  // AttentionRow::table is an index. False: the step cannot be cut.
  bool Cut(std::span<const AttentionRow> rows, std::span<const AttentionRow> last_rows,
           std::span<const BlockId> tables);
  // After a Cut that succeeded.
  void Plan(std::span<const AttentionShape> shapes, int64_t max_slots);
  void Place(StepBuffer& b);
  void Fill(const StepBuffer& b) const;
  // `multiprocessors`: those of the shapes.
  std::array<DeviceBatch, 2> Batches(const StepBuffer& b, const DeviceBatch& whole, int32_t multiprocessors) const;
  int64_t tokens_of_first() const { return parts_[1].first_token; }

 private:
  struct Part {
    int64_t first_token = 0, first_logit_row = 0;  // of the step
    std::vector<AttentionRow> rows, last_rows;
    std::vector<int32_t> logit_rows;
    std::vector<AttentionPlan> plans, last_plans;
    int64_t tokens = 0;
    int64_t at_rows = 0, at_last_rows = 0, at_logit_rows = 0;  // in the buffer
    PlacedUnits units, last_units;

    void Clear();
    // Adds the last `logits` of the row's tokens as logit rows.
    void Add(AttentionRow row, int32_t logits);
  };
  bool FirstReadsWhatTheSecondStores(std::span<const BlockId> tables);

  const int32_t block_size_;
  std::array<Part, 2> parts_;
  std::vector<int64_t> stored_;  // by block: the last cut whose second part stores it
  int64_t cut_ = 0;
};

}  // namespace tactus::compute::cuda
