#include "core/kv/prefix_blocks.h"

namespace tactus::core {

PrefixBlocks::PrefixBlocks(int64_t num_blocks, bool list_entered, bool remember_evicted, bool lean)
    : pool_(num_blocks, lean),
      tree_(num_blocks, lean),
      entered_keys_(list_entered ? static_cast<size_t>(num_blocks) : 0),
      evicted_keys_(remember_evicted ? std::max(size_t{1} << 16, 4 * static_cast<size_t>(num_blocks)) : 0) {}

void PrefixBlocks::PrefetchFirstTakes(int32_t count, StepId begun_by) {
  asked_block_ = asked_node_ = asked_place_ = {};  // an earlier step's prefetches may have left the CPU cache
  asked_by_ = begun_by;
  if (pool_.num_free() < count) PrefetchEvictions();
}

// In three stages, as each address is read from the memory before it: the block, its node, the node's place in the
// table.
void PrefixBlocks::PrefetchEvictions() {
  const BlockPool::CachedBlocks& cached = pool_.cached();
  cached.WalkAhead(&asked_block_, 72, [this](BlockId b) { PrefetchBlock(b); });
  cached.WalkAhead(&asked_node_, 56, [this](BlockId b) {
    if (pool_[b].filed()) tree_.PrefetchNode(pool_[b].node);
  });
  cached.WalkAhead(&asked_place_, 40, [this](BlockId b) {
    if (pool_[b].filed()) tree_.PrefetchErase(pool_[b].node);
  });
}

BlockId PrefixBlocks::Evict() {
  if (evictions_ % 16 == 0) PrefetchEvictions();
  const BlockId victim = pool_.TakeOldestCached();
  TACTUS_CHECK_MSG(victim != kNoBlock, "more blocks allocated than available");
  TACTUS_DCHECK(pool_.Unused(victim) && pool_[victim].first_duplicate == kNoBlock);
  if (const NodeId n = pool_[victim].node; n >= 0) {
    evicted_keys_.Add(tree_.node(n).key);
    tree_.Erase(n);
  }
  ++evictions_;
  return victim;
}

void PrefixBlocks::Unuse(BlockId b, StepId last_step) {
  KvBlock& released = pool_[b];
  TACTUS_DCHECK(released.users > 0);
  // A block that a step in flight fills is busy, even if last_step is earlier.
  released.busy_until = std::max({released.busy_until, last_step, released.computed_by});
  // Fast path of the code below: the last user leaves an owner without duplicates.
  if (released.owns && released.users == 1 && released.first_duplicate == kNoBlock &&
      released.busy_until <= pool_.ended()) {
    released.users = 0;
    pool_.Cache(b);
    return;
  }
  const bool duplicate = released.filed() && !released.owns;
  if (duplicate) {
    KvBlock& owner = pool_[tree_.node(released.node).owner];  // see HandOver
    owner.busy_until = std::max(owner.busy_until, released.busy_until);
  }
  if (--released.users > 0) return;
  if (duplicate) {
    DropDuplicate(b);
  } else if (released.filed()) {
    HandOver(b);
  }
  pool_.Put(b);
}

PrefixBlocks::Entry PrefixBlocks::Enter(BlockId b, const Hash128& key, NodeId parent) {
  const auto [node, is_new] = tree_.FindOrInsert(key, parent, b);
  if (is_new) {
    pool_[b].owns = true;
    pool_[b].node = node;
    entered_keys_.Add(key);
    return Entry::kNew;
  }
  if (tree_.node(node).parent != parent) return Entry::kRefused;  // keys from a broken file
  AddDuplicate(node, b);
  const BlockId owner = tree_.node(node).owner;
  if (pool_[owner].users == 0) {
    HandOver(owner);
    pool_.KeyLost(owner);
  } else {
    pool_[owner].busy_until = std::max(pool_[owner].busy_until, pool_[b].busy_until);  // as in Unuse
  }
  return Entry::kDuplicate;
}

void PrefixBlocks::AddDuplicate(NodeId n, BlockId b) {
  KvBlock& owner = pool_[tree_.node(n).owner];
  KvBlock& added = pool_[b];
  added.node = n;
  added.prev = owner.last_duplicate;
  added.next = kNoBlock;
  (owner.last_duplicate == kNoBlock ? owner.first_duplicate : pool_[owner.last_duplicate].next) = b;
  owner.last_duplicate = b;
}

void PrefixBlocks::DropDuplicate(BlockId b) {
  KvBlock& gone = pool_[b];
  KvBlock& owner = pool_[tree_.node(gone.node).owner];
  (gone.prev == kNoBlock ? owner.first_duplicate : pool_[gone.prev].next) = gone.next;
  (gone.next == kNoBlock ? owner.last_duplicate : pool_[gone.next].prev) = gone.prev;
  gone.prev = gone.next = kNoBlock;
  gone.node = kNoNode;
}

void PrefixBlocks::HandOver(BlockId b) {
  KvBlock& owner = pool_[b];
  const BlockId h = owner.first_duplicate;
  if (h == kNoBlock) return;
  const NodeId n = owner.node;
  DropDuplicate(h);
  KvBlock& heir = pool_[h];
  heir.node = n;
  heir.owns = true;
  heir.first_duplicate = owner.first_duplicate;
  heir.last_duplicate = owner.last_duplicate;
  // The node must drain at least as long as its children.
  heir.busy_until = std::max(heir.busy_until, owner.busy_until);
  tree_.node(n).owner = h;
  owner.node = kNoNode;
  owner.owns = false;
  owner.first_duplicate = owner.last_duplicate = kNoBlock;
}

void PrefixBlocks::Separate(BlockId b) {
  KvBlock& block = pool_[b];
  if (block.node == KvBlock::kUnlisted) {
    block.node = kNoNode;
    pool_.KeyLost(b);
  } else if (block.filed() && !block.owns) {
    DropDuplicate(b);
  }
}

void PrefixBlocks::RemoveNode(NodeId n) {
  const BlockId b = tree_.node(n).owner;
  KvBlock& owner = pool_[b];
  while (owner.first_duplicate != kNoBlock) DropDuplicate(owner.first_duplicate);
  owner.node = kNoNode;
  owner.owns = false;
  tree_.Erase(n);
  pool_.KeyLost(b);
}

bool PrefixBlocks::TakeEntered(BlockId* block, Hash128* key) {
  for (; !entered_keys_.empty(); entered_keys_.PopOldest()) {
    const NodeId node = tree_.Find(entered_keys_.oldest());
    if (node == kNoNode) continue;
    const BlockId owner = tree_.node(node).owner;
    if (pool_[owner].computed_by > pool_.ended()) return false;
    *block = owner;
    *key = entered_keys_.oldest();
    entered_keys_.PopOldest();
    return true;
  }
  return false;
}

}  // namespace tactus::core
