// The prefix tree of the cache: ownership of nodes, entry and removal of blocks, and matching.
#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "core/kv/kv_cache_impl.h"

namespace tactus::core {

PrefixTree::Entered KvCache::Impl::File(BlockId b, const Hash128& key, NodeId parent) {
  const PrefixTree::Entered entered = tree.FindOrInsert(key, parent, b);
  if (entered.is_new) {
    block(b).owns = true;
    block(b).node = entered.node;
    if (config.list_entered) NoteEntered(key);
  }
  return entered;
}

void KvCache::Impl::NoteEntered(const Hash128& key) {
  if (listed_count == listed.size()) {
    listed_begin = (listed_begin + 1) % listed.size();
    --listed_count;
  }
  listed[(listed_begin + listed_count++) % listed.size()] = key;
}

void KvCache::Impl::RememberEvicted(const Hash128& key) {
  evicted_keys[key.low % evicted_keys.size()] = static_cast<uint32_t>(key.high) | 1;
}

void KvCache::Impl::AddDuplicate(NodeId n, BlockId b) {
  Block& owner = block(tree.node(n).owner);
  block(b).node = n;
  block(b).prev = owner.last_duplicate;
  block(b).next = kNoBlock;
  (owner.last_duplicate == kNoBlock ? owner.first_duplicate : block(owner.last_duplicate).next) = b;
  owner.last_duplicate = b;
}

void KvCache::Impl::DropDuplicate(BlockId b) {
  Block& gone = block(b);
  Block& owner = block(tree.node(gone.node).owner);
  (gone.prev == kNoBlock ? owner.first_duplicate : block(gone.prev).next) = gone.next;
  (gone.next == kNoBlock ? owner.last_duplicate : block(gone.next).prev) = gone.prev;
  gone.prev = gone.next = kNoBlock;
  gone.node = kNoNode;
}

bool KvCache::Impl::HandOver(BlockId b) {
  Block& owner = block(b);
  const BlockId h = owner.first_duplicate;
  if (h == kNoBlock) return false;
  const NodeId n = owner.node;
  DropDuplicate(h);
  Block& heir = block(h);
  heir.node = n;
  heir.owns = true;
  heir.first_duplicate = owner.first_duplicate;
  heir.last_duplicate = owner.last_duplicate;
  // The node must drain at least as long as its children.
  heir.busy_until = std::max(heir.busy_until, owner.busy_until);
  tree.node(n).owner = h;
  owner.node = kNoNode;
  owner.owns = false;
  owner.first_duplicate = owner.last_duplicate = kNoBlock;
  return true;
}

void KvCache::Impl::Adopt(NodeId n) {
  const BlockId unused = tree.node(n).owner;
  HandOver(unused);
  if (block(unused).busy_until > ended) return;  // drains, then becomes free
  lru.Remove(unused);
  block(unused) = Block{};
  free.push_back(unused);
}

void KvCache::Impl::LeaveTree(NodeId n) {
  Block& owner = block(tree.node(n).owner);
  while (owner.first_duplicate != kNoBlock) DropDuplicate(owner.first_duplicate);
  owner.node = kNoNode;
  owner.owns = false;
  tree.Erase(n);
}

int32_t KvCache::Impl::EndOfKeyed(SlotId s) const {
  const Slot& slot = At(s);
  if (!config.prefix_caching || slot.keys == nullptr) return 0;
  const int32_t keys = slot.own != nullptr ? slot.own->KeysKnown(s) : static_cast<int32_t>(slot.keys->size());
  return std::min(slot.marked, keys);
}

void KvCache::Impl::EnterSoon(SlotId s) {
  const Slot& slot = At(s);
  const int32_t end = EndOfKeyed(s);
  if (slot.keyed >= end) return;
  if (slot.own != nullptr) return MarkUnlisted(s, end);
  PrefetchEnterTree(s, end);
  if (slot.keyed > 0) PrefetchBlock(TableOf(s)[slot.keyed - 1]);
  entering[num_entering++] = {s, end};
  if (num_entering == entering.size()) EnterWaiting();
}

void KvCache::Impl::EnterWaiting() {
  last_match.slot = kNoSlot;
  const std::span<const Entering> waiting(entering.data(), std::exchange(num_entering, 0));
  for (const Entering& e : waiting) {
    const int32_t keyed = At(e.slot).keyed;
    const NodeId parent = keyed > 0 ? block(TableOf(e.slot)[keyed - 1]).node : kNoNode;
    if (parent >= 0) tree.PrefetchNode(parent);
  }
  for (const Entering& e : waiting) EnterTree(e.slot, e.end);
}

void KvCache::Impl::PrefetchKeys(const Slot& slot) {
  if (slot.keys == nullptr) return;
  constexpr size_t kKeysOfLine = 64 / sizeof(Hash128);
  const size_t begin = static_cast<size_t>(slot.keyed), end = std::min(begin + 3 * kEnterAhead, slot.keys->size());
  for (size_t i = begin; i < end; i += kKeysOfLine) Prefetch(&(*slot.keys)[i]);
}

void KvCache::Impl::PrefetchEnterTree(SlotId s, int32_t end) const {
  const Slot& slot = At(s);
  if (slot.own != nullptr) return;  // its keys are not computed yet
  for (int32_t i = slot.keyed; i < std::min(slot.keyed + kEnterAhead, end); ++i) {
    tree.PrefetchFind((*slot.keys)[static_cast<size_t>(i)]);
  }
}

void KvCache::Impl::EnterTree(SlotId s, int32_t end) {
  Slot& slot = At(s);
  if (slot.own != nullptr) return MarkUnlisted(s, end);
  BlockId* table = TableOf(s);
  constexpr int32_t kAhead = kEnterAhead;
  for (; slot.keyed < end; ++slot.keyed) {
    if (slot.keyed + 3 * kAhead < end) Prefetch(&(*slot.keys)[static_cast<size_t>(slot.keyed + 3 * kAhead)]);
    if (slot.keyed + kAhead < end) tree.PrefetchFind((*slot.keys)[static_cast<size_t>(slot.keyed + kAhead)]);
    const BlockId b = table[slot.keyed];
    if (block(b).node != kNoNode) continue;  // shared; another sequence has entered it
    NodeId parent = kNoNode;
    if (slot.keyed > 0) {
      parent = block(table[slot.keyed - 1]).node;
      if (parent == kNoNode) return;  // a failed step broke the chain: the rest stays private
    }
    const Hash128& key = (*slot.keys)[static_cast<size_t>(slot.keyed)];
    const PrefixTree::Entered entered = File(b, key, parent);
    if (entered.is_new) continue;
    const NodeId known = entered.node;
    if (tree.node(known).parent != parent) return;  // keys from a broken file: their blocks stay private
    AddDuplicate(known, b);
    Block& owner = block(tree.node(known).owner);
    if (owner.users == 0) {
      Adopt(known);
    } else {
      owner.busy_until = std::max(owner.busy_until, block(b).busy_until);  // as in Unuse
    }
  }
}

void KvCache::Impl::MarkUnlisted(SlotId s, int32_t end) {
  Slot& slot = At(s);
  const BlockId* table = TableOf(s);
  for (; slot.keyed < end; ++slot.keyed) {
    if (slot.keyed > 0 && block(table[slot.keyed - 1]).node == kNoNode) return;  // as in EnterTree
    block(table[slot.keyed]).node = kUnlisted;
  }
}

void KvCache::Impl::MakeFindable(SlotId s) {
  Slot& slot = At(s);
  if (slot.own == nullptr) return;
  slot.own->MakeKeys(s);
  slot.own = nullptr;
  const BlockId* table = TableOf(s);
  NodeId parent = kNoNode;
  for (int32_t i = 0; i < slot.keyed; ++i) {
    if (block(table[i]).node == kNoNode) return;  // a step failed to fill it: the blocks after it stay private too
    const Hash128& key = (*slot.keys)[static_cast<size_t>(i)];
    const PrefixTree::Entered entered = File(table[i], key, parent);
    TACTUS_CHECK_MSG(entered.is_new, "a key of OwnKeys is another sequence's as well");
    parent = entered.node;
  }
}

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

int32_t KvCache::Impl::ShareableOf(const Slot& slot, int32_t prompt_tokens) const {
  if (slot.swapped_tokens > 0) prompt_tokens = slot.swapped_tokens + 1;  // exactly the saved positions
  // No block of a slot with OwnKeys is in the tree.
  if (!config.prefix_caching || slot.keys == nullptr || slot.own != nullptr || prompt_tokens < 1) return 0;
  return std::min<int32_t>((prompt_tokens - 1) / config.block_size, static_cast<int32_t>(slot.keys->size()));
}

const KvCache::Impl::Match& KvCache::Impl::MatchOf(SlotId s, int32_t prompt_tokens) {
  const Slot& slot = At(s);
  const int32_t shareable = ShareableOf(slot, prompt_tokens);
  const Hash128 key = shareable > 0 ? (*slot.keys)[static_cast<size_t>(shareable - 1)] : Hash128();
  if (last_match.slot != s || last_match.shareable != shareable || last_match.key != key)
    last_match = {s, shareable, key, FindMatch(slot, shareable)};
  return last_match.match;
}

KvCache::Impl::Match KvCache::Impl::FindMatch(const Slot& slot, int32_t shareable) const {
  Match match;
  if (shareable == 0) return match;
  // Children of a missing block are missing; children of an unused block are unused.
  const auto node_at = [&](int32_t i) { return tree.FindAt((*slot.keys)[static_cast<size_t>(i)], i); };
  match.blocks = FirstWhere(shareable, [&](int32_t i) { return node_at(i) == kNoNode; });
  if (match.blocks == 0) return match;
  match.last = node_at(match.blocks - 1);
  const auto unused_at = [&](int32_t i) {
    const NodeId n = node_at(i);
    return n != kNoNode && Unused(tree.node(n).owner);
  };
  match.pinned = match.blocks - FirstWhere(match.blocks, unused_at);
  return match;
}

// The walk reads each node to find its parent, and each read may miss the CPU cache. So the probable nodes and blocks
// are prefetched by key first; the result comes from the tree's links alone.
int32_t KvCache::Impl::ReadChain(const Slot& slot, const Match& match, BlockId* table) {
  constexpr int32_t kTogether = 32;
  int32_t pinned = 0;
  NodeId n = match.last;
  for (int32_t end = match.blocks; end > 0;) {
    const int32_t begin = std::max(0, end - kTogether);
    const std::span keys(slot.keys->data() + begin, static_cast<size_t>(end - begin));
    for (const Hash128& key : keys) tree.PrefetchFind(key);
    for (const Hash128& key : keys) {
      if (const NodeId likely = tree.LikelyNode(key); likely != kNoNode) tree.PrefetchNode(likely);
    }
    for (const Hash128& key : keys) {
      if (const NodeId likely = tree.LikelyNode(key); likely != kNoNode) PrefetchBlock(tree.node(likely).owner);
    }
    for (; end > begin; n = tree.node(n).parent) {
      table[--end] = tree.node(n).owner;
      pinned += Unused(table[end]) ? 1 : 0;
    }
  }
  return pinned;
}

int32_t KvCache::Cached(std::span<const Hash128> keys) const {
  impl_->EnterTogether();
  return FirstWhere(static_cast<int32_t>(keys.size()),
                    [&](int32_t i) { return impl_->tree.FindAt(keys[static_cast<size_t>(i)], i) == kNoNode; });
}

bool KvCache::WasEvicted(const Hash128& key) const {
  const std::vector<uint32_t>& evicted = impl_->evicted_keys;
  return !evicted.empty() && evicted[key.low % evicted.size()] == (static_cast<uint32_t>(key.high) | 1);
}

bool KvCache::TakeEntered(Entered* entered) {
  impl_->EnterTogether();
  Impl& impl = *impl_;
  while (impl.listed_count > 0) {
    const Hash128& key = impl.listed[impl.listed_begin];
    const NodeId node = impl.tree.Find(key);
    if (node != kNoNode) {
      const BlockId owner = impl.tree.node(node).owner;
      if (impl.block(owner).computed_by > impl.ended) return false;
      *entered = {owner, key};
    }
    impl.listed_begin = (impl.listed_begin + 1) % impl.listed.size();
    --impl.listed_count;
    if (node != kNoNode) return true;
  }
  return false;
}

}  // namespace tactus::core
