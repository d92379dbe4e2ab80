#include "core/kv/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/prefetch.h"
#include "core/kv/block_tables.h"
#include "core/kv/entering_blocks.h"
#include "core/kv/host_blocks.h"
#include "core/kv/prefix_blocks.h"
#include "core/kv/prefix_matcher.h"
#include "core/kv/prefix_outline.h"
#include "core/kv/void_blocks.h"

namespace tactus::core {
namespace {

constexpr int32_t kTouchAhead = 16;  // blocks of a table that are prefetched together

const KvCacheConfig& Checked(const KvCacheConfig& c) {
  TACTUS_CHECK(c.num_blocks >= 1 && c.num_blocks < (int64_t{1} << 30) && c.block_size >= 1 && c.max_slots >= 1);
  return c;
}

}  // namespace

// The parts of the cache, and what joins them.
struct KvCache::Impl {
  explicit Impl(const KvCacheConfig& config);

  int32_t BlocksFor(int64_t tokens) const { return core::BlocksFor(tokens, config.block_size); }
  // Called first by every operation whose result depends on the tree.
  void EnterWaiting() {
    if (!entering.any_waiting()) return;
    matcher.Forget();
    entering.EnterWaiting();
  }
  // Called first by every operation that changes a match or its cost.
  void Change() {
    matcher.Forget();
    EnterWaiting();
  }
  // Blocks that a start takes from the available ones.
  int64_t Cost(const PrefixMatch& match, int32_t cover_tokens, int32_t reserve_tokens) const;
  // Fills the new table of a slot with the blocks that it shares. False: a shortage; it has no table.
  bool Share(SlotKv* slot, PrefixMatch match, const BlockId* source, int32_t cover_tokens, int32_t reserve_tokens);
  void Append(SlotKv* slot, int32_t count, const StepPlan* plan);  // new blocks at the end of its table
  // Copies the saved KV back to the blocks of the table from `first` on, which only this slot uses.
  void BringBack(SlotId s, int32_t first, StepPlan* plan);
  void GiveBack(SlotKv* slot, StepId last_step);

  const KvCacheConfig config;
  BlockTables tables;
  PrefixBlocks blocks;
  PrefixMatcher matcher;
  EnteringBlocks entering;
  HostBlocks host;
  VoidBlocks voids;
  int64_t query_tokens = 0, hit_tokens = 0;  // see KvCacheStats
};

KvCache::Impl::Impl(const KvCacheConfig& c)
    : config(Checked(c)),
      tables(c.max_slots, static_cast<int32_t>(std::min<int64_t>(std::max(c.max_blocks_per_slot, 1), c.num_blocks)),
             c.lean),
      blocks(c.num_blocks, c.list_entered, c.remember_evicted, c.lean),
      matcher(&blocks, c.block_size),
      entering(&blocks),
      host(c.swap_blocks, c.import_blocks, c.block_size),
      voids(&blocks, &tables) {}

int64_t KvCache::Impl::Cost(const PrefixMatch& match, int32_t cover_tokens, int32_t reserve_tokens) const {
  const int32_t covered = std::max(BlocksFor(cover_tokens), match.blocks);
  return match.pinned + std::max(covered, BlocksFor(reserve_tokens)) - match.blocks;
}

void KvCache::Impl::Append(SlotKv* slot, int32_t count, const StepPlan* plan) {
  TACTUS_CHECK_MSG(slot->blocks + count <= tables.stride(), "a block table outgrew max_blocks_per_slot");
  if (count == 0) return;
  EnterWaiting();
  const StepId begun_by = plan != nullptr ? plan->step : blocks.pool().ended() + 1;
  blocks.PrefetchTakes(count, begun_by);
  BlockId* const table = slot->table;
  BlockId last = slot->blocks > 0 ? table[slot->blocks - 1] : kNoBlock;
  for (const int32_t end = slot->blocks + count; slot->blocks < end; ++slot->blocks) {
    table[slot->blocks] = last = blocks.Take(last, begun_by);
  }
}

void KvCache::Impl::GiveBack(SlotKv* slot, StepId last_step) {
  blocks.Unreserve(slot->reserved);
  const BlockId* const table = slot->table;
  while (slot->blocks > 0) {
    if (slot->blocks > kTouchAhead) blocks.PrefetchBlock(table[slot->blocks - 1 - kTouchAhead]);
    blocks.Unuse(table[--slot->blocks], last_step);
  }
  tables.FreeTable(slot);
  slot->reserved = slot->marked = slot->keyed = 0;
  slot->saved.restored_begin = slot->saved.restored_end = 0;
}

KvCache::KvCache(const KvCacheConfig& config) : impl_(std::make_unique<Impl>(config)) {}
KvCache::~KvCache() = default;

void KvCache::Bind(SlotId s, const std::vector<Hash128>* keys, OwnKeys* own) {
  SlotKv& slot = impl_->tables.Make(s);
  TACTUS_CHECK(!slot.bound && slot.blocks == 0);
  impl_->Change();
  slot = SlotKv{};
  slot.bound = true;
  if (!impl_->config.prefix_caching) return;
  slot.keys = keys;
  slot.own = own;
}

void KvCache::Unbind(SlotId s) {
  SlotKv& slot = impl_->tables[s];
  TACTUS_CHECK(slot.bound && slot.blocks == 0 && slot.reserved == 0 && slot.saved.tokens == 0);
  impl_->Change();
  slot = SlotKv{};
}

int32_t KvCache::block_size() const {
  return impl_->config.block_size;
}
int64_t KvCache::blocks_total() const {
  return impl_->config.num_blocks;
}
int64_t KvCache::blocks_available() const {
  return impl_->blocks.pool().available();
}
int64_t KvCache::blocks_held(SlotId slot) const {
  return impl_->tables[slot].blocks;
}
int64_t KvCache::blocks_reserved(SlotId slot) const {
  return impl_->tables[slot].reserved;
}
int64_t KvCache::blocks_in_use() const {
  return impl_->blocks.pool().num_in_use();
}
std::span<const BlockId> KvCache::Table(SlotId slot) const {
  if (slot >= impl_->tables.size()) return {};  // never bound
  return impl_->tables[slot].held();
}

int32_t KvCache::PeekMatch(SlotId s, int32_t prompt_tokens) const {
  impl_->EnterWaiting();
  const SlotKv& slot = impl_->tables[s];
  if (slot.saved.tokens > 0) return slot.saved.tokens;
  return impl_->matcher.Match(s, slot, prompt_tokens).blocks * impl_->config.block_size;
}

int64_t KvCache::StartCost(SlotId s, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens) const {
  impl_->EnterWaiting();
  const SlotKv& slot = impl_->tables[s];
  const PrefixMatch& match = impl_->matcher.Match(s, slot, prompt_tokens);
  return impl_->Cost(match, std::max(cover_tokens, slot.saved.tokens), reserve_tokens);
}

void KvCache::PrefetchStart(SlotId s, int32_t prompt_tokens, int32_t look) const {
  const Impl& impl = *impl_;
  const SlotKv& slot = impl.tables[s];
  if (look == 0) return Prefetch(&slot);
  if (look == 1) return Prefetch(slot.keys);
  const std::span<const Hash128> keys = impl.matcher.Shareable(slot, prompt_tokens);
  if (keys.empty()) return;
  if (look == 2) {
    Prefetch(&keys.front());
    Prefetch(&keys.back());
    if (const BlockId* table = impl.tables.SecondFree(); table != nullptr) Prefetch(table);
  } else {
    impl.blocks.tree().PrefetchFind(keys.front());
    impl.blocks.tree().PrefetchFind(keys.back());
  }
}

void KvCache::PrefetchRelease(SlotId s, int32_t look) const {
  const SlotKv& slot = impl_->tables[s];
  if (look == 0) return Prefetch(&slot);
  const int32_t begin = std::max(0, slot.blocks - kTouchAhead);
  if (look == 1) {
    if (slot.keys != nullptr) Prefetch(slot.keys);
    if (slot.blocks == 0) return;
    Prefetch(slot.table + begin);
    Prefetch(slot.table + slot.blocks - 1);
  }
  if (look != 2) return;
  for (int32_t i = begin; i < slot.blocks; ++i) impl_->blocks.PrefetchBlock(slot.table[i]);
}

void KvCache::PrefetchGrow(SlotId s, int32_t look) const {
  const SlotKv& slot = impl_->tables[s];
  if (look == 0) return Prefetch(&slot);
  if (slot.blocks == 0) return;
  if (look == 1) {
    Prefetch(slot.table + slot.blocks - 1);
    if (slot.keys != nullptr) Prefetch(slot.keys);
  } else if (look == 2) {
    for (int32_t i = std::max(0, slot.blocks - 2); i < slot.blocks; ++i) impl_->blocks.PrefetchBlock(slot.table[i]);
  }
}

bool KvCache::Impl::Share(SlotKv* slot, PrefixMatch match, const BlockId* source, int32_t cover_tokens,
                          int32_t reserve_tokens) {
  if (Cost(match, cover_tokens, reserve_tokens) > blocks.pool().available()) return false;
  TACTUS_CHECK_MSG(match.blocks <= tables.stride(), "a prefix longer than max_blocks_per_slot");
  tables.TakeTable(slot);
  if (source != nullptr) {
    std::copy_n(source, match.blocks, slot->table);
  } else if (match.blocks > 0) {
    match.pinned = ReadChain(blocks, *slot->keys, match, slot->table);
    // With keys from a broken file the chain may have other blocks than the match counted.
    if (Cost(match, cover_tokens, reserve_tokens) > blocks.pool().available()) {
      tables.FreeTable(slot);
      return false;
    }
  }
  Change();
  for (int32_t i = 0; i < match.blocks; ++i) blocks.Use(slot->table[i]);
  slot->blocks = match.blocks;
  // A forked block may not be in the tree (yet); then the blocks after it stay private until it is.
  slot->marked = match.blocks;
  while (slot->keyed < match.blocks && blocks[slot->table[slot->keyed]].keyed()) ++slot->keyed;
  return true;
}

KvStart KvCache::Start(SlotId s, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens, SlotId fork_from,
                       StepPlan* plan) {
  impl_->EnterWaiting();
  Impl& impl = *impl_;
  SlotKv& slot = impl.tables[s];
  TACTUS_CHECK(slot.bound && slot.blocks == 0 && prompt_tokens >= 1);
  const int32_t b = impl.config.block_size;
  const SlotKv* const source = fork_from != kNoSlot ? &impl.tables[fork_from] : nullptr;
  PrefixMatch match;
  int32_t matched_tokens = 0;
  if (source == nullptr) {
    match = impl.matcher.Match(s, slot, prompt_tokens);
    matched_tokens = slot.saved.tokens > 0 ? slot.saved.tokens : match.blocks * b;
    TACTUS_CHECK(matched_tokens < prompt_tokens);
  } else {
    TACTUS_CHECK(slot.saved.tokens == 0 && source->own == nullptr);
    // All of the prompt but its last token is cached; full blocks are shared, the partial one is copied.
    match.blocks = (prompt_tokens - 1) / b;
    matched_tokens = prompt_tokens - 1;
    TACTUS_CHECK(source->blocks >= impl.BlocksFor(matched_tokens));
  }
  const int32_t cover = std::max(cover_tokens, matched_tokens);
  if (!impl.Share(&slot, match, source != nullptr ? source->table : nullptr, cover, reserve_tokens)) return {};

  const int32_t covered = std::max(impl.BlocksFor(cover), match.blocks);
  EnteringBlocks::PrefetchKeys(slot);
  impl.Append(&slot, covered - match.blocks, plan);
  slot.reserved = std::max(0, impl.BlocksFor(reserve_tokens) - covered);
  impl.blocks.Reserve(slot.reserved);
  TACTUS_DCHECK(impl.blocks.pool().available() >= 0);
  impl.tables.Report(s, 0, plan);

  if (slot.saved.tokens > 0) {
    impl.BringBack(s, match.blocks, plan);
  } else if (source != nullptr) {
    const int32_t rest = matched_tokens - match.blocks * b;
    if (rest > 0 && plan != nullptr)
      plan->copies.push_back({source->table[match.blocks], slot.table[match.blocks], rest});
  } else if (slot.keys != nullptr && !slot.looked_up) {
    slot.looked_up = true;
    impl.query_tokens += prompt_tokens;
    impl.hit_tokens += matched_tokens;
  }
  return {true, matched_tokens};
}

bool KvCache::Extend(SlotId s, int32_t tokens, StepPlan* plan) {
  Impl& impl = *impl_;
  SlotKv& slot = impl.tables[s];
  TACTUS_CHECK(slot.bound);
  TACTUS_CHECK_MSG(slot.table != nullptr, "Extend of a sequence that has not started");
  const int32_t need = impl.BlocksFor(tokens) - slot.blocks;
  if (need <= 0) return true;
  const int32_t drawn = std::min(need, slot.reserved);
  if (need - drawn > impl.blocks.pool().available()) return false;
  impl.Change();
  slot.reserved -= drawn;
  impl.blocks.Unreserve(drawn);
  const int32_t first = slot.blocks;
  impl.Append(&slot, need, plan);
  impl.tables.Report(s, first, plan);
  return true;
}

void KvCache::MarkPending(SlotId s, int32_t computed_tokens, StepId step) {
  Impl& impl = *impl_;
  SlotKv& slot = impl.tables[s];
  const int32_t full = computed_tokens / impl.config.block_size;
  TACTUS_CHECK(slot.bound && full <= slot.blocks && step > impl.blocks.pool().ended());
  for (; slot.marked < full; ++slot.marked) impl.blocks.SetComputedBy(slot.table[slot.marked], step);
  // Also blocks filled earlier whose key is known only now.
  if (impl.entering.EnterSoon(s, &slot)) impl.EnterWaiting();
}

void KvCache::Release(SlotId s, StepId last_step) {
  impl_->Change();
  SlotKv& slot = impl_->tables[s];
  TACTUS_CHECK(slot.bound);
  impl_->entering.EnterNow(s, &slot);
  impl_->entering.MakeFindable(s, &slot);
  impl_->GiveBack(&slot, last_step);
}

void KvCache::End(SlotId s, StepId last_step) {
  impl_->Change();
  SlotKv& slot = impl_->tables[s];
  TACTUS_CHECK(slot.bound);
  impl_->entering.EnterNow(s, &slot);
  impl_->GiveBack(&slot, last_step);
  Unbind(s);
}

// --- Host memory ---

bool KvCache::SwapOut(SlotId s, int32_t computed_tokens, StepPlan* plan) {
  SlotKv& slot = impl_->tables[s];
  TACTUS_CHECK(slot.bound && slot.saved.tokens == 0 && impl_->BlocksFor(computed_tokens) <= slot.blocks &&
               plan != nullptr);
  if (!impl_->host.Save(slot.table, computed_tokens, &slot.saved, plan)) return false;
  Release(s, -1);
  return true;
}

void KvCache::Impl::BringBack(SlotId s, int32_t first, StepPlan* plan) {
  SlotKv& slot = tables[s];
  SavedKv& saved = slot.saved;
  const int32_t full = saved.tokens / config.block_size;
  host.Restore(slot.table, first, &saved, plan);
  if (saved.saved_by > blocks.pool().ended()) {  // if that step fails, the restored blocks are void too
    for (int32_t i = saved.restored_begin; i < saved.restored_end; ++i)
      blocks.SetBegunBy(slot.table[i], saved.saved_by);
  }
  // Other sequences may share these blocks once plan->step, which copies them back, has ended.
  for (slot.marked = first; slot.marked < full; ++slot.marked)
    blocks.SetComputedBy(slot.table[slot.marked], plan->step);
  entering.EnterNow(s, &slot);
}

int32_t KvCache::SwappedTokens(SlotId s) const {
  return impl_->tables[s].saved.tokens;
}

void KvCache::DropSwapped(SlotId s) {
  impl_->Change();
  impl_->host.Drop(&impl_->tables[s].saved);
}

int32_t KvCache::BroughtBack(SlotId s) const {
  const SavedKv& saved = impl_->tables[s].saved;
  return saved.restored_end - saved.restored_begin;
}

int64_t KvCache::swap_blocks_total() const {
  return impl_->host.size();
}
int64_t KvCache::swap_blocks_free() const {
  return impl_->host.num_free();
}

bool KvCache::ReserveHost(int32_t count, std::vector<BlockId>* blocks) {
  return impl_->host.Reserve(count, impl_->blocks.pool().ended(), blocks);
}

void KvCache::ReturnHost(std::span<const BlockId> blocks) {
  impl_->host.Return(blocks);
}

void KvCache::KeepImported(SlotId s, std::span<const BlockId> blocks, int32_t tokens) {
  SlotKv& slot = impl_->tables[s];
  impl_->Change();
  TACTUS_CHECK(slot.bound && slot.blocks == 0 && slot.saved.tokens == 0 && tokens >= 1);
  impl_->host.Keep(blocks, tokens, &slot.saved);
}

// --- Contents of the tree and of blocks ---

int32_t KvCache::Cached(std::span<const Hash128> keys) const {
  impl_->EnterWaiting();
  return BlocksInTree(impl_->blocks.tree(), keys);
}

bool KvCache::WasEvicted(const Hash128& key) const {
  return impl_->blocks.evicted_keys().Has(key);
}

bool KvCache::TakeEntered(Entered* entered) {
  impl_->EnterWaiting();
  return impl_->blocks.TakeEntered(&entered->block, &entered->key);
}

int32_t KvCache::FinishedBlocks(SlotId s, int32_t computed_tokens) const {
  const PrefixBlocks& blocks = impl_->blocks;
  const SlotKv& slot = impl_->tables[s];
  const int32_t full = std::min(computed_tokens / impl_->config.block_size, slot.blocks);
  int32_t finished = 0;
  while (finished < full && blocks[slot.table[finished]].computed_by <= blocks.pool().ended()) ++finished;
  return finished;
}

// --- Ends of steps ---

void KvCache::OnStepFailed(StepId step, std::vector<SlotId>* recompute) {
  impl_->Change();
  impl_->voids.MarkBlocksOf(step);
  impl_->voids.Drop(step, recompute);
}

void KvCache::StepEnded(StepId step, bool ok, std::vector<SlotId>* recompute) {
  impl_->Change();
  Impl& impl = *impl_;
  TACTUS_CHECK(step > impl.blocks.pool().ended());
  if (!ok) {
    impl.voids.MarkBlocksOf(step);
    impl.voids.MarkRestored(step);
    impl.voids.Drop(step, recompute);
    for (SlotId s = 0; s < impl.tables.size(); ++s) {
      SavedKv& saved = impl.tables[s].saved;
      if (saved.saved_by != step || saved.tokens == 0) continue;
      impl.host.Drop(&saved);
      if (recompute != nullptr) recompute->push_back(s);
    }
  }
  impl.blocks.EndSteps(step);
}

void KvCache::ItemFailed(SlotId s, int32_t first_position, StepId step, std::vector<SlotId>* recompute) {
  impl_->Change();
  const SlotKv& slot = impl_->tables[s];
  for (int32_t i = first_position / impl_->config.block_size; i < slot.blocks; ++i) {
    if (impl_->blocks[slot.table[i]].computed_by >= step) impl_->voids.Mark(slot.table[i]);
  }
  impl_->voids.Drop(step, recompute);
}

void KvCache::Rollback(SlotId s, int32_t tokens) {
  impl_->Change();
  SlotKv& slot = impl_->tables[s];
  const int32_t keep = tokens / impl_->config.block_size;
  if (keep < slot.marked) {
    impl_->voids.Rollback({slot.table + keep, slot.table + std::min(slot.marked, slot.blocks)});
    slot.marked = keep;
  }
  slot.keyed = std::min(slot.keyed, keep);
}

KvCacheStats KvCache::Stats() const {
  impl_->EnterWaiting();
  const BlockPool& pool = impl_->blocks.pool();
  const HostBlocks& host = impl_->host;
  KvCacheStats stats;
  stats.blocks_total = pool.size();
  stats.blocks_free = pool.num_free();
  stats.blocks_cached = pool.cached().size();
  stats.blocks_draining = pool.num_draining();
  stats.blocks_in_use = pool.num_in_use();
  stats.blocks_reserved = pool.reserved();
  stats.prefix_query_tokens = impl_->query_tokens;
  stats.prefix_hit_tokens = impl_->hit_tokens;
  stats.evictions = impl_->blocks.evictions();
  stats.swap_blocks_total = host.size();
  stats.swap_blocks_used = host.size() - host.num_free();
  stats.swap_outs = host.saves();
  stats.swapped_out_blocks = host.saved_blocks();
  stats.swapped_in_blocks = host.restored_blocks();
  return stats;
}

PrefixOutline KvCache::Outline(size_t most) const {
  return OutlineOf(impl_->blocks, most);
}

std::string KvCache::CheckIntegrity() const {
  const BlockTables& tables = impl_->tables;
  const PrefixBlocks& blocks = impl_->blocks;
  if (!impl_->config.prefix_caching && blocks.tree().size() > 0) return "a node exists though prefix caching is off";
  for (std::string error :
       {tables.CheckIntegrity(blocks), blocks.pool().CheckIntegrity(), blocks.CheckIntegrity(),
        impl_->voids.CheckIntegrity(), impl_->host.CheckIntegrity(tables), impl_->matcher.CheckIntegrity(tables)}) {
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace tactus::core
