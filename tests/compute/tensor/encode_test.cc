// Encoders of converted files: Q5_0 and Q5_1 as the `gguf` package rounds, the K formats by their errors.
#include "compute/tensor/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "compute/tensor/dequantize.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

// Values from -1/4 to 1/4 that every machine computes to the same bits.
std::vector<float> Values(size_t count) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<double>(static_cast<uint32_t>(i * 2654435761u));
    x[i] = static_cast<float>((bits - 2147483648.0) / 8589934592.0);
  }
  return x;
}

std::vector<float> RoundTrip(DType dtype, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(dtype, n)));
  Encode(dtype, x.data(), n, bytes.data());
  std::vector<float> out(x.size());
  Dequantize(dtype, bytes.data(), n, out.data());
  return out;
}

double MeanSquare(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
  return sum / static_cast<double>(x.size());
}

uint64_t HashOf(DType dtype, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(dtype, n)));
  Encode(dtype, x.data(), n, bytes.data());
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return hash;
}

// The hashes are of gguf.quants.quantize over the same values.
TEST(Encode, FiveBitsAgreeWithGguf) {
  std::vector<float> x = Values(512);
  std::fill(x.begin() + 64, x.begin() + 96, 0.0f);
  std::fill(x.begin() + 96, x.begin() + 128, 0.25f);
  EXPECT_EQ(HashOf(DType::kQ5_0, x), 0x7e167ed5d3d24290u);
  EXPECT_EQ(HashOf(DType::kQ5_1, x), 0xd98ba4c294658259u);
}

// Uniform values in [-1/4, 1/4] under 2^b levels: the least mean square error is about (1/2)^2 / (12 * 4^b).
TEST(Encode, KFormatsAreNearTheLeastError) {
  const std::vector<float> x = Values(4096);
  struct Case {
    DType dtype;
    int bits;
  };
  for (const auto& [dtype, bits] : {Case{DType::kQ4_K, 4}, Case{DType::kQ5_K, 5}, Case{DType::kQ6_K, 6}}) {
    SCOPED_TRACE(InfoOf(dtype).name);
    const double least = 0.25 / 12.0 / std::pow(4.0, bits);
    EXPECT_LT(MeanSquare(x, RoundTrip(dtype, x)), 1.3 * least);
    EXPECT_GT(MeanSquare(x, RoundTrip(dtype, x)), 0.5 * least);
  }
}

// A value that stands alone in its sub-block: the fit gives up some of it for the others, but not much.
TEST(Encode, KFormatsKeepOutliersAndOffsets) {
  std::vector<float> x = Values(256);
  x[37] = 5.0f;
  for (size_t i = 64; i < 96; ++i) x[i] -= 3.0f;  // all of one sign
  for (size_t i = 96; i < 128; ++i) x[i] += 3.0f;
  for (const DType dtype : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const std::vector<float> y = RoundTrip(dtype, x);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 0.45) << InfoOf(dtype).name << " " << i;
  }
}

TEST(Encode, ZerosAndEqualValuesStay) {
  for (const DType dtype : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ5_0, DType::kQ5_1}) {
    SCOPED_TRACE(InfoOf(dtype).name);
    EXPECT_EQ(RoundTrip(dtype, std::vector<float>(256, 0.0f)), std::vector<float>(256, 0.0f));
    for (const float value : {0.5f, -0.5f}) {
      for (const float y : RoundTrip(dtype, std::vector<float>(256, value))) EXPECT_NEAR(y, value, 0.01);
    }
  }
}

// Encoding what has been decoded changes little more: a second conversion is harmless.
TEST(Encode, ASecondEncodingIsNearTheFirst) {
  const std::vector<float> x = Values(1024);
  for (const DType dtype : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const std::vector<float> once = RoundTrip(dtype, x);
    EXPECT_LT(MeanSquare(once, RoundTrip(dtype, once)), 0.3 * MeanSquare(x, once)) << InfoOf(dtype).name;
  }
}

// Uniform values in [-1/4, 1/4] under 2^b levels, as above.
TEST(Encode, IntegersAreNearTheLeastError) {
  const std::vector<float> x = Values(4096);
  for (const int bits : {4, 8}) {
    std::vector<int8_t> codes(128);
    std::vector<float> y;
    for (size_t i = 0; i < x.size(); i += codes.size()) {
      const float scale = EncodeIntegers(bits, x.data() + i, 128, codes.data());
      EXPECT_EQ(scale, BF16ToF32(F32ToBF16(scale)));
      for (const int8_t code : codes) y.push_back(scale * static_cast<float>(code));
    }
    const double least = 0.25 / 12.0 / std::pow(4.0, bits);
    EXPECT_LT(MeanSquare(x, y), 1.15 * least) << bits;
    EXPECT_GT(MeanSquare(x, y), 0.9 * least) << bits;
  }
}

TEST(Encode, IntegersOfZerosAndExtremesAreFinite) {
  int8_t codes[4] = {1, 1, 1, 1};
  const float zeros[4] = {}, tiny[4] = {1e-38f, 0, 0, -1e-38f}, large[4] = {-3e38f, 3e38f, 0, 1e38f};
  for (const float* x : {zeros, tiny}) {
    EXPECT_EQ(EncodeIntegers(4, x, 4, codes), 0.0f);
    for (const int8_t code : codes) EXPECT_EQ(code, 0);
  }
  const float scale = EncodeIntegers(8, large, 4, codes);
  EXPECT_NEAR(scale * static_cast<float>(codes[0]), -3e38f, 3e36f);
  EXPECT_NEAR(scale * static_cast<float>(codes[1]), 3e38f, 3e36f);
}

TEST(Encode, KnowsItsFormats) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ5_0, DType::kQ6_K})
    EXPECT_TRUE(CanEncode(dtype)) << InfoOf(dtype).name;
  for (const DType dtype : {DType::kQ2_K, DType::kIQ4_NL, DType::kMXFP4}) EXPECT_FALSE(CanEncode(dtype));
}

}  // namespace
}  // namespace tactus::compute
