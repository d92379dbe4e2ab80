#include "offline/plan/sharing.h"

#include <algorithm>
#include <vector>

namespace tactus::offline {
namespace {

// Nodes in the cache, most recently used first. A node is used with each of its descendants, and after them, so the
// last node has no descendants in the cache.
class EdgeCache {
 public:
  EdgeCache(const PrefixTree& tree, int64_t capacity_tokens)
      : tree_(tree), capacity_(capacity_tokens), links_(static_cast<size_t>(tree.size())) {}

  // Returns the cached tokens of the leaf's prompt; afterwards the whole prompt and its answer are cached.
  int32_t Use(int32_t leaf, int32_t output_tokens) {
    int32_t found = 0;
    ++use_;
    for (int32_t node = leaf; node > 0; node = tree_[node].parent) {
      Link& link = At(node);
      if (link.cached) {
        if (found == 0) found = tree_[node].depth;
        Unlink(node);
      } else {
        link.cached = true;
        link.tokens = tree_[node].depth - tree_[tree_[node].parent].depth + (node == leaf ? output_tokens : 0);
        used_ += link.tokens;
      }
      link.last_use = use_;
      PushFront(node);
    }
    while (used_ > capacity_ && At(last_).last_use != use_) {
      const int32_t gone = last_;
      used_ -= At(gone).tokens;
      At(gone).cached = false;
      Unlink(gone);
    }
    return found;
  }

 private:
  struct Link {
    int32_t newer = -1, older = -1;
    int32_t tokens = 0;
    int32_t last_use = 0;
    bool cached = false;
  };
  Link& At(int32_t node) { return links_[static_cast<size_t>(node)]; }
  void PushFront(int32_t node) {
    At(node).newer = -1;
    At(node).older = first_;
    (first_ >= 0 ? At(first_).newer : last_) = node;
    first_ = node;
  }
  void Unlink(int32_t node) {
    const Link& link = At(node);
    (link.newer >= 0 ? At(link.newer).older : first_) = link.older;
    (link.older >= 0 ? At(link.older).newer : last_) = link.newer;
  }

  const PrefixTree& tree_;
  const int64_t capacity_;
  int64_t used_ = 0;
  int32_t use_ = 0;
  int32_t first_ = -1, last_ = -1;
  std::vector<Link> links_;
};

}  // namespace

Sharing SharingOf(const Plan& plan, std::span<const int32_t> starts, int64_t cache_tokens) {
  Sharing sharing;
  EdgeCache cache(plan.tree(), std::max<int64_t>(0, cache_tokens));
  for (const int32_t position : starts) {
    const int32_t found = cache.Use(plan.LeafAt(position), plan.OutputAt(position));
    sharing.prompt_tokens += plan.PromptAt(position);
    sharing.shared_tokens += found;
    sharing.saved_s += plan.cost().PrefixSeconds(found);
  }
  return sharing;
}

Sharing OptimalSharing(const Plan& plan) {
  const NodeTotals& all = plan.totals();
  double alone_s = 0;
  for (int32_t i = 0; i < plan.size(); ++i) {
    alone_s += plan.cost().ComputeSeconds(plan.PromptAt(i), plan.OutputAt(i));
  }
  return {all.prompt_tokens, all.prompt_tokens - all.computed_tokens, alone_s - all.compute_s};
}

}  // namespace tactus::offline
