// Enters the marked blocks of a table in the prefix tree once their keys are known.
//
// Blocks that a plan marks enter in batches, because each insertion alone would wait for a cache miss in the tree's
// table. Every operation whose result depends on the tree enters the waiting blocks first (EnterWaiting).
//
// The blocks of a sequence with OwnKeys become unlisted instead. When the sequence releases them and may start again,
// they enter the tree first (MakeFindable).
//
// Nothing allocates after construction. Thread rule: engine thread only.
#pragma once

#include <array>
#include <cstdint>

#include "core/kv/block_tables.h"
#include "core/kv/prefix_blocks.h"

namespace tactus::core {

class EnteringBlocks {
 public:
  // `blocks` outlives it.
  explicit EnteringBlocks(PrefixBlocks* blocks) : blocks_(*blocks) {}

  // Enters the slot's blocks with a later batch. True: the batch is full, so that EnterWaiting must follow.
  bool EnterSoon(SlotId s, SlotKv* slot);
  bool any_waiting() const { return num_waiting_ > 0; }
  void EnterWaiting();
  void EnterNow(SlotId s, SlotKv* slot);
  // Enters the unlisted blocks of a slot with OwnKeys; no effect on other slots.
  void MakeFindable(SlotId s, SlotKv* slot);

  // Prefetches the keys that EnterNow and EnterSoon read first.
  static void PrefetchKeys(const SlotKv& slot);

 private:
  struct Waiting {
    SlotKv* slot = nullptr;
    int32_t end = 0;  // of its blocks
  };

  static int32_t EndOfKeyed(SlotId s, const SlotKv& slot);  // leading blocks that are marked and have a key
  void PrefetchPlaces(const SlotKv& slot, int32_t end) const;
  void Enter(SlotKv* slot, int32_t end);
  void MarkUnlisted(SlotKv* slot, int32_t end);

  PrefixBlocks& blocks_;
  std::array<Waiting, 32> waiting_;  // [num_waiting_], in the order in which they were marked
  size_t num_waiting_ = 0;
};

}  // namespace tactus::core
