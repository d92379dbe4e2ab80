// Operator times from a coefficient file: measured efficiencies on measured shapes, transferred to a model's shapes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cost/coefficient_file.h"
#include "cost/operator_times.h"

namespace tactus::cost {

// What a file covers of a model's shapes, for Describe and Extrapolation.
struct FitCoverage {
  bool gemm = false, experts = false, prefill = false, decode = false, all_reduce = false, exchange = false;
  double most_tokens = 0;  // largest measured m of a matrix product
  double most_chunk = 0, most_context = 0, most_batch = 0;
  bool gemm_dtype_borrowed = false;  // bf16 efficiencies are used for a dtype that was not measured
  bool beside_chunk = false;         // decodes that share a kernel with a chunk were measured
  std::string geometry;              // the measured attention geometry used for the model's, "32/8 heads of 128"
};

class FittedOperators : public OperatorTimes {
 public:
  // `ep`: replicas of `tp` devices that exchange experts' tokens.
  virtual FitCoverage Coverage(const WeightFormat& format, const AttentionShape& shape, int32_t tp,
                               int32_t ep) const = 0;
};

// `coefficients` must outlive the result. `beside`: rows of one device (FindBesideChunk). `roofline` provides what the
// file lacks.
std::unique_ptr<FittedOperators> MakeFitted(const DeviceSpec& device, const Coefficients& coefficients,
                                            std::vector<BesideChunk> beside, std::unique_ptr<OperatorTimes> roofline);

// The embedded file of a device's kernels under a backend: <fit>-<backend>.cost.json, else <fit>.cost.json, else null.
// Error: the binary has a broken file.
Result<const Coefficients*> FindCoefficients(const DeviceSpec& device, const std::string& backend);

// The rows of hybrid.json, for servers with one attention kernel for all sequences of a step. `kernels` as
// Deployment::attention_kernels. auto: the device's own rows if it was measured, for vLLM's kernels and for ours, which
// are priced alike; one: if it was not measured, the rows of the measured device with the nearest bandwidth per
// multiprocessor; two: none.
Result<std::vector<BesideChunk>> FindBesideChunk(const DeviceSpec& device, const std::string& backend,
                                                 const std::string& kernels);

}  // namespace tactus::cost
