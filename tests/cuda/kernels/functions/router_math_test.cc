// The functions of a router's scores, against f64.
#include "compute/cuda/kernels/router_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tactus::compute::cuda {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

// Every 1,001st f32 from -110 to 95.
TEST(RouterMath, ExponentialsAreRoundedToNearest) {
  int64_t all = 0, other = 0;
  for (const uint32_t sign : {0u, 0x80000000u}) {
    for (uint32_t bits = 0; bits < 0x42dc0000u; bits += 1001) {
      const float x = __uint_as_float(bits | sign), got = RoundedExp(x);
      const auto want = static_cast<float>(std::exp(static_cast<double>(x)));
      ++all;
      if (got == want) continue;
      ++other;
      ASSERT_TRUE(got == std::nextafter(want, 0.0f) || got == std::nextafter(want, kInfinity)) << x;
    }
  }
  EXPECT_LT(other, all / 10000);
  EXPECT_TRUE(std::isnan(RoundedExp(kNaN)));
  EXPECT_EQ(RoundedExp(kInfinity), kInfinity);
  EXPECT_EQ(RoundedExp(-kInfinity), 0.0f);
  EXPECT_EQ(RoundedExp(89.5f), kInfinity);
  EXPECT_EQ(SigmoidOf(0.0f), 0.5f);
}

}  // namespace
}  // namespace tactus::compute::cuda
