// Which cached block is evicted next: the one that became unused first. A ring of block ids in that order; a block that
// is used again leaves a hole, and when the ring is full the holes are closed. A fifth of it at least are holes then,
// so every operation is O(1) amortised.
// Unlike links through the blocks the ring says early whose turn comes soon, so that memory can be asked for in time
// (Ahead): in a large cache the block to evict is the one that was not touched for longest.
//
// Where a block lies in the ring is noted in a record of the caller's, which whoever adds or removes the block touches
// anyway: `PlaceOf` gives it, uint32_t&(BlockId), kNowhere at first and for blocks that are not there.
//
// Nothing allocates after construction. Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace tactus::core {

template <class PlaceOf>
class EvictionOrder {
 public:
  static constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();

  EvictionOrder(int64_t num_blocks, PlaceOf place_of)
      : ring_(static_cast<size_t>(num_blocks + num_blocks / 4 + 8), kNoBlock), place_of_(place_of) {}

  int64_t size() const { return size_; }
  bool Has(BlockId b) const { return place_of_(b) != kNowhere; }

  // As the newest. Precondition: not there.
  void Push(BlockId b) {
    TACTUS_DCHECK(!Has(b));
    if (used_ == ring_.size()) CloseHoles();
    Put(b);
    ++size_;
  }
  // Precondition: there.
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
  // Removes the oldest, which it gives; kNoBlock: empty.
  BlockId TakeOldest() {
    const BlockId oldest = Oldest();
    if (oldest == kNoBlock) return kNoBlock;
    place_of_(oldest) = kNowhere;
    Pass();
    --size_;
    return oldest;
  }
  // A walk ahead of the oldest, which gives each block once unless it is begun anew. It leaves none out, however many
  // holes the oldest goes over at once.
  struct Ahead {
    uint64_t place = 0;  // that it looks at next, of all since the start
  };
  // The walk goes on to the end of the ring's first `places`.
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
  size_t After(size_t place) const { return place + 1 == ring_.size() ? 0 : place + 1; }
  void Pass() {
    begin_ = After(begin_);
    --used_;
    ++passed_;
  }
  size_t At(size_t i) const { return begin_ + i < ring_.size() ? begin_ + i : begin_ + i - ring_.size(); }
  void Put(BlockId b) {
    const size_t place = At(used_++);
    ring_[place] = b;
    place_of_(b) = static_cast<uint32_t>(place);
  }
  void CloseHoles() {
    const size_t used = used_;
    passed_ += used;  // all walks begin anew
    used_ = 0;
    for (size_t i = 0; i < used; ++i) {
      const BlockId b = ring_[At(i)];
      if (b != kNoBlock) Put(b);
    }
  }

  std::vector<BlockId> ring_;  // `used_` entries from begin_ on, around the end; kNoBlock: a hole
  PlaceOf place_of_;
  size_t begin_ = 0, used_ = 0;
  uint64_t passed_ = 0;  // places before begin_, of all since the start
  int64_t size_ = 0;
};

}  // namespace tactus::core
