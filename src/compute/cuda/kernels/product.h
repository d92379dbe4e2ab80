// What the kernels of products share: their arguments, the order of packed codes, and the order of sums. quantized.h
// and experts.h are their interfaces.
//
// Sums. A row's columns are cut into at most kSlices slices. Within a slice the columns are added step by step (kStep
// columns), and the sums of slices are added in ascending order. A kernel that has a warp for each slice and a kernel
// that has one for all slices therefore give the same bits.
#pragma once

#include <cstdint>

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

inline constexpr int kStep = 64;      // columns
inline constexpr int kTileRows = 16;  // rows of w, those of an mma's first operand
inline constexpr int kSlices = 8;
inline constexpr int kMinSliceSteps = 2;

// Order of packed codes: [row tiles, steps, 1 (kInt4) or 2 (kInt8), 32 lanes, 16 bytes], with rows and columns up to
// whole tiles and steps. Scales and offsets: [row tiles, groups, kTileRows]. product_step.h defines a lane's codes.
struct ProductArgs {
  const void* x = nullptr;  // [tokens, cols]
  const void* codes = nullptr;
  const void* scales = nullptr;  // kFp8: f32 [rows] or [1]
  const void* offsets = nullptr;
  const float* bias = nullptr;  // [experts, rows]
  void* y = nullptr;
  int64_t y_stride = 0;
  int32_t tokens = 0;  // rows of y
  int32_t rows = 0, cols = 0;
  int32_t group_shift = 0;  // log2 of a group's columns; 31: one group
  int32_t groups = 0;       // per row, those behind the last column too
  int32_t steps = 0, slice_steps = 0;
  bool y_float = false, adds = false;
  bool row_scales = false, one_scale = false;  // kFp8: f32 per row, or one for all; neither: scales of groups
  // Grouped products; first null: a dense one.
  const int32_t* first = nullptr;          // [experts + 1]
  const int32_t* token = nullptr;          // [rows], the row of x for each row of y; null: the same
  const DeviceMatrix* matrices = nullptr;  // [experts]: codes, scales, offsets
  const float* row_weights = nullptr;      // [rows of y], factors of the sums; null: 1
  int32_t experts = 0;
  // The format's (product_formats.h). As arguments, because the compiler keeps them in registers then, and one
  // instruction can mask a code with a literal and set its high bits.
  uint32_t high = 0, add = 0, add_with_offsets = 0;
};

// Tiles of this many tokens. They change no bit of a result.
enum class TokenTiles : uint8_t { k8, k16, k32, k64, k128 };

// The rest that decides which kernel multiplies.
struct ProductShape {
  MatrixFormat format = MatrixFormat::kReal;
  Real type = Real::kBF16;  // of x
  int32_t unit = 0;         // columns that are added before a scale is applied: 16, 32 or 64
  TokenTiles tiles = TokenTiles::k8;
};
// tokens_per_matrix: on average.
ProductShape ShapeOf(const DeviceMatrix& w, Real type, const ProductArgs& args, int64_t tokens_per_matrix);
// Arguments with all fields that follow from the matrix.
ProductArgs ArgsOf(const DeviceMatrix& w);

// An upper bound of the number of tiles of at most `tile` rows that cover the rows of all matrices.
inline int64_t MostTiles(const ProductArgs& args, int64_t tile) {
  const int64_t used = args.first == nullptr ? 1 : args.experts < args.tokens ? args.experts : args.tokens;
  return used == 0 || args.tokens == 0 ? 0 : (args.tokens - used) / tile + used;
}

void LaunchProduct(Stream& s, const ProductShape& shape, const ProductArgs& args);

// One per format, each in its source.
void MultiplyReal(Stream& s, const ProductShape& shape, const ProductArgs& args);
void MultiplyFp8(Stream& s, const ProductShape& shape, const ProductArgs& args);
void MultiplyInt8(Stream& s, const ProductShape& shape, const ProductArgs& args);
void MultiplyInt4(Stream& s, const ProductShape& shape, const ProductArgs& args);
// Any format, kF32 activations, values and scales.
void MultiplyFloat(Stream& s, const ProductShape& shape, const ProductArgs& args);

}  // namespace tactus::compute::cuda
