#include "language/grammar/reserve_heap.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "base/rng.h"

namespace tactus::language {
namespace {

TEST(ReserveHeap, BlocksAreAlignedAndDisjointAndAllMemoryIsReused) {
  ReserveHeap heap(1 << 16);
  Rng rng(7);
  const auto below = [&rng](uint64_t most) { return rng.Next64() % most; };
  std::map<std::byte*, size_t> held;  // each filled with a byte derived from its address
  const auto fill = [](std::byte* block) { return static_cast<int>((reinterpret_cast<uintptr_t>(block) >> 4) & 0xff); };
  for (int i = 0; i < 20'000; ++i) {
    if (held.empty() || below(2) == 0) {
      const size_t bytes = below(3000), alignment = size_t{16} << below(5);
      auto* const block = static_cast<std::byte*>(heap.Allocate(bytes, alignment));
      if (block == nullptr) continue;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
      ASSERT_TRUE(heap.Owns(block));
      ASSERT_GE(heap.SizeOf(block), bytes);
      const auto next = held.lower_bound(block);
      ASSERT_TRUE(next == held.end() || block + bytes <= next->first) << "overlaps its successor";
      std::memset(block, fill(block), bytes);
      held.emplace(block, bytes);
    } else {
      auto victim = held.begin();
      std::advance(victim, below(held.size()));
      for (size_t at = 0; at < victim->second; ++at)
        ASSERT_EQ(static_cast<int>(victim->first[at]), fill(victim->first)) << "written by another block";
      heap.Free(victim->first);
      held.erase(victim);
    }
  }
  for (const auto& [block, bytes] : held) heap.Free(block);
  EXPECT_EQ(heap.used(), 0u);
  EXPECT_NE(heap.Allocate((1 << 16) - 16), nullptr) << "the memory was not merged into one block";
}

TEST(ReserveHeap, AllocationsThatDoNotFitAreRefused) {
  ReserveHeap heap(4096);
  EXPECT_EQ(heap.Allocate(4096), nullptr);
  EXPECT_EQ(heap.Allocate(SIZE_MAX), nullptr);
  void* const all = heap.Allocate(4080);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(heap.Allocate(1), nullptr);
  heap.Free(all);
  EXPECT_NE(heap.Allocate(0), nullptr);
  int outside = 0;
  EXPECT_FALSE(heap.Owns(&outside));
}

}  // namespace
}  // namespace tactus::language
