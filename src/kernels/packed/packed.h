// Weights in panels and tokens to meet them: what the fast linear operators read. One layout serves every instruction
// set (AVX-512, AVX2, AMX, Arm, scalar), so weights are packed once at load and the kernel set is chosen at run time.
//
// Weights. kPanelRows rows make a panel (zero rows fill the last one); a panel is one contiguous stream, columns
// ascending. A group is what one lane of a dot-product instruction takes: 2 columns of bf16, 4 of integer codes.
//   kBF16  [ceil(cols / 2)][64 rows][2]
//   kF16, kF32  [cols][64 rows]: these meet tokens of f32 only, of which every lane takes one column
//   kU8    per block of `block` columns: [block / 4][64 rows][4] codes, then the block's tail
//   kU4    per block: [block / 8][64 rows][4] bytes, byte j of a row holding column 8i + j in its low nibble and
//          8i + 4 + j in its high one, then the tail
// A block's tail: [64] scales; has_minimum: [64] minima; has_zeros: [64] bytes, a zero point z for each row. Scales and
// minima are f16; where nested_scales they are signed bytes, each to be multiplied in f32 by an f16 that its row has
// for the token block: [64] f16 (has_minimum: and [64] more for minima), of which each block's tail ends with 64 bytes,
// the first blocks' being the whole and the rest unused. A weight is scale * v plus, where has_minimum, minimum; v, an
// integer of 8 bits with its sign, is
//   code - zero    where codes are below 2 * zero; has_minimum: zero is 0, and codes are below 32
//   4 * code - z   where has_zeros: z in [0, 60] counts quarters of a step, so that v is in [-60, 60] and the stored
//                  scale is a quarter of the step from one code to the next
// block == 0: the row is one block of RoundUp(cols, kTokenBlock) columns whose f32 scale follows the codes (per-channel
// int8). Codes beyond cols, up to the end of the last block, are any: tokens hold zeros there. Rows beyond the last
// have scales (and minima) of 0.
//
// Tokens. Row-major, in the form that the weights ask for: f32 as they are, bf16, or integers with one f32 scale per
// kTokenBlock columns of a token: 8 bits, with a shift for each 32 or 64 columns where weights have scales for as few
// (so that one large value does not cost its 127 neighbours their bits), or 16 in two planes, q = 256 * high + low.
// With two planes a token is two rows: integer weights meet nearly exact activations at half the arithmetic of int8 and
// no more bytes of weights.
//
// Arithmetic, bit for bit the same on every kernel set for integer codes, for any number of tokens, tile and thread
// count; q: the token's integers, 8 or 16 bits:
//   per token block, with t from 0, its weight blocks b ascending:
//     s_b = sum over b of v * q, the planes together     exact int32: at most 128 columns of 128 * 32512
//     t = fma(float(s_b << shift_b), scale_b, t), then, with minima, t = fma(minimum_b, float(sum of q << shift_b), t)
//   then y = fma(t, x_scale, y), token blocks ascending, from 0
//   block == 0: y = fma(float(s over the token block), x_scale, y), at the end y * scale
// then + bias, then the epilogue. So a scale per block of weights costs one multiply-add, and one more per 128 columns.
//
// Quantising: scale = max|x| / limit, q = round-to-even(x * (limit / max|x|)), limit 127 (one plane) or 32512 (two),
// all in f32. With shifts, k <= kTokenShift is the largest for which max|x| of the few columns times 2^k is not above
// the token block's; q is rounded from x * (limit / max|x|) * 2^k, shift = kTokenShift - k, and the scale is
// 2^kTokenShift times smaller. A block whose max|x| is below kTokenZero has scale 0, q 0 and shift 0, one with an
// infinity or NaN has scale NaN, q 0 and shift 0, so that nothing hides it. low = q's lowest 8 bits as a signed number,
// high = (q - low) / 256. bf16: tokens rounded to nearest even; y is one chain of pairs, ascending, whose form is the
// kernel set's own.
//
// f32 tokens (kF16, kF32, and any other weights where the caller asks for it): a weight is an f32 as UnpackRow has it;
// y is one chain of multiply-adds, columns ascending, rounded once or twice each as the kernel set has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/matrix_view.h"

namespace tactus::kernels {

inline constexpr int64_t kPanelRows = 64;
inline constexpr int32_t kTokenBlock = 128;  // columns under one scale of a token
inline constexpr int32_t kTokenShift = 7;    // at most
inline constexpr float kTokenZero = 1e-30f;

enum class PackedCode : uint8_t { kBF16, kU8, kU4, kF16, kF32 };

struct PackedMatrix {
  const std::byte* data = nullptr;  // 64-byte aligned; null: not packed
  PackedCode code = PackedCode::kBF16;
  bool has_minimum = false;
  bool has_zeros = false;      // kU4 only, without minima; zero is 0
  bool nested_scales = false;  // block is 16 or 32, cols a multiple of kTokenBlock
  int32_t zero = 0;            // 128, 8, 16, 32; 0 with minima or zero points
  int32_t block = 0;           // columns per scale: 16, 32, 64, 128, or 0 (above); floats: 0
  int32_t code_bits = 8;       // kU8: codes are below 1 << code_bits: 5, 6 or 8
  int64_t rows = 0, cols = 0;
  int64_t panel_bytes = 0;

  bool integer() const { return code == PackedCode::kU8 || code == PackedCode::kU4; }
  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int64_t bytes() const { return panels() * panel_bytes; }
  // Integer codes with block > 0: blocks of a row, and a block's bytes in a panel, codes and all.
  int64_t blocks() const { return (cols + block - 1) / block; }
  int64_t code_bytes() const { return block * kPanelRows / (code == PackedCode::kU4 ? 2 : 1); }
  int64_t block_bytes() const {
    const int64_t parts = has_minimum ? 2 : 1;
    return code_bytes() + kPanelRows * (nested_scales ? parts + 1 : 2 * parts + (has_zeros ? 1 : 0));
  }
};

enum class TokenValues : uint8_t { kBF16, kInt8, kF32 };

// How tokens are rounded for a matrix.
struct TokenFormat {
  TokenValues values = TokenValues::kBF16;
  int32_t planes = 1;  // of kInt8: 1 or 2; else 1
  // Columns under one shift: 32 or 64; kTokenBlock: no shifts (two planes, one scale per row, floats).
  int32_t block = kTokenBlock;
  bool integer() const { return values == TokenValues::kInt8; }
  bool has_shifts() const { return block < kTokenBlock; }
  int64_t value_bytes() const { return integer() ? 1 : values == TokenValues::kBF16 ? 2 : 4; }
  bool operator==(const TokenFormat&) const = default;
};

// What `m` wants. planes: of integer weights' tokens; kUnrounded: tokens of f32 for any weights.
inline constexpr int32_t kUnrounded = 0;
TokenFormat TokensFor(const PackedMatrix& m, int32_t planes);

// Packed tokens in memory that the caller owns. Rows are `stride` bytes apart, cols padded with zeros to
// RoundUp(cols, kTokenBlock). Row r of a two-plane format is token r / 2, the high plane first.
struct PackedTokens {
  TokenFormat format;
  int64_t tokens = 0, cols = 0;
  int64_t stride = 0;           // bytes
  std::byte* values = nullptr;  // [tokens * planes] rows of f32, bf16 or int8
  float* scales = nullptr;      // [tokens][scale_count()]
  int32_t* sums = nullptr;      // [tokens][sum_count()]: sums of q (both planes together) over 16 columns each
  int32_t* shifts = nullptr;    // [tokens][shift_count()]; null: none

  static int64_t PaddedCols(int64_t cols) { return (cols + kTokenBlock - 1) / kTokenBlock * kTokenBlock; }
  int64_t scale_count() const { return format.integer() ? PaddedCols(cols) / kTokenBlock : 0; }
  int64_t sum_count() const { return format.integer() ? PaddedCols(cols) / 16 : 0; }
  int64_t shift_count() const { return format.has_shifts() ? PaddedCols(cols) / format.block : 0; }
};
// Bytes for any format of at most `tokens` tokens of `cols` columns, and a view into such memory (64-byte aligned).
int64_t PackedTokenBytes(int64_t tokens, int64_t cols);
PackedTokens PlaceTokens(std::byte* memory, const TokenFormat& format, int64_t tokens, int64_t cols);
// Stops where tokens are packed for another matrix.
void CheckPackedMatch(const PackedTokens& x, const PackedMatrix& w);

// The packed form of a matrix of this dtype, without data: floats and the GGUF block formats exactly as stored (codes
// of 8 bits where 4 do not suffice), or false where there is none. A matrix of any dtype may be packed in kBF16's form,
// which rounds it.
bool PackedFormOf(DType dtype, int64_t rows, int64_t cols, PackedMatrix* form);
// `--quantization` at load: int8 = per row, symmetric, codes of 8 bits; int4 = groups of 64, 4 bits with a zero point
// (why: quantize_blocks.h); q8_0 = blocks of 32.
enum class Quantization : uint8_t { kNone, kQ8_0, kInt8, kInt4 };
bool QuantizedFormOf(Quantization quantization, int64_t rows, int64_t cols, PackedMatrix* form);

// Packs panels [first, first + count) of `w` into out (form.panel_bytes each), quantising where the form is not the
// file's own. Any thread; panels are independent. Scratch is on the stack.
void PackPanels(const MatrixView& w, const PackedMatrix& form, int64_t first, int64_t count, std::byte* out);
// One row as f32 (embedding look-up, tests): out[cols].
void UnpackRow(const PackedMatrix& m, int64_t row, float* out);
// One element's v (floats: its bits; 0 beyond cols), and the scale and minimum of a block of a row (block == 0: block
// 0). Slow: ref, tests.
int32_t ValueAt(const PackedMatrix& m, int64_t row, int64_t col);
float ScaleAt(const PackedMatrix& m, int64_t row, int64_t block);
float MinimumAt(const PackedMatrix& m, int64_t row, int64_t block);

}  // namespace tactus::kernels
