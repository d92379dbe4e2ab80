// Products with matrices of codes of 8 bits (product_slices.h, product_blocks.h).
#include "compute/cuda/kernels/product_tiles.h"

namespace tactus::compute::cuda {
namespace {

template <class T>
void MultiplyCodes(Stream& s, const ProductShape& shape, const ProductArgs& args) {
  if (shape.unit == 16) {
    MultiplyTiles<T, Int8Codes<T, 16>>(s, shape, args);
  } else if (shape.unit == 32) {
    MultiplyTiles<T, Int8Codes<T, 32>>(s, shape, args);
  } else {
    MultiplyTiles<T, Int8Codes<T, 64>>(s, shape, args);
  }
}

}  // namespace

void MultiplyInt8(Stream& s, const ProductShape& shape, const ProductArgs& args) {
  if (shape.type == Real::kBF16) {
    MultiplyCodes<bf16>(s, shape, args);
  } else {
    MultiplyCodes<f16>(s, shape, args);
  }
}

}  // namespace tactus::compute::cuda
