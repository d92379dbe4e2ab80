#include "exec/numerics.h"

#include <string>

namespace tactus {

Result<Numerics> ChooseNumerics(std::string_view dtype, std::string_view kv_cache_dtype, DType weight_dtype) {
  Numerics n;
  if (dtype == "float32") {
    n = {true, kernels::LinearMode::kF32, DType::kF32};
  } else if (dtype == "bfloat16") {
    n.linear_mode = kernels::LinearMode::kBF16;
  } else if (dtype == "auto" || dtype.empty()) {
    if (weight_dtype == DType::kBF16) n.linear_mode = kernels::LinearMode::kBF16;
  } else {
    return InvalidArgument("--dtype " + std::string(dtype) + " is none of auto, float32, bfloat16", "dtype");
  }
  if (kv_cache_dtype == "float32") {
    n.kv_dtype = DType::kF32;
  } else if (kv_cache_dtype == "bfloat16") {
    n.kv_dtype = DType::kBF16;
  } else if (kv_cache_dtype != "auto" && !kv_cache_dtype.empty()) {
    return InvalidArgument("--kv-cache-dtype " + std::string(kv_cache_dtype) + " is none of auto, bfloat16, float32",
                           "kv-cache-dtype");
  }
  return n;
}

}  // namespace tactus
