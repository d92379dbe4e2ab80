#include "compute/tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace tactus::compute {
namespace {

// Indexed by DType. Block sizes follow from the layouts in compute/tensor/dequantize.cc and in the files of
// compute/tensor/blocks.h.
constexpr std::array<DTypeInfo, 33> kInfo = {{
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
    {"q2_k", 256, 16 + 64 + 2 + 2},
    {"q3_k", 256, 32 + 64 + 12 + 2},
    {"iq4_nl", 32, 2 + 16},
    {"iq4_xs", 256, 2 + 2 + 4 + 128},
    {"mxfp4", 32, 1 + 16},
    {"nvfp4", 64, 4 + 32},
    {"iq3_s", 256, 2 + 64 + 8 + 32 + 4},
    {"iq3_xxs", 256, 2 + 64 + 32},
    {"iq2_s", 256, 2 + 32 + 32 + 8 + 8},
    {"iq2_xs", 256, 2 + 64 + 8},
    {"iq2_xxs", 256, 2 + 64},
    {"iq1_m", 256, 32 + 16 + 8},
    {"iq1_s", 256, 2 + 32 + 16},
    {"tq1_0", 256, 48 + 4 + 2},
    {"tq2_0", 256, 64 + 2},
    {"q1_0", 128, 2 + 16},
    {"i4_bf16", 32, 2 + 16},
    {"i8_bf16", 32, 2 + 32},
    {"u4_f16", 32, 2 + 1 + 16},
    {"u4_bf16", 32, 2 + 1 + 16},
    {"i8_row", 32, 4 + 32},
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
