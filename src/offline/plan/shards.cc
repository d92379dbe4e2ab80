#include "offline/plan/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "base/rng.h"
#include "offline/plan/totals.h"

namespace tactus::offline {
namespace {

// Share of the job's compute that may be recomputed so that requests with a common prefix can go to different shards.
constexpr double kDealtShare = 0.01;

// As fractions of the whole job's.
struct Work {
  double compute = 0, memory = 0;

  double sum() const { return compute + memory; }
  double Along(const Work& direction) const { return compute * direction.compute + memory * direction.memory; }
  Work& operator+=(const Work& w) {
    compute += w.compute;
    memory += w.memory;
    return *this;
  }
};

class Dealer {
 public:
  Dealer(const PrefixTree& tree, const BatchCostModel& cost, const std::vector<int32_t>& outputs, int32_t shards)
      : tree_(tree),
        cost_(cost),
        totals_(SortByDensity(&tree_, cost, outputs)),
        loads_(static_cast<size_t>(shards)),
        dealt_(loads_.size()),
        lacks_(loads_.size()),
        later_(loads_.size()),
        last_(loads_.size()),
        shard_of_(outputs.size(), -1) {}

  // Subtrees that stay together are dealt first; single requests then even out the loads.
  std::vector<int32_t> Deal() && {
    if (totals_[0].requests == 0) return std::move(shard_of_);
    Open();
    for (const bool together : {true, false}) {
      TakeStock();
      for (int32_t node = 0; node < tree_.size();) {
        if (totals_[Index(node)].requests == 0) {
          node = tree_[node].end;
        } else if (opened_[Index(node)]) {
          ++node;
        } else {
          if (together != tree_[node].is_leaf()) DealSubtree(node);
          node = tree_[node].end;
        }
      }
    }
    return std::move(shard_of_);
  }

 private:
  static size_t Index(int32_t i) { return static_cast<size_t>(i); }

  Work Part(double compute_s, double memory_s) const {
    return {totals_[0].compute_s > 0 ? compute_s / totals_[0].compute_s : 0,
            totals_[0].memory_s > 0 ? memory_s / totals_[0].memory_s : 0};
  }

  // Upper bound on the seconds recomputed if this node's children go to different shards.
  double CostOfOpening(int32_t node) const {
    size_t children = 0;
    tree_.ForEachChild(node, [&](int32_t c) { children += totals_[Index(c)].requests > 0 ? 1 : 0; });
    return cost_.PrefixSeconds(tree_[node].depth) *
           static_cast<double>(std::min(loads_.size(), std::max<size_t>(1, children)) - 1);
  }

  // Marks the nodes whose children are dealt out one by one: those that free the most work for their cost first.
  void Open() {
    struct Candidate {
      double gain, cost;
      int32_t node;
      bool operator<(const Candidate& other) const {
        return gain != other.gain ? gain < other.gain : node > other.node;
      }
    };
    std::priority_queue<Candidate> candidates;
    const auto add = [&](int32_t node) {
      const NodeTotals& t = totals_[Index(node)];
      if (tree_[node].is_leaf() || t.requests == 0) return;
      const double cost = CostOfOpening(node);
      const double gain = cost > 0 ? Part(t.compute_s, t.memory_s).sum() / cost : std::numeric_limits<double>::max();
      candidates.push({gain, cost, node});
    };
    opened_.assign(Index(tree_.size()), false);
    double budget = kDealtShare * totals_[0].compute_s;
    for (add(0); !candidates.empty();) {
      const Candidate best = candidates.top();
      candidates.pop();
      if (best.cost > budget) continue;
      budget -= best.cost;
      opened_[Index(best.node)] = true;
      tree_.ForEachChild(best.node, add);
    }
  }

  // Restarts the deal: from here each shard receives work in proportion to what it lacks now.
  void TakeStock() {
    const double fair = 1.0 / static_cast<double>(loads_.size());
    for (size_t s = 0; s < loads_.size(); ++s) {
      lacks_[s] = {std::max(0.0, fair - loads_[s].compute), std::max(0.0, fair - loads_[s].memory)};
      dealt_[s] = {};
      later_[s] = rng_.Uniform();
      last_[s] = -1;
    }
  }

  // Whether the shard has its share of the whole job.
  bool Full(size_t shard) const { return loads_[shard].sum() * static_cast<double>(loads_.size()) >= 2; }

  // The shard that is furthest behind with work of this kind. A random delay, drawn for each turn, keeps a job whose
  // lines repeat from sending the same ones to the same shard.
  size_t Pick(const Work& kind) const {
    size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < loads_.size(); ++s) {
      const double lacks = lacks_[s].Along(kind);
      if (lacks <= 0 || Full(s)) continue;
      const double progress = (dealt_[s].Along(kind) + later_[s] * kind.Along(kind)) / lacks;
      if (progress < least) best = s, least = progress;
    }
    if (least < std::numeric_limits<double>::infinity()) return best;
    // All shards have their share: only recomputed prefixes are left.
    const auto less = [&](const Work& a, const Work& b) { return a.Along(kind) < b.Along(kind); };
    return static_cast<size_t>(std::min_element(loads_.begin(), loads_.end(), less) - loads_.begin());
  }

  size_t Turn(const Work& kind) {
    const size_t shard = Pick(kind);
    later_[shard] = rng_.Uniform();
    return shard;
  }

  // Gives the whole subtree to one shard, unless that shard becomes full before the end.
  void DealSubtree(int32_t subtree) {
    const Work kind = Part(totals_[Index(subtree)].compute_s, totals_[Index(subtree)].memory_s);
    size_t shard = Turn(kind);
    for (int32_t leaf = subtree; leaf < tree_[subtree].end; ++leaf) {
      if (!tree_[leaf].is_leaf() || totals_[Index(leaf)].requests == 0) continue;
      if (Full(shard)) shard = Turn(kind);
      const Work own = Give(leaf, shard);
      loads_[shard] += own;
      dealt_[shard] += own;
    }
  }

  // Returns the work that the leaf adds to the shard.
  Work Give(int32_t leaf, size_t shard) {
    const int32_t before = std::exchange(last_[shard], leaf);
    const double shared_s = before < 0 ? 0 : cost_.PrefixSeconds(tree_[tree_.CommonAncestor(before, leaf)].depth);
    shard_of_[Index(tree_[leaf].request)] = static_cast<int32_t>(shard);
    return Part(totals_[Index(leaf)].compute_s - shared_s, totals_[Index(leaf)].memory_s);
  }

  PrefixTree tree_;
  const BatchCostModel cost_;
  const std::vector<NodeTotals> totals_;  // [node]
  std::vector<bool> opened_;              // [node]
  std::vector<Work> loads_;               // [shard]
  std::vector<Work> dealt_, lacks_;       // [shard] since TakeStock
  std::vector<double> later_;             // [shard] random delay of its turn
  std::vector<int32_t> last_;             // [shard] last leaf given to it since TakeStock
  std::vector<int32_t> shard_of_;         // [request]
  Rng rng_{0};
};

}  // namespace

Result<std::vector<int32_t>> AssignShards(const PrefixTree& tree, BatchCostModel cost,
                                          const std::vector<int32_t>& outputs, int32_t shards) {
  if (shards < 1 || shards > kMostShards) {
    return InvalidArgument(fmt::format("a job cannot be cut into {} shards; use 1 to {}", shards, kMostShards),
                           "shard");
  }
  if (shards == 1) {  // the usual case: does not copy and sort the tree
    std::vector<int32_t> shard_of(outputs.size());
    std::transform(outputs.begin(), outputs.end(), shard_of.begin(), [](int32_t o) { return o > 0 ? 0 : -1; });
    return shard_of;
  }
  cost.flops_per_s = cost.bytes_per_s = 1;
  return Dealer(tree, cost, outputs, shards).Deal();
}

}  // namespace tactus::offline
