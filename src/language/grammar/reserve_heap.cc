#include "language/grammar/reserve_heap.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace tactus::language {

struct alignas(ReserveHeap::kAlignment) ReserveHeap::Block {
  size_t bytes;  // after this header
  bool taken;
};

namespace {

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

ReserveHeap::ReserveHeap(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;  // a heap without room
  memory_ = static_cast<std::byte*>(memory);
  size_ = bytes;
  new (memory_) Block{size_ - sizeof(Block), false};
}

ReserveHeap::~ReserveHeap() {
  if (memory_ != nullptr) munmap(memory_, size_);
}

ReserveHeap::Block* ReserveHeap::Begin() const {
  return reinterpret_cast<Block*>(memory_);
}

ReserveHeap::Block* ReserveHeap::Next(Block* block) const {
  std::byte* const end = reinterpret_cast<std::byte*>(block + 1) + block->bytes;
  return end < memory_ + size_ ? reinterpret_cast<Block*>(end) : nullptr;
}

bool ReserveHeap::Owns(const void* block) const {
  const auto* const at = static_cast<const std::byte*>(block);
  return memory_ != nullptr && at >= memory_ && at < memory_ + size_;
}

size_t ReserveHeap::SizeOf(const void* block) const {
  return (static_cast<const Block*>(block) - 1)->bytes;
}

void* ReserveHeap::Allocate(size_t bytes, size_t alignment) {
  if (memory_ == nullptr || bytes > size_) return nullptr;
  const size_t wanted = RoundUp(bytes == 0 ? 1 : bytes, kAlignment);
  const std::lock_guard lock(mutex_);
  for (Block* block = Begin(); block != nullptr; block = Next(block)) {
    if (block->taken) continue;
    for (Block* next = Next(block); next != nullptr && !next->taken; next = Next(block)) {
      block->bytes += sizeof(Block) + next->bytes;  // merges freed neighbours
    }
    const auto begin = reinterpret_cast<uintptr_t>(block + 1);
    uintptr_t at = RoundUp(begin, alignment);
    if (at != begin && at - begin < sizeof(Block)) at = RoundUp(begin + sizeof(Block), alignment);
    if (at + wanted > begin + block->bytes) continue;
    if (at != begin) {  // the part before the aligned address stays free
      const size_t front = at - begin - sizeof(Block);
      Block* const aligned = reinterpret_cast<Block*>(at) - 1;
      new (aligned) Block{block->bytes - front - sizeof(Block), false};
      block->bytes = front;
      block = aligned;
    }
    if (block->bytes - wanted > sizeof(Block)) {
      new (reinterpret_cast<std::byte*>(block + 1) + wanted) Block{block->bytes - wanted - sizeof(Block), false};
      block->bytes = wanted;
    }
    block->taken = true;
    used_.fetch_add(block->bytes + sizeof(Block), std::memory_order_relaxed);
    return block + 1;
  }
  return nullptr;
}

void ReserveHeap::Free(void* block) {
  const std::lock_guard lock(mutex_);
  Block* const head = static_cast<Block*>(block) - 1;
  head->taken = false;
  used_.fetch_sub(head->bytes + sizeof(Block), std::memory_order_relaxed);
}

}  // namespace tactus::language
