// Whole experts as one parallel job. A unit of the job is gate, up and down of one expert for a block of its tokens:
// the values between them stay in the thread's caches, and the job has one barrier. Every output element has the sum
// that the operators of Ops give it one after another.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/config/blocks.h"
#include "compute/kernels/ops.h"
#include "compute/model/operator_profile.h"
#include "compute/model/token_units.h"

namespace tactus::compute {

// Rows [first, first + count) of packed tokens.
PackedTokens TokenSlice(const PackedTokens& x, int64_t first, int64_t count);
// `row` of `to` = `token` of `from`, whose format and columns are the same.
void CopyToken(const PackedTokens& from, int64_t token, const PackedTokens& to, int64_t row);

// y[count, down->rows] = down(silu(gate(x)) * up(x)).
struct WholeExpert {
  PackedTokens x;                   // a step's tokens
  const int32_t* tokens = nullptr;  // [count], rows of x; null: the first `count`
  int64_t count = 0;
  const PackedMatrix* gate = nullptr;  // with x's format
  const PackedMatrix* up = nullptr;    // with x's format
  const PackedMatrix* down = nullptr;
  const float* gate_bias = nullptr;  // null: none
  const float* up_bias = nullptr;    // null: none
  const float* down_bias = nullptr;  // null: none
  TokenFormat inner;                 // of down's input
  float* y = nullptr;
};

class WholeExperts {
 public:
  // `most`: experts added between two runs.
  explicit WholeExperts(int64_t most);
  // Whether a block's experts have the formula of WholeExpert.
  static bool Compute(const ExpertsBlock& block) {
    return block.expert.activation == Activation::kSilu && !block.router.weighs_input;
  }
  // Scratch for `threads` threads, at most `tokens` tokens of `cols` columns and experts of at most `inner` rows.
  static int64_t WorkspaceBytesFor(int64_t cols, int64_t inner, int64_t tokens, int32_t threads);

  void Clear() { experts_.clear(), units_ = 0; }
  void Add(const WholeExpert& expert);
  // Whether there are enough units for this number of threads to share them evenly.
  bool Occupies(int32_t threads) const { return units_ >= kUnitsPerThread * threads; }
  // Computes and clears what was added.
  void Run(const Ops& ops, ThreadPool& pool, Workspace workspace);
  OperatorCost CostOfLastRun() const { return cost_; }

 private:
  static constexpr int64_t kUnitsPerThread = 4;
  struct Entry {
    WholeExpert expert;
    int64_t first_unit;
  };
  CallingThread inline_;
  std::vector<Entry> experts_;
  int64_t units_ = 0;
  OperatorCost cost_;
};

}  // namespace tactus::compute
