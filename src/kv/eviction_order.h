// Which cached block is evicted next: the one that became unused first. A ring of block ids in that order; a block that
// is used again leaves a hole, and when the ring is full the holes are closed, so every operation is O(1) amortised.
// Unlike links through the blocks the ring says early whose turn comes soon, so that memory can be asked for in time
// (Soon): in a large cache the block to evict is the one that was not touched for longest.
//
// Nothing allocates after construction. Thread rule: engine thread only.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace tactus {

class EvictionOrder {
 public:
  explicit EvictionOrder(int64_t num_blocks)
      : ring_(std::bit_ceil(2 * static_cast<size_t>(num_blocks)), kNoBlock),
        mask_(ring_.size() - 1),
        place_(static_cast<size_t>(num_blocks), kNowhere) {}

  int64_t size() const { return size_; }
  bool Has(BlockId b) const { return place_[static_cast<size_t>(b)] != kNowhere; }

  // As the newest. Precondition: not there.
  void Push(BlockId b) {
    TACTUS_DCHECK(!Has(b));
    if (end_ - begin_ == ring_.size()) CloseHoles();
    Put(b);
    ++size_;
  }
  // Precondition: there.
  void Remove(BlockId b) {
    uint32_t& place = place_[static_cast<size_t>(b)];
    TACTUS_DCHECK(place != kNowhere);
    ring_[place] = kNoBlock;
    place = kNowhere;
    --size_;
  }
  // kNoBlock: empty.
  BlockId Oldest() {
    while (begin_ != end_ && ring_[begin_ & mask_] == kNoBlock) ++begin_;
    return begin_ == end_ ? kNoBlock : ring_[begin_ & mask_];
  }
  // A block whose turn comes when some more have been evicted; possibly kNoBlock.
  BlockId Soon() const {
    const uint64_t at = begin_ + kAhead;
    return at < end_ ? ring_[at & mask_] : kNoBlock;
  }
  // Oldest first.
  template <class Visit>
  void ForEach(Visit visit) const {
    for (uint64_t i = begin_; i != end_; ++i) {
      if (ring_[i & mask_] != kNoBlock) visit(ring_[i & mask_]);
    }
  }

 private:
  static constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();
  static constexpr uint64_t kAhead = 8;

  void Put(BlockId b) {
    const auto place = static_cast<uint32_t>(end_++ & mask_);
    ring_[place] = b;
    place_[static_cast<size_t>(b)] = place;
  }
  // At most half of the ring is blocks: as many operations pass before it is full again.
  void CloseHoles() {
    const uint64_t end = end_;
    end_ = begin_;
    for (uint64_t i = begin_; i != end; ++i) {
      const BlockId b = ring_[i & mask_];
      if (b != kNoBlock) Put(b);
    }
  }

  std::vector<BlockId> ring_;  // [begin_, end_), each modulo its size; kNoBlock: a hole
  uint64_t mask_;
  std::vector<uint32_t> place_;  // [num_blocks] in the ring
  uint64_t begin_ = 0, end_ = 0;
  int64_t size_ = 0;
};

}  // namespace tactus
