// The slots of a KV cache: the block table of each live sequence, and how far the table is filled, keyed and saved.
// Nothing allocates after construction. Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/free_ids.h"
#include "base/growing_vector.h"
#include "base/hash.h"
#include "base/huge_pages.h"
#include "base/step.h"
#include "base/units.h"

namespace tactus::core {

class OwnKeys;
class PrefixBlocks;

// Blocks of `block_size` tokens that hold `tokens` tokens.
inline int32_t BlocksFor(int64_t tokens, int32_t block_size) {
  return static_cast<int32_t>((tokens + block_size - 1) / block_size);
}

// The KV of a sequence that is swapped out to host memory, or was.
struct SavedKv {
  int32_t tokens = 0;             // positions saved in host memory; the sequence holds no block then
  BlockId first_host = kNoBlock;  // chain of host blocks, in order of position
  int32_t restored_begin = 0;     // blocks of its table that were copied back
  int32_t restored_end = 0;
  StepId saved_by = -1;  // the step that copies its KV out; kept after the KV was copied back
};

struct alignas(64) SlotKv {  // a step reads the first cache line only
  bool bound = false;
  bool looked_up = false;                      // its first start has been counted as a query of the prefix cache
  const std::vector<Hash128>* keys = nullptr;  // null: it shares no blocks
  OwnKeys* own = nullptr;                      // not null: its blocks are unlisted
  BlockId* table = nullptr;                    // from Start until its blocks are released
  int32_t blocks = 0;                          // entries of the table
  int32_t reserved = 0;                        // blocks reserved for it, not drawn
  int32_t marked = 0;                          // leading blocks that are full or will be by the end of a step in flight
  int32_t keyed = 0;                           // leading blocks that are in the tree, duplicate a node or are unlisted
  SavedKv saved;

  std::span<const BlockId> held() const { return {table, static_cast<size_t>(blocks)}; }
  const Hash128& KeyOf(int32_t block) const { return (*keys)[static_cast<size_t>(block)]; }
};

class BlockTables {
 public:
  // `stride`: most entries of a table. `lean`: as in KvCacheConfig.
  BlockTables(int32_t num_slots, int32_t stride, bool lean);

  SlotKv& operator[](SlotId s) { return slots_[static_cast<size_t>(s)]; }
  const SlotKv& operator[](SlotId s) const { return slots_[static_cast<size_t>(s)]; }
  // Slots from here on were never bound.
  SlotId size() const { return static_cast<SlotId>(slots_.size()); }
  // The slot's record, made on its first use.
  SlotKv& Make(SlotId s) {
    MakeUpTo(&slots_, static_cast<size_t>(s));
    return (*this)[s];
  }
  int32_t stride() const { return stride_; }

  // Gives the slot an empty table. Precondition: it has none.
  void TakeTable(SlotKv* slot);
  void FreeTable(SlotKv* slot);  // no effect without a table
  // The table that the second TakeTable from now takes. Null: fewer than two are free.
  const BlockId* SecondFree() const {
    const int32_t table = free_tables_.Second();
    return table < 0 ? nullptr : first_table_ + static_cast<size_t>(table) * static_cast<size_t>(stride_);
  }
  // Appends the entries of the slot's table from `first` on to the plan, which may be null.
  void Report(SlotId s, int32_t first, StepPlan* plan) const;

  // Verifies the tables against the records of their blocks. Empty: no error.
  std::string CheckIntegrity(const PrefixBlocks& blocks) const;

 private:
  std::string CheckSlot(SlotId s) const;
  std::string CheckBlock(SlotId s, int32_t i, const PrefixBlocks& blocks) const;
  std::string CheckUsers(const PrefixBlocks& blocks) const;

  const int32_t stride_;
  HugePageVector<SlotKv> slots_;   // [the highest slot that was ever bound], room for all
  HugePageArray<BlockId> tables_;  // [num_slots, stride], not written before use
  BlockId* const first_table_;
  FreeIds free_tables_;  // few tables are ever touched, and those often
};

}  // namespace tactus::core
