#include "core/kv/host_blocks.h"

#include "base/check.h"

namespace tactus::core {

HostBlocks::HostBlocks(int64_t num_blocks, int64_t import_blocks, int32_t block_size)
    : import_blocks_(import_blocks), block_size_(block_size) {
  TACTUS_CHECK(num_blocks >= 0 && num_blocks < (int64_t{1} << 30));
  next_.assign(static_cast<size_t>(num_blocks), kNoBlock);
  free_.reserve(next_.size());
  read_.reserve(next_.size());
  reserved_.assign(next_.size(), 0);
  for (size_t h = next_.size(); h > 0; --h) free_.push_back(static_cast<BlockId>(h - 1));
}

BlockId HostBlocks::TakeFree() {
  const BlockId h = free_.back();
  free_.pop_back();
  return h;
}

void HostBlocks::FreeRead() {
  free_.insert(free_.end(), read_.begin(), read_.end());
  read_.clear();
}

void HostBlocks::Reclaim(const StepPlan& plan) {
  if (read_by_ < plan.step) FreeRead();
}

bool HostBlocks::Save(const BlockId* table, int32_t tokens, SavedKv* saved, StepPlan* plan) {
  const int32_t count = BlocksFor(tokens, block_size_);
  Reclaim(*plan);
  if (count == 0 || static_cast<size_t>(count) + KeptForImports() > free_.size()) return false;
  BlockId* link = &saved->first_host;
  for (int32_t i = 0; i < count; ++i) {
    const BlockId h = TakeFree();
    plan->swap_outs.push_back({table[i], h, std::min(block_size_, tokens - i * block_size_)});
    *link = h;
    link = &next_[static_cast<size_t>(h)];
  }
  *link = kNoBlock;
  saved->tokens = tokens;
  saved->saved_by = plan->step;
  ++saves_;
  saved_blocks_ += count;
  return true;
}

void HostBlocks::Restore(const BlockId* table, int32_t first, SavedKv* saved, StepPlan* plan) {
  const int32_t end = BlocksFor(saved->tokens, block_size_);
  Reclaim(*plan);
  BlockId h = saved->first_host;
  for (int32_t i = 0; i < end; ++i) {
    const BlockId next = next_[static_cast<size_t>(h)];
    if (i < first) {
      free_.push_back(h);  // found in the cache: shared again
    } else {
      plan->swap_ins.push_back({table[i], h, std::min(block_size_, saved->tokens - i * block_size_)});
      read_.push_back(h);
      read_by_ = plan->step;
      ++restored_blocks_;
    }
    h = next;
  }
  saved->first_host = kNoBlock;
  saved->tokens = 0;
  saved->restored_begin = std::min(first, end);
  saved->restored_end = end;
}

void HostBlocks::Drop(SavedKv* saved) {
  while (saved->first_host != kNoBlock) {
    const BlockId h = saved->first_host;
    saved->first_host = next_[static_cast<size_t>(h)];
    free_.push_back(h);
  }
  saved->tokens = 0;
}

bool HostBlocks::Reserve(int32_t count, StepId ended, std::vector<BlockId>* blocks) {
  const bool read = read_by_ <= ended;  // the swap-ins that read them have ended
  if (static_cast<size_t>(count) > free_.size() + (read ? read_.size() : 0)) return false;
  if (read) FreeRead();
  for (int32_t i = 0; i < count; ++i) {
    const BlockId h = TakeFree();
    reserved_[static_cast<size_t>(h)] = 1;
    blocks->push_back(h);
  }
  num_reserved_ += count;
  return true;
}

void HostBlocks::EndReservation(BlockId h) {
  TACTUS_CHECK(reserved_[static_cast<size_t>(h)] == 1);
  reserved_[static_cast<size_t>(h)] = 0;
  --num_reserved_;
}

void HostBlocks::Return(std::span<const BlockId> blocks) {
  for (const BlockId h : blocks) {
    EndReservation(h);
    free_.push_back(h);
  }
}

void HostBlocks::Keep(std::span<const BlockId> blocks, int32_t tokens, SavedKv* saved) {
  TACTUS_CHECK(static_cast<int32_t>(blocks.size()) == BlocksFor(tokens, block_size_));
  BlockId* link = &saved->first_host;
  for (const BlockId h : blocks) {
    EndReservation(h);
    *link = h;
    link = &next_[static_cast<size_t>(h)];
  }
  *link = kNoBlock;
  saved->tokens = tokens;
  saved->saved_by = -1;  // no local step saved it
}

}  // namespace tactus::core
