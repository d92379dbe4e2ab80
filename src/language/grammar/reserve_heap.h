// Reserve memory for a library that ends the process when an allocation fails, as Rust's libraries do; used only when
// malloc has none. First fit over a list of blocks in address order; a search is linear in the blocks, which are few.
// Any thread. Internal to grammar/.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

namespace tactus::language {

class ReserveHeap {
 public:
  explicit ReserveHeap(size_t bytes);  // of address space; pages are used when they are written
  ~ReserveHeap();
  ReserveHeap(const ReserveHeap&) = delete;
  ReserveHeap& operator=(const ReserveHeap&) = delete;

  // Returns an address that is a multiple of `alignment` (a power of 2, at most a page's size). Null: no room.
  void* Allocate(size_t bytes, size_t alignment = kAlignment);
  bool Owns(const void* block) const;
  size_t SizeOf(const void* block) const;  // of an owned block: the requested bytes, or a few more
  void Free(void* block);                  // an owned one

  size_t used() const { return used_.load(std::memory_order_relaxed); }  // with each block's overhead
  size_t size() const { return size_; }

  static constexpr size_t kAlignment = 16;

 private:
  struct Block;  // the header before a block's bytes

  Block* Begin() const;
  Block* Next(Block* block) const;  // null: it was the last

  std::byte* memory_ = nullptr;
  size_t size_ = 0;
  std::mutex mutex_;
  std::atomic<size_t> used_{0};
};

}  // namespace tactus::language
