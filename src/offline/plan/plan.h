// The plan of a job: its requests in a row, to be started from one end or from both (BlendServe, 3.3;
// offline/plan/start_order.h).
//
// Invariants: every request with an output estimate of more than 0 is in it once, and no other. Deterministic: the same
// job, options and seed give the same plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "offline/plan/cost_model.h"
#include "offline/plan/prefix_tree.h"
#include "offline/plan/totals.h"

namespace tactus::offline {

enum class PlanOrder : uint8_t {
  kFcfs,     // in the job's order
  kDfs,      // depth-first, children in the order in which the job first names them: shares the most
  kRandom,   // shuffled
  kBalance,  // by each request's own density, from both ends; ignores prefixes (ours; NanoFlow-Balance is kRandom)
  kBlend,    // by the density of subtrees, from both ends

  // The plan of kBlend; the scheduler chooses between its ends by the KV that each holds (the paper's dual scanner).
  kBlendDualScan,
};

// Whether subtrees are sorted by density, split and kept together.
inline bool SortsSubtrees(PlanOrder order) {
  return order == PlanOrder::kBlend || order == PlanOrder::kBlendDualScan;
}
// Whether a job starts from both ends of the plan.
inline bool StartsFromBothEnds(PlanOrder order) {
  return SortsSubtrees(order) || order == PlanOrder::kBalance;
}

struct PlanOptions {
  PlanOrder order = PlanOrder::kBlend;
  double split_share = 0.01;  // t: share of the unique prompt tokens that may be recomputed for a better order
  uint64_t seed = 0;          // of kRandom
  int32_t sequences = 0;      // that the device runs at once; 0: not known
  int64_t kv_tokens = 0;      // size of its KV memory; 0: not known
  bool shared_reads = false;  // its attention reads a shared prefix once per step
};

class Plan {
 public:
  // `outputs`: [request] tokens that it generates or is expected to generate; 0: it has run already. The plan keeps the
  // tree, and for kBlend sorts it by density. Precondition: cost.Check().
  static Plan Make(PrefixTree tree, const BatchCostModel& cost, const std::vector<int32_t>& outputs,
                   const PlanOptions& options);

  int32_t size() const { return static_cast<int32_t>(leaves_.size()); }
  int32_t RequestAt(int32_t position) const { return tree_[LeafAt(position)].request; }
  int32_t LeafAt(int32_t position) const { return leaves_[static_cast<size_t>(position)]; }
  // Leading prompt tokens that it shares with the request before it.
  int32_t SharedWithPrevious(int32_t position) const { return shared_[static_cast<size_t>(position)]; }
  int32_t OutputAt(int32_t position) const { return output_[static_cast<size_t>(position)]; }
  int32_t PromptAt(int32_t position) const { return tree_[LeafAt(position)].depth; }
  // Compute seconds if the request before it has left their shared prefix in the cache.
  double ComputeSecondsAt(int32_t position) const;
  double MemorySecondsAt(int32_t position) const;
  // Density of the subtree that it stays together with, its shared prefixes counted once. Precondition: the order is
  // kBlendDualScan.
  double UnitDensityAt(int32_t position) const { return unit_density_[static_cast<size_t>(position)]; }
  PlanOrder order() const { return order_; }
  const PrefixTree& tree() const { return tree_; }
  const BatchCostModel& cost() const { return cost_; }
  const NodeTotals& totals() const { return totals_; }  // of the whole job
  // Average number of sequences that run at once; 0: not known.
  double sequences_at_once() const { return at_once_; }

  // Tokens whose K and V it reads per step, on average over its life, including shared ones.
  int32_t KvTokensAt(int32_t position) const { return PromptAt(position) + OutputAt(position) / 2; }
  // For another plan of the same job; this one must not be used any more.
  PrefixTree TakeTree() && { return std::move(tree_); }

 private:
  // Fills the positions from nodes that stay together.
  void AddUnits(const std::vector<int32_t>& units, const std::vector<NodeTotals>& totals);
  void FindShared();

  PrefixTree tree_;
  BatchCostModel cost_;
  std::vector<int32_t> leaves_;      // [position] node
  std::vector<int32_t> shared_;      // [position]
  std::vector<int32_t> output_;      // [position]
  std::vector<float> unit_density_;  // [position]; only for kBlendDualScan
  std::vector<double> read_;         // [request], ReadPrompts; empty: each reads its whole prompt
  NodeTotals totals_;
  double at_once_ = 0;
  PlanOrder order_ = PlanOrder::kBlend;
};

// The subtrees that stay together, in the tree's order (BlendServe, Algorithm 2). From the root: a leaf is one; an
// inner node is one if opening it would recompute more than `budget` tokens, namely its depth for each of its children.
// The rest of a node's budget is divided among its inner children (the paper divides the whole budget among all
// children), so that all opened nodes together cost no more than `budget`. Subtrees whose requests are all done are
// left out.
std::vector<int32_t> SplitTree(const PrefixTree& tree, const std::vector<NodeTotals>& totals, double budget);

}  // namespace tactus::offline
