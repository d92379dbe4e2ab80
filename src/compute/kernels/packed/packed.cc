// The packed forms and their layout. pack_panels.cc writes panels.
#include "compute/kernels/packed/packed.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

constexpr int64_t kLine = 64;

// A block's sum of products of codes and q fits int32: codes are at most 255; of 16 q, four are at most 32512.
static_assert(int64_t{kTokenBlock} / 16 * (kWideColumns * 32512 + 12 * 127) * 255 <=
              std::numeric_limits<int32_t>::max());

int64_t RoundUpTo(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// An odd number of cache lines, so that the rows of a tile do not compete for the same cache sets.
int64_t RowStride(int64_t bytes) {
  const int64_t lines = (bytes + kLine - 1) / kLine;
  return (lines | 1) * kLine;
}

void FinishForm(PackedMatrix* m, int64_t rows, int64_t cols) {
  m->data = nullptr;
  m->rows = rows;
  m->cols = cols;
  if (m->code == PackedCode::kBF16) {
    m->panel_bytes = (cols + 1) / 2 * 2 * kPanelRows * 2;
  } else if (!m->integer()) {
    m->panel_bytes = cols * kPanelRows * (m->code == PackedCode::kF16 ? 2 : 4);
  } else if (m->block == 0) {
    m->panel_bytes = RoundUpTo(cols, kTokenBlock) * kPanelRows + kPanelRows * 4;
  } else {
    m->panel_bytes = m->blocks() * m->block_bytes();
  }
}

const std::byte* PanelOf(const PackedMatrix& m, int64_t row) {
  return m.data + row / kPanelRows * m.panel_bytes;
}

// The end of a block's codes, where its scales begin.
const std::byte* ScalesOf(const PackedMatrix& m, int64_t row, int64_t block) {
  if (m.block == 0) return PanelOf(m, row) + RoundUpTo(m.cols, kTokenBlock) * kPanelRows;
  return PanelOf(m, row) + block * m.block_bytes() + m.code_bytes();
}

uint16_t LoadBits(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

// Part 0: the scale, 1: the minimum.
float ScalePart(const PackedMatrix& m, int64_t row, int64_t block, int64_t part) {
  const std::byte* tail = ScalesOf(m, row, block);
  const int64_t index = part * kPanelRows + row % kPanelRows;
  if (m.block == 0) {
    float value;
    std::memcpy(&value, tail + index * 4, sizeof value);
    return value;
  }
  if (m.bf16_scales) return BF16ToF32(LoadBits(tail + index * 2)) * m.scale_unit;
  if (!m.nested_scales) return F16ToF32(LoadBits(tail + index * 2)) * m.scale_unit;
  const int64_t per_token_block = kTokenBlock / m.block, place = index * 2;
  const std::byte* outer = ScalesOf(m, row, block / per_token_block * per_token_block + place / kPanelRows);
  return F16ToF32(LoadBits(outer + kPanelRows * (m.has_minimum ? 2 : 1) + place % kPanelRows)) * m.scale_unit *
         static_cast<float>(static_cast<int8_t>(tail[index]));
}

// The bits of a kF16 or kF32 element.
uint32_t FloatBits(const PackedMatrix& m, const std::byte* panel, int64_t row_in_panel, int64_t col) {
  const int64_t index = col * kPanelRows + row_in_panel;
  uint16_t half;
  uint32_t whole;
  if (m.code == PackedCode::kF32) {
    std::memcpy(&whole, panel + index * 4, sizeof whole);
    return whole;
  }
  std::memcpy(&half, panel + index * 2, sizeof half);
  return half;
}

int32_t ZeroPointAt(const PackedMatrix& m, int64_t row, int64_t block) {
  const std::byte* zeros = ScalesOf(m, row, block) + kPanelRows * 2;
  return static_cast<uint8_t>(zeros[row % kPanelRows]);
}

// Copies whole groups of a row, 256 bytes apart in the panel, to codes[columns].
void RowCodes(const std::byte* group, bool nibbles, int64_t columns, uint8_t* codes) {
  constexpr int64_t kGroupBytes = kPanelRows * 4;
  if (!nibbles) {
    for (int64_t c = 0; c < columns; c += 4, group += kGroupBytes) std::memcpy(codes + c, group, 4);
    return;
  }
  for (int64_t c = 0; c < columns; c += 8, group += kGroupBytes) {
    uint32_t pair;
    std::memcpy(&pair, group, sizeof pair);
    const uint32_t low = pair & 0x0f0f0f0fu, high = (pair >> 4) & 0x0f0f0f0fu;
    std::memcpy(codes + c, &low, sizeof low);
    std::memcpy(codes + c + 4, &high, sizeof high);
  }
}

}  // namespace

TokenFormat TokensFor(const PackedMatrix& m, Rounding rounding) {
  if (rounding == Rounding::kNone || m.code == PackedCode::kF16 || m.code == PackedCode::kF32) {
    return {.values = TokenValues::kF32};
  }
  if (m.code == PackedCode::kBF16) return {};
  TokenFormat format = {.values = TokenValues::kInt8};
  format.block = m.block == 0 ? kTokenBlock : std::max(m.block, 32);
  const int32_t wide = m.block == 0 ? 64 : std::min(m.block, 64);
  if (rounding == Rounding::kMixed) format.wide = wide;
  if (rounding == Rounding::kMixedFine) format.wide = std::max(wide / 2, 16);
  if (rounding == Rounding::kInt16) format.parts = 2;
  return format;
}

namespace {

int64_t IntegerBytes(int64_t rows, int64_t padded, int64_t block, int64_t wide) {
  const int64_t groups = wide > 0 ? padded / wide : 0;
  return rows * RowStride(padded) + RoundUpTo(rows * (padded / block) * 4, kLine) +
         RoundUpTo(rows * (padded / 16) * 4, kLine) +
         RoundUpTo(rows * groups * static_cast<int64_t>(sizeof(WideGroup)), kLine);
}

}  // namespace

int64_t PackedTokenBytes(int64_t tokens, int64_t cols) {
  const int64_t padded = PackedTokens::PaddedCols(cols);
  // Integers' scales and sums are rounded up per array; their rows are not aligned.
  return std::max(
      {IntegerBytes(2 * tokens, padded, 32, 0), IntegerBytes(tokens, padded, 32, 16), tokens * RowStride(4 * padded)});
}

PackedTokens PlaceTokens(std::byte* memory, const TokenFormat& format, int64_t tokens, int64_t cols) {
  PackedTokens out;
  out.format = format;
  out.tokens = tokens;
  out.cols = cols;
  out.stride = RowStride(PackedTokens::PaddedCols(cols) * format.value_bytes());
  out.values = memory;
  if (!format.integer()) return out;
  memory += out.rows() * out.stride;
  out.scales = reinterpret_cast<float*>(memory);
  memory += RoundUpTo(out.rows() * out.scale_count() * 4, kLine);
  out.sums = reinterpret_cast<int32_t*>(memory);
  memory += RoundUpTo(out.rows() * out.sum_count() * 4, kLine);
  if (format.wide > 0) out.wide = reinterpret_cast<WideGroup*>(memory);
  return out;
}

void CheckPackedMatch(const PackedTokens& x, const PackedMatrix& w) {
  bool match = false;
  for (const Rounding rounding :
       {Rounding::kNone, Rounding::kInt8, Rounding::kMixed, Rounding::kMixedFine, Rounding::kInt16}) {
    match = match || x.format == TokensFor(w, rounding);
  }
  TACTUS_CHECK_MSG(match && x.cols == w.cols, "tokens were packed for another matrix");
}

namespace {

struct StoredForm {
  DType dtype;
  PackedMatrix form;
};
using enum PackedCode;
constexpr StoredForm kStoredForms[] = {
    {DType::kF32, {.code = kF32}},
    {DType::kF16, {.code = kF16}},
    {DType::kBF16, {.code = kBF16}},
    {DType::kQ4_0, {.code = kU4, .zero = 8, .block = 32}},
    {DType::kQ4_1, {.code = kU4, .has_minimum = true, .block = 32}},
    {DType::kQ5_0, {.code = kU8, .zero = 16, .block = 32, .code_bits = 5}},
    {DType::kQ5_1, {.code = kU8, .has_minimum = true, .block = 32, .code_bits = 5}},
    {DType::kQ8_0, {.code = kU8, .zero = 128, .block = 32}},
    {DType::kQ4_K, {.code = kU4, .has_minimum = true, .nested_scales = true, .block = 32}},
    {DType::kQ5_K, {.code = kU8, .has_minimum = true, .nested_scales = true, .block = 32, .code_bits = 5}},
    {DType::kQ6_K, {.code = kU8, .nested_scales = true, .zero = 32, .block = 16, .code_bits = 6}},
    {DType::kQ2_K, {.code = kU4, .has_minimum = true, .nested_scales = true, .block = 16}},
    {DType::kQ3_K, {.code = kU4, .nested_scales = true, .zero = 8, .block = 16}},
    {DType::kIQ4_NL, {.code = kU8, .zero = 128, .block = 32}},
    {DType::kIQ4_XS, {.code = kU8, .nested_scales = true, .zero = 128, .block = 32}},
    {DType::kMXFP4, {.code = kU8, .bf16_scales = true, .zero = 16, .block = 32, .code_bits = 5}},
    {DType::kNVFP4, {.code = kU8, .zero = 16, .block = 16, .code_bits = 5}},
    {DType::kIQ3_S, {.code = kU8, .nested_scales = true, .zero = 16, .block = 32, .code_bits = 5}},
    {DType::kIQ3_XXS, {.code = kU8, .nested_scales = true, .zero = 128, .block = 32, .scale_unit = 1.0f / 4}},
    {DType::kIQ2_S, {.code = kU8, .nested_scales = true, .zero = 128, .block = 16, .scale_unit = 1.0f / 8}},
    {DType::kIQ2_XS, {.code = kU8, .nested_scales = true, .zero = 128, .block = 16, .scale_unit = 1.0f / 8}},
    {DType::kIQ2_XXS, {.code = kU8, .nested_scales = true, .zero = 128, .block = 32, .scale_unit = 1.0f / 8}},
    {DType::kIQ1_M,
     {.code = kU8, .nested_scales = true, .zero = 16, .block = 16, .code_bits = 5, .scale_unit = 1.0f / 8}},
    {DType::kIQ1_S,
     {.code = kU8, .nested_scales = true, .zero = 16, .block = 32, .code_bits = 5, .scale_unit = 1.0f / 8}},
    // One scale covers 256 or 128 columns. It is repeated per 32, so that tokens are rounded as for other formats.
    {DType::kTQ1_0, {.code = kU4, .zero = 8, .block = 32}},
    {DType::kTQ2_0, {.code = kU4, .zero = 8, .block = 32}},
    {DType::kQ1_0, {.code = kU4, .zero = 8, .block = 32}},
    {DType::kI4_BF16, {.code = kU4, .bf16_scales = true, .zero = 8, .block = 32}},
    {DType::kI8_BF16, {.code = kU8, .bf16_scales = true, .zero = 128, .block = 32}},
    // Zero points are whole steps. The file's scale is a step: its quarter is exact as a unit, not always as an f16.
    {DType::kU4_F16, {.code = kU4, .has_zeros = true, .block = 32, .scale_unit = 1.0f / 4}},
    {DType::kU4_BF16, {.code = kU4, .has_zeros = true, .bf16_scales = true, .block = 32, .scale_unit = 1.0f / 4}},
    {DType::kI8_ROW, {.code = kU8, .zero = 128, .block = 0}},
};

}  // namespace

bool PackedFormOf(DType dtype, int64_t rows, int64_t cols, PackedMatrix* form) {
  const auto* stored = std::find_if(std::begin(kStoredForms), std::end(kStoredForms),
                                    [&](const StoredForm& f) { return f.dtype == dtype; });
  if (stored == std::end(kStoredForms)) return false;
  *form = stored->form;
  FinishForm(form, rows, cols);
  return true;
}

bool QuantizedFormOf(Quantization quantization, int64_t rows, int64_t cols, PackedMatrix* form) {
  PackedMatrix m;
  m.code = PackedCode::kU8;
  m.zero = 128;
  switch (quantization) {
    case Quantization::kQ8_0:
      m.block = 32;
      break;
    case Quantization::kInt8:
      m.block = 0;
      break;
    case Quantization::kInt4:
      m.code = PackedCode::kU4;
      m.zero = 0;
      m.has_zeros = true;
      m.block = 64;
      break;
    default:
      return false;
  }
  FinishForm(&m, rows, cols);
  *form = m;
  return true;
}

int32_t ValueAt(const PackedMatrix& m, int64_t row, int64_t col) {
  const std::byte* panel = PanelOf(m, row);
  const int64_t r = row % kPanelRows, block = m.block > 0 ? col / m.block : 0;
  if (col >= m.cols) return 0;
  if (m.code == PackedCode::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, panel + ((col / 2 * kPanelRows + r) * 2 + col % 2) * 2, sizeof bits);
    return bits;
  }
  if (!m.integer()) return static_cast<int32_t>(FloatBits(m, panel, r, col));
  if (m.block > 0) {
    panel += block * m.block_bytes();
    col %= m.block;
  }
  if (m.code == PackedCode::kU8) return static_cast<uint8_t>(panel[(col / 4 * kPanelRows + r) * 4 + col % 4]) - m.zero;
  const auto pair = static_cast<uint8_t>(panel[(col / 8 * kPanelRows + r) * 4 + col % 4]);
  const int32_t code = col % 8 < 4 ? pair & 0xf : pair >> 4;
  return m.has_zeros ? 4 * code - ZeroPointAt(m, row, block) : code - m.zero;
}

int32_t ZeroAt(const PackedMatrix& m, int64_t row, int64_t block) {
  return m.has_zeros ? ZeroPointAt(m, row, block) : m.zero;
}

void UnpackCodes(const PackedMatrix& m, int64_t row, uint8_t* codes) {
  const int64_t step = m.block == 0 ? kTokenBlock : m.block;
  const int64_t step_bytes = m.block == 0 ? step * kPanelRows : m.block_bytes();
  const std::byte* from = PanelOf(m, row) + row % kPanelRows * 4;
  for (int64_t first = 0; first < m.cols; first += step, from += step_bytes) {
    RowCodes(from, m.code == PackedCode::kU4, step, codes + first);
  }
}

float ScaleAt(const PackedMatrix& m, int64_t row, int64_t block) {
  return ScalePart(m, row, block, 0);
}

float MinimumAt(const PackedMatrix& m, int64_t row, int64_t block) {
  return m.has_minimum ? ScalePart(m, row, block, 1) : 0.0f;
}

void UnpackRow(const PackedMatrix& m, int64_t row, float* out) {
  const int64_t r = row % kPanelRows;
  if (m.code == PackedCode::kBF16) {
    const std::byte* at = PanelOf(m, row) + r * 4;
    for (int64_t c = 0; c < m.cols; c += 2, at += kPanelRows * 4) {
      uint16_t pair[2];
      std::memcpy(pair, at, sizeof pair);
      out[c] = BF16ToF32(pair[0]);
      if (c + 1 < m.cols) out[c + 1] = BF16ToF32(pair[1]);
    }
    return;
  }
  if (!m.integer()) {
    for (int64_t c = 0; c < m.cols; ++c) {
      const uint32_t bits = FloatBits(m, PanelOf(m, row), r, c);
      out[c] = m.code == PackedCode::kF32 ? FloatOf(bits) : F16ToF32(static_cast<uint16_t>(bits));
    }
    return;
  }
  uint8_t codes[kTokenBlock];
  const int64_t step = m.block == 0 ? kTokenBlock : m.block;
  const int64_t step_bytes = m.block == 0 ? step * kPanelRows : m.block_bytes();
  for (int64_t first = 0, b = 0; first < m.cols; first += step, ++b) {
    RowCodes(PanelOf(m, row) + b * step_bytes + r * 4, m.code == PackedCode::kU4, step, codes);
    const int64_t block = m.block == 0 ? 0 : b;
    const float scale = ScaleAt(m, row, block), minimum = MinimumAt(m, row, block);
    const int64_t count = step < m.cols - first ? step : m.cols - first;
    const int32_t times = m.has_zeros ? 4 : 1, zero = ZeroAt(m, row, block);
    for (int64_t c = 0; c < count; ++c) {
      const float value = scale * static_cast<float>(times * codes[c] - zero);
      out[first + c] = m.has_minimum ? value + minimum : value;
    }
  }
}

}  // namespace tactus::compute
