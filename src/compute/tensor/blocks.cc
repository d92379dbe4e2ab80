// Layouts as in the GGUF specification (ggml-common.h); the last five are ours.
#include "compute/tensor/blocks.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "compute/tensor/load.h"

namespace tactus::compute {
namespace {

using Bytes = const uint8_t*;

// 64 bytes of bit pairs: value 128h + 32s + l is pair s of byte 32h + l, less `zero`.
void ReadPairs(Bytes p, int zero, int8_t* values) {
  for (int i = 0; i < 256; ++i) {
    values[i] = static_cast<int8_t>(((p[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3) - zero);
  }
}

// `count` bytes of nibbles: low ones first. table: the 16 values that they stand for.
void ReadNibbles(Bytes p, int count, const int8_t* table, int8_t* values) {
  for (int i = 0; i < count; ++i) {
    values[i] = table[p[i] & 0xf];
    values[count + i] = table[p[i] >> 4];
  }
}

// 16 bytes: nibbles of scale (low) and minimum; 64 of bit pairs; d, dmin
void ReadQ2K(Bytes p, FormatBlock* b) {
  ReadPairs(p + 16, 0, b->values);
  b->scales[0] = LoadHalf(p + 80);
  b->minimum = -LoadHalf(p + 82);  // the file's minimum is subtracted
  for (int j = 0; j < 16; ++j) {
    b->factors[j] = static_cast<int8_t>(p[j] & 0xf);
    b->minimum_factors[j] = static_cast<int8_t>(p[j] >> 4);
  }
}

// 32 bytes of third bits: bit j of byte l belongs to value 32j + l, and a bit of 0 subtracts 4; 64 of bit pairs; 12 of
// scales: 16 nibbles, then 16 bit pairs above them; d
void ReadQ3K(Bytes p, FormatBlock* b) {
  ReadPairs(p + 32, 4, b->values);
  for (int i = 0; i < 256; ++i) b->values[i] = static_cast<int8_t>(b->values[i] + (((p[i % 32] >> (i / 32)) & 1) << 2));
  b->scales[0] = LoadHalf(p + 108);
  Bytes low = p + 96, high = p + 104;
  for (int j = 0; j < 16; ++j) {
    const int scale = ((low[j % 8] >> (j / 8 * 4)) & 0xf) | (((high[j % 4] >> (j / 4 * 2)) & 3) << 4);
    b->factors[j] = static_cast<int8_t>(scale - 32);
  }
}

// 16 bytes of nibbles, low ones first, each less `zero`.
void ReadPlainNibbles(Bytes p, int zero, int8_t* values) {
  for (int i = 0; i < 16; ++i) {
    values[i] = static_cast<int8_t>((p[i] & 0xf) - zero);
    values[16 + i] = static_cast<int8_t>((p[i] >> 4) - zero);
  }
}

// The values of iq4_nl and iq4_xs (kvalues_iq4nl), and E2M1's times two.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kE2M1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// d, 16 bytes of nibbles
void ReadIq4Nl(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  ReadNibbles(p + 2, 16, kIq4Values, b->values);
}

// d, 8 bit pairs above 8 nibbles of scales (2 and 4 bytes), 8 times 16 bytes of nibbles
void ReadIq4Xs(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  const int high = Load16(p + 2);
  for (int64_t j = 0; j < 8; ++j) {
    const int scale = ((p[4 + j / 2] >> (j % 2 * 4)) & 0xf) | (((high >> (2 * j)) & 3) << 4);
    b->factors[j] = static_cast<int8_t>(scale - 32);
    ReadNibbles(p + 8 + 16 * j, 16, kIq4Values, b->values + 32 * j);
  }
}

// An exponent of E8M0, halved for E2M1's doubled values: 2^(e - 128), of which the first two are subnormal.
float HalfOfE8M0(uint32_t e) {
  return FloatOf(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

// e, 16 bytes of nibbles
void ReadMxfp4(Bytes p, FormatBlock* b) {
  b->scales[0] = HalfOfE8M0(p[0]);
  ReadNibbles(p + 1, 16, kE2M1Values, b->values);
}

// E4M3 without sign, halved likewise; its NaN counts as 0.
float HalfOfUe4M3(uint8_t x) {
  const uint32_t exponent = (x >> 3) & 0xfu, fraction = x & 7u;
  if (x == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(fraction) * 0x1p-10f;
  return FloatOf(((exponent + 119) << 23) | (fraction << 20));
}

// 4 bytes of scales, 4 times 8 bytes of nibbles
void ReadNvfp4(Bytes p, FormatBlock* b) {
  for (int64_t j = 0; j < 4; ++j) {
    b->scales[j] = HalfOfUe4M3(p[j]);
    ReadNibbles(p + 4 + 8 * j, 8, kE2M1Values, b->values + 16 * j);
  }
}

// `count` bytes of `digits` base-3 digits each, the most significant first, as fractions of 256: value count * s + l is
// digit s of byte l, less 1.
int8_t* ReadTernary(Bytes p, int count, int digits, int8_t* values) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  for (int i = 0; i < count * digits; ++i) {
    const int fraction = p[i % count] * kPowers[i / count] & 0xff;
    values[i] = static_cast<int8_t>((fraction * 3 >> 8) - 1);
  }
  return values + int64_t{count} * digits;
}

// 32 and 16 bytes of 5 digits, 4 bytes of 4 digits, d
void ReadTq10(Bytes p, FormatBlock* b) {
  ReadTernary(p + 48, 4, 4, ReadTernary(p + 32, 16, 5, ReadTernary(p, 32, 5, b->values)));
  b->scales[0] = LoadHalf(p + 52);
}

// 64 bytes of bit pairs, d
void ReadTq20(Bytes p, FormatBlock* b) {
  ReadPairs(p, 1, b->values);
  b->scales[0] = LoadHalf(p + 64);
}

// d, 128 bits: 1 or -1
void ReadQ10(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  for (int i = 0; i < 128; ++i) b->values[i] = static_cast<int8_t>(((p[2 + i / 8] >> (i % 8)) & 1) * 2 - 1);
}

// d (bf16), 16 bytes of nibbles
void ReadI4Bf16(Bytes p, FormatBlock* b) {
  b->scales[0] = BF16ToF32(Load16(p));
  ReadPlainNibbles(p + 2, 8, b->values);
}

// d (bf16), 32 signed bytes
void ReadI8Bf16(Bytes p, FormatBlock* b) {
  b->scales[0] = BF16ToF32(Load16(p));
  std::memcpy(b->values, p + 2, 32);
}

// d, zero point, 16 bytes of nibbles
void ReadU4F16(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  ReadPlainNibbles(p + 3, p[2], b->values);
}
void ReadU4Bf16(Bytes p, FormatBlock* b) {
  b->scales[0] = BF16ToF32(Load16(p));
  ReadPlainNibbles(p + 3, p[2], b->values);
}

// d (f32), 32 signed bytes
void ReadI8Row(Bytes p, FormatBlock* b) {
  b->scales[0] = FloatOf(Load32(p));
  std::memcpy(b->values, p + 4, 32);
}

struct NamedFormat {
  DType dtype;
  BlockFormat format;
};
constexpr NamedFormat kFormats[] = {
    {DType::kQ2_K, {ReadQ2K, 16, true, true}},
    {DType::kQ3_K, {ReadQ3K, 16, true}},
    {DType::kIQ4_NL, {ReadIq4Nl, 32}},
    {DType::kIQ4_XS, {ReadIq4Xs, 32, true}},
    {DType::kMXFP4, {ReadMxfp4, 32}},
    {DType::kNVFP4, {ReadNvfp4, 16}},
    {DType::kIQ3_S, {ReadIq3S, 32, true}},
    {DType::kIQ3_XXS, {ReadIq3Xxs, 32, true, false, 1.0f / 4}},
    {DType::kIQ2_S, {ReadIq2S, 16, true, false, 1.0f / 8}},
    {DType::kIQ2_XS, {ReadIq2Xs, 16, true, false, 1.0f / 8}},
    {DType::kIQ2_XXS, {ReadIq2Xxs, 32, true, false, 1.0f / 8}},
    {DType::kIQ1_M, {ReadIq1M, 16, true, false, 1.0f / 8}},
    {DType::kIQ1_S, {ReadIq1S, 32, true, false, 1.0f / 8}},
    {DType::kTQ1_0, {ReadTq10, 256}},
    {DType::kTQ2_0, {ReadTq20, 256}},
    {DType::kQ1_0, {ReadQ10, 128}},
    {DType::kI4_BF16, {ReadI4Bf16, 32}},
    {DType::kI8_BF16, {ReadI8Bf16, 32}},
    {DType::kU4_F16, {ReadU4F16, 32}},
    {DType::kU4_BF16, {ReadU4Bf16, 32}},
    {DType::kI8_ROW, {ReadI8Row, 32}},
};

}  // namespace

const BlockFormat* BlockFormatOf(DType dtype) {
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const NamedFormat& f) { return f.dtype == dtype; });
  return found == std::end(kFormats) ? nullptr : &found->format;
}

}  // namespace tactus::compute
