#include "compute/tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace tactus::compute {
namespace {

// Indexed by DType. Block sizes follow from the layouts in compute/tensor/dequantize.cc.
constexpr std::array<DTypeInfo, 12> kInfo = {{
    {"f32", 1, 4},
    {"f16", 1, 2},
    {"bf16", 1, 2},
    {"q4_0", 32, 2 + 16},
    {"q4_1", 32, 2 + 2 + 16},
    {"q5_0", 32, 2 + 4 + 16},
    {"q5_1", 32, 2 + 2 + 4 + 16},
    {"q8_0", 32, 2 + 32},
    {"q4_k", 256, 2 + 2 + 12 + 128},
    {"q5_k", 256, 2 + 2 + 12 + 32 + 128},
    {"q6_k", 256, 128 + 64 + 16 + 2},
    {"int8", 1, 1},
}};

}  // namespace

const DTypeInfo& InfoOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  TACTUS_CHECK(index < kInfo.size());
  return kInfo[index];
}

int64_t RowBytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = InfoOf(dtype);
  TACTUS_CHECK(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace tactus::compute
