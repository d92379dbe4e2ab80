// Memory in huge pages, if the system grants them: random reads of large arrays have fewer TLB misses. Only advice to
// the system: without huge pages everything works with small ones. Thread rule: as operator new.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace tactus {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// A new zeroed mapping, aligned to kHugePageBytes, of `bytes` rounded up to it; null if the system refuses.
std::byte* MapHugePages(size_t bytes);
// `bytes` as passed to MapHugePages.
void UnmapHugePages(std::byte* data, size_t bytes);

// Arrays of less than half a huge page use ordinary memory, so that no array uses more than twice its size.
template <class T>
struct HugePageAllocator {
  using value_type = T;
  static_assert(alignof(T) <= kHugePageBytes);

  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) {}  // NOLINT(google-explicit-constructor): required of allocators

  static bool Maps(size_t count) { return count >= kHugePageBytes / 2 / sizeof(T); }
  T* allocate(size_t count) {
    if (!Maps(count)) return std::allocator<T>().allocate(count);
    std::byte* data = count <= static_cast<size_t>(-1) / 2 / sizeof(T) ? MapHugePages(count * sizeof(T)) : nullptr;
    if (data == nullptr) throw std::bad_alloc();
    return reinterpret_cast<T*>(data);
  }
  void deallocate(T* data, size_t count) {
    if (!Maps(count)) return std::allocator<T>().deallocate(data, count);
    UnmapHugePages(reinterpret_cast<std::byte*>(data), count * sizeof(T));
  }
  template <class U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }
};

template <class T>
using HugePageVector = std::vector<T, HugePageAllocator<T>>;

// An uninitialised array of plain data: pages are allocated on first use.
template <class T>
class HugePageArray {
 public:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>);
  explicit HugePageArray(size_t count) : count_(count), data_(HugePageAllocator<T>().allocate(count)) {}
  ~HugePageArray() { HugePageAllocator<T>().deallocate(data_, count_); }
  HugePageArray(const HugePageArray&) = delete;
  HugePageArray& operator=(const HugePageArray&) = delete;
  T* data() { return data_; }

 private:
  const size_t count_;
  T* const data_;
};

}  // namespace tactus
