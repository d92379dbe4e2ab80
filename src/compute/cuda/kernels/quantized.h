// Products with matrices of 8 and 4 bits, for any number of tokens. Dense products: gemm.h, few_tokens.h.
//
// Layouts that Repack reads. kInt8: codes [rows, cols], one signed byte each. kInt4: codes [rows, cols / 2], the low
// half of a byte first. Scales and offsets [rows, groups per row] of type `real`. A group has 16, 32 or 64 columns, a
// larger power of 2, or all columns (one scale per row). kReal and kFp8 are read as types.h describes them; scales of
// kFp8 are one per row where group is cols, and one for all where group is 0.
//
// Columns: a multiple of 8, of 16 for kFp8, and of the group. Values of kReal, scales and offsets have the type of the
// activations. Addresses are multiples of 16 bytes.
//
// Batch invariance: the bits of a product's row depend on its token, the matrix and y_type alone. MultiplyQuantized and
// MultiplyGrouped (experts.h) give the same bits for the same matrix, whatever the number of tokens. They differ from
// the library's bits, also for kReal.
#pragma once

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

struct ProductCall {
  const void* x = nullptr;  // [tokens, cols] of `type`, rows one after another
  Real type = Real::kBF16;
  int64_t tokens = 0;
  DeviceMatrix w;
  const float* bias = nullptr;  // [rows]; null: none
  void* y = nullptr;            // [tokens, rows] of y_type, rows y_stride values apart
  Real y_type = Real::kBF16;    // `type` or kF32; kF32 where `adds`
  int64_t y_stride = 0;
  bool adds = false;  // y += ...; else y = ...
};
// Any format and any number of tokens, by tensor cores: codes become exact values of `type`, sums are f32 in an order
// that depends on the format, the group and cols alone. kF32 activations: plain loops, for tests.
void MultiplyQuantized(Stream& s, const ProductCall& call);

// Bytes that Repack writes; 0 for formats that are read as they are. Of the addresses only `offsets` matters: whether
// there are offsets.
int64_t RepackedBytes(const DeviceMatrix& from);
// `from` with the addresses that its parts have once it is repacked to `to`.
DeviceMatrix PlaceRepacked(const DeviceMatrix& from, void* to);
// Repack of the rows [first, first + part.rows) of `placed`, which `part` has in the layouts above: a large matrix
// takes little scratch. `first` is a multiple of kRepackRows, and so is part.rows unless these are the last rows.
inline constexpr int64_t kRepackRows = 16;
void RepackRows(Stream& s, const DeviceMatrix& part, int64_t first, const DeviceMatrix& placed);
// Brings codes, scales and offsets from the layouts above into the order that products read. Returns `from` with the
// new addresses, all in `to`. Formats that are read as they are return as they are.
DeviceMatrix Repack(Stream& s, const DeviceMatrix& from, void* to);

}  // namespace tactus::compute::cuda
