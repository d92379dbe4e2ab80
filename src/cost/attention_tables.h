// Attention of one kind of layer on one device, tabulated: of a step's chunks and of its decodes.
//
// Thread rule: immutable after construction.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/step_time_model.h"
#include "cost/log_grid.h"
#include "cost/operator_times.h"

namespace tactus::cost {

// Attention of one layer: of the chunks (and of prefixes that are read once), of the decodes beside them, and of the
// decodes in a separate kernel.
struct AttentionParts {
  double chunks_ns = 0, decodes_ns = 0, own_kernel_ns = 0;
};

// What a query sees: the last `window` positions, and those of its chunk, of `chunk` positions. Infinity: all.
struct VisibleSpan {
  double window = INFINITY, chunk = INFINITY;

  double most() const { return std::min(window, chunk); }
  // The part of `context` positions that `tokens` behind them see, as many as fit into a chunk with them. Times shall
  // not fall as contexts rise, so that is also assumed beyond the first chunk, where the mean is less.
  double Seen(double context, double tokens = 0) const {
    return std::min({context, window, std::max(chunk - tokens, 0.0)});
  }
  bool operator==(const VisibleSpan&) const = default;
};

class AttentionTables {
 public:
  // `shape`: of one device.
  AttentionTables(const OperatorTimes& times, const AttentionShape& shape, const VisibleSpan& span);

  AttentionParts Apart(const StepShape& step) const;
  AttentionParts Cascade(const StepShape& step) const;  // prefixes are read once
  bool ReadsTogether(const StepShape& step) const;      // whether Cascade applies

  const AttentionShape& shape() const { return shape_; }
  const VisibleSpan& span() const { return span_; }

 private:
  AttentionParts PartsOf(const StepShape& step, double chunks_sum_ns, double longest_ns, int64_t own_tokens) const;

  AttentionShape shape_;
  VisibleSpan span_;
  double prefill_base_ns_;
  LogGrid adds_, alone_;     // by chunk tokens, context
  LogGrid decode_, beside_;  // by sequences, their mean context; beside_: in a step with chunks
};

}  // namespace tactus::cost
