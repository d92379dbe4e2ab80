// A sorted sequence of at most `capacity` entries, kept in short blocks: an insertion or removal anywhere moves a few
// entries of one block, and a walk reads memory in order. For queues whose entries come and go in the middle.
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
#include "base/free_ids.h"
#include "base/growing_vector.h"

namespace tactus::core {

template <class Entry>
class SortedBlocks {
 public:
  explicit SortedBlocks(int32_t capacity) {
    const size_t most = 2 * (static_cast<size_t>(capacity) / kSparse) + 3;
    blocks_.reserve(most);
    order_.reserve(most);
    unused_ = FreeIds(most);
  }

  // Valid until the next change. A default one is at the beginning.
  struct Cursor {
    int32_t place = 0;  // index of the block in order_
    int32_t index = 0;  // index of the entry in the block
  };

  bool empty() const { return order_.empty(); }
  // The entry at the cursor, which moves behind it; null at the end.
  const Entry* Next(Cursor* cursor) const {
    if (static_cast<size_t>(cursor->place) >= order_.size()) return nullptr;
    const std::span<const Entry> entries = EntriesOf(order_[static_cast<size_t>(cursor->place)]);
    const Entry* entry = &entries[static_cast<size_t>(cursor->index)];
    if (static_cast<size_t>(++cursor->index) == entries.size()) *cursor = {cursor->place + 1, 0};
    return entry;
  }
  Cursor End() const { return {static_cast<int32_t>(order_.size()), 0}; }
  // The entry before the cursor, which moves to it; null at the beginning.
  const Entry* Previous(Cursor* cursor) const {
    if (cursor->index == 0) {
      if (cursor->place == 0) return nullptr;
      --cursor->place;
      cursor->index = static_cast<int32_t>(EntriesOf(order_[static_cast<size_t>(cursor->place)]).size());
    }
    return &EntriesOf(order_[static_cast<size_t>(cursor->place)])[static_cast<size_t>(--cursor->index)];
  }

  void Clear() {
    for (const Place& place : order_) unused_.Return(place.block);
    order_.clear();
  }

  void Insert(const Entry& entry) {
    if (order_.empty()) order_.push_back({entry, TakeUnused(), 0, 0});
    size_t at = PlaceOf(entry);
    if (EntriesOf(order_[at]).size() == kEntries) at = SplitAt(at, entry);
    Place& place = order_[at];
    InsertInto(&place, entry);
    place.first = EntriesOf(place)[0];
  }

  // Precondition: the entry is present.
  void Remove(const Entry& entry) {
    TACTUS_CHECK(!order_.empty());
    const size_t at = PlaceOf(entry);
    Place& place = order_[at];
    const auto begin = EntryAt(place, place.begin), end = EntryAt(place, place.end);
    const auto gone = std::lower_bound(begin, end, entry);
    TACTUS_CHECK(gone != end && *gone == entry);
    if (gone - begin < end - gone) {
      std::move_backward(begin, gone, gone + 1);
      ++place.begin;
    } else {
      std::move(gone + 1, end, gone);
      --place.end;
    }
    if (place.begin == place.end) return Drop(at);
    place.first = EntriesOf(place)[0];
    if (at + 1 < order_.size()) JoinIfSparse(at);
    if (at > 0) JoinIfSparse(at - 1);
  }

 private:
  static constexpr int32_t kEntries = 64;
  static constexpr int32_t kSparse = 32;
  using Block = std::array<Entry, kEntries>;
  struct Place {
    Entry first;
    int32_t block = 0;
    int32_t begin = 0, end = 0;  // of its entries; here, so that a neighbour's block is not read
  };

  auto EntryAt(const Place& place, int32_t index) { return blocks_[static_cast<size_t>(place.block)].begin() + index; }
  std::span<const Entry> EntriesOf(const Place& place) const {
    const Block& block = blocks_[static_cast<size_t>(place.block)];
    return {block.data() + place.begin, static_cast<size_t>(place.end - place.begin)};
  }
  int32_t TakeUnused() {
    TACTUS_CHECK_MSG(!unused_.empty(), "more entries than the capacity");
    const int32_t block = unused_.Take();
    MakeUpTo(&blocks_, static_cast<size_t>(block));
    return block;
  }
  // The last block whose first entry is not after `entry`, else the first block. Bulk insertions often hit the same
  // block, so the last one is tried first.
  size_t PlaceOf(const Entry& entry) {
    if (last_ < order_.size() && !(entry < order_[last_].first) &&
        (last_ + 1 == order_.size() || entry < order_[last_ + 1].first)) {
      return last_;
    }
    const auto after = std::upper_bound(order_.begin(), order_.end(), entry,
                                        [](const Entry& e, const Place& p) { return e < p.first; });
    return last_ = after == order_.begin() ? 0 : static_cast<size_t>(after - order_.begin() - 1);
  }

  // Makes room in a full block and returns the index of the block for the entry. At either end of all entries, where
  // queues grow, a new block is added and the full one stays full.
  size_t SplitAt(size_t at, const Entry& entry) {
    Place& full = order_[at];
    const bool after_all = at + 1 == order_.size() && *EntryAt(full, kEntries - 1) < entry;
    const bool before_all = at == 0 && entry < *EntryAt(full, 0);
    const int32_t added = TakeUnused();
    if (after_all || before_all) {
      const int32_t end = after_all ? 0 : kEntries;
      order_.insert(order_.begin() + static_cast<ptrdiff_t>(after_all ? at + 1 : 0), Place{entry, added, end, end});
      return after_all ? at + 1 : 0;
    }
    constexpr int32_t kMiddle = kEntries / 2;
    const Place half{*EntryAt(full, kMiddle), added, 0, kEntries - kMiddle};
    std::copy(EntryAt(full, kMiddle), EntryAt(full, kEntries), EntryAt(half, 0));
    full.end = kMiddle;
    order_.insert(order_.begin() + static_cast<ptrdiff_t>(at + 1), half);
    return entry < half.first ? at : at + 1;
  }

  // Precondition: the block is not full.
  void InsertInto(Place* place, const Entry& entry) {
    const auto begin = EntryAt(*place, place->begin), end = EntryAt(*place, place->end);
    const auto at = std::upper_bound(begin, end, entry);
    if (place->end == kEntries || (place->begin > 0 && at - begin < end - at)) {
      std::move(begin, at, begin - 1);
      *(at - 1) = entry;
      --place->begin;
    } else {
      std::move_backward(at, end, end + 1);
      *at = entry;
      ++place->end;
    }
  }

  void Drop(size_t at) {
    unused_.Return(order_[at].block);
    order_.erase(order_.begin() + static_cast<ptrdiff_t>(at));
    if (at > 0 && at < order_.size()) JoinIfSparse(at - 1);
  }

  // Joins the block and the next one.
  void JoinIfSparse(size_t at) {
    Place &place = order_[at], &next = order_[at + 1];
    const int32_t kept = place.end - place.begin, more = next.end - next.begin;
    if (kept + more > kSparse) return;
    std::move(EntryAt(place, place.begin), EntryAt(place, place.end), EntryAt(place, 0));
    std::copy(EntryAt(next, next.begin), EntryAt(next, next.end), EntryAt(place, kept));
    place.begin = 0;
    place.end = kept + more;
    unused_.Return(next.block);
    order_.erase(order_.begin() + static_cast<ptrdiff_t>(at + 1));
  }

  std::vector<Block> blocks_;  // up to the last that was ever used, with room for all
  std::vector<Place> order_;   // the blocks in use, none of them empty
  FreeIds unused_{0};
  size_t last_ = 0;  // index in order_ of the last block found; a guess
};

}  // namespace tactus::core
