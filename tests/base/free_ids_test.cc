// Free ids against the stack that they stand for.
#include "base/free_ids.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"

namespace tactus {
namespace {

TEST(FreeIds, FollowAStackOfAllIds) {
  constexpr int32_t kCount = 40;
  Rng rng(1);
  FreeIds ids(kCount);
  std::vector<int32_t> stack, taken;
  for (int32_t id = kCount; id-- > 0;) stack.push_back(id);
  for (int i = 0; i < 3000; ++i) {
    SCOPED_TRACE("operation " + std::to_string(i));
    const int32_t second = stack.size() > 1 ? stack[stack.size() - 2] : -1;
    ASSERT_EQ(ids.Second(), second) << "the id after the next";
    const bool take = taken.empty() || (!stack.empty() && rng.UniformInt(0, 1 + (i / 200) % 3) == 0);
    if (take) {
      taken.push_back(ids.Take());
      ASSERT_EQ(taken.back(), stack.back()) << "ids come in another order";
      stack.pop_back();
    } else {
      const auto at = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(taken.size()) - 1));
      ids.Return(taken[at]);
      stack.push_back(taken[at]);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(at));
    }
    ASSERT_EQ(ids.size(), stack.size());
    ASSERT_EQ(ids.empty(), stack.empty());
  }
}

TEST(FreeIds, CountWhichIdsWereEverTaken) {
  FreeIds ids(10);
  EXPECT_EQ(ids.taken(), 0u);
  const int32_t first = ids.Take();
  ids.Take();
  ids.Return(first);
  EXPECT_EQ(ids.Take(), first) << "a returned id comes before one that was never taken";
  EXPECT_EQ(ids.taken(), 2u);
  EXPECT_EQ(ids.count(), 10u);
}

}  // namespace
}  // namespace tactus
