// Blocks of 256 values that are entries of a codebook (codebooks.h) with signs. Layouts as in the GGUF specification
// (ggml-common.h). Scales are fractions there, (2s + 1) / 8 or / 4; here they are 2s + 1, and the format's unit is the
// rest.
#include <bit>

#include "compute/tensor/blocks.h"
#include "compute/tensor/codebooks.h"
#include "compute/tensor/load.h"

namespace tactus::compute {
namespace {

using Bytes = const uint8_t*;

// The values of an entry's numbers. The last of kIq2Values is in no entry.
constexpr int8_t kIq2Values[4] = {8, 25, 43, 0};
constexpr int8_t kIq3XxsValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};

int8_t Signed(int8_t value, bool negative) {
  return static_cast<int8_t>(negative ? -value : value);
}

// An entry of 8 values. signs: bit k is set where value k is negative.
void ReadEight(uint16_t entry, uint32_t signs, int8_t* values) {
  for (int k = 0; k < 8; ++k) values[k] = Signed(kIq2Values[(entry >> (2 * k)) & 3], (signs >> k) & 1);
}

// Two entries of 4 values.
void ReadFours(uint16_t first, uint16_t second, const int8_t* table, uint32_t signs, int8_t* values) {
  const uint32_t both = first | static_cast<uint32_t>(second) << 16;
  for (int k = 0; k < 8; ++k) values[k] = Signed(table[(both >> (4 * k)) & 7], (signs >> k) & 1);
}

// 7 bits of signs; the eighth makes their number even.
uint32_t EightSigns(uint32_t seven) {
  seven &= 0x7f;
  return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7;
}

int8_t OddFactor(uint32_t s) {
  return static_cast<int8_t>(2 * s + 1);
}

// Nibble j of `p`.
uint32_t NibbleAt(Bytes p, int64_t j) {
  return (p[j / 2] >> (j % 2 * 4)) & 0xfu;
}

// Eight values -1, 0 or 1, shifted by an eighth up or down; all in eighths.
void ReadShifted(uint32_t index, bool down, int8_t* values) {
  const uint16_t entry = kIq1[index];
  for (int k = 0; k < 8; ++k) {
    values[k] = static_cast<int8_t>(8 * (((entry >> (2 * k)) & 3) - 1) + (down ? -1 : 1));
  }
}

}  // namespace

// d; per 32 values 4 bytes of indices, then 4 times 7 bits of signs and 4 of scale
void ReadIq2Xxs(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  p += 2;
  for (int64_t j = 0; j < 8; ++j, p += 8) {
    const uint32_t word = Load32(p + 4);
    b->factors[j] = OddFactor(word >> 28);
    for (int64_t i = 0; i < 4; ++i) ReadEight(kIq2Xxs[p[i]], EightSigns(word >> (7 * i)), b->values + 32 * j + 8 * i);
  }
}

// d, 32 words with 9 bits of index and 7 of signs, 16 nibbles of scales
void ReadIq2Xs(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  for (int64_t j = 0; j < 16; ++j) b->factors[j] = OddFactor(NibbleAt(p + 66, j));
  for (int64_t i = 0; i < 32; ++i) {
    const uint32_t word = Load16(p + 2 + 2 * i);
    ReadEight(kIq2Xs[word & 511], EightSigns(word >> 9), b->values + 8 * i);
  }
}

// d, 32 bytes of indices, 32 of signs, 32 bit pairs above the indices, 16 nibbles of scales
void ReadIq2S(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  Bytes low = p + 2, signs = p + 34, high = p + 66;
  for (int64_t j = 0; j < 16; ++j) b->factors[j] = OddFactor(NibbleAt(p + 74, j));
  for (int64_t i = 0; i < 32; ++i) {
    const uint32_t index = low[i] | ((high[i / 4] >> (i % 4 * 2)) & 3u) << 8;
    ReadEight(kIq2S[index], signs[i], b->values + 8 * i);
  }
}

// d, 64 bytes of indices; per 32 values 4 times 7 bits of signs and 4 of scale
void ReadIq3Xxs(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  Bytes index = p + 2;
  for (int64_t j = 0; j < 8; ++j) {
    const uint32_t word = Load32(p + 66 + 4 * j);
    b->factors[j] = OddFactor(word >> 28);
    for (int64_t i = 0; i < 4; ++i, index += 2) {
      ReadFours(kIq3Xxs[index[0]], kIq3Xxs[index[1]], kIq3XxsValues, EightSigns(word >> (7 * i)),
                b->values + 32 * j + 8 * i);
    }
  }
}

// d, 64 bytes of indices, 64 bits above them, 32 bytes of signs, 8 nibbles of scales
void ReadIq3S(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  Bytes low = p + 2, high = p + 66, signs = p + 74;
  const auto entry = [&](int64_t i) { return kIq3S[low[i] | ((high[i / 8] >> (i % 8)) & 1u) << 8]; };
  for (int64_t j = 0; j < 8; ++j) b->factors[j] = OddFactor(NibbleAt(p + 106, j));
  for (int64_t i = 0; i < 32; ++i) {
    ReadFours(entry(2 * i), entry(2 * i + 1), kIq3SValues, signs[i], b->values + 8 * i);
  }
}

// d, 32 bytes of indices; per 32 values a word of 4 times 3 bits above the indices, 3 of scale and one that shifts down
void ReadIq1S(Bytes p, FormatBlock* b) {
  b->scales[0] = LoadHalf(p);
  for (int64_t j = 0; j < 8; ++j) {
    const uint32_t word = Load16(p + 34 + 2 * j);
    b->factors[j] = OddFactor((word >> 12) & 7);
    for (int64_t i = 0; i < 4; ++i) {
      ReadShifted(p[2 + 4 * j + i] | ((word >> (3 * i)) & 7) << 8, word >> 15, b->values + 32 * j + 8 * i);
    }
  }
}

// 32 bytes of indices, 32 nibbles (3 bits above the indices and one that shifts down), 4 words of 4 times 3 bits of
// scale and 4 bits of d, the lowest first
void ReadIq1M(Bytes p, FormatBlock* b) {
  uint32_t d = 0;
  for (int64_t j = 0; j < 4; ++j) {
    const uint32_t word = Load16(p + 48 + 2 * j);
    d |= (word >> 12) << (4 * j);
    for (int64_t i = 0; i < 4; ++i) b->factors[4 * j + i] = OddFactor((word >> (3 * i)) & 7);
  }
  b->scales[0] = F16ToF32(static_cast<uint16_t>(d));
  for (int64_t i = 0; i < 32; ++i) {
    const uint32_t nibble = NibbleAt(p + 32, i);
    ReadShifted(p[i] | (nibble & 7) << 8, (nibble & 8) != 0, b->values + 8 * i);
  }
}

}  // namespace tactus::compute
