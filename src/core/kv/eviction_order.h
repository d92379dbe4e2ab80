// The order of eviction of cached blocks: the block that became unused first is evicted first. A ring of block ids in
// that order; a block that is used again leaves a hole, and a full ring is compacted. At least a fifth of a full ring
// are holes, so every operation is O(1) amortised.
// Unlike a linked list, the ring shows the next blocks to evict in advance, so that their memory can be prefetched
// (Ahead): these blocks are the least recently touched ones, and in a large cache each read of them misses.
//
// A block's index in the ring is stored in the caller's record of the block, which the caller touches anyway when it
// adds or removes the block: `PlaceOf` returns it, uint32_t&(BlockId). It is kNowhere at first and for blocks not in
// the ring.
//
// Nothing allocates after construction. Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "base/check.h"
#include "base/units.h"

namespace tactus::core {

template <class PlaceOf>
class EvictionOrder {
 public:
  static constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();

  EvictionOrder(int64_t num_blocks, PlaceOf place_of)
      : places_(static_cast<size_t>(num_blocks + num_blocks / 4 + 8)),
        ring_(std::make_unique_for_overwrite<BlockId[]>(places_)),
        place_of_(place_of) {}

  int64_t size() const { return size_; }
  bool Has(BlockId b) const { return place_of_(b) != kNowhere; }

  // Adds the block as the newest. Precondition: not in the ring.
  void Push(BlockId b) {
    TACTUS_DCHECK(!Has(b));
    if (used_ == places_) CloseHoles();
    Put(b);
    ++size_;
  }
  // Precondition: in the ring.
  void Remove(BlockId b) {
    uint32_t& place = place_of_(b);
    TACTUS_DCHECK(place != kNowhere);
    ring_[place] = kNoBlock;
    place = kNowhere;
    --size_;
  }
  // kNoBlock: empty.
  BlockId Oldest() {
    for (; used_ > 0; Pass()) {
      if (ring_[begin_] != kNoBlock) return ring_[begin_];
    }
    return kNoBlock;
  }
  // Removes and returns the oldest; kNoBlock: empty.
  BlockId TakeOldest() {
    const BlockId oldest = Oldest();
    if (oldest == kNoBlock) return kNoBlock;
    place_of_(oldest) = kNowhere;
    Pass();
    --size_;
    return oldest;
  }
  // State of a walk ahead of the oldest block. It visits each block once until it is reset, and skips none.
  struct Ahead {
    uint64_t place = 0;  // the next place to visit, counted since construction
  };
  // Continues the walk to the end of the ring's first `places` places.
  template <class Visit>
  void WalkAhead(Ahead* ahead, size_t places, Visit visit) const {
    const uint64_t end = passed_ + std::min(places, used_);
    const uint64_t begin = std::max(ahead->place, passed_);
    if (begin >= end) return;
    size_t at = At(begin - passed_);
    for (uint64_t left = end - begin; left > 0; --left, at = After(at)) {
      if (ring_[at] != kNoBlock) visit(ring_[at]);
    }
    ahead->place = end;
  }
  // Oldest first.
  template <class Visit>
  void ForEach(Visit visit) const {
    for (size_t i = 0; i < used_; ++i) {
      if (ring_[At(i)] != kNoBlock) visit(ring_[At(i)]);
    }
  }

 private:
  size_t After(size_t place) const { return place + 1 == places_ ? 0 : place + 1; }
  void Pass() {
    begin_ = After(begin_);
    --used_;
    ++passed_;
  }
  size_t At(size_t i) const { return begin_ + i < places_ ? begin_ + i : begin_ + i - places_; }
  void Put(BlockId b) {
    const size_t place = At(used_++);
    ring_[place] = b;
    place_of_(b) = static_cast<uint32_t>(place);
  }
  void CloseHoles() {
    const size_t used = used_;
    passed_ += used;  // all walks restart
    used_ = 0;
    for (size_t i = 0; i < used; ++i) {
      const BlockId b = ring_[At(i)];
      if (b != kNoBlock) Put(b);
    }
  }

  const size_t places_;
  std::unique_ptr<BlockId[]> ring_;  // `used_` entries from begin_ on, cyclic; kNoBlock: a hole; others not written
  PlaceOf place_of_;
  size_t begin_ = 0, used_ = 0;
  uint64_t passed_ = 0;  // places before begin_, counted since construction
  int64_t size_ = 0;
};

}  // namespace tactus::core
