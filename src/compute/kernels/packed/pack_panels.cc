// Packs weights into panels at load: from a file's format without a change of value, or quantised. One pass over the
// source, block column by block column, so that both sides stay in the L1 cache.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compute/kernels/packed/packed.h"
#include "compute/kernels/packed/quantize_blocks.h"
#include "compute/tensor/blocks.h"
#include "compute/tensor/dequantize.h"
#include "compute/tensor/float16.h"
#include "compute/tensor/load.h"

namespace tactus::compute {
namespace {

constexpr int64_t kPiece = 256;  // columns of a row dequantised at a time: a multiple of every block

int64_t MinOf(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// Moves bits 0, 1, 2, 3 of `bits` to the lowest bits of four bytes.
uint32_t SpreadBits(uint32_t bits) {
  return ((bits & 0xf) * 0x00204081u) & 0x01010101u;
}

// Converts a format's blocks to words of four codes. Word(j, g) holds the columns 4g .. 4g + 3 of block j of kBlock.
// kNested: scales and minima are bytes; OuterScale and OuterMinimum are common to the source block.
struct Q80 {
  using Scale = uint16_t;
  static constexpr int kBlock = 32, kSourceBlock = 32, kBytes = 34;
  static constexpr bool kNibbles = false, kMinimum = false, kNested = false;
  static uint32_t Word(const uint8_t* p, int, int g) { return Load32(p + 2 + 4 * g) ^ 0x80808080u; }
  static Scale ScaleOf(const uint8_t* p, int) { return Load16(p); }
};

uint32_t NibbleWord(const uint8_t* q, int g) {
  return g < 4 ? Load32(q + 4 * g) & 0x0f0f0f0fu : (Load32(q + 4 * (g - 4)) >> 4) & 0x0f0f0f0fu;
}

struct Q40 {
  using Scale = uint16_t;
  static constexpr int kBlock = 32, kSourceBlock = 32, kBytes = 18;
  static constexpr bool kNibbles = true, kMinimum = false, kNested = false;
  static uint32_t Word(const uint8_t* p, int, int g) { return NibbleWord(p + 2, g); }
  static Scale ScaleOf(const uint8_t* p, int) { return Load16(p); }
};
struct U4 {  // zero points are stored in quarters of a step
  using Scale = uint16_t;
  static constexpr int kBlock = 32, kSourceBlock = 32, kBytes = 19;
  static constexpr bool kNibbles = true, kMinimum = false, kNested = false;
  static uint32_t Word(const uint8_t* p, int, int g) { return NibbleWord(p + 3, g); }
  static Scale ScaleOf(const uint8_t* p, int) { return Load16(p); }
  static uint8_t ZeroOf(const uint8_t* p) { return static_cast<uint8_t>(4 * p[2]); }
};
struct Q41 {
  using Scale = uint16_t;
  static constexpr int kBlock = 32, kSourceBlock = 32, kBytes = 20;
  static constexpr bool kNibbles = true, kMinimum = true, kNested = false;
  static uint32_t Word(const uint8_t* p, int, int g) { return NibbleWord(p + 4, g); }
  static Scale ScaleOf(const uint8_t* p, int) { return Load16(p); }
  static Scale MinimumOf(const uint8_t* p, int) { return Load16(p + 2); }
};
struct Q50 {
  using Scale = uint16_t;
  static constexpr int kBlock = 32, kSourceBlock = 32, kBytes = 22;
  static constexpr bool kNibbles = false, kMinimum = false, kNested = false;
  static uint32_t Word(const uint8_t* p, int, int g) {
    return NibbleWord(p + 6, g) | SpreadBits(Load32(p + 2) >> (4 * g)) << 4;
  }
  static Scale ScaleOf(const uint8_t* p, int) { return Load16(p); }
};
struct Q51 {
  using Scale = uint16_t;
  static constexpr int kBlock = 32, kSourceBlock = 32, kBytes = 24;
  static constexpr bool kNibbles = false, kMinimum = true, kNested = false;
  static uint32_t Word(const uint8_t* p, int, int g) {
    return NibbleWord(p + 8, g) | SpreadBits(Load32(p + 4) >> (4 * g)) << 4;
  }
  static Scale ScaleOf(const uint8_t* p, int) { return Load16(p); }
  static Scale MinimumOf(const uint8_t* p, int) { return Load16(p + 2); }
};

// The 6-bit scale and minimum of sub-block j of q4_K and q5_K, as in dequantize.cc.
int ScaleBits(const uint8_t* packed, int j) {
  return j < 4 ? packed[j] & 63 : (packed[j + 4] & 0xf) | (packed[j - 4] >> 6) << 4;
}
int MinimumBits(const uint8_t* packed, int j) {
  return j < 4 ? packed[j + 4] & 63 : (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
}

struct Q4K {
  using Scale = int8_t;
  static constexpr int kBlock = 32, kSourceBlock = 256, kBytes = 144;
  static constexpr bool kNibbles = true, kMinimum = true, kNested = true;
  static uint32_t Word(const uint8_t* p, int j, int g) {
    return (Load32(p + 16 + j / 2 * 32 + 4 * g) >> (j % 2 * 4)) & 0x0f0f0f0fu;
  }
  static Scale ScaleOf(const uint8_t* p, int j) { return static_cast<Scale>(ScaleBits(p + 4, j)); }
  static Scale MinimumOf(const uint8_t* p, int j) { return static_cast<Scale>(MinimumBits(p + 4, j)); }
  static uint16_t OuterScale(const uint8_t* p) { return Load16(p); }
  static uint16_t OuterMinimum(const uint8_t* p) { return Load16(p + 2) ^ 0x8000; }  // the file's minimum is subtracted
};
struct Q5K {
  using Scale = int8_t;
  static constexpr int kBlock = 32, kSourceBlock = 256, kBytes = 176;
  static constexpr bool kNibbles = false, kMinimum = true, kNested = true;
  static uint32_t Word(const uint8_t* p, int j, int g) {
    const uint32_t low = (Load32(p + 48 + j / 2 * 32 + 4 * g) >> (j % 2 * 4)) & 0x0f0f0f0fu;
    return low | ((Load32(p + 16 + 4 * g) >> j) & 0x01010101u) << 4;
  }
  static Scale ScaleOf(const uint8_t* p, int j) { return Q4K::ScaleOf(p, j); }
  static Scale MinimumOf(const uint8_t* p, int j) { return Q4K::MinimumOf(p, j); }
  static uint16_t OuterScale(const uint8_t* p) { return Q4K::OuterScale(p); }
  static uint16_t OuterMinimum(const uint8_t* p) { return Q4K::OuterMinimum(p); }
};
struct Q6K {  // sub-block j: 16 columns; 128-column half j / 8, quarter g = j / 2 % 4 of it
  using Scale = int8_t;
  static constexpr int kBlock = 16, kSourceBlock = 256, kBytes = 210;
  static constexpr bool kNibbles = false, kMinimum = false, kNested = true;
  static uint32_t Word(const uint8_t* p, int j, int g) {
    const int half = j / 8, quarter = j / 2 % 4, at = j % 2 * 16 + 4 * g;
    const uint32_t low = Load32(p + half * 64 + quarter % 2 * 32 + at) >> (quarter / 2 * 4);
    const uint32_t high = Load32(p + 128 + half * 32 + at) >> (2 * quarter);
    return (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;
  }
  static Scale ScaleOf(const uint8_t* p, int j) { return static_cast<Scale>(p[192 + j]); }
  static uint16_t OuterScale(const uint8_t* p) { return Load16(p + 208); }
};

struct Panel {
  const uint8_t* rows[kPanelRows];  // null: a row of zeros
};

Panel PanelOf(const MatrixView& w, int64_t panel) {
  Panel p;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    const int64_t row = panel * kPanelRows + r;
    p.rows[r] = row < w.rows ? static_cast<const uint8_t*>(w.data) + row * w.row_bytes : nullptr;
  }
  return p;
}

// Stores the words of codes of one block of one row at their places in the panel.
template <int kWords, bool kNibbles>
void StoreWords(const uint32_t (&words)[kWords], int64_t r, uint32_t* to) {
  if constexpr (kNibbles) {
    for (int g = 0; g < kWords / 2; ++g) to[g * kPanelRows + r] = words[2 * g] | words[2 * g + 1] << 4;
  } else {
    for (int g = 0; g < kWords; ++g) to[g * kPanelRows + r] = words[g];
  }
}

// Stores the f16 of a row's token block (part 0: scale, 1: minimum) in the tails of its blocks; `to`: the first block's
// tail.
void StoreOuter(uint16_t value, int64_t part, int64_t parts, int64_t r, int64_t block_bytes, std::byte* to) {
  const int64_t place = (part * kPanelRows + r) * 2;
  std::memcpy(to + place / kPanelRows * block_bytes + parts * kPanelRows + place % kPanelRows, &value, sizeof value);
}

// The f16 of a row's source block, for each of its token blocks; null: no minima.
void StoreOuters(const PackedMatrix& form, int64_t source_columns, uint16_t scale, const uint16_t* minimum, int64_t r,
                 std::byte* tail) {
  const int64_t token_block_bytes = kTokenBlock / form.block * form.block_bytes(), parts = minimum != nullptr ? 2 : 1;
  for (int64_t c = 0; c < source_columns; c += kTokenBlock, tail += token_block_bytes) {
    StoreOuter(scale, 0, parts, r, form.block_bytes(), tail);
    if (minimum != nullptr) StoreOuter(*minimum, 1, parts, r, form.block_bytes(), tail);
  }
}

template <class Format>
void PackNestedRow(const PackedMatrix& form, const uint8_t* p, int64_t r, std::byte* tail) {
  const uint16_t scale = p != nullptr ? Format::OuterScale(p) : uint16_t{0};
  if constexpr (Format::kMinimum) {
    const uint16_t minimum = p != nullptr ? Format::OuterMinimum(p) : uint16_t{0};
    StoreOuters(form, Format::kSourceBlock, scale, &minimum, r, tail);
  } else {
    StoreOuters(form, Format::kSourceBlock, scale, nullptr, r, tail);
  }
}

template <class Format>
void PackStored(const Panel& rows, const PackedMatrix& form, std::byte* out) {
  constexpr int kWords = Format::kBlock / 4, kSubBlocks = Format::kSourceBlock / Format::kBlock;
  const int64_t code_bytes = form.code_bytes(), block_bytes = form.block_bytes();
  const auto zero = static_cast<uint32_t>(form.zero) * 0x01010101u;
  for (int64_t b = 0; b * Format::kSourceBlock < form.cols; ++b) {
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const uint8_t* p = rows.rows[r] != nullptr ? rows.rows[r] + b * Format::kBytes : nullptr;
      for (int j = 0; j < kSubBlocks; ++j) {
        std::byte* to = out + (b * kSubBlocks + j) * block_bytes;
        auto* scales = reinterpret_cast<typename Format::Scale*>(to + code_bytes);
        uint32_t words[kWords];
        for (int g = 0; g < kWords; ++g) words[g] = p != nullptr ? Format::Word(p, j, g) : zero;
        StoreWords<kWords, Format::kNibbles>(words, r, reinterpret_cast<uint32_t*>(to));
        scales[r] = p != nullptr ? Format::ScaleOf(p, j) : typename Format::Scale{0};
        if constexpr (Format::kMinimum) {
          scales[kPanelRows + r] = p != nullptr ? Format::MinimumOf(p, j) : typename Format::Scale{0};
        }
        if constexpr (requires { Format::ZeroOf(p); }) {
          to[code_bytes + kPanelRows * 2 + r] = static_cast<std::byte>(p != nullptr ? Format::ZeroOf(p) : 0);
        }
      }
      if constexpr (Format::kNested) {
        PackNestedRow<Format>(form, p, r, out + b * kSubBlocks * block_bytes + code_bytes);
      }
    }
  }
}

// Codes of one block of one row to their places in the panel.
void StoreCodes(const PackedMatrix& form, const uint8_t* codes, int64_t r, std::byte* to) {
  auto* words = reinterpret_cast<uint32_t*>(to);
  if (form.code == PackedCode::kU8) {
    for (int64_t c = 0; c < form.block; c += 4) words[c / 4 * kPanelRows + r] = Load32(codes + c);
  } else {
    for (int64_t c = 0; c < form.block; c += 8) {
      words[c / 8 * kPanelRows + r] = Load32(codes + c) | Load32(codes + c + 4) << 4;
    }
  }
}

// Stores a block that was taken apart as blocks of the packed form, the first at `to`.
void StoreParts(const PackedMatrix& form, const BlockFormat& format, const FormatBlock& block, int64_t columns,
                int64_t r, std::byte* to) {
  const uint16_t minimum = F32ToF16(block.minimum);
  if (form.nested_scales) {
    StoreOuters(form, columns, F32ToF16(block.scales[0]), form.has_minimum ? &minimum : nullptr, r,
                to + form.code_bytes());
  }
  for (int64_t first = 0; first < columns; first += form.block, to += form.block_bytes()) {
    uint8_t codes[kMostBlockColumns];
    for (int64_t c = 0; c < form.block; ++c) codes[c] = static_cast<uint8_t>(block.values[first + c] + form.zero);
    StoreCodes(form, codes, r, to);
    const int64_t group = first / format.group;
    std::byte* tail = to + form.code_bytes();
    if (form.nested_scales) {
      tail[r] = static_cast<std::byte>(block.factors[group]);
      if (form.has_minimum) tail[kPanelRows + r] = static_cast<std::byte>(block.minimum_factors[group]);
    } else {
      const float scale = block.scales[group];
      reinterpret_cast<uint16_t*>(tail)[r] = form.bf16_scales ? F32ToBF16(scale) : F32ToF16(scale);
    }
  }
}

// Formats that compute/tensor/blocks.h takes apart.
void PackParts(DType dtype, const Panel& rows, const PackedMatrix& form, std::byte* out) {
  const BlockFormat& format = *BlockFormatOf(dtype);
  const DTypeInfo& info = InfoOf(dtype);
  for (int64_t c = 0; c < form.cols; c += info.block_elements) {
    for (int64_t r = 0; r < kPanelRows; ++r) {
      FormatBlock block = {};
      if (rows.rows[r] != nullptr) format.read(rows.rows[r] + c / info.block_elements * info.block_bytes, &block);
      StoreParts(form, format, block, info.block_elements, r, out + c / form.block * form.block_bytes());
    }
  }
}

// F16ToF32 for every bit pattern, without a branch, so that it can be vectorised. 2^112 moves the exponent's bias from
// 15 to 127 and also converts subnormals; the largest exponent then becomes infinity or NaN.
float HalfToFloat(uint16_t h) {
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fff) << 13;
  const uint32_t finite = BitsOf(FloatOf(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7f800000u | (magnitude > 0x0f800000u ? 0x400000u : 0u);
  const uint32_t is_special = magnitude >= 0x0f800000u ? ~0u : 0u;
  return FloatOf((finite & ~is_special) | (special & is_special) | static_cast<uint32_t>(h & 0x8000) << 16);
}

// Columns [first, first + n) of a row as f32, then zeros up to `padded`.
void RowFloats(const MatrixView& w, const uint8_t* row, int64_t first, int64_t n, int64_t padded, float* out) {
  const uint8_t* from = row + RowBytes(w.dtype, first);
  if (w.dtype == DType::kBF16) {
    for (int64_t i = 0; i < n; ++i) out[i] = BF16ToF32(Load16(from + 2 * i));
  } else if (w.dtype == DType::kF16) {
    for (int64_t i = 0; i < n; ++i) out[i] = HalfToFloat(Load16(from + 2 * i));
  } else {
    Dequantize(w.dtype, reinterpret_cast<const std::byte*>(from), n, out);
  }
  for (int64_t i = n; i < padded; ++i) out[i] = 0;
}

uint32_t LoadWord(const uint8_t* p, uint32_t) {
  return Load32(p);
}
uint16_t LoadWord(const uint8_t* p, uint16_t) {
  return Load16(p);
}

// [words][64 rows] of rows of words.
template <class Word>
void PackWords(const Panel& rows, int64_t words, std::byte* out) {
  auto* to = reinterpret_cast<Word*>(out);
  constexpr int64_t kWords = 16;  // of a row at a time
  for (int64_t first = 0; first < words; first += kWords) {
    const int64_t n = MinOf(kWords, words - first);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const uint8_t* row = rows.rows[r];
      for (int64_t i = first; i < first + n; ++i) {
        to[i * kPanelRows + r] = row != nullptr ? LoadWord(row + i * static_cast<int64_t>(sizeof(Word)), Word{}) : 0;
      }
    }
  }
}

void PackBf16Words(const Panel& rows, int64_t cols, std::byte* out) {
  PackWords<uint32_t>(rows, cols / 2, out);
  if (cols % 2 == 0) return;
  auto* to = reinterpret_cast<uint32_t*>(out);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    const uint8_t* row = rows.rows[r];
    to[cols / 2 * kPanelRows + r] = row != nullptr ? Load16(row + 2 * (cols - 1)) : 0;
  }
}

void PackBf16Rounded(const MatrixView& w, const Panel& rows, std::byte* out) {
  auto* to = reinterpret_cast<uint32_t*>(out);
  float x[kPiece];
  for (int64_t first = 0; first < w.cols; first += kPiece) {
    const int64_t n = MinOf(kPiece, w.cols - first), even = (n + 1) / 2 * 2;
    for (int64_t r = 0; r < kPanelRows; ++r) {
      if (rows.rows[r] != nullptr) {
        RowFloats(w, rows.rows[r], first, n, even, x);
      } else {
        std::memset(x, 0, sizeof x);
      }
      for (int64_t i = 0; i < even / 2; ++i) {
        to[(first / 2 + i) * kPanelRows + r] = F32ToBF16(x[2 * i]) | static_cast<uint32_t>(F32ToBF16(x[2 * i + 1]))
                                                                         << 16;
      }
    }
  }
}

template <int kBlock, bool kNibbles>
void StoreBlock(const PackedMatrix& form, int64_t row, int64_t block, BlockScale scale, const uint8_t* codes,
                std::byte* panel) {
  constexpr int kWords = kBlock / 4;
  std::byte* to = panel + block * form.block_bytes();
  uint32_t words[kWords];
  std::memcpy(words, codes, sizeof words);
  StoreWords<kWords, kNibbles>(words, row, reinterpret_cast<uint32_t*>(to));
  to += form.code_bytes();
  reinterpret_cast<uint16_t*>(to)[row] = scale.scale;
  if (form.has_zeros) to[kPanelRows * 2 + row] = std::byte{scale.zero};
}

// Blocks whose scale depends on their own values only: q8_0 and int4.
template <int kBlock, bool kNibbles, BlockScale (*Quantize)(const float*, uint8_t*)>
void PackQuantized(const MatrixView& w, const Panel& rows, const PackedMatrix& form, std::byte* out) {
  float x[kPiece];
  for (int64_t first = 0; first < w.cols; first += kPiece) {
    const int64_t n = MinOf(kPiece, w.cols - first), padded = (n + kBlock - 1) / kBlock * kBlock;
    for (int64_t r = 0; r < kPanelRows; ++r) {
      if (rows.rows[r] != nullptr) {
        RowFloats(w, rows.rows[r], first, n, padded, x);
      } else {
        std::memset(x, 0, sizeof x);
      }
      for (int64_t k = 0; k < padded; k += kBlock) {
        uint8_t codes[kBlock];
        const BlockScale scale = Quantize(x + k, codes);
        StoreBlock<kBlock, kNibbles>(form, r, (first + k) / kBlock, scale, codes, out);
      }
    }
  }
}

void PackInt8(const MatrixView& w, const Panel& rows, const PackedMatrix& form, std::byte* out) {
  float x[kPiece], inverse[kPanelRows];
  auto* scales = reinterpret_cast<float*>(out + form.panel_bytes - kPanelRows * 4);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    float largest = 0;
    for (int64_t first = 0; first < w.cols && rows.rows[r] != nullptr; first += kPiece) {
      const int64_t n = MinOf(kPiece, w.cols - first);
      RowFloats(w, rows.rows[r], first, n, n, x);
      largest = LargestMagnitude(x, n, largest);
    }
    scales[r] = largest / 127.0f;
    inverse[r] = largest > kTokenZero ? 127.0f / largest : 0.0f;
  }
  for (int64_t first = 0; first < w.cols; first += kPiece) {
    const int64_t n = MinOf(kPiece, w.cols - first);
    const int64_t padded = (n + kTokenBlock - 1) / kTokenBlock * kTokenBlock;
    for (int64_t r = 0; r < kPanelRows; ++r) {
      if (rows.rows[r] != nullptr) {
        RowFloats(w, rows.rows[r], first, n, padded, x);
      } else {
        std::memset(x, 0, sizeof x);
      }
      uint8_t codes[kPiece];
      RoundToCodes(x, padded, inverse[r], codes);
      auto* to = reinterpret_cast<uint32_t*>(out + first * kPanelRows);
      for (int64_t g = 0; g < padded / 4; ++g) to[g * kPanelRows + r] = Load32(codes + 4 * g);
    }
  }
}

// Codes with one scale per row, which every block of the row repeats.
void PackI8Row(const Panel& rows, const PackedMatrix& form, std::byte* out) {
  constexpr int64_t kBlock = 32, kBytes = 36;
  auto* const scales = reinterpret_cast<float*>(out + form.panel_bytes - kPanelRows * 4);
  const int64_t padded = (form.cols + kTokenBlock - 1) / kTokenBlock * kTokenBlock;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    const uint8_t* const row = rows.rows[r];
    scales[r] = row != nullptr ? FloatOf(Load32(row)) : 0.0f;
    for (int64_t c = 0; c < padded; c += 4) {
      const bool stored = row != nullptr && c < form.cols;
      const uint32_t word = stored ? Load32(row + c / kBlock * kBytes + 4 + c % kBlock) : 0;
      reinterpret_cast<uint32_t*>(out)[c / 4 * kPanelRows + r] = word ^ 0x80808080u;
    }
  }
}

bool IsStored(const MatrixView& w, const PackedMatrix& form) {
  PackedMatrix own;
  return InfoOf(w.dtype).block_elements > 1 && PackedFormOf(w.dtype, w.rows, w.cols, &own) && own.SameForm(form);
}

void PackOwnFormat(DType dtype, const Panel& rows, const PackedMatrix& form, std::byte* out) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kI4_BF16:
      return PackStored<Q40>(rows, form, out);
    case DType::kU4_F16:
    case DType::kU4_BF16:
      return PackStored<U4>(rows, form, out);
    case DType::kI8_ROW:
      return PackI8Row(rows, form, out);
    case DType::kQ4_1:
      return PackStored<Q41>(rows, form, out);
    case DType::kQ5_0:
      return PackStored<Q50>(rows, form, out);
    case DType::kQ5_1:
      return PackStored<Q51>(rows, form, out);
    case DType::kQ8_0:
    case DType::kI8_BF16:
      return PackStored<Q80>(rows, form, out);
    case DType::kQ4_K:
      return PackStored<Q4K>(rows, form, out);
    case DType::kQ5_K:
      return PackStored<Q5K>(rows, form, out);
    case DType::kQ6_K:
      return PackStored<Q6K>(rows, form, out);
    default:
      return PackParts(dtype, rows, form, out);
  }
}

}  // namespace

void StoreInt4Block(const PackedMatrix& form, int64_t row, int64_t block, BlockScale scale, const uint8_t* codes,
                    std::byte* panel) {
  StoreBlock<kInt4Group, true>(form, row, block, scale, codes, panel);
}

void PackPanels(const MatrixView& w, const PackedMatrix& form, int64_t first, int64_t count, std::byte* out) {
  TACTUS_CHECK(w.rows == form.rows && w.cols == form.cols);
  TACTUS_CHECK(form.code != PackedCode::kF32 || w.dtype == DType::kF32);
  TACTUS_CHECK(form.code != PackedCode::kF16 || w.dtype == DType::kF16);
  const bool stored = IsStored(w, form);
  for (int64_t panel = first; panel < first + count; ++panel, out += form.panel_bytes) {
    const Panel rows = PanelOf(w, panel);
    if (form.code == PackedCode::kF32) {
      PackWords<uint32_t>(rows, w.cols, out);
    } else if (form.code == PackedCode::kF16) {
      PackWords<uint16_t>(rows, w.cols, out);
    } else if (stored) {
      PackOwnFormat(w.dtype, rows, form, out);
    } else if (form.code == PackedCode::kBF16) {
      if (w.dtype == DType::kBF16) {
        PackBf16Words(rows, w.cols, out);
      } else {
        PackBf16Rounded(w, rows, out);
      }
    } else if (form.block == 0) {
      PackInt8(w, rows, form, out);
    } else if (form.code == PackedCode::kU8) {
      PackQuantized<32, false, QuantizeQ80>(w, rows, form, out);
    } else {
      PackQuantized<64, true, QuantizeInt4>(w, rows, form, out);
    }
  }
}

}  // namespace tactus::compute
