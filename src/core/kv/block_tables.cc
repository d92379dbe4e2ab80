#include "core/kv/block_tables.h"

#include "base/check.h"

namespace tactus::core {

BlockTables::BlockTables(int32_t num_slots, int32_t stride)
    : stride_(stride), slots_(static_cast<size_t>(num_slots)), tables_(slots_.size() * static_cast<size_t>(stride)) {
  free_tables_.reserve(slots_.size());
  for (size_t t = slots_.size(); t > 0; --t) {
    free_tables_.push_back(tables_.data() + (t - 1) * static_cast<size_t>(stride_));
  }
}

void BlockTables::TakeTable(SlotKv* slot) {
  TACTUS_DCHECK(slot->table == nullptr);
  slot->table = free_tables_.back();
  free_tables_.pop_back();
}

void BlockTables::FreeTable(SlotKv* slot) {
  if (slot->table == nullptr) return;
  free_tables_.push_back(slot->table);
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
