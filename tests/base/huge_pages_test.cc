#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

namespace tactus {
namespace {

bool Aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kHugePageBytes == 0;
}

// The process's mapped pages, to detect mappings that are not unmapped.
int64_t MappedPages() {
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0;
  in >> pages;
  return pages;
}

TEST(HugePages, AMappingIsAlignedAndZero) {
  for (const size_t bytes : {size_t{1}, kHugePageBytes - 1, kHugePageBytes, kHugePageBytes + 1, 3 * kHugePageBytes}) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes");
    std::byte* data = MapHugePages(bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_TRUE(Aligned(data));
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill(data, data + bytes, std::byte{7});
    UnmapHugePages(data, bytes);
  }
}

TEST(HugePages, UnmapReturnsAllPages) {
  UnmapHugePages(MapHugePages(1), 1);
  const int64_t before = MappedPages();
  for (int i = 0; i < 100; ++i) {
    const size_t bytes = kHugePageBytes + static_cast<size_t>(i) * 4096;
    std::byte* data = MapHugePages(bytes);
    ASSERT_NE(data, nullptr);
    UnmapHugePages(data, bytes);
  }
  EXPECT_LT(MappedPages() - before, static_cast<int64_t>(100 * 4096 / 4096)) << "a mapping leaves pages behind";
}

TEST(HugePages, AMappingHasNoPagesBeyondItsRoundedSize) {
  const int64_t before = MappedPages();
  std::byte* data = MapHugePages(kHugePageBytes);
  ASSERT_NE(data, nullptr);
  EXPECT_LE(MappedPages() - before, static_cast<int64_t>(kHugePageBytes / 4096))
      << "the rest around the aligned part is kept";
  UnmapHugePages(data, kHugePageBytes);
}

TEST(HugePages, OnlyLargeArraysTakeWholePages) {
  const HugePageVector<int64_t> small(100, 3);
  EXPECT_EQ(std::count(small.begin(), small.end(), 3), 100);
  EXPECT_FALSE(HugePageAllocator<int64_t>::Maps(kHugePageBytes / 2 / 8 - 1));
  HugePageVector<int64_t> large(kHugePageBytes / 2 / 8, 5);
  EXPECT_TRUE(Aligned(large.data()));
  large.push_back(6);  // moves to a larger mapping
  EXPECT_TRUE(Aligned(large.data()));
  EXPECT_EQ(std::count(large.begin(), large.end(), 5), static_cast<int64_t>(kHugePageBytes / 2 / 8));
  const HugePageVector<int64_t> moved = std::move(large);
  EXPECT_EQ(moved.back(), 6);
}

}  // namespace
}  // namespace tactus
