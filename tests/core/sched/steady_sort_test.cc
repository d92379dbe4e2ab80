#include "core/sched/index/steady_sort.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace tactus::core::steady_sort_test {
namespace {

struct Entry {
  int64_t key = 0;
  SlotId slot = kNoSlot;
  auto operator<=>(const Entry&) const = default;
};

// Sequences come, go and change their keys, a few per step or nearly all.
TEST(SteadySort, AgreesWithSort) {
  constexpr int32_t kSlots = 300;
  SteadySort<Entry> steady(kSlots, kSlots);
  std::vector<int64_t> key(kSlots, 0);
  std::vector<bool> runs(kSlots, false);
  Rng rng(7);
  for (int step = 0; step < 3000; ++step) {
    const int64_t changes = step % 50 == 0 ? 300 : rng.UniformInt(0, 6);
    for (int64_t i = 0; i < changes; ++i) {
      const auto s = static_cast<size_t>(rng.UniformInt(0, kSlots - 1));
      if (rng.UniformInt(0, 1) == 0) runs[s] = !runs[s];
      key[s] = rng.UniformInt(-20, 20);
    }
    std::vector<Entry> entries;
    for (SlotId s = 0; s < kSlots; ++s) {
      if (runs[static_cast<size_t>(s)]) entries.push_back({key[static_cast<size_t>(s)], s});
    }
    std::vector<Entry> expected = entries;
    std::sort(expected.begin(), expected.end());
    steady.Sort(&entries, std::less<>());
    ASSERT_EQ(entries, expected) << "step " << step;
  }
}

TEST(SteadySort, AnUnchangedOrderCostsNoMoves) {
  SteadySort<Entry> steady(256, 256);
  std::vector<Entry> entries;
  for (SlotId s = 0; s < 256; ++s) entries.push_back({(s * 7919) % 1000, s});
  const std::vector<Entry> as_given = entries;
  steady.Sort(&entries, std::less<>());
  entries = as_given;
  for (Entry& e : entries) e.key += 5;  // time passes for all alike
  steady.Sort(&entries, std::less<>());
  EXPECT_EQ(steady.moves(), 0);
  entries = as_given;
  entries[100].key = -1;  // one becomes the most urgent
  steady.Sort(&entries, std::less<>());
  EXPECT_LE(steady.moves(), 255);
  EXPECT_EQ(entries.front().slot, 100);
}

}  // namespace
}  // namespace tactus::core::steady_sort_test
