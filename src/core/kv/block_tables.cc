#include "core/kv/block_tables.h"

#include "base/check.h"
#include "base/growing_vector.h"

namespace tactus::core {

BlockTables::BlockTables(int32_t num_slots, int32_t stride, bool lean)
    : stride_(stride),
      slots_(RoomFor<HugePageVector<SlotKv>>(static_cast<size_t>(num_slots), lean)),
      tables_(static_cast<size_t>(num_slots) * static_cast<size_t>(stride)),
      first_table_(tables_.data()),
      free_tables_(static_cast<size_t>(num_slots)) {
  if (lean) AvoidHugePages(first_table_, static_cast<size_t>(num_slots) * static_cast<size_t>(stride));
}

void BlockTables::TakeTable(SlotKv* slot) {
  TACTUS_DCHECK(slot->table == nullptr);
  slot->table = first_table_ + static_cast<size_t>(free_tables_.Take()) * static_cast<size_t>(stride_);
}

void BlockTables::FreeTable(SlotKv* slot) {
  if (slot->table == nullptr) return;
  free_tables_.Return(static_cast<int32_t>((slot->table - first_table_) / stride_));
  slot->table = nullptr;
}

void BlockTables::Report(SlotId s, int32_t first, StepPlan* plan) const {
  const SlotKv& slot = (*this)[s];
  const int32_t count = slot.blocks - first;
  if (plan == nullptr || count == 0) return;
  plan->table_updates.push_back({s, first, count, static_cast<int32_t>(plan->table_blocks.size())});
  plan->table_blocks.insert(plan->table_blocks.end(), slot.table + first, slot.table + slot.blocks);
}

}  // namespace tactus::core
