#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace tactus {
namespace {

// Indexed by DType. Block sizes follow from the layouts in kernels/rows/dequantize.cc.
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

bool SameIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const char c = a[i] >= 'A' && a[i] <= 'Z' ? static_cast<char>(a[i] - 'A' + 'a') : a[i];
    if (c != b[i]) return false;
  }
  return true;
}

}  // namespace

const DTypeInfo& InfoOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  TACTUS_CHECK(index < kInfo.size());
  return kInfo[index];
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (SameIgnoringCase(name, kInfo[i].name)) return static_cast<DType>(i);
  }
  if (SameIgnoringCase(name, "float32")) return DType::kF32;
  if (SameIgnoringCase(name, "float16")) return DType::kF16;
  if (SameIgnoringCase(name, "bfloat16")) return DType::kBF16;
  return std::nullopt;
}

int64_t RowBytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = InfoOf(dtype);
  TACTUS_CHECK(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace tactus
