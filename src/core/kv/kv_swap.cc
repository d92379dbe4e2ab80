// Swap to host memory: which host block stores which block of which sequence. The executor owns the bytes; a plan lists
// the copies.
//
// A host block is in exactly one place: free, in the chain of the sequence whose KV it stores, read by the swap-ins of
// the current plan (a swap-out of the same plan runs before them and must not write it), or reserved for an import in
// progress.
#include <algorithm>

#include "base/check.h"
#include "core/kv/kv_cache_impl.h"

namespace tactus::core {

void KvCache::Impl::ReclaimHost(const StepPlan& plan) {
  if (host_read.empty() || host_read_by >= plan.step) return;
  host_free.insert(host_free.end(), host_read.begin(), host_read.end());
  host_read.clear();
}

void KvCache::Impl::FreeHostChain(Slot* slot) {
  while (slot->first_host != kNoBlock) {
    const BlockId h = slot->first_host;
    slot->first_host = host_next[static_cast<size_t>(h)];
    host_free.push_back(h);
  }
  slot->swapped_tokens = 0;
}

void KvCache::Impl::BringBack(SlotId s, int32_t first, StepPlan* plan) {
  Slot& slot = At(s);
  const int32_t b = config.block_size, saved = slot.swapped_tokens, end = BlocksFor(saved);
  ReclaimHost(*plan);
  BlockId* table = TableOf(s);
  BlockId h = slot.first_host;
  for (int32_t i = 0; i < end; ++i) {
    const BlockId next = host_next[static_cast<size_t>(h)];
    if (i < first) {
      host_free.push_back(h);  // found in the cache: shared again
    } else {
      plan->swap_ins.push_back({table[i], h, std::min(b, saved - i * b)});
      host_read.push_back(h);
      host_read_by = plan->step;
      // If the step that saves it is still in flight and fails, the restored block is void too.
      if (slot.saved_by > ended) block(table[i]).begun_by = slot.saved_by;
      ++swapped_in_blocks;
    }
    h = next;
  }
  slot.first_host = kNoBlock;
  slot.swapped_tokens = 0;
  slot.restored_begin = std::min(first, end);
  slot.restored_end = end;
  // For all others the plan's step computes these blocks.
  for (slot.marked = first; slot.marked < saved / b; ++slot.marked) block(table[slot.marked]).computed_by = plan->step;
  EnterTree(s);
}

void KvCache::Impl::VoidUnsaved(StepId step) {
  for (SlotId s = 0; s < config.max_slots; ++s) {
    const Slot& slot = At(s);
    if (slot.saved_by != step) continue;
    for (int32_t i = slot.restored_begin; i < slot.restored_end; ++i)
      void_blocks[static_cast<size_t>(TableOf(s)[i])] = 1;
  }
}

void KvCache::Impl::DropUnsaved(StepId step, std::vector<SlotId>* recompute) {
  for (SlotId s = 0; s < config.max_slots; ++s) {
    Slot& slot = At(s);
    if (slot.saved_by != step || slot.swapped_tokens == 0) continue;
    FreeHostChain(&slot);
    if (recompute != nullptr) recompute->push_back(s);
  }
}

bool KvCache::SwapOut(SlotId s, int32_t computed_tokens, StepPlan* plan) {
  Impl& impl = *impl_;
  Impl::Slot& slot = impl.At(s);
  const int32_t b = impl.config.block_size, count = impl.BlocksFor(computed_tokens);
  TACTUS_CHECK(slot.bound && slot.swapped_tokens == 0 && count <= slot.blocks && plan != nullptr);
  impl.ReclaimHost(*plan);
  if (count == 0 || static_cast<size_t>(count) + impl.KeptForImports() > impl.host_free.size()) return false;
  const BlockId* table = impl.TableOf(s);
  BlockId* link = &slot.first_host;
  for (int32_t i = 0; i < count; ++i) {
    const BlockId h = impl.host_free.back();
    impl.host_free.pop_back();
    plan->swap_outs.push_back({table[i], h, std::min(b, computed_tokens - i * b)});
    *link = h;
    link = &impl.host_next[static_cast<size_t>(h)];
  }
  *link = kNoBlock;
  Release(s, -1);  // calls Change
  slot.swapped_tokens = computed_tokens;
  slot.saved_by = plan->step;
  ++impl.swap_outs;
  impl.swapped_out_blocks += count;
  return true;
}

int32_t KvCache::SwappedTokens(SlotId s) const {
  return impl_->At(s).swapped_tokens;
}

void KvCache::DropSwapped(SlotId s) {
  impl_->Change();
  impl_->FreeHostChain(&impl_->At(s));
}

bool KvCache::ReserveHost(int32_t count, std::vector<BlockId>* blocks) {
  Impl& impl = *impl_;
  const bool read = impl.host_read_by <= impl.ended;  // the swap-ins that read them have ended
  if (static_cast<size_t>(count) > impl.host_free.size() + (read ? impl.host_read.size() : 0)) return false;
  if (read) {
    impl.host_free.insert(impl.host_free.end(), impl.host_read.begin(), impl.host_read.end());
    impl.host_read.clear();
  }
  for (int32_t i = 0; i < count; ++i) {
    const BlockId h = impl.host_free.back();
    impl.host_free.pop_back();
    impl.host_reserved[static_cast<size_t>(h)] = 1;
    blocks->push_back(h);
  }
  impl.num_host_reserved += count;
  return true;
}

void KvCache::ReturnHost(std::span<const BlockId> blocks) {
  for (const BlockId h : blocks) {
    TACTUS_CHECK(impl_->host_reserved[static_cast<size_t>(h)] == 1);
    impl_->host_reserved[static_cast<size_t>(h)] = 0;
    impl_->host_free.push_back(h);
  }
  impl_->num_host_reserved -= static_cast<int64_t>(blocks.size());
}

void KvCache::KeepImported(SlotId s, std::span<const BlockId> blocks, int32_t tokens) {
  Impl& impl = *impl_;
  Impl::Slot& slot = impl.At(s);
  impl.Change();
  TACTUS_CHECK(slot.bound && slot.blocks == 0 && slot.swapped_tokens == 0 && tokens >= 1);
  TACTUS_CHECK(static_cast<int32_t>(blocks.size()) == impl.BlocksFor(tokens));
  BlockId* link = &slot.first_host;
  for (const BlockId h : blocks) {
    TACTUS_CHECK(impl.host_reserved[static_cast<size_t>(h)] == 1);
    impl.host_reserved[static_cast<size_t>(h)] = 0;
    *link = h;
    link = &impl.host_next[static_cast<size_t>(h)];
  }
  *link = kNoBlock;
  impl.num_host_reserved -= static_cast<int64_t>(blocks.size());
  slot.swapped_tokens = tokens;
  slot.saved_by = -1;  // no local step saved it
}

int32_t KvCache::FinishedBlocks(SlotId s, int32_t computed_tokens) const {
  const Impl& impl = *impl_;
  const int32_t full = std::min(computed_tokens / impl.config.block_size, impl.At(s).blocks);
  const BlockId* table = impl.TableOf(s);
  int32_t finished = 0;
  while (finished < full && impl.block(table[finished]).computed_by <= impl.ended) ++finished;
  return finished;
}

int32_t KvCache::BroughtBack(SlotId s) const {
  return impl_->At(s).restored_end - impl_->At(s).restored_begin;
}

int64_t KvCache::swap_blocks_total() const {
  return impl_->config.swap_blocks;
}
// Blocks read by the current plan count as free, but only the next plan can use them.
int64_t KvCache::swap_blocks_free() const {
  return static_cast<int64_t>(impl_->host_free.size() + impl_->host_read.size());
}

}  // namespace tactus::core
