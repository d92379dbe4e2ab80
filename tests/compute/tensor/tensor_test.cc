#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compute/tensor/dtype.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

TEST(DType, RowBytesAreGgufs) {  // bits per weight from the format's published table
  EXPECT_EQ(RowBytes(DType::kF32, 256), 1024);
  EXPECT_EQ(RowBytes(DType::kF16, 256), 512);
  EXPECT_EQ(RowBytes(DType::kBF16, 3), 6);
  EXPECT_EQ(RowBytes(DType::kQ4_0, 256) * 8, 256 * 4.5);
  EXPECT_EQ(RowBytes(DType::kQ4_1, 256) * 8, 256 * 5);
  EXPECT_EQ(RowBytes(DType::kQ5_0, 256) * 8, 256 * 5.5);
  EXPECT_EQ(RowBytes(DType::kQ5_1, 256) * 8, 256 * 6);
  EXPECT_EQ(RowBytes(DType::kQ8_0, 256) * 8, 256 * 8.5);
  EXPECT_EQ(RowBytes(DType::kQ4_K, 256) * 8, 256 * 4.5);
  EXPECT_EQ(RowBytes(DType::kQ5_K, 256) * 8, 256 * 5.5);
  EXPECT_EQ(RowBytes(DType::kQ6_K, 256) * 8, 256 * 6.5625);
  EXPECT_EQ(RowBytes(DType::kQ2_K, 256) * 8, 256 * 2.625);
  EXPECT_EQ(RowBytes(DType::kQ3_K, 256) * 8, 256 * 3.4375);
  EXPECT_EQ(RowBytes(DType::kIQ4_NL, 256) * 8, 256 * 4.5);
  EXPECT_EQ(RowBytes(DType::kIQ4_XS, 256) * 8, 256 * 4.25);
  EXPECT_EQ(RowBytes(DType::kMXFP4, 256) * 8, 256 * 4.25);
  EXPECT_EQ(RowBytes(DType::kNVFP4, 256) * 8, 256 * 4.5);
  EXPECT_EQ(RowBytes(DType::kIQ3_S, 256) * 8, 256 * 3.4375);
  EXPECT_EQ(RowBytes(DType::kIQ3_XXS, 256) * 8, 256 * 3.0625);
  EXPECT_EQ(RowBytes(DType::kIQ2_S, 256) * 8, 256 * 2.5625);
  EXPECT_EQ(RowBytes(DType::kIQ2_XS, 256) * 8, 256 * 2.3125);
  EXPECT_EQ(RowBytes(DType::kIQ2_XXS, 256) * 8, 256 * 2.0625);
  EXPECT_EQ(RowBytes(DType::kIQ1_M, 256) * 8, 256 * 1.75);
  EXPECT_EQ(RowBytes(DType::kIQ1_S, 256) * 8, 256 * 1.5625);
  EXPECT_EQ(RowBytes(DType::kTQ1_0, 256) * 8, 256 * 1.6875);
  EXPECT_EQ(RowBytes(DType::kTQ2_0, 256) * 8, 256 * 2.0625);
  EXPECT_EQ(RowBytes(DType::kQ1_0, 256) * 8, 256 * 1.125);
}

TEST(DType, RowsNeedWholeBlocks) {
  EXPECT_EQ(RowBytes(DType::kInt8, 5), 5);
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0}) {
    EXPECT_EQ(InfoOf(dtype).block_elements, 32) << InfoOf(dtype).name;
  }
  for (const DType dtype : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K})
    EXPECT_EQ(InfoOf(dtype).block_elements, 256) << InfoOf(dtype).name;
  EXPECT_EQ(RowBytes(DType::kQ8_0, 0), 0);
  EXPECT_DEATH(RowBytes(DType::kQ8_0, 33), "block_elements");
  EXPECT_DEATH(InfoOf(static_cast<DType>(static_cast<int>(DType::kInt8) + 1)), "kInfo");
}

TEST(Float16, NotANumberKeepsItsSignAndIsQuiet) {
  EXPECT_EQ(F32ToF16(FloatOf(0x7fc00000)), 0x7e00);
  EXPECT_EQ(F32ToF16(FloatOf(0xffc00000)), 0xfe00);
  EXPECT_EQ(F32ToF16(FloatOf(0x7f800001)), 0x7e00) << "a payload in the low half only";
  EXPECT_EQ(F32ToF16(FloatOf(0x7f802000)), 0x7e01);
  EXPECT_EQ(BitsOf(F16ToF32(0xfc01)), 0xffc02000u);
  EXPECT_EQ(BitsOf(F16ToF32(0x7c00)), 0x7f800000u);
  EXPECT_EQ(F32ToBF16(FloatOf(0xff800001)), 0xffc0);
  EXPECT_EQ(F32ToBF16(FloatOf(0x7fffffff)), 0x7fff);
}

TEST(Float16, EveryHalfRoundTrips) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const float f = F16ToF32(half);
    const uint32_t exponent = (h >> 10) & 31, fraction = h & 1023;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(f) && std::isnan(F16ToF32(F32ToF16(f)))) << h;
      continue;
    }
    const double sign = h & 0x8000 ? -1.0 : 1.0;
    const double want = exponent == 31  ? sign * std::numeric_limits<double>::infinity()
                        : exponent == 0 ? sign * std::ldexp(fraction, -24)
                                        : sign * std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    ASSERT_EQ(static_cast<double>(f), want) << h;
    ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0);
    ASSERT_EQ(F32ToF16(f), half);
  }
}

// Between neighbouring halves: below the middle down, above it up, the middle to the even one.
TEST(Float16, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const double low = F16ToF32(static_cast<uint16_t>(h)), high = F16ToF32(static_cast<uint16_t>(h + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact in f32
    const auto even = static_cast<uint16_t>(h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(F32ToF16(middle), even) << h;
    ASSERT_EQ(F32ToF16(-middle), even | 0x8000) << h;
    ASSERT_EQ(F32ToF16(std::nextafterf(middle, 0.0f)), h);
    ASSERT_EQ(F32ToF16(std::nextafterf(middle, 1e9f)), h + 1);
  }
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);  // to infinity, as in IEEE
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(F32ToF16(1e-10f), 0);
}

TEST(BFloat16, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7f80; ++h) {
    const auto half = static_cast<uint16_t>(h);
    ASSERT_EQ(F32ToBF16(BF16ToF32(half)), half);
    const float middle = FloatOf(h << 16 | 0x8000);
    const uint32_t even = h % 2 == 0 ? h : h + 1;
    ASSERT_EQ(F32ToBF16(middle), even);
    ASSERT_EQ(F32ToBF16(-middle), even | 0x8000);
    ASSERT_EQ(F32ToBF16(FloatOf(h << 16 | 0x7fff)), h);
    ASSERT_EQ(F32ToBF16(FloatOf(h << 16 | 0x8001)), h + 1);
  }
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(FloatOf(0x7f800001)))));  // a payload in the low half only
  EXPECT_EQ(F32ToBF16(-std::numeric_limits<float>::infinity()), 0xff80);
}

}  // namespace
}  // namespace tactus::compute
