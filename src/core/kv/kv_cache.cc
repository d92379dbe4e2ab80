#include "core/kv/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "core/kv/kv_cache_impl.h"

namespace tactus::core {

KvCache::Impl::Impl(const KvCacheConfig& c)
    : config(c),
      table_stride(static_cast<int32_t>(std::min<int64_t>(std::max(c.max_blocks_per_slot, 1), c.num_blocks))),
      blocks(static_cast<size_t>(c.num_blocks)),
      slots(static_cast<size_t>(c.max_slots)),
      tables(slots.size() * static_cast<size_t>(table_stride)),
      tree(c.num_blocks),
      lru(c.num_blocks, {blocks.data()}) {
  static_assert(kNotEvictable == decltype(lru)::kNowhere);
  TACTUS_CHECK(c.num_blocks >= 1 && c.num_blocks < (int64_t{1} << 30) && c.block_size >= 1 && c.max_slots >= 1);
  free_tables.reserve(slots.size());
  for (size_t t = slots.size(); t > 0; --t) {
    free_tables.push_back(tables.data() + (t - 1) * static_cast<size_t>(table_stride));
  }
  free.reserve(blocks.size());
  for (size_t b = blocks.size(); b > 0; --b) free.push_back(static_cast<BlockId>(b - 1));  // the lowest is used first
  void_blocks.resize(blocks.size());
  TACTUS_CHECK(c.swap_blocks >= 0 && c.swap_blocks < (int64_t{1} << 30));
  host_next.assign(static_cast<size_t>(c.swap_blocks), kNoBlock);
  host_free.reserve(host_next.size());
  host_read.reserve(host_next.size());
  host_reserved.assign(host_next.size(), 0);
  if (c.list_entered) listed.resize(blocks.size());
  if (c.remember_evicted) evicted_keys.resize(std::max(size_t{1} << 16, 4 * blocks.size()));
  for (size_t b = host_next.size(); b > 0; --b) host_free.push_back(static_cast<BlockId>(b - 1));
}

void KvCache::Impl::Push(List* list, BlockId b) {
  block(b).prev = list->tail;
  block(b).next = kNoBlock;
  (list->tail == kNoBlock ? list->head : block(list->tail).next) = b;
  list->tail = b;
  ++list->size;
}

void KvCache::Impl::Unlink(List* list, BlockId b) {
  Block& gone = block(b);
  (gone.prev == kNoBlock ? list->head : block(gone.prev).next) = gone.next;
  (gone.next == kNoBlock ? list->tail : block(gone.next).prev) = gone.prev;
  gone.prev = gone.next = kNoBlock;
  --list->size;
}

void KvCache::Impl::Unlist(BlockId b) {
  block(b).node = kNoNode;
  if (block(b).users > 0 || block(b).busy_until > ended) return;
  lru.Remove(b);
  block(b) = Block{};
  free.push_back(b);
}

BlockId KvCache::Impl::TakeUnused() {
  if (!free.empty()) {
    const BlockId b = free.back();
    free.pop_back();
    TACTUS_DCHECK(block(b).users == 0 && block(b).node == kNoNode);
    return b;
  }
  if (evictions % 16 == 0) PrefetchEvictions();
  const BlockId victim = lru.TakeOldest();
  TACTUS_CHECK_MSG(victim != kNoBlock, "more blocks allocated than available");
  TACTUS_DCHECK(Unused(victim) && block(victim).first_duplicate == kNoBlock);
  if (Filed(victim)) {
    if (config.remember_evicted) RememberEvicted(tree.node(block(victim).node).key);
    tree.Erase(block(victim).node);
  }
  ++evictions;
  return victim;
}

// In three stages, as each address is read from the memory before it: the block, its node, the node's place in the
// table.
void KvCache::Impl::PrefetchEvictions() {
  lru.WalkAhead(&asked_block, 72, [this](BlockId b) { PrefetchBlock(b); });
  lru.WalkAhead(&asked_node, 56, [this](BlockId b) {
    if (Filed(b)) tree.PrefetchNode(block(b).node);
  });
  lru.WalkAhead(&asked_place, 40, [this](BlockId b) {
    if (Filed(b)) tree.PrefetchErase(block(b).node);
  });
}

BlockId* KvCache::Impl::TakeTable(SlotId s) {
  TACTUS_DCHECK(At(s).table == nullptr);
  At(s).table = free_tables.back();
  free_tables.pop_back();
  return At(s).table;
}

void KvCache::Impl::FreeTable(SlotId s) {
  if (At(s).table == nullptr) return;
  free_tables.push_back(At(s).table);
  At(s).table = nullptr;
}

void KvCache::Impl::Append(SlotId s, int32_t count, const StepPlan* plan) {
  Slot& slot = At(s);
  TACTUS_CHECK_MSG(slot.blocks + count <= table_stride, "a block table outgrew max_blocks_per_slot");
  if (count == 0) return;
  EnterTogether();
  const StepId begun_by = plan != nullptr ? plan->step : ended + 1;
  if (begun_by != asked_by) {  // an earlier step's prefetches may have left the CPU cache
    asked_block = asked_node = asked_place = {};
    asked_by = begun_by;
    if (free.size() < static_cast<size_t>(count)) PrefetchEvictions();
  }
  BlockId* const table = TableOf(s);
  BlockId last = slot.blocks > 0 ? table[slot.blocks - 1] : kNoBlock;
  for (const int32_t end = slot.blocks + count; slot.blocks < end; ++slot.blocks) {
    const BlockId b = TakeUnused();
    block(b) = Block{.users = 1, .after = last, .begun_by = begun_by};
    table[slot.blocks] = last = b;
  }
}

void KvCache::Impl::Use(BlockId b) {
  Block& shared = block(b);
  if (shared.users++ > 0) return;
  if (shared.busy_until > ended) {
    Unlink(&DrainList(shared.busy_until), b);
    --draining_blocks;
  } else {
    lru.Remove(b);
  }
}

void KvCache::Impl::Unuse(BlockId b, StepId last_step) {
  Block& released = block(b);
  TACTUS_DCHECK(released.users > 0);
  // A block that a step in flight fills is busy, even if last_step is earlier.
  released.busy_until = std::max({released.busy_until, last_step, released.computed_by});
  // Fast path of the code below: the last user leaves an owner without duplicates.
  if (released.owns && released.users == 1 && released.first_duplicate == kNoBlock && released.busy_until <= ended) {
    released.users = 0;
    lru.Push(b);
    return;
  }
  const bool duplicate = Filed(b) && !released.owns;
  if (duplicate) {
    Block& owner = block(tree.node(released.node).owner);  // see HandOver
    owner.busy_until = std::max(owner.busy_until, released.busy_until);
  }
  if (--released.users > 0) return;
  if (duplicate) {
    DropDuplicate(b);
  } else if (Filed(b)) {
    HandOver(b);
  }
  if (released.busy_until > ended) {
    TACTUS_CHECK(released.busy_until - ended < static_cast<StepId>(kMaxStepsInFlight));
    Push(&DrainList(released.busy_until), b);
    ++draining_blocks;
  } else {
    Settle(b);
  }
}

void KvCache::Impl::Settle(BlockId b) {
  TACTUS_DCHECK(block(b).users == 0);
  if (block(b).node != kNoNode) {
    lru.Push(b);
    return;
  }
  block(b) = Block{};
  free.push_back(b);
}

int64_t KvCache::Impl::Cost(const Match& match, int32_t cover_tokens, int32_t reserve_tokens) const {
  const int32_t covered = std::max(BlocksFor(cover_tokens), match.blocks);
  return match.pinned + std::max(covered, BlocksFor(reserve_tokens)) - match.blocks;
}

void KvCache::Impl::ReportUpdate(SlotId s, int32_t first, StepPlan* plan) const {
  const int32_t count = At(s).blocks - first;
  if (plan == nullptr || count == 0) return;
  plan->table_updates.push_back({s, first, count, static_cast<int32_t>(plan->table_blocks.size())});
  const BlockId* table = TableOf(s);
  plan->table_blocks.insert(plan->table_blocks.end(), table + first, table + first + count);
}

KvCache::KvCache(const KvCacheConfig& config) : impl_(std::make_unique<Impl>(config)) {}
KvCache::~KvCache() = default;

void KvCache::Bind(SlotId s, const std::vector<Hash128>* keys, OwnKeys* own) {
  Impl::Slot& slot = impl_->At(s);
  TACTUS_CHECK(!slot.bound && slot.blocks == 0);
  impl_->Change();
  slot = Impl::Slot{};
  slot.bound = true;
  slot.keys = keys;
  slot.own = impl_->config.prefix_caching ? own : nullptr;
}

void KvCache::Unbind(SlotId s) {
  Impl::Slot& slot = impl_->At(s);
  TACTUS_CHECK(slot.bound && slot.blocks == 0 && slot.reserved == 0 && slot.swapped_tokens == 0);
  impl_->Change();
  slot = Impl::Slot{};
}

int32_t KvCache::block_size() const {
  return impl_->config.block_size;
}
int64_t KvCache::blocks_total() const {
  return impl_->config.num_blocks;
}
int64_t KvCache::blocks_available() const {
  return impl_->Available();
}
int64_t KvCache::blocks_held(SlotId slot) const {
  return impl_->At(slot).blocks;
}
int64_t KvCache::blocks_reserved(SlotId slot) const {
  return impl_->At(slot).reserved;
}
int64_t KvCache::blocks_in_use() const {
  const Impl& impl = *impl_;
  return impl.config.num_blocks - static_cast<int64_t>(impl.free.size()) - impl.lru.size() - impl.draining_blocks;
}
std::span<const BlockId> KvCache::Table(SlotId slot) const {
  return {impl_->TableOf(slot), static_cast<size_t>(impl_->At(slot).blocks)};
}

int32_t KvCache::PeekMatch(SlotId slot, int32_t prompt_tokens) const {
  impl_->EnterTogether();
  const Impl::Slot& s = impl_->At(slot);
  if (s.swapped_tokens > 0) return s.swapped_tokens;
  return impl_->MatchOf(slot, prompt_tokens).blocks * impl_->config.block_size;
}

int64_t KvCache::StartCost(SlotId slot, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens) const {
  impl_->EnterTogether();
  const Impl::Slot& s = impl_->At(slot);
  return impl_->Cost(impl_->MatchOf(slot, prompt_tokens), std::max(cover_tokens, s.swapped_tokens), reserve_tokens);
}

void KvCache::PrefetchStart(SlotId s, int32_t prompt_tokens, int32_t look) const {
  const Impl& impl = *impl_;
  const Impl::Slot& slot = impl.At(s);
  if (look == 0) return Prefetch(&slot);
  if (look == 1) return Prefetch(slot.keys);
  const int32_t count = impl.ShareableOf(slot, prompt_tokens);
  if (count <= 0) return;
  const Hash128 *first = slot.keys->data(), *last = first + count - 1;
  if (look == 2) {
    Prefetch(first);
    Prefetch(last);
    if (impl.free_tables.size() > 1) Prefetch(impl.free_tables[impl.free_tables.size() - 2]);
  } else {
    impl.tree.PrefetchFind(*first);
    impl.tree.PrefetchFind(*last);
  }
}

void KvCache::PrefetchRelease(SlotId s, int32_t look) const {
  const Impl& impl = *impl_;
  const Impl::Slot& slot = impl.At(s);
  if (look == 0) return Prefetch(&slot);
  const int32_t begin = std::max(0, slot.blocks - Impl::kTouchAhead);
  if (look == 1) {
    if (slot.keys != nullptr) Prefetch(slot.keys);
    if (slot.blocks == 0) return;
    Prefetch(slot.table + begin);
    Prefetch(slot.table + slot.blocks - 1);
  }
  if (look != 2) return;
  for (int32_t i = begin; i < slot.blocks; ++i) impl.PrefetchBlock(slot.table[i]);
}

void KvCache::PrefetchGrow(SlotId s, int32_t look) const {
  const Impl& impl = *impl_;
  const Impl::Slot& slot = impl.At(s);
  if (look == 0) return Prefetch(&slot);
  if (slot.blocks == 0) return;
  if (look == 1) {
    Prefetch(slot.table + slot.blocks - 1);
    if (slot.keys != nullptr) Prefetch(slot.keys);
  } else if (look == 2) {
    for (int32_t i = std::max(0, slot.blocks - 2); i < slot.blocks; ++i) impl.PrefetchBlock(slot.table[i]);
  }
}

KvStart KvCache::Start(SlotId s, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens, SlotId fork_from,
                       StepPlan* plan) {
  impl_->EnterTogether();
  Impl& impl = *impl_;
  Impl::Slot& slot = impl.At(s);
  TACTUS_CHECK(slot.bound && slot.blocks == 0 && prompt_tokens >= 1);
  const int32_t b = impl.config.block_size;
  Impl::Match match;
  int32_t matched_tokens = 0;
  if (fork_from == kNoSlot) {
    match = impl.MatchOf(s, prompt_tokens);
    matched_tokens = slot.swapped_tokens > 0 ? slot.swapped_tokens : match.blocks * b;
    TACTUS_CHECK(matched_tokens < prompt_tokens);
  } else {
    TACTUS_CHECK(slot.swapped_tokens == 0 && impl.At(fork_from).own == nullptr);
    // All of the prompt but its last token is cached; full blocks are shared, the partial one is copied.
    match.blocks = (prompt_tokens - 1) / b;
    matched_tokens = prompt_tokens - 1;
    TACTUS_CHECK(impl.At(fork_from).blocks >= impl.BlocksFor(matched_tokens));
  }
  const int32_t cover = std::max(cover_tokens, matched_tokens);
  if (impl.Cost(match, cover, reserve_tokens) > impl.Available()) return {};

  BlockId* table = impl.TakeTable(s);
  TACTUS_CHECK_MSG(match.blocks <= impl.table_stride, "a prefix longer than max_blocks_per_slot");
  if (fork_from != kNoSlot) {
    std::copy_n(impl.TableOf(fork_from), match.blocks, table);
  } else {
    match.pinned = impl.ReadChain(slot, match, table);
    // With keys from a broken file the chain may have other blocks than FindMatch counted.
    if (impl.Cost(match, cover, reserve_tokens) > impl.Available()) {
      impl.FreeTable(s);
      return {};
    }
  }
  impl.Change();
  for (int32_t i = 0; i < match.blocks; ++i) impl.Use(table[i]);
  slot.blocks = match.blocks;
  // A forked block may not be in the tree (yet); then the blocks after it stay private until it is.
  slot.marked = match.blocks;
  while (slot.keyed < match.blocks && impl.block(table[slot.keyed]).node != kNoNode) ++slot.keyed;

  const int32_t covered = std::max(impl.BlocksFor(cover), match.blocks);
  impl.PrefetchKeys(slot);
  impl.Append(s, covered - match.blocks, plan);
  slot.reserved = std::max(0, impl.BlocksFor(reserve_tokens) - covered);
  impl.reserved += slot.reserved;
  TACTUS_DCHECK(impl.Available() >= 0);
  impl.ReportUpdate(s, 0, plan);

  if (slot.swapped_tokens > 0) {
    impl.BringBack(s, match.blocks, plan);
  } else if (fork_from == kNoSlot) {
    if (impl.config.prefix_caching && slot.keys != nullptr && !slot.looked_up) {
      slot.looked_up = true;
      impl.query_tokens += prompt_tokens;
      impl.hit_tokens += matched_tokens;
    }
  } else if (const int32_t rest = matched_tokens - match.blocks * b; rest > 0) {
    const BlockId from = impl.TableOf(fork_from)[match.blocks];
    if (plan != nullptr) plan->copies.push_back({from, table[match.blocks], rest});
  }
  return {true, matched_tokens};
}

bool KvCache::Extend(SlotId s, int32_t tokens, StepPlan* plan) {
  Impl::Slot& slot = impl_->At(s);
  TACTUS_CHECK(slot.bound);
  TACTUS_CHECK_MSG(slot.table != nullptr, "Extend of a sequence that has not started");
  const int32_t need = impl_->BlocksFor(tokens) - slot.blocks;
  if (need <= 0) return true;
  const int32_t drawn = std::min(need, slot.reserved);
  if (need - drawn > impl_->Available()) return false;
  impl_->Change();
  slot.reserved -= drawn;
  impl_->reserved -= drawn;
  const int32_t first = slot.blocks;
  impl_->Append(s, need, plan);
  impl_->ReportUpdate(s, first, plan);
  return true;
}

void KvCache::MarkPending(SlotId s, int32_t computed_tokens, StepId step) {
  Impl::Slot& slot = impl_->At(s);
  const int32_t full = computed_tokens / impl_->config.block_size;
  TACTUS_CHECK(slot.bound && full <= slot.blocks && step > impl_->ended);
  BlockId* table = impl_->TableOf(s);
  for (; slot.marked < full; ++slot.marked) impl_->block(table[slot.marked]).computed_by = step;
  impl_->EnterSoon(s);  // also blocks filled earlier whose key is known only now
}

void KvCache::Release(SlotId s, StepId last_step) {
  impl_->Change();
  TACTUS_CHECK(impl_->At(s).bound);
  impl_->EnterTree(s);
  impl_->MakeFindable(s);
  impl_->GiveBack(s, last_step);
}

void KvCache::End(SlotId s, StepId last_step) {
  impl_->Change();
  TACTUS_CHECK(impl_->At(s).bound);
  impl_->EnterTree(s);
  impl_->GiveBack(s, last_step);
  Unbind(s);
}

void KvCache::Impl::GiveBack(SlotId s, StepId last_step) {
  Slot& slot = At(s);
  reserved -= slot.reserved;
  const BlockId* table = TableOf(s);
  while (slot.blocks > 0) {
    if (slot.blocks > kTouchAhead) PrefetchBlock(table[slot.blocks - 1 - kTouchAhead]);
    Unuse(table[--slot.blocks], last_step);
  }
  FreeTable(s);
  slot.reserved = slot.marked = slot.keyed = 0;
  slot.restored_begin = slot.restored_end = 0;
}

void KvCache::OnStepFailed(StepId step, std::vector<SlotId>* recompute) {
  impl_->Change();
  Impl& impl = *impl_;
  for (size_t b = 0; b < impl.blocks.size(); ++b) {
    // Chunks and decodes of several steps may fill one block; the failure of any makes it void.
    impl.void_blocks[b] = impl.blocks[b].begun_by <= step && step <= impl.blocks[b].computed_by;
  }
  impl.DropVoid(step, recompute);
}

void KvCache::StepEnded(StepId step, bool ok, std::vector<SlotId>* recompute) {
  impl_->Change();
  Impl& impl = *impl_;
  TACTUS_CHECK(step > impl.ended);
  if (!ok) {
    for (size_t b = 0; b < impl.blocks.size(); ++b) {
      impl.void_blocks[b] = impl.blocks[b].begun_by <= step && step <= impl.blocks[b].computed_by;
    }
    impl.VoidUnsaved(step);
    impl.DropVoid(step, recompute);
    impl.DropUnsaved(step, recompute);
  }
  while (impl.ended < step) {
    const StepId now = ++impl.ended;
    Impl::List& list = impl.DrainList(now);
    while (list.head != kNoBlock) {
      const BlockId b = list.head;
      impl.Unlink(&list, b);
      --impl.draining_blocks;
      impl.Settle(b);
    }
  }
}

void KvCache::ItemFailed(SlotId s, int32_t first_position, StepId step, std::vector<SlotId>* recompute) {
  impl_->Change();
  Impl& impl = *impl_;
  const Impl::Slot& slot = impl.At(s);
  const BlockId* table = impl.TableOf(s);
  for (int32_t i = first_position / impl.config.block_size; i < slot.blocks; ++i) {
    if (impl.block(table[i]).computed_by >= step) impl.void_blocks[static_cast<size_t>(table[i])] = 1;
  }
  impl.DropVoid(step, recompute);
}

void KvCache::Rollback(SlotId s, int32_t tokens) {
  impl_->Change();
  Impl& impl = *impl_;
  Impl::Slot& slot = impl.At(s);
  const int32_t keep = tokens / impl.config.block_size;
  BlockId* table = impl.TableOf(s);
  // Void blocks and blocks computed after them must not be found any more.
  bool in_tree = false;
  for (int32_t i = keep; i < std::min(slot.marked, slot.blocks); ++i) {
    in_tree |= impl.block(table[i]).node != kNoNode;
    impl.void_blocks[static_cast<size_t>(table[i])] = 1;
  }
  if (in_tree) impl.DropVoidFromTree();
  for (int32_t i = keep; i < std::min(slot.marked, slot.blocks); ++i) {
    impl.void_blocks[static_cast<size_t>(table[i])] = 0;
    impl.block(table[i]).computed_by = -1;
  }
  slot.marked = std::min(slot.marked, keep);
  slot.keyed = std::min(slot.keyed, keep);
}

KvCacheStats KvCache::Stats() const {
  impl_->EnterTogether();
  const Impl& impl = *impl_;
  KvCacheStats stats;
  stats.blocks_total = impl.config.num_blocks;
  stats.blocks_free = static_cast<int64_t>(impl.free.size());
  stats.blocks_cached = impl.lru.size();
  stats.blocks_draining = impl.draining_blocks;
  stats.blocks_in_use = blocks_in_use();
  stats.blocks_reserved = impl.reserved;
  stats.prefix_query_tokens = impl.query_tokens;
  stats.prefix_hit_tokens = impl.hit_tokens;
  stats.evictions = impl.evictions;
  stats.swap_blocks_total = impl.config.swap_blocks;
  stats.swap_blocks_used =
      stats.swap_blocks_total - static_cast<int64_t>(impl.host_free.size() + impl.host_read.size());
  stats.swap_outs = impl.swap_outs;
  stats.swapped_out_blocks = impl.swapped_out_blocks;
  stats.swapped_in_blocks = impl.swapped_in_blocks;
  return stats;
}

}  // namespace tactus::core
