// Attention of one kind of layer on one device, tabulated: of a step's chunks and of its decodes.
//
// Thread rule: immutable after construction.
#pragma once

#include "base/step_time_model.h"
#include "cost/log_grid.h"
#include "cost/operator_times.h"

namespace tactus::cost {

// Attention of one layer: of the chunks (and of prefixes that are read once), of the decodes beside them, and of the
// decodes in a separate kernel.
struct AttentionParts {
  double chunks_ns = 0, decodes_ns = 0, own_kernel_ns = 0;
};

class AttentionTables {
 public:
  // `shape`: of one device. `window`: positions that a query sees; 0: all.
  AttentionTables(const OperatorTimes& times, const AttentionShape& shape, int64_t window);

  AttentionParts Apart(const StepShape& step) const;
  AttentionParts Cascade(const StepShape& step) const;  // prefixes are read once
  bool ReadsTogether(const StepShape& step) const;      // whether Cascade applies

  const AttentionShape& shape() const { return shape_; }
  double window() const { return window_; }  // infinity: none

 private:
  AttentionParts PartsOf(const StepShape& step, double chunks_sum_ns, double longest_ns, int64_t own_tokens) const;

  AttentionShape shape_;
  double window_;
  double prefill_base_ns_;
  LogGrid adds_, alone_;     // by chunk tokens, context
  LogGrid decode_, beside_;  // by sequences, their mean context; beside_: in a step with chunks
};

}  // namespace tactus::cost
