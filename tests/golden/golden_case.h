// Reads tests/golden/data (see its README) and runs its cases with the CPU executor's step runner.
#pragma once

#include <string>
#include <vector>

#include "base/backend.h"
#include "compute/exec/numerics.h"
#include "compute/exec/step_runner.h"
#include "compute/model/loader.h"
#include "support/step_driver.h"

namespace tactus::test {

struct GoldenCase {
  std::string name;
  int64_t max_model_len = 0;
  std::vector<TokenId> prompt, greedy;
  std::vector<float> greedy_margin;                   // best - second best logit, per greedy token
  std::vector<int32_t> logit_positions;               // of `logits`
  std::vector<float> logits;                          // [logit_positions, vocab]; empty: none
  std::vector<std::pair<TokenId, float>> top_logits;  // after the last prompt token; empty: none
  double perplexity = 0.0;                            // of the prompt after its first token; 0: not stated
};

// Missing, empty, truncated or non-finite data is an error with the file and the case, so that it never compares as
// equal.
Result<std::vector<GoldenCase>> ReadGoldenCases(const std::string& json_path);

// Raises *error to the largest absolute difference. A non-finite value on either side is an error with its position.
Status CompareLogit(double ours, double reference, int32_t position, size_t token, double* error);

// The result of a case under some numerics.
struct GoldenRun {
  double logits_error = 0.0;  // largest absolute difference to the reference's logits
  double median_error = 0.0;  // median over the positions with logits of each one's largest difference
  size_t equal_tokens = 0;    // greedy tokens equal from the start
  std::vector<TokenId> greedy;
  double perplexity = 0.0;  // of the prompt, where the case states one
};
// An executor's size for a case: 16 tokens to a block, one sequence.
ExecutorSize GoldenSize(const compute::ModelConfig& config, const GoldenCase& golden);
// Runs a case with a driver that records logits. A failed step, non-finite logits and an output that ends early are
// errors.
Result<GoldenRun> DriveGoldenCase(const compute::ModelConfig& config, const GoldenCase& golden, StepDriver& driver);
// With the CPU's step runner.
Result<GoldenRun> RunGoldenCase(const compute::ModelConfig& config, const compute::CpuWeights& weights,
                                const GoldenCase& golden, const compute::Numerics& numerics, const compute::Ops* ops);

}  // namespace tactus::test
