// c += a * b and c -= a * b for f32 matrices of any layout: the arithmetic of rounding by least squares, which needs
// the same bits on every machine of this architecture. Multiplications and additions are rounded separately. Each
// element's sum is a chain of 256 products, k ascending, from 0, which is then added to the element, and so on.
// Independent of vectors, tiles and threads.
#pragma once

#include <cstdint>

#include "compute/kernels/thread_pool.h"

namespace tactus::compute {

// Element (i, j) at data[i * row_stride + j * col_stride].
struct StridedView {
  const float* data = nullptr;
  int64_t row_stride = 0, col_stride = 1;
};

enum class ProductPart : uint8_t {
  kAll,
  kUpper,  // c is square: its upper triangle; parts of the lower one may be computed too
};

struct ProductCall {
  StridedView a;       // [m, k]
  StridedView b;       // [k, n]
  float* c = nullptr;  // [m, n], rows c_stride apart; overlaps neither a nor b
  int64_t m = 0, k = 0, n = 0, c_stride = 0;
  bool subtract = false;
  ProductPart part = ProductPart::kAll;
};
void AddProduct(ThreadPool& pool, const ProductCall& call);

}  // namespace tactus::compute
