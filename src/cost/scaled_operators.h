// Scales operator times deliberately: to test whether a result depends on errors of the cost model, and to calibrate a
// deployment to measurements. Docs: docs/concepts/cost_model.md, "Scaled times".
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cost/operator_times.h"
#include "tactus/status.h"

namespace tactus::cost {

// Factors on the times of kinds of operators; 1: unchanged.
struct OperatorScale {
  double products = 1;          // matrix products, lm_head's too
  double prompt_attention = 1;  // of prompt chunks
  double decode_attention = 1;  // of decodes, alone or beside a chunk
  double beside_chunk = 1;      // of decodes beside a chunk, on top of decode_attention
  double small = 1;             // norms, activations and similar operators
  double network = 1;           // all-reduces and sends

  bool operator==(const OperatorScale&) const = default;
};

// "products=1.1,network=2". Empty: all are 1. kInvalidArgument (param "cost-scale"): a kind that is unknown or
// repeated, a factor that is not a number from 0.01 to 100.
Result<OperatorScale> ParseOperatorScale(std::string_view text);
// "products x 1.1, network x 2"; "" where all are 1.
std::string Describe(const OperatorScale& scale);

// `times` with these factors.
std::unique_ptr<OperatorTimes> MakeScaled(const OperatorScale& scale, std::unique_ptr<OperatorTimes> times);

}  // namespace tactus::cost
