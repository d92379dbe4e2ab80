// Swap to host memory: which host block stores which block of which sequence. The executor owns the bytes; a plan lists
// the copies.
//
// A host block is in exactly one place: free, in the chain of the sequence whose KV it stores, read by the swap-ins of
// the current plan (a swap-out of the same plan runs before them and must not write it), or reserved for an import in
// progress.
//
// Nothing allocates after construction. Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/step.h"
#include "base/units.h"
#include "core/kv/block_tables.h"

namespace tactus::core {

class HostBlocks {
 public:
  // `import_blocks`: blocks that swap-outs leave to imports. `block_size`: tokens per block.
  HostBlocks(int64_t num_blocks, int64_t import_blocks, int32_t block_size);

  int64_t size() const { return static_cast<int64_t>(next_.size()); }
  // Including the blocks that the current plan reads: only the next plan can use these.
  int64_t num_free() const { return static_cast<int64_t>(free_.size() + read_.size()); }
  // Counters: sequences saved, and the blocks copied in each direction.
  int64_t saves() const { return saves_; }
  int64_t saved_blocks() const { return saved_blocks_; }
  int64_t restored_blocks() const { return restored_blocks_; }

  // Plans copies of the first `tokens` positions of the table. False: no room, or no tokens; nothing is planned. Frees
  // the blocks read by earlier plans first.
  bool Save(const BlockId* table, int32_t tokens, SavedKv* saved, StepPlan* plan);
  // Plans copies back to the blocks of the table from `first` on, and frees the host blocks once they are read.
  void Restore(const BlockId* table, int32_t first, SavedKv* saved, StepPlan* plan);
  void Drop(SavedKv* saved);  // no effect if nothing is saved

  // As KvCache::ReserveHost, ReturnHost and KeepImported. `ended`: the last step that has ended.
  bool Reserve(int32_t count, StepId ended, std::vector<BlockId>* blocks);
  void Return(std::span<const BlockId> blocks);
  void Keep(std::span<const BlockId> blocks, int32_t tokens, SavedKv* saved);

  // Verifies that every block is in one place. Empty: no error.
  std::string CheckIntegrity(const BlockTables& tables) const;

 private:
  size_t KeptForImports() const { return static_cast<size_t>(std::max<int64_t>(0, import_blocks_ - num_reserved_)); }
  BlockId TakeFree();
  void EndReservation(BlockId h);
  void FreeRead();
  // Frees the blocks read by the swap-ins of earlier plans: the copies of a later plan may write them.
  void Reclaim(const StepPlan& plan);
  std::string CheckSaved(SlotId s, const SlotKv& slot, std::vector<int32_t>* places) const;

  const int64_t import_blocks_;
  const int32_t block_size_;
  std::vector<BlockId> next_;  // [num_blocks]: links of the chains
  std::vector<BlockId> free_;
  std::vector<BlockId> read_;      // by the swap-ins of step `read_by_`, free after it
  std::vector<uint8_t> reserved_;  // [num_blocks] 1: of an import in progress
  int64_t num_reserved_ = 0;
  StepId read_by_ = -1;
  int64_t saves_ = 0, saved_blocks_ = 0, restored_blocks_ = 0;
};

}  // namespace tactus::core
