// The products of several experts as one parallel job: each has its own packed tokens and matrices. A unit of the job
// is a few panels of one matrix times a block of tokens, so that threads share uneven experts evenly. Every output
// element has the sum that Ops::linear_packed gives it.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/kernels/ops.h"
#include "compute/model/operator_profile.h"
#include "compute/model/token_units.h"
#include "compute/model/whole_experts.h"

namespace tactus::compute {

// The tokens `token(row)` of `from`, for each row of `to`, whose format and columns are the same.
template <class TokenOf>
void GatherTokens(ThreadPool& pool, const PackedTokens& from, const PackedTokens& to, TokenOf token);

class ExpertProducts {
 public:
  // `most`: products added between two runs.
  explicit ExpertProducts(int64_t most);
  // Scratch for `threads` threads and matrices of at most `max_cols` columns.
  static int64_t WorkspaceBytesFor(int64_t max_cols, int32_t threads);

  void Add(const PackedTokens& x, const LinearOutput& output) { products_.push_back({x, output, 0}); }
  // Computes what was added since the last run.
  void Run(const Ops& ops, ThreadPool& pool, Workspace workspace);
  OperatorCost CostOfLastRun() const { return cost_; }

 private:
  struct Product {
    PackedTokens x;
    LinearOutput output;
    int64_t first_unit = 0;
  };
  CallingThread inline_;
  std::vector<Product> products_;
  OperatorCost cost_;
};

template <class TokenOf>
void GatherTokens(ThreadPool& pool, const PackedTokens& from, const PackedTokens& to, TokenOf token) {
  constexpr int64_t kRowsPerTask = 8;
  pool.ParallelFor((to.tokens + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int32_t) {
    for (int64_t r = task * kRowsPerTask; r < to.tokens && r < (task + 1) * kRowsPerTask; ++r) {
      CopyToken(from, token(r), to, r);
    }
  });
}

}  // namespace tactus::compute
