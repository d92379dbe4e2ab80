#include "offline/plan/plan.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"

namespace tactus::offline {
namespace {

// Leaves of the tree that have not run, in the tree's order.
std::vector<int32_t> LeavesOf(const PrefixTree& tree, const std::vector<NodeTotals>& totals) {
  std::vector<int32_t> leaves;
  leaves.reserve(static_cast<size_t>(totals[0].requests));
  for (int32_t i = 0; i < tree.size(); ++i) {
    if (tree[i].is_leaf() && totals[static_cast<size_t>(i)].requests > 0) leaves.push_back(i);
  }
  return leaves;
}

void Shuffle(uint64_t seed, std::vector<int32_t>* leaves) {
  Rng rng(seed);
  for (size_t i = leaves->size(); i > 1; --i) {
    std::swap((*leaves)[i - 1], (*leaves)[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(i) - 1))]);
  }
}

// Sorts by density, the densest first; equal nodes keep the tree's order.
void SortDensest(const std::vector<NodeTotals>& totals, std::vector<int32_t>* nodes) {
  std::stable_sort(nodes->begin(), nodes->end(), [&](int32_t a, int32_t b) {
    return totals[static_cast<size_t>(a)].density() > totals[static_cast<size_t>(b)].density();
  });
}

}  // namespace

std::vector<int32_t> SplitTree(const PrefixTree& tree, const std::vector<NodeTotals>& totals, double budget) {
  struct Pending {
    int32_t node;
    double budget;
  };
  std::vector<int32_t> whole, children;
  std::vector<Pending> pending{{0, budget}};
  while (!pending.empty()) {
    const Pending at = pending.back();
    pending.pop_back();
    if (totals[static_cast<size_t>(at.node)].requests == 0) continue;
    if (tree[at.node].is_leaf()) {
      whole.push_back(at.node);
      continue;
    }
    children.clear();
    int32_t inner = 0;
    tree.ForEachChild(at.node, [&](int32_t c) {
      if (totals[static_cast<size_t>(c)].requests == 0) return;
      children.push_back(c);
      if (!tree[c].is_leaf()) ++inner;
    });
    const double again = static_cast<double>(tree[at.node].depth) * static_cast<double>(children.size());
    if (again > at.budget) {
      whole.push_back(at.node);
      continue;
    }
    const double left = (at.budget - again) / std::max(1, inner);
    for (auto it = children.rbegin(); it != children.rend(); ++it) pending.push_back({*it, left});
  }
  return whole;
}

namespace {

// The units that stay together, in the planned order: subtrees, or single requests.
std::vector<int32_t> PlannedUnits(const PrefixTree& tree, const std::vector<NodeTotals>& totals,
                                  const PlanOptions& options) {
  if (SortsSubtrees(options.order)) {
    std::vector<int32_t> units =
        SplitTree(tree, totals, options.split_share * static_cast<double>(totals[0].computed_tokens));
    SortDensest(totals, &units);
    return units;
  }
  std::vector<int32_t> units = LeavesOf(tree, totals);
  if (options.order == PlanOrder::kDfs) return units;
  // Sort by index first, so that these orders do not depend on the tree.
  std::sort(units.begin(), units.end(), [&](int32_t a, int32_t b) { return tree[a].request < tree[b].request; });
  if (options.order == PlanOrder::kRandom) Shuffle(options.seed, &units);
  if (options.order == PlanOrder::kBalance) SortDensest(totals, &units);
  return units;
}

}  // namespace

Plan Plan::Make(PrefixTree tree, const BatchCostModel& cost, const std::vector<int32_t>& outputs,
                const PlanOptions& options) {
  Plan plan;
  plan.tree_ = std::move(tree);
  plan.cost_ = cost;
  plan.order_ = options.order;
  plan.at_once_ = SequencesAtOnce(plan.tree_, outputs, options.sequences, options.kv_tokens);
  if (options.shared_reads) plan.read_ = ReadPrompts(plan.tree_, outputs, plan.at_once_);
  const std::vector<NodeTotals> totals = SortsSubtrees(options.order)
                                             ? SortByDensity(&plan.tree_, cost, outputs, plan.read_)
                                             : SumSubtrees(plan.tree_, cost, outputs, plan.read_);
  plan.totals_ = totals[0];
  if (plan.totals_.requests == 0) return plan;
  plan.AddUnits(PlannedUnits(plan.tree_, totals, options), totals);
  plan.output_.reserve(plan.leaves_.size());
  for (const int32_t leaf : plan.leaves_)
    plan.output_.push_back(outputs[static_cast<size_t>(plan.tree_[leaf].request)]);
  plan.FindShared();
  return plan;
}

double Plan::ComputeSecondsAt(int32_t position) const {
  return cost_.ComputeSeconds(PromptAt(position), OutputAt(position)) -
         cost_.PrefixSeconds(SharedWithPrevious(position));
}

double Plan::MemorySecondsAt(int32_t position) const {
  const double read = read_.empty() ? PromptAt(position) : read_[static_cast<size_t>(RequestAt(position))];
  return cost_.MemorySeconds(read, OutputAt(position));
}

void Plan::FindShared() {
  shared_.reserve(leaves_.size());
  for (size_t i = 0; i < leaves_.size(); ++i) {
    shared_.push_back(i == 0 ? 0 : tree_[tree_.CommonAncestor(leaves_[i - 1], leaves_[i])].depth);
  }
}

void Plan::AddUnits(const std::vector<int32_t>& units, const std::vector<NodeTotals>& totals) {
  leaves_.reserve(static_cast<size_t>(totals_.requests));
  const bool keeps_density = order_ == PlanOrder::kBlendDualScan;
  if (keeps_density) unit_density_.reserve(leaves_.capacity());
  for (const int32_t unit : units) {
    const auto density = static_cast<float>(totals[static_cast<size_t>(unit)].density());
    for (int32_t i = unit; i < tree_[unit].end; ++i) {
      if (!tree_[i].is_leaf() || totals[static_cast<size_t>(i)].requests == 0) continue;
      leaves_.push_back(i);
      if (keeps_density) unit_density_.push_back(density);
    }
  }
}

}  // namespace tactus::offline
