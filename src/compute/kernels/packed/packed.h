// Weights in panels and matching tokens: the operands of the fast linear operators. One layout serves every instruction
// set (AVX-512, AVX2, AMX, Arm, scalar), so weights are packed once at load and the kernel set is chosen at run time.
//
// Weights. kPanelRows rows form a panel (zero rows fill the last one); a panel is one contiguous stream, columns
// ascending. A group is the operand of one lane of a dot-product instruction: 2 columns of bf16, 4 of integer codes.
//   kBF16  [ceil(cols / 2)][64 rows][2]
//   kF16, kF32  [cols][64 rows]: multiplied with f32 tokens only; a lane's operand is one column
//   kU8    per block of `block` columns: [block / 4][64 rows][4] codes, then the block's tail
//   kU4    per block: [block / 8][64 rows][4] bytes, byte j of a row with column 8i + j in its low nibble and
//          8i + 4 + j in its high one, then the tail
// A block's tail: [64] scales; has_minimum: [64] minima; has_zeros: [64] bytes, a zero point z per row. Scales and
// minima are f16, or with bf16_scales bf16, times scale_unit. With nested_scales they are signed bytes, each multiplied
// in f32 by the row's f16 for the token block times scale_unit: [64] f16 (has_minimum: and [64] more for minima). The
// tail of each block of the token block ends with 64 bytes for them: those of the first blocks hold them, the rest are
// unused. A weight is scale * v plus, with has_minimum, minimum; v, a signed integer of 8 bits, is
//   code - zero    where codes are below 2 * zero; has_minimum: zero is 0, and codes are below 32
//   4 * code - z   with has_zeros: z in [0, 60] counts quarters of a step, so v is in [-60, 60] and the scale is a
//                  quarter of the step from one code to the next
// block == 0: the row is one block of RoundUp(cols, kTokenBlock) columns, with an f32 scale after the codes
// (per-channel int8). Codes beyond cols, up to the end of the last block, are arbitrary: tokens are zero there. Rows
// beyond the last have scales (and minima) of 0.
//
// Tokens. Row-major, in the form required by the weights: f32 unchanged, bf16, or 8-bit integers q with an f32 scale
// per `block` columns. Two refinements:
//   wide   per `wide` columns, four neighbours, those with the largest value, have 16 bits: their lower bytes are in
//          the row like all others, their upper bytes beside it. Activations have few large values; the others of a
//          block then have their own scale, at the cost of one more dot-product instruction per `wide` / 4.
//   parts  a token of two parts is two such rows; the second rounds the remainder of the first. The sum of both rows'
//          products equals that of 16-bit values, at twice the cost.
//
// Arithmetic, bit for bit the same on every kernel set for integer codes, for any number of tokens, tile and thread
// count; per part, with y from 0, weight blocks b ascending (block == 0: kTokenBlock columns each):
//   s_b = sum over b of v * q     exact int32
//   y = fma(float(s_b) * x_scale, scale_b, y), then, with minima, y = fma(minimum_b, float(sum of q) * x_scale, y)
//   block == 0: y = fma(float(s_b), x_scale, y)
// then the token's parts added; block == 0: * scale; then + bias, then the epilogue.
//
// Quantising: scale = max of |x| * (1 / limit) over the block, limit 127, or 32512 in a wide group. The wide group is
// the first with the largest |x| of its `wide` columns (NaN above infinity). q = round-to-even(x * (1 / scale)), all in
// f32. A scale below kTokenZero becomes 0, with q 0; where an x is infinite or NaN the scale is NaN and q 0, so that
// the error propagates. A lower byte is q's lowest 8 bits as a signed number, the upper one (q - lower) / 256. A part's
// remainder is x - q * scale, rounded twice. bf16: tokens rounded to nearest even; y is one chain of pairs, ascending,
// whose form depends on the kernel set.
//
// f32 tokens (kF16, kF32, and any other weights at the caller's request): a weight is an f32 as in UnpackRow; y is one
// chain of multiply-adds, columns ascending, each rounded once or twice, depending on the kernel set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/tensor/matrix_view.h"

namespace tactus::compute {

inline constexpr int64_t kPanelRows = 64;
inline constexpr int32_t kTokenBlock = 128;  // columns that tokens are padded to; the most under one scale
inline constexpr int32_t kWideColumns = 4;   // per wide group
inline constexpr float kTokenZero = 1e-30f;
inline constexpr float kNarrowReach = 1.0f / 127.0f, kWideReach = 1.0f / 32512.0f;

enum class PackedCode : uint8_t { kBF16, kU8, kU4, kF16, kF32 };

struct PackedMatrix {
  const std::byte* data = nullptr;  // 64-byte aligned; null: not packed
  PackedCode code = PackedCode::kBF16;
  bool has_minimum = false;
  bool has_zeros = false;      // kU4 only, without minima; zero is 0
  bool nested_scales = false;  // block is 16 or 32, cols a multiple of kTokenBlock
  bool bf16_scales = false;    // neither nested nor with minima
  int32_t zero = 0;            // 128, 8, 16, 32; 0 with minima or zero points
  int32_t block = 0;           // columns per scale: 16, 32, 64, 128, or 0 (see above); floats: 0
  int32_t code_bits = 8;       // kU8: codes are below 1 << code_bits: 5, 6 or 8
  float scale_unit = 1;        // a power of two; not with block 0, and with minima only nested
  int64_t rows = 0, cols = 0;
  int64_t panel_bytes = 0;

  bool integer() const { return code == PackedCode::kU8 || code == PackedCode::kU4; }
  // The same layout of the same columns: packed bytes of one are those of the other.
  bool SameForm(const PackedMatrix& o) const {
    return code == o.code && has_minimum == o.has_minimum && has_zeros == o.has_zeros &&
           nested_scales == o.nested_scales && bf16_scales == o.bf16_scales && zero == o.zero && block == o.block &&
           scale_unit == o.scale_unit;
  }
  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int64_t bytes() const { return panels() * panel_bytes; }
  // Integer codes with block > 0: blocks per row, and a block's bytes in a panel, with its tail.
  int64_t blocks() const { return (cols + block - 1) / block; }
  int64_t code_bytes() const { return block * kPanelRows / (code == PackedCode::kU4 ? 2 : 1); }
  int64_t block_bytes() const {
    const int64_t parts = has_minimum ? 2 : 1;
    return code_bytes() + kPanelRows * (nested_scales ? parts + 1 : 2 * parts + (has_zeros ? 1 : 0));
  }
};

enum class TokenValues : uint8_t { kBF16, kInt8, kF32 };

// Rounding of tokens for integer weights.
enum class Rounding : uint8_t {
  kNone,       // f32, for any weights
  kInt8,       // one part
  kMixed,      // one part with a wide group per 32 columns; per 64 or 16 where the weights' scales cover that many
  kMixedFine,  // a wide group per half as many columns, at least 16
  kInt16,      // two parts
};

// The rounding of tokens for a matrix. block, wide and parts: for int8 values.
struct TokenFormat {
  TokenValues values = TokenValues::kBF16;
  int32_t block = kTokenBlock;  // columns under one scale: 32, 64 or 128
  int32_t wide = 0;             // columns per wide group: 16, 32 or 64; 0: no wide groups
  int32_t parts = 1;            // 1 or 2
  bool integer() const { return values == TokenValues::kInt8; }
  int64_t value_bytes() const { return integer() ? 1 : values == TokenValues::kBF16 ? 2 : 4; }
  // Multiplications for `cols` columns; 16-bit values count twice.
  int64_t multiplies(int64_t cols) const { return parts * (wide > 0 ? cols + cols / wide * kWideColumns : cols); }
  bool operator==(const TokenFormat&) const = default;
};

// The token format for `m`.
TokenFormat TokensFor(const PackedMatrix& m, Rounding rounding);

// Four 16-bit columns.
struct WideGroup {
  int8_t upper[kWideColumns];
  int32_t first;  // column, relative to the first of its `wide` columns; a multiple of 4
};

// Packed tokens in memory owned by the caller. Rows, one per part, are `stride` bytes apart, cols padded with zeros to
// RoundUp(cols, kTokenBlock).
struct PackedTokens {
  TokenFormat format;
  int64_t tokens = 0, cols = 0;
  int64_t stride = 0;           // bytes
  std::byte* values = nullptr;  // [rows()] of f32, bf16 or int8
  float* scales = nullptr;      // [rows()][scale_count()]
  int32_t* sums = nullptr;      // [rows()][sum_count()]: sums of q over 16 columns each
  WideGroup* wide = nullptr;    // [rows()][wide_count()]; null: none

  static int64_t PaddedCols(int64_t cols) { return (cols + kTokenBlock - 1) / kTokenBlock * kTokenBlock; }
  int64_t rows() const { return tokens * format.parts; }
  int64_t scale_count() const { return format.integer() ? PaddedCols(cols) / format.block : 0; }
  int64_t sum_count() const { return format.integer() ? PaddedCols(cols) / 16 : 0; }
  int64_t wide_count() const { return format.wide > 0 ? PaddedCols(cols) / format.wide : 0; }
};
// Bytes for any format of at most `tokens` tokens of `cols` columns, and a view into such memory (64-byte aligned).
int64_t PackedTokenBytes(int64_t tokens, int64_t cols);
PackedTokens PlaceTokens(std::byte* memory, const TokenFormat& format, int64_t tokens, int64_t cols);
// Stops the program if the tokens were packed for another matrix.
void CheckPackedMatch(const PackedTokens& x, const PackedMatrix& w);

// The packed form of a matrix of this dtype, without data: floats and the GGUF block formats exactly as stored (8-bit
// codes where 4 bits do not suffice); false: no such form. A matrix of any dtype may be packed in kBF16's form, which
// rounds it.
bool PackedFormOf(DType dtype, int64_t rows, int64_t cols, PackedMatrix* form);
// `--quantization` at load: int8 = per row, symmetric, 8-bit codes; int4 = groups of 64, 4 bits with a zero point (why:
// quantize_blocks.h); q8_0 = blocks of 32.
enum class Quantization : uint8_t { kNone, kQ8_0, kInt8, kInt4 };
bool QuantizedFormOf(Quantization quantization, int64_t rows, int64_t cols, PackedMatrix* form);

// Packs panels [first, first + count) of `w` into out (form.panel_bytes each), quantising where the form differs from
// the file's. Any thread; panels are independent. Scratch is on the stack.
void PackPanels(const MatrixView& w, const PackedMatrix& form, int64_t first, int64_t count, std::byte* out);
// One row as f32 (embedding look-up, tests): out[cols].
void UnpackRow(const PackedMatrix& m, int64_t row, float* out);
// One row of integer codes as stored, without scales: codes[cols up to a multiple of kTokenBlock].
void UnpackCodes(const PackedMatrix& m, int64_t row, uint8_t* codes);
// A row's block (block == 0: block 0) has a scale, a minimum, and what v subtracts: `zero`, or the zero point.
float ScaleAt(const PackedMatrix& m, int64_t row, int64_t block);
float MinimumAt(const PackedMatrix& m, int64_t row, int64_t block);
int32_t ZeroAt(const PackedMatrix& m, int64_t row, int64_t block);
// One element's v (floats: its bits; 0 beyond cols). Slow: ref, tests.
int32_t ValueAt(const PackedMatrix& m, int64_t row, int64_t col);

}  // namespace tactus::compute
