// Vectors that grow within their room.
#include "base/growing_vector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/huge_pages.h"

namespace tactus {
namespace {

TEST(GrowingVector, GrowsWithinItsRoomAndDoesNotMove) {
  auto vector = RoomFor<HugePageVector<int64_t>>(1000, true);
  const int64_t* const data = vector.data();
  MakeUpTo(&vector, 7);
  EXPECT_EQ(vector.size(), 8u);
  MakeUpTo(&vector, 3);
  EXPECT_EQ(vector.size(), 8u) << "an element was dropped";
  MakeUpTo(&vector, 999);
  EXPECT_EQ(vector.size(), 1000u);
  EXPECT_EQ(vector.data(), data) << "pointers to elements would dangle";
}

TEST(GrowingVectorDeathTest, AnIndexBeyondTheRoomStopsTheProcess) {
  auto vector = RoomFor<std::vector<int64_t>>(10);
  EXPECT_DEATH(MakeUpTo(&vector, 10), "capacity");
}

// The flags of the mapping that contains the address, from the kernel; empty: not known.
std::string FlagsOfMapping(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream head(line); line.find('-') < 20 && head >> std::hex >> begin >> dash >> end && dash == '-')
      inside = begin <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < end;
    if (inside && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST(GrowingVector, OnlyALeanOneAvoidsHugePages) {
  constexpr size_t kCount = size_t{1} << 20;
  const auto lean = RoomFor<HugePageVector<int64_t>>(kCount, true), usual = RoomFor<HugePageVector<int64_t>>(kCount);
  const std::string of_lean = FlagsOfMapping(lean.data()), of_usual = FlagsOfMapping(usual.data());
  if (of_lean.empty()) GTEST_SKIP() << "/proc/self/smaps has no flags";
  EXPECT_NE(of_lean.find(" nh "), std::string::npos) << of_lean;
  EXPECT_EQ(of_usual.find(" nh "), std::string::npos) << of_usual;
}

}  // namespace
}  // namespace tactus
