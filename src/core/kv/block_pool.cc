#include "core/kv/block_pool.h"

#include "base/growing_vector.h"
namespace tactus::core {

BlockPool::BlockPool(int64_t num_blocks, bool lean)
    : free_(static_cast<size_t>(num_blocks)),
      blocks_(RoomFor<HugePageVector<KvBlock>>(static_cast<size_t>(num_blocks), lean)),
      cached_(num_blocks, {blocks_.data()}) {
  static_assert(KvBlock::kNotEvictable == CachedBlocks::kNowhere);
}

void BlockPool::Push(List* list, BlockId b) {
  KvBlock& pushed = (*this)[b];
  pushed.prev = list->tail;
  pushed.next = kNoBlock;
  (list->tail == kNoBlock ? list->head : (*this)[list->tail].next) = b;
  list->tail = b;
  ++list->size;
}

void BlockPool::Unlink(List* list, BlockId b) {
  KvBlock& gone = (*this)[b];
  (gone.prev == kNoBlock ? list->head : (*this)[gone.prev].next) = gone.next;
  (gone.next == kNoBlock ? list->tail : (*this)[gone.next].prev) = gone.prev;
  gone.prev = gone.next = kNoBlock;
  --list->size;
}

void BlockPool::Use(BlockId b) {
  KvBlock& shared = (*this)[b];
  if (shared.users++ > 0) return;
  if (shared.busy_until > ended_) {
    Unlink(&DrainList(shared.busy_until), b);
    --num_draining_;
  } else {
    cached_.Remove(b);
  }
}

void BlockPool::Put(BlockId b) {
  const StepId busy_until = (*this)[b].busy_until;
  if (busy_until <= ended_) return PutUnused(b);
  TACTUS_CHECK(busy_until - ended_ < static_cast<StepId>(kMostStepsInFlight));
  Push(&DrainList(busy_until), b);
  ++num_draining_;
}

void BlockPool::PutUnused(BlockId b) {
  TACTUS_DCHECK((*this)[b].users == 0);
  (*this)[b].keyed() ? cached_.Push(b) : Free(b);
}

void BlockPool::KeyLost(BlockId b) {
  if (!Unused(b)) return;
  cached_.Remove(b);
  Free(b);
}

void BlockPool::EndSteps(StepId step) {
  while (ended_ < step) {
    List& list = DrainList(++ended_);
    while (list.head != kNoBlock) {
      const BlockId b = list.head;
      Unlink(&list, b);
      --num_draining_;
      PutUnused(b);
    }
  }
}

}  // namespace tactus::core
