// Recomputes every invariant of the KV bookkeeping and compares. Slow: for tests and crash reports.
#include <set>
#include <sstream>
#include <vector>

#include "core/kv/block_tables.h"
#include "core/kv/host_blocks.h"
#include "core/kv/prefix_blocks.h"
#include "core/kv/prefix_matcher.h"
#include "core/kv/void_blocks.h"

namespace tactus::core {
namespace {

template <class... Parts>
std::string Say(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace

// --- BlockTables ---

std::string BlockTables::CheckSlot(SlotId s) const {
  const SlotKv& slot = (*this)[s];
  if (!slot.bound && (slot.blocks != 0 || slot.reserved != 0)) return Say("slot ", s, " holds blocks but is not bound");
  if (slot.table == nullptr && slot.blocks != 0) return Say("slot ", s, " holds blocks and has no table");
  if (slot.blocks < 0 || slot.blocks > stride_) return Say("slot ", s, " has ", slot.blocks, " blocks");
  if (slot.reserved < 0) return Say("slot ", s, " has a negative reservation");
  if (slot.marked > slot.blocks || slot.keyed > slot.marked) {
    return Say("slot ", s, ": keyed ", slot.keyed, ", full ", slot.marked, ", blocks ", slot.blocks);
  }
  return {};
}

std::string BlockTables::CheckBlock(SlotId s, int32_t i, const PrefixBlocks& blocks) const {
  const SlotKv& slot = (*this)[s];
  const BlockId b = slot.table[i];
  const KvBlock& block = blocks[b];
  if (i >= slot.keyed && i >= slot.marked && block.keyed()) {
    return Say("slot ", s, ": partial block ", b, " is in the tree");
  }
  if (i >= slot.marked && block.users != 1) return Say("slot ", s, " may write block ", b, ", which is shared");
  // The findable blocks of a sequence must form a chain from the root.
  const NodeId before = i > 0 ? blocks[slot.table[i - 1]].node : kNoNode;
  if (block.node == KvBlock::kUnlisted) {
    if (slot.own == nullptr || block.users != 1) {
      return Say("slot ", s, ": block ", b, " is unlisted, its keys are not the slot's own");
    }
    if (i > 0 && before != KvBlock::kUnlisted) {
      return Say("slot ", s, ": block ", b, " is unlisted, its predecessor is not");
    }
  }
  if (!block.filed()) return {};
  if (slot.own != nullptr) return Say("slot ", s, ": block ", b, " is in the tree already");
  const PrefixTree::Node& node = blocks.tree().node(block.node);
  if (i > 0 && node.parent != before) {
    return Say("slot ", s, ": block ", b, " hangs under another parent than its predecessor's node");
  }
  if (i == 0 && node.parent != kNoNode) return Say("slot ", s, ": first block ", b, " is not at the root");
  if (slot.keys != nullptr && i < slot.keyed && node.key != slot.KeyOf(i)) {
    return Say("slot ", s, ": block ", b, " is filed under another key");
  }
  return {};
}

std::string BlockTables::CheckUsers(const PrefixBlocks& blocks) const {
  std::vector<int32_t> users(static_cast<size_t>(blocks.pool().used()), 0);
  for (SlotId s = 0; s < size(); ++s) {
    std::set<BlockId> seen;
    for (const BlockId b : (*this)[s].held()) {
      if (b < 0 || b >= blocks.pool().used()) return Say("slot ", s, " names block ", b);
      if (!seen.insert(b).second) return Say("slot ", s, " holds block ", b, " twice");
      ++users[static_cast<size_t>(b)];
    }
  }
  for (BlockId b = 0; b < blocks.pool().used(); ++b) {
    const int32_t held = users[static_cast<size_t>(b)];
    if (held != blocks[b].users) return Say("block ", b, " counts ", blocks[b].users, " users, tables have ", held);
  }
  return {};
}

std::string BlockTables::CheckIntegrity(const PrefixBlocks& blocks) const {
  std::set<const BlockId*> handed_out;
  for (const int32_t t : free_tables_.returned()) {
    if (!handed_out.insert(first_table_ + static_cast<ptrdiff_t>(t) * stride_).second) return "a table is free twice";
  }
  int64_t set_aside = 0;
  for (SlotId s = 0; s < size(); ++s) {
    if (std::string error = CheckSlot(s); !error.empty()) return error;
    const BlockId* const table = (*this)[s].table;
    if (table != nullptr && !handed_out.insert(table).second)
      return Say("slot ", s, " has a table that is free or belongs to another slot");
    set_aside += (*this)[s].reserved;
  }
  if (handed_out.size() != free_tables_.taken())
    return Say(free_tables_.taken() - handed_out.size(), " tables belong to no slot");
  if (std::string error = CheckUsers(blocks); !error.empty()) return error;
  for (SlotId s = 0; s < size(); ++s) {
    for (int32_t i = 0; i < (*this)[s].blocks; ++i) {
      if (std::string error = CheckBlock(s, i, blocks); !error.empty()) return error;
    }
  }
  const BlockPool& pool = blocks.pool();
  if (set_aside != pool.reserved()) return Say("reserved ", pool.reserved(), ", sum over slots ", set_aside);
  if (pool.available() < 0) return Say("more is set aside than free and cached: available ", pool.available());
  return {};
}

// --- BlockPool ---

std::string BlockPool::CheckDraining(size_t index) const {
  const List& list = draining_[index];
  int64_t count = 0;
  BlockId previous = kNoBlock;
  for (BlockId b = list.head; b != kNoBlock; previous = b, b = (*this)[b].next) {
    if (++count > size()) return "a list has a cycle";
    if ((*this)[b].prev != previous) return Say("list link before block ", b, " is broken");
    const StepId until = (*this)[b].busy_until;
    if (until <= ended_ || static_cast<size_t>(until) % kMostStepsInFlight != index)
      return Say("block ", b, " drains in the wrong list");
  }
  if (list.tail != previous || list.size != count) return "a list's tail or size is wrong";
  return {};
}

std::string BlockPool::CheckIntegrity() const {
  std::vector<int32_t> places(blocks_.size(), 0);
  const auto in_place = [&places](BlockId b) { ++places[static_cast<size_t>(b)]; };
  for (BlockId b = 0; b < used(); ++b) {
    if ((*this)[b].users > 0) in_place(b);
  }
  if (blocks_.size() != free_.taken()) return Say(blocks_.size(), " records for ", free_.taken(), " blocks used");
  for (const BlockId b : free_.returned()) {
    in_place(b);
    if ((*this)[b].keyed() || (*this)[b].users != 0) return Say("free block ", b, " is in use or in the tree");
  }
  std::string error;
  int64_t num_cached = 0;
  cached_.ForEach([&](BlockId b) {
    in_place(b);
    ++num_cached;
    const KvBlock& block = (*this)[b];
    if (!cached_.Has(b)) error = Say("cached block ", b, " is not in the order of eviction");
    if (block.busy_until > ended_) error = Say("cached block ", b, " is busy until step ", block.busy_until);
    if (block.computed_by > ended_) error = Say("cached block ", b, " is still pending");
  });
  if (!error.empty()) return error;
  if (num_cached != cached_.size()) return Say("cached ", cached_.size(), ", the order of eviction has ", num_cached);
  int64_t num_draining = 0;
  for (size_t i = 0; i < draining_.size(); ++i) {
    if (error = CheckDraining(i); !error.empty()) return error;
    for (BlockId b = draining_[i].head; b != kNoBlock; b = (*this)[b].next) in_place(b);
    num_draining += draining_[i].size;
  }
  if (num_draining != num_draining_) return Say("draining ", num_draining_, ", lists have ", num_draining);
  for (size_t b = 0; b < places.size(); ++b) {
    if (places[b] != 1) return Say("block ", b, " is in ", places[b], " places");
  }
  return {};
}

// --- PrefixBlocks ---

std::string PrefixBlocks::CheckNode(NodeId n) const {
  const PrefixTree::Node& node = tree_.node(n);
  const KvBlock& owner = pool_[node.owner];
  if (tree_.Find(node.key) != n) return Say("node ", n, " is not found by its key");
  if (owner.node != n || !owner.owns) return Say("node ", n, " and its owner ", node.owner, " disagree");
  const bool in_use = owner.users > 0;
  if (node.parent != kNoNode) {
    const PrefixTree::Node& parent = tree_.node(node.parent);
    if (parent.owner == kNoBlock) return Say("node ", n, " hangs under a node that is gone");
    const KvBlock& above = pool_[parent.owner];
    if (in_use && above.users == 0) return Say("node ", n, " is in use, its parent is not");
    if (!in_use && above.users == 0 && owner.busy_until > pool_.ended() && above.busy_until < owner.busy_until) {
      return Say("node ", n, " drains longer than its parent");
    }
  }
  if (owner.first_duplicate != kNoBlock && !in_use) return Say("node ", n, " has duplicates in use, its owner is not");
  return CheckDuplicates(n);
}

std::string PrefixBlocks::CheckDuplicates(NodeId n) const {
  const KvBlock& owner = pool_[tree_.node(n).owner];
  BlockId previous = kNoBlock;
  int64_t count = 0;
  for (BlockId b = owner.first_duplicate; b != kNoBlock; previous = b, b = pool_[b].next) {
    const KvBlock& block = pool_[b];
    if (block.prev != previous || block.node != n || block.users == 0 || block.owns || ++count > pool_.size()) {
      return Say("duplicate ", b, " of node ", n, " is broken");
    }
  }
  if (owner.last_duplicate != previous) return Say("node ", n, ": end of its duplicates is wrong");
  return {};
}

std::string PrefixBlocks::CheckFiled() const {
  std::vector<int32_t> filed(static_cast<size_t>(pool_.used()), 0);
  for (NodeId n = 0; n < tree_.ids_used(); ++n) {
    const BlockId owner = tree_.node(n).owner;
    if (owner == kNoBlock) continue;
    ++filed[static_cast<size_t>(owner)];
    for (BlockId b = pool_[owner].first_duplicate; b != kNoBlock; b = pool_[b].next) ++filed[static_cast<size_t>(b)];
  }
  for (BlockId b = 0; b < pool_.used(); ++b) {
    const KvBlock& block = pool_[b];
    const int32_t lists = filed[static_cast<size_t>(b)];
    if (lists > 1) return Say("block ", b, " is filed twice");
    if (block.filed() != (lists == 1)) return Say("block ", b, " names a node that does not list it");
    if (!block.owns && (block.first_duplicate != kNoBlock || block.last_duplicate != kNoBlock))
      return Say("block ", b, " lists duplicates and owns no node");
    if (block.owns && (!block.filed() || tree_.node(block.node).owner != b)) {
      return Say("block ", b, " is marked as a node's owner and is not");
    }
  }
  return {};
}

std::string PrefixBlocks::CheckCached() const {
  std::vector<uint8_t> seen(static_cast<size_t>(pool_.used()), 0);
  std::string error;
  pool_.cached().ForEach([&](BlockId b) {
    const KvBlock& block = pool_[b];
    if (!block.owns && block.node != KvBlock::kUnlisted) error = Say("cached block ", b, " owns no node");
    seen[static_cast<size_t>(b)] = 1;
    const NodeId parent = block.filed() ? tree_.node(block.node).parent : kNoNode;
    if (parent != kNoNode && seen[static_cast<size_t>(tree_.node(parent).owner)] != 0) {
      error = Say("cached block ", b, " would be evicted after its parent");
    }
  });
  return error;
}

std::string PrefixBlocks::CheckIntegrity() const {
  std::vector<int32_t> children(static_cast<size_t>(tree_.ids_used()), 0);
  int32_t used = 0;
  for (NodeId n = 0; n < tree_.ids_used(); ++n) {
    const PrefixTree::Node& node = tree_.node(n);
    if (node.owner == kNoBlock) continue;
    ++used;
    if (std::string error = CheckNode(n); !error.empty()) return error;
    if (node.parent != kNoNode) ++children[static_cast<size_t>(node.parent)];
  }
  if (used != tree_.size()) return Say("tree size ", tree_.size(), ", nodes in use ", used);
  for (NodeId n = 0; n < tree_.ids_used(); ++n) {
    if (tree_.node(n).children != children[static_cast<size_t>(n)]) return Say("node ", n, " miscounts its children");
  }
  if (std::string error = CheckFiled(); !error.empty()) return error;
  return CheckCached();
}

// --- The other parts ---

std::string VoidBlocks::CheckIntegrity() const {
  for (size_t b = 0; b < marked_.size(); ++b) {
    if (marked_[b] != 0) return Say("block ", b, " was left marked void");
  }
  return {};
}

std::string HostBlocks::CheckSaved(SlotId s, const SlotKv& slot, std::vector<int32_t>* places) const {
  const SavedKv& saved = slot.saved;
  if (saved.tokens == 0) {
    if (saved.first_host != kNoBlock) return Say("slot ", s, " has host blocks, but nothing of it is swapped out");
    if (saved.restored_begin < 0 || saved.restored_begin > saved.restored_end || saved.restored_end > slot.blocks) {
      return Say("slot ", s, " got back blocks ", saved.restored_begin, " to ", saved.restored_end, " of ",
                 slot.blocks);
    }
    return {};
  }
  if (!slot.bound || slot.blocks != 0 || slot.reserved != 0) return Say("slot ", s, " is swapped out and holds blocks");
  int64_t chain = 0;
  for (BlockId h = saved.first_host; h != kNoBlock; h = next_[static_cast<size_t>(h)]) {
    if (++chain > size()) return Say("slot ", s, ": its host blocks form a cycle");
    ++(*places)[static_cast<size_t>(h)];
  }
  if (chain != BlocksFor(saved.tokens, block_size_)) {
    return Say("slot ", s, " has ", chain, " host blocks for ", saved.tokens, " tokens");
  }
  return {};
}

std::string HostBlocks::CheckIntegrity(const BlockTables& tables) const {
  std::vector<int32_t> places(next_.size(), 0);
  for (const auto* list : {&free_, &read_}) {
    for (const BlockId h : *list) ++places[static_cast<size_t>(h)];
  }
  int64_t num_reserved = 0;
  for (size_t h = 0; h < places.size(); ++h) {
    places[h] += reserved_[h];
    num_reserved += reserved_[h];
  }
  if (num_reserved != num_reserved_) return Say(num_reserved, " host blocks are reserved, not ", num_reserved_);
  for (SlotId s = 0; s < tables.size(); ++s) {
    if (std::string error = CheckSaved(s, tables[s], &places); !error.empty()) return error;
  }
  for (size_t h = 0; h < places.size(); ++h) {
    if (places[h] != 1) return Say("host block ", h, " is in ", places[h], " places");
  }
  return {};
}

std::string PrefixMatcher::CheckIntegrity(const BlockTables& tables) const {
  if (last_slot_ == kNoSlot) return {};
  const auto shareable = static_cast<size_t>(last_shareable_);
  std::span<const Hash128> keys;
  if (shareable > 0) {
    const std::vector<Hash128>* all = tables[last_slot_].keys;
    if (all == nullptr || shareable > all->size() || (*all)[shareable - 1] != last_key_) return {};  // not used again
    keys = std::span(*all).first(shareable);
  }
  const PrefixMatch found = Find(keys);
  if (found == last_match_) return {};
  return Say("slot ", last_slot_, " matches ", found.blocks, " blocks, ", found.pinned, " of them cached; kept is ",
             last_match_.blocks, " and ", last_match_.pinned);
}

}  // namespace tactus::core
