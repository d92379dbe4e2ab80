// The tree of due times against a plain list of times.
#include "sim/simulator/due_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"

namespace tactus::sim {
namespace {

TEST(DueTimes, FindsWhatAScanOfAllTimesFinds) {
  Rng rng(1);
  for (const size_t count : {1, 2, 3, 5, 64, 100}) {
    DueTimes times(count);
    std::vector<TimeNs> plain(count, kNever);
    for (int i = 0; i < 2000; ++i) {
      SCOPED_TRACE(std::to_string(count) + " replicas, change " + std::to_string(i));
      const auto at = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(count) - 1));
      plain[at] = rng.UniformInt(0, 4) == 0 ? kNever : rng.UniformInt(0, 50);
      times.Set(at, plain[at]);
      ASSERT_EQ(times[at], plain[at]);
      ASSERT_EQ(times.least(), *std::min_element(plain.begin(), plain.end()));
      const TimeNs by_ns = rng.UniformInt(0, 50);
      const auto from = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(count)));
      size_t due = from;
      while (due < count && plain[due] > by_ns) ++due;
      ASSERT_EQ(times.FirstDue(from, by_ns), due < count ? due : DueTimes::kNone) << "from " << from << " by " << by_ns;
    }
  }
}

}  // namespace
}  // namespace tactus::sim
