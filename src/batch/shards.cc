#include "batch/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tactus::batch {
namespace {

struct Work {
  double compute_s = 0, memory_s = 0;
};

// Work of the positions before each, in the planned order.
std::vector<Work> RunningSums(const Plan& plan) {
  std::vector<Work> before(static_cast<size_t>(plan.size()) + 1);
  for (int32_t i = 0; i < plan.size(); ++i) {
    const Work& w = before[static_cast<size_t>(i)];
    before[static_cast<size_t>(i) + 1] = {w.compute_s + plan.ComputeSecondsAt(i), w.memory_s + plan.MemorySecondsAt(i)};
  }
  return before;
}

// Cuts so that [0, left) and [right, n) are together one part of the whole, both by compute and by memory time.
struct Cut {
  int32_t left = 0, right = 0;
};

class Cutter {
 public:
  explicit Cutter(const Plan& plan) : before_(RunningSums(plan)) {}

  // `last`: the cut before, which this one contains.
  Cut At(double share, const Cut& last) const {
    const Work target{share * All().compute_s, share * All().memory_s};
    // The further left the cut goes, the less memory time is left for the right, and the more compute there is in all:
    // the left is the denser side.
    int32_t low = last.left, high = LeftOf(target, last);
    while (low < high) {
      const int32_t left = low + (high - low) / 2;
      const int32_t right = RightOf(left, target, last);
      (Before(left).compute_s + All().compute_s - Before(right).compute_s < target.compute_s ? low = left + 1
                                                                                             : high = left);
    }
    // One request more or less: whichever is nearer by both.
    const Cut here{low, RightOf(low, target, last)};
    if (low == last.left) return here;
    const Cut less{low - 1, RightOf(low - 1, target, last)};
    return Distance(less, target) < Distance(here, target) ? less : here;
  }

 private:
  const Work& Before(int32_t i) const { return before_[static_cast<size_t>(i)]; }
  const Work& All() const { return before_.back(); }
  // Where the left stretch alone has the memory time.
  int32_t LeftOf(const Work& target, const Cut& last) const {
    const auto at = std::lower_bound(before_.begin() + last.left, before_.begin() + last.right, target.memory_s,
                                     [](const Work& w, double memory_s) { return w.memory_s < memory_s; });
    return static_cast<int32_t>(at - before_.begin());
  }
  // Where the right stretch begins that, with [0, left), comes nearest to the memory time.
  int32_t RightOf(int32_t left, const Work& target, const Cut& last) const {
    const double wanted_before = All().memory_s - (target.memory_s - Before(left).memory_s);
    const auto begin = before_.begin() + left, end = before_.begin() + last.right + 1;
    auto at = std::lower_bound(begin, end, wanted_before,
                               [](const Work& w, double memory_s) { return w.memory_s < memory_s; });
    if (at == end) --at;
    if (at != begin && wanted_before - (at - 1)->memory_s < at->memory_s - wanted_before) --at;
    return static_cast<int32_t>(at - before_.begin());
  }
  double Distance(const Cut& cut, const Work& target) const {
    const double compute_s = Before(cut.left).compute_s + All().compute_s - Before(cut.right).compute_s;
    const double memory_s = Before(cut.left).memory_s + All().memory_s - Before(cut.right).memory_s;
    return std::max(std::abs(compute_s - target.compute_s) / All().compute_s,
                    std::abs(memory_s - target.memory_s) / All().memory_s);
  }

  std::vector<Work> before_;
};

}  // namespace

std::vector<int32_t> Shard::Positions() const {
  std::vector<int32_t> positions(static_cast<size_t>(size()));
  const auto middle = positions.begin() + (left_end - left_begin);
  std::iota(positions.begin(), middle, left_begin);
  std::iota(middle, positions.end(), right_begin);
  return positions;
}

Result<std::vector<Shard>> CutShards(const Plan& plan, int32_t shards) {
  if (shards < 1) {
    return InvalidArgument(fmt::format("a job cannot be cut into {} shards; it must be 1 or more", shards), "shard");
  }
  std::vector<Shard> cut(static_cast<size_t>(shards));
  const Cutter cutter(plan);
  Cut last{0, plan.size()};
  for (int32_t i = 0; i < shards; ++i) {
    // The last one is what lies between.
    Cut next{plan.size(), plan.size()};
    if (i + 1 == shards) {
      next = {last.right, last.right};
    } else if (plan.size() > 0) {
      next = cutter.At(static_cast<double>(i + 1) / shards, last);
    } else {
      next = last;
    }
    cut[static_cast<size_t>(i)] = {last.left, next.left, next.right, last.right};
    last = next;
  }
  return cut;
}

Result<std::vector<int32_t>> AssignShards(PrefixTree tree, BatchCostModel cost, const std::vector<int32_t>& outputs,
                                          int32_t shards) {
  cost.flops_per_s = cost.bytes_per_s = 1;
  const Plan plan = Plan::Make(std::move(tree), cost, outputs, {.order = PlanOrder::kBlend});
  TACTUS_ASSIGN_OR_RETURN(const std::vector<Shard> cut, CutShards(plan, shards));
  std::vector<int32_t> shard_of(outputs.size(), -1);
  for (size_t i = 0; i < cut.size(); ++i) {
    for (const int32_t position : cut[i].Positions()) {
      shard_of[static_cast<size_t>(plan.RequestAt(position))] = static_cast<int32_t>(i);
    }
  }
  return shard_of;
}

}  // namespace tactus::batch
