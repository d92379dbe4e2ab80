// The kernels of a format and type, by the tiles of tokens.
#pragma once

#include "compute/cuda/kernels/product_blocks.h"
#include "compute/cuda/kernels/product_slices.h"

namespace tactus::compute::cuda {

template <class T, class C>
void MultiplyTiles(Stream& s, const ProductShape& shape, const ProductArgs& args) {
  if constexpr (kHasKernels<T>) {
    switch (shape.tiles) {
      case TokenTiles::k8:
        return LaunchSlices<T, C, 1, 1>(s, args);
      case TokenTiles::k16:
        return LaunchSlices<T, C, 2, 2>(s, args);
      case TokenTiles::k32:
        return LaunchSlices<T, C, 2, 4>(s, args);
      case TokenTiles::k64:
        return LaunchBlocks<T, C, 1, 4>(s, args);
      case TokenTiles::k128:
        return LaunchBlocks<T, C, 2, 8>(s, args);
    }
  } else {
    LaunchMissing("MultiplyTiles");
  }
}

}  // namespace tactus::compute::cuda
