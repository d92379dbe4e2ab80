#include "core/kv/prefix_matcher.h"

#include <algorithm>

namespace tactus::core {
namespace {

// The first i of [0, count) for which holds(i), which is monotonic; count: none. Tests the two ends first, where the
// result mostly is.
template <class Holds>
int32_t FirstWhere(int32_t count, Holds holds) {
  if (count == 0 || holds(0)) return 0;
  if (!holds(count - 1)) return count;
  int32_t before = 0, there = count - 1;
  while (there - before > 1) {
    const int32_t middle = before + (there - before) / 2;
    (holds(middle) ? there : before) = middle;
  }
  return there;
}

}  // namespace

int32_t BlocksInTree(const PrefixTree& tree, std::span<const Hash128> keys) {
  return FirstWhere(static_cast<int32_t>(keys.size()),
                    [&](int32_t i) { return tree.FindAt(keys[static_cast<size_t>(i)], i) == kNoNode; });
}

// The walk reads each node to find its parent, and each read may miss the CPU cache. So the probable nodes and blocks
// are prefetched by key first; the result comes from the tree's links alone.
int32_t ReadChain(const PrefixBlocks& blocks, std::span<const Hash128> keys, const PrefixMatch& match, BlockId* table) {
  constexpr int32_t kTogether = 32;
  const PrefixTree& tree = blocks.tree();
  int32_t pinned = 0;
  NodeId n = match.last;
  for (int32_t end = match.blocks; end > 0;) {
    const int32_t begin = std::max(0, end - kTogether);
    const auto together = keys.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    for (const Hash128& key : together) tree.PrefetchFind(key);
    for (const Hash128& key : together) {
      if (const NodeId likely = tree.LikelyNode(key); likely != kNoNode) tree.PrefetchNode(likely);
    }
    for (const Hash128& key : together) {
      if (const NodeId likely = tree.LikelyNode(key); likely != kNoNode) blocks.PrefetchBlock(tree.node(likely).owner);
    }
    for (; end > begin; n = tree.node(n).parent) {
      table[--end] = tree.node(n).owner;
      pinned += blocks.pool().Unused(table[end]) ? 1 : 0;
    }
  }
  return pinned;
}

std::span<const Hash128> PrefixMatcher::Shareable(const SlotKv& slot, int32_t prompt_tokens) const {
  if (slot.saved.tokens > 0) prompt_tokens = slot.saved.tokens + 1;  // exactly the saved positions
  if (slot.keys == nullptr || slot.own != nullptr || prompt_tokens < 1) return {};
  const auto most = static_cast<size_t>((prompt_tokens - 1) / block_size_);
  return std::span(*slot.keys).first(std::min(most, slot.keys->size()));
}

const PrefixMatch& PrefixMatcher::Match(SlotId s, const SlotKv& slot, int32_t prompt_tokens) {
  const std::span<const Hash128> keys = Shareable(slot, prompt_tokens);
  const auto shareable = static_cast<int32_t>(keys.size());
  const Hash128 key = keys.empty() ? Hash128() : keys.back();
  if (last_slot_ != s || last_shareable_ != shareable || last_key_ != key) {
    last_slot_ = s;
    last_shareable_ = shareable;
    last_key_ = key;
    last_match_ = Find(keys);
  }
  return last_match_;
}

PrefixMatch PrefixMatcher::Find(std::span<const Hash128> keys) const {
  PrefixMatch match;
  // Children of a missing block are missing; children of an unused block are unused.
  const PrefixTree& tree = blocks_.tree();
  match.blocks = BlocksInTree(tree, keys);
  if (match.blocks == 0) return match;
  const auto node_at = [&](int32_t i) { return tree.FindAt(keys[static_cast<size_t>(i)], i); };
  match.last = node_at(match.blocks - 1);
  match.pinned = match.blocks - FirstWhere(match.blocks, [&](int32_t i) {
                   const NodeId n = node_at(i);
                   return n != kNoNode && blocks_.pool().Unused(tree.node(n).owner);
                 });
  return match;
}

}  // namespace tactus::core
