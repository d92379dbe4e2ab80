// Recomputes every invariant of the KV bookkeeping and compares. Slow: for tests and crash reports.
#include <set>
#include <sstream>
#include <vector>

#include "core/kv/kv_cache_impl.h"

namespace tactus::core {
namespace {

template <class... Parts>
std::string Say(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace

std::string KvCache::Impl::CheckTables() const {
  std::vector<int32_t> users(blocks.size(), 0);
  std::set<const BlockId*> handed_out(free_tables.begin(), free_tables.end());
  if (handed_out.size() != free_tables.size()) return "a table is free twice";
  int64_t set_aside = 0;
  for (SlotId s = 0; s < config.max_slots; ++s) {
    const Slot& slot = At(s);
    if (!slot.bound && (slot.blocks != 0 || slot.reserved != 0))
      return Say("slot ", s, " holds blocks but is not bound");
    if (slot.table == nullptr && slot.blocks != 0) return Say("slot ", s, " holds blocks and has no table");
    if (slot.table != nullptr && !handed_out.insert(slot.table).second)
      return Say("slot ", s, " has a table that is free or belongs to another slot");
    if (slot.blocks < 0 || slot.blocks > table_stride) return Say("slot ", s, " has ", slot.blocks, " blocks");
    if (slot.reserved < 0) return Say("slot ", s, " has a negative reservation");
    if (slot.marked > slot.blocks || slot.keyed > slot.marked) {
      return Say("slot ", s, ": keyed ", slot.keyed, ", full ", slot.marked, ", blocks ", slot.blocks);
    }
    set_aside += slot.reserved;
    std::set<BlockId> seen;
    for (int32_t i = 0; i < slot.blocks; ++i) {
      const BlockId b = TableOf(s)[i];
      if (b < 0 || b >= config.num_blocks) return Say("slot ", s, " names block ", b);
      if (!seen.insert(b).second) return Say("slot ", s, " holds block ", b, " twice");
      ++users[static_cast<size_t>(b)];
      if (i >= slot.keyed && i >= slot.marked && block(b).node != kNoNode) {
        return Say("slot ", s, ": partial block ", b, " is in the tree");
      }
      if (i >= slot.marked && block(b).users != 1) return Say("slot ", s, " may write block ", b, ", which is shared");
      // The findable blocks of a sequence must form a chain from the root.
      if (block(b).node == kUnlisted && (slot.own == nullptr || block(b).users != 1)) {
        return Say("slot ", s, ": block ", b, " is unlisted, its keys are not the slot's own");
      }
      if (i > 0 && block(b).node == kUnlisted && block(TableOf(s)[i - 1]).node != kUnlisted) {
        return Say("slot ", s, ": block ", b, " is unlisted, its predecessor is not");
      }
      if (slot.own != nullptr && Filed(b)) return Say("slot ", s, ": block ", b, " is in the tree already");
      if (i > 0 && Filed(b) && tree.node(block(b).node).parent != block(TableOf(s)[i - 1]).node) {
        return Say("slot ", s, ": block ", b, " hangs under another parent than its predecessor's node");
      }
      if (i == 0 && Filed(b) && tree.node(block(b).node).parent != kNoNode) {
        return Say("slot ", s, ": first block ", b, " is not at the root");
      }
      if (slot.keys != nullptr && i < slot.keyed && Filed(b) &&
          tree.node(block(b).node).key != (*slot.keys)[static_cast<size_t>(i)]) {
        return Say("slot ", s, ": block ", b, " is filed under another key");
      }
    }
  }
  if (handed_out.size() != slots.size()) return Say(slots.size() - handed_out.size(), " tables belong to no slot");
  if (set_aside != reserved) return Say("reserved ", reserved, ", sum over slots ", set_aside);
  if (Available() < 0) return Say("more is set aside than free and cached: available ", Available());
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (users[b] != blocks[b].users)
      return Say("block ", b, " counts ", blocks[b].users, " users, tables have ", users[b]);
  }
  return {};
}

std::string KvCache::Impl::CheckLists() const {
  std::vector<int32_t> places(blocks.size(), 0);
  for (const Block& b : blocks) {
    if (b.users > 0) ++places[static_cast<size_t>(&b - blocks.data())];
  }
  for (const BlockId b : free) {
    ++places[static_cast<size_t>(b)];
    if (block(b).node != kNoNode || block(b).users != 0) return Say("free block ", b, " is in use or in the tree");
  }
  const auto walk = [&](const List& list, const auto& check) -> std::string {
    int64_t size = 0;
    BlockId previous = kNoBlock;
    for (BlockId b = list.head; b != kNoBlock; previous = b, b = block(b).next) {
      if (++size > config.num_blocks) return "a list has a cycle";
      if (block(b).prev != previous) return Say("list link before block ", b, " is broken");
      ++places[static_cast<size_t>(b)];
      if (std::string error = check(b); !error.empty()) return error;
    }
    if (list.tail != previous || list.size != size) return "a list's tail or size is wrong";
    return {};
  };
  std::vector<uint8_t> in_lru(blocks.size(), 0);
  const auto check_cached = [&](BlockId b) -> std::string {
    ++places[static_cast<size_t>(b)];
    if (!lru.Has(b)) return Say("cached block ", b, " is not in the order of eviction");
    if (!block(b).owns && block(b).node != kUnlisted) return Say("cached block ", b, " owns no node");
    if (block(b).busy_until > ended) return Say("cached block ", b, " is busy until step ", block(b).busy_until);
    if (block(b).computed_by > ended) return Say("cached block ", b, " is still pending");
    in_lru[static_cast<size_t>(b)] = 1;
    const NodeId parent = Filed(b) ? tree.node(block(b).node).parent : kNoNode;
    if (parent != kNoNode && in_lru[static_cast<size_t>(tree.node(parent).owner)] != 0) {
      return Say("cached block ", b, " would be evicted after its parent");
    }
    return {};
  };
  std::string error;
  int64_t cached = 0;
  lru.ForEach([&](BlockId b) {
    ++cached;
    if (error.empty()) error = check_cached(b);
  });
  if (error.empty() && cached != lru.size()) return Say("cached ", lru.size(), ", the order of eviction has ", cached);
  if (!error.empty()) return error;
  int64_t drain_total = 0;
  for (size_t i = 0; i < draining.size(); ++i) {
    drain_total += draining[i].size;
    error = walk(draining[i], [&](BlockId b) -> std::string {
      const StepId until = block(b).busy_until;
      if (until <= ended || static_cast<size_t>(until) % kMaxStepsInFlight != i)
        return Say("block ", b, " drains in the wrong list");
      return {};
    });
    if (!error.empty()) return error;
  }
  if (drain_total != draining_blocks) return Say("draining ", draining_blocks, ", lists have ", drain_total);
  for (size_t b = 0; b < places.size(); ++b) {
    if (places[b] != 1) return Say("block ", b, " is in ", places[b], " places");
  }
  return {};
}

std::string KvCache::Impl::CheckTree() const {
  std::vector<int32_t> children(static_cast<size_t>(tree.capacity()), 0);
  std::vector<int32_t> filed(blocks.size(), 0);
  int32_t used = 0;
  for (NodeId n = 0; n < tree.capacity(); ++n) {
    const PrefixTree::Node& node = tree.node(n);
    if (node.owner == kNoBlock) continue;
    ++used;
    if (!config.prefix_caching) return "a node exists though prefix caching is off";
    if (tree.Find(node.key) != n) return Say("node ", n, " is not found by its key");
    if (block(node.owner).node != n || !block(node.owner).owns)
      return Say("node ", n, " and its owner ", node.owner, " disagree");
    ++filed[static_cast<size_t>(node.owner)];
    const bool in_use = block(node.owner).users > 0;
    if (node.parent != kNoNode) {
      const PrefixTree::Node& parent = tree.node(node.parent);
      if (parent.owner == kNoBlock) return Say("node ", n, " hangs under a node that is gone");
      ++children[static_cast<size_t>(node.parent)];
      const Block& above = block(parent.owner);
      if (in_use && above.users == 0) return Say("node ", n, " is in use, its parent is not");
      if (!in_use && above.users == 0 && block(node.owner).busy_until > ended &&
          above.busy_until < block(node.owner).busy_until) {
        return Say("node ", n, " drains longer than its parent");
      }
    }
    const Block& owner = block(node.owner);
    if (owner.first_duplicate != kNoBlock && !in_use)
      return Say("node ", n, " has duplicates in use, its owner is not");
    BlockId previous = kNoBlock;
    for (BlockId b = owner.first_duplicate; b != kNoBlock; previous = b, b = block(b).next) {
      if (block(b).prev != previous || block(b).node != n || block(b).users == 0 || block(b).owns) {
        return Say("duplicate ", b, " of node ", n, " is broken");
      }
      if (++filed[static_cast<size_t>(b)] > 1) return Say("block ", b, " is filed twice");
    }
    if (owner.last_duplicate != previous) return Say("node ", n, ": end of its duplicates is wrong");
  }
  if (used != tree.size()) return Say("tree size ", tree.size(), ", nodes in use ", used);
  for (NodeId n = 0; n < tree.capacity(); ++n) {
    if (tree.node(n).children != children[static_cast<size_t>(n)]) return Say("node ", n, " miscounts its children");
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    if ((blocks[b].node >= 0) != (filed[b] == 1)) return Say("block ", b, " names a node that does not list it");
    const bool lists = blocks[b].first_duplicate != kNoBlock || blocks[b].last_duplicate != kNoBlock;
    if (!blocks[b].owns && lists) return Say("block ", b, " lists duplicates and owns no node");
    if (blocks[b].owns && (blocks[b].node < 0 || tree.node(blocks[b].node).owner != static_cast<BlockId>(b))) {
      return Say("block ", b, " is marked as a node's owner and is not");
    }
    if (void_blocks[b] != 0) return Say("block ", b, " was left marked void");
  }
  return {};
}

std::string KvCache::Impl::CheckHost() const {
  std::vector<int32_t> places(host_next.size(), 0);
  for (const auto* list : {&host_free, &host_read}) {
    for (const BlockId h : *list) ++places[static_cast<size_t>(h)];
  }
  int64_t reserved_blocks = 0;
  for (size_t h = 0; h < places.size(); ++h) {
    places[h] += host_reserved[h];
    reserved_blocks += host_reserved[h];
  }
  if (reserved_blocks != num_host_reserved)
    return Say(reserved_blocks, " host blocks are reserved, not ", num_host_reserved);
  for (SlotId s = 0; s < config.max_slots; ++s) {
    const Slot& slot = At(s);
    if (slot.swapped_tokens == 0) {
      if (slot.first_host != kNoBlock) return Say("slot ", s, " has host blocks, but nothing of it is swapped out");
      if (slot.restored_begin < 0 || slot.restored_begin > slot.restored_end || slot.restored_end > slot.blocks) {
        return Say("slot ", s, " got back blocks ", slot.restored_begin, " to ", slot.restored_end, " of ",
                   slot.blocks);
      }
      continue;
    }
    if (!slot.bound || slot.blocks != 0 || slot.reserved != 0)
      return Say("slot ", s, " is swapped out and holds blocks");
    int64_t chain = 0;
    for (BlockId h = slot.first_host; h != kNoBlock; h = host_next[static_cast<size_t>(h)]) {
      if (++chain > config.swap_blocks) return Say("slot ", s, ": its host blocks form a cycle");
      ++places[static_cast<size_t>(h)];
    }
    if (chain != BlocksFor(slot.swapped_tokens)) {
      return Say("slot ", s, " has ", chain, " host blocks for ", slot.swapped_tokens, " tokens");
    }
  }
  for (size_t h = 0; h < places.size(); ++h) {
    if (places[h] != 1) return Say("host block ", h, " is in ", places[h], " places");
  }
  return {};
}

std::string KvCache::Impl::CheckLastMatch() const {
  if (last_match.slot == kNoSlot) return {};
  if (last_match.shareable > 0) {
    const std::vector<Hash128>* keys = At(last_match.slot).keys;
    const auto last = static_cast<size_t>(last_match.shareable - 1);
    if (keys == nullptr || last >= keys->size() || (*keys)[last] != last_match.key) return {};  // it will not be reused
  }
  const Match found = FindMatch(At(last_match.slot), last_match.shareable), &kept = last_match.match;
  if (found.blocks == kept.blocks && found.pinned == kept.pinned && found.last == kept.last) return {};
  return Say("slot ", last_match.slot, " matches ", found.blocks, " blocks, ", found.pinned,
             " of them cached; kept is ", kept.blocks, " and ", kept.pinned);
}

std::string KvCache::CheckIntegrity() const {
  for (std::string error :
       {impl_->CheckTables(), impl_->CheckLists(), impl_->CheckTree(), impl_->CheckHost(), impl_->CheckLastMatch()}) {
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace tactus::core
