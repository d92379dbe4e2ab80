// A sorted sequence of at most so many entries, kept in short blocks: inserting and removing anywhere moves a few
// entries of one block, and walking it reads memory in order. The index of queues whose members come and go in their
// middle.
//
// Nothing allocates after construction. No two neighbouring blocks have kSparse entries or fewer between them, so the
// number of blocks is bounded by the entries. Entries are unique and have a strict order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace tactus::sched {

template <class Entry>
class SortedBlocks {
 public:
  explicit SortedBlocks(int32_t capacity) {
    const size_t most = 2 * (static_cast<size_t>(capacity) / kSparse) + 3;
    blocks_.resize(most);
    order_.reserve(most);
    unused_.reserve(most);
    Clear();
  }

  // Valid until the next change. A default one is at the end of an empty sequence.
  struct Cursor {
    int32_t place = 0;  // of the block in order
    int32_t index = 0;  // in it
  };

  bool empty() const { return order_.empty(); }
  // The entry at the cursor, which goes on behind it; null at the end.
  const Entry* Next(Cursor* cursor) const {
    if (static_cast<size_t>(cursor->place) >= order_.size()) return nullptr;
    const std::span<const Entry> entries = EntriesOf(order_[static_cast<size_t>(cursor->place)]);
    const Entry* entry = &entries[static_cast<size_t>(cursor->index)];
    if (static_cast<size_t>(++cursor->index) == entries.size()) *cursor = {cursor->place + 1, 0};
    return entry;
  }
  Cursor End() const { return {static_cast<int32_t>(order_.size()), 0}; }
  // The entry before the cursor, which goes back to it; null at the beginning.
  const Entry* Previous(Cursor* cursor) const {
    if (cursor->index == 0) {
      if (cursor->place == 0) return nullptr;
      --cursor->place;
      cursor->index = static_cast<int32_t>(EntriesOf(order_[static_cast<size_t>(cursor->place)]).size());
    }
    return &EntriesOf(order_[static_cast<size_t>(cursor->place)])[static_cast<size_t>(--cursor->index)];
  }

  void Clear() {
    order_.clear();
    unused_.clear();
    for (size_t i = blocks_.size(); i > 0; --i) unused_.push_back(static_cast<int32_t>(i - 1));
  }

  void Insert(const Entry& entry) {
    if (order_.empty()) {
      order_.push_back({entry, TakeUnused()});
      blocks_[static_cast<size_t>(order_[0].block)].begin = blocks_[static_cast<size_t>(order_[0].block)].end = 0;
    }
    size_t place = PlaceOf(entry);
    if (EntriesOf(order_[place]).size() == kEntries) {
      place = SplitAt(place, entry);
    }
    Block& block = BlockAt(place);
    InsertInto(&block, entry);
    order_[place].first = block.entries[block.begin];
  }

  // Precondition: it is there.
  void Remove(const Entry& entry) {
    TACTUS_CHECK(!order_.empty());
    const size_t place = PlaceOf(entry);
    Block& block = BlockAt(place);
    const auto begin = block.entries.begin() + block.begin, end = block.entries.begin() + block.end;
    const auto at = std::lower_bound(begin, end, entry);
    TACTUS_CHECK(at != end && *at == entry);
    if (at - begin < end - at) {
      std::move_backward(begin, at, at + 1);
      ++block.begin;
    } else {
      std::move(at + 1, end, at);
      --block.end;
    }
    if (block.begin == block.end) return Drop(place);
    order_[place].first = block.entries[block.begin];
    if (place + 1 < order_.size()) JoinIfSparse(place);
    if (place > 0) JoinIfSparse(place - 1);
  }

 private:
  static constexpr int32_t kEntries = 64;
  static constexpr int32_t kSparse = 32;
  struct Block {
    int32_t begin = 0, end = 0;  // of the entries
    std::array<Entry, kEntries> entries;
  };
  struct Place {
    Entry first;
    int32_t block = 0;
  };

  Block& BlockAt(size_t place) { return blocks_[static_cast<size_t>(order_[place].block)]; }
  std::span<const Entry> EntriesOf(const Place& place) const {
    const Block& block = blocks_[static_cast<size_t>(place.block)];
    return {block.entries.data() + block.begin, static_cast<size_t>(block.end - block.begin)};
  }
  int32_t TakeUnused() {
    TACTUS_CHECK_MSG(!unused_.empty(), "more entries than the capacity");
    const int32_t block = unused_.back();
    unused_.pop_back();
    return block;
  }
  // The last block that begins at the entry or before it, else the first.
  size_t PlaceOf(const Entry& entry) const {
    const auto after = std::upper_bound(order_.begin(), order_.end(), entry,
                                        [](const Entry& e, const Place& p) { return e < p.first; });
    return after == order_.begin() ? 0 : static_cast<size_t>(after - order_.begin() - 1);
  }

  // Makes room in a full block, and says which block the entry belongs to now. At either end of all entries, where
  // queues grow, a new block leaves the full one full.
  size_t SplitAt(size_t place, const Entry& entry) {
    Block& full = BlockAt(place);
    const bool after_all = place + 1 == order_.size() && full.entries[kEntries - 1] < entry;
    const bool before_all = place == 0 && entry < full.entries[0];
    const int32_t added = TakeUnused();
    Block& half = blocks_[static_cast<size_t>(added)];
    if (after_all || before_all) {
      half.begin = half.end = after_all ? 0 : kEntries;
      order_.insert(order_.begin() + static_cast<ptrdiff_t>(after_all ? place + 1 : 0), Place{entry, added});
      return after_all ? place + 1 : 0;
    }
    constexpr int32_t kMiddle = kEntries / 2;
    std::copy(full.entries.begin() + kMiddle, full.entries.end(), half.entries.begin());
    half.begin = 0;
    half.end = kEntries - kMiddle;
    full.end = kMiddle;
    order_.insert(order_.begin() + static_cast<ptrdiff_t>(place + 1), Place{half.entries[0], added});
    return entry < half.entries[0] ? place : place + 1;
  }

  // Precondition: it is not full.
  static void InsertInto(Block* block, const Entry& entry) {
    const auto begin = block->entries.begin() + block->begin, end = block->entries.begin() + block->end;
    const auto at = std::upper_bound(begin, end, entry);
    if (block->end == kEntries || (block->begin > 0 && at - begin < end - at)) {
      std::move(begin, at, begin - 1);
      *(at - 1) = entry;
      --block->begin;
    } else {
      std::move_backward(at, end, end + 1);
      *at = entry;
      ++block->end;
    }
  }

  void Drop(size_t place) {
    unused_.push_back(order_[place].block);
    order_.erase(order_.begin() + static_cast<ptrdiff_t>(place));
    if (place > 0 && place < order_.size()) JoinIfSparse(place - 1);
  }

  // The block and the one behind it.
  void JoinIfSparse(size_t place) {
    Block &block = BlockAt(place), &next = BlockAt(place + 1);
    const int32_t kept = block.end - block.begin, more = next.end - next.begin;
    if (kept + more > kSparse) return;
    std::move(block.entries.begin() + block.begin, block.entries.begin() + block.end, block.entries.begin());
    std::copy(next.entries.begin() + next.begin, next.entries.begin() + next.end, block.entries.begin() + kept);
    block.begin = 0;
    block.end = kept + more;
    unused_.push_back(order_[place + 1].block);
    order_.erase(order_.begin() + static_cast<ptrdiff_t>(place + 1));
  }

  std::vector<Block> blocks_;
  std::vector<Place> order_;  // of the blocks in use, none of which is empty
  std::vector<int32_t> unused_;
};

}  // namespace tactus::sched
