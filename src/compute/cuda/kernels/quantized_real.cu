// Products with matrices of bf16, f16 and e4m3 (product_slices.h, product_blocks.h).
#include "compute/cuda/kernels/product_tiles.h"

namespace tactus::compute::cuda {

void MultiplyReal(Stream& s, const ProductShape& shape, const ProductArgs& args) {
  if (shape.type == Real::kBF16) {
    MultiplyTiles<bf16, RealCodes<bf16>>(s, shape, args);
  } else {
    MultiplyTiles<f16, RealCodes<f16>>(s, shape, args);
  }
}

void MultiplyFp8(Stream& s, const ProductShape& shape, const ProductArgs& args) {
  if (shape.type == Real::kBF16) {
    MultiplyTiles<bf16, Fp8Codes<bf16>>(s, shape, args);
  } else {
    MultiplyTiles<f16, Fp8Codes<f16>>(s, shape, args);
  }
}

}  // namespace tactus::compute::cuda
