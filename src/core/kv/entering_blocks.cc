#include "core/kv/entering_blocks.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "core/kv/own_keys.h"

namespace tactus::core {
namespace {

constexpr int32_t kAhead = 32;  // places in the tree's table that are prefetched together; keys: three times as many

}  // namespace

int32_t EnteringBlocks::EndOfKeyed(SlotId s, const SlotKv& slot) {
  if (slot.keys == nullptr) return 0;
  const int32_t keys = slot.own != nullptr ? slot.own->KeysKnown(s) : static_cast<int32_t>(slot.keys->size());
  return std::min(slot.marked, keys);
}

bool EnteringBlocks::EnterSoon(SlotId s, SlotKv* slot) {
  const int32_t end = EndOfKeyed(s, *slot);
  if (slot->keyed >= end) return false;
  if (slot->own != nullptr) {
    MarkUnlisted(slot, end);
    return false;
  }
  PrefetchPlaces(*slot, end);
  if (slot->keyed > 0) blocks_.PrefetchBlock(slot->table[slot->keyed - 1]);
  waiting_[num_waiting_++] = {slot, end};
  return num_waiting_ == waiting_.size();
}

void EnteringBlocks::EnterWaiting() {
  const std::span<const Waiting> waiting(waiting_.data(), std::exchange(num_waiting_, 0));
  for (const auto& [slot, end] : waiting) {
    const NodeId parent = slot->keyed > 0 ? blocks_[slot->table[slot->keyed - 1]].node : kNoNode;
    if (parent >= 0) blocks_.tree().PrefetchNode(parent);
  }
  for (const auto& [slot, end] : waiting) Enter(slot, end);
}

void EnteringBlocks::EnterNow(SlotId s, SlotKv* slot) {
  const int32_t end = EndOfKeyed(s, *slot);
  if (slot->own != nullptr) return MarkUnlisted(slot, end);
  PrefetchPlaces(*slot, end);
  Enter(slot, end);
}

void EnteringBlocks::PrefetchKeys(const SlotKv& slot) {
  if (slot.keys == nullptr) return;
  constexpr size_t kKeysOfLine = 64 / sizeof(Hash128);
  const size_t begin = static_cast<size_t>(slot.keyed), end = std::min(begin + 3 * kAhead, slot.keys->size());
  for (size_t i = begin; i < end; i += kKeysOfLine) Prefetch(&(*slot.keys)[i]);
}

void EnteringBlocks::PrefetchPlaces(const SlotKv& slot, int32_t end) const {
  for (int32_t i = slot.keyed; i < std::min(slot.keyed + kAhead, end); ++i) blocks_.tree().PrefetchFind(slot.KeyOf(i));
}

void EnteringBlocks::Enter(SlotKv* slot, int32_t end) {
  PrefixBlocks& blocks = blocks_;
  const BlockId* table = slot->table;
  for (int32_t& i = slot->keyed; i < end; ++i) {
    if (i + 3 * kAhead < end) Prefetch(&slot->KeyOf(i + 3 * kAhead));
    if (i + kAhead < end) blocks.tree().PrefetchFind(slot->KeyOf(i + kAhead));
    if (blocks[table[i]].keyed()) continue;  // shared; another sequence has entered it
    NodeId parent = kNoNode;
    if (i > 0) {
      parent = blocks[table[i - 1]].node;
      if (parent == kNoNode) return;  // a failed step broke the chain: the rest stays private
    }
    if (blocks.Enter(table[i], slot->KeyOf(i), parent) == PrefixBlocks::Entry::kRefused) return;
  }
}

void EnteringBlocks::MarkUnlisted(SlotKv* slot, int32_t end) {
  for (int32_t& i = slot->keyed; i < end; ++i) {
    if (i > 0 && !blocks_[slot->table[i - 1]].keyed()) return;  // as in Enter
    blocks_.MarkUnlisted(slot->table[i]);
  }
}

void EnteringBlocks::MakeFindable(SlotId s, SlotKv* slot) {
  if (slot->own == nullptr) return;
  std::exchange(slot->own, nullptr)->MakeKeys(s);
  NodeId parent = kNoNode;
  for (int32_t i = 0; i < slot->keyed; ++i) {
    const KvBlock& block = blocks_[slot->table[i]];
    if (!block.keyed()) return;  // a step failed to fill it: the blocks after it stay private too
    const PrefixBlocks::Entry entry = blocks_.Enter(slot->table[i], slot->KeyOf(i), parent);
    TACTUS_CHECK_MSG(entry == PrefixBlocks::Entry::kNew, "a key of OwnKeys is another sequence's as well");
    parent = block.node;
  }
}

}  // namespace tactus::core
