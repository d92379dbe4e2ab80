#include "exec/numerics.h"

#include <gtest/gtest.h>

namespace tactus {
namespace {

using kernels::LinearMode;

TEST(Numerics, AutoRoundsActivationsOnlyForBf16Files) {
  EXPECT_EQ(ChooseNumerics("auto", "auto", DType::kBF16)->linear_mode, LinearMode::kBF16);
  for (const DType stored : {DType::kF32, DType::kF16, DType::kQ4_1, DType::kQ8_0, DType::kQ4_K}) {
    const auto n = ChooseNumerics("auto", "auto", stored);
    EXPECT_EQ(n->linear_mode, LinearMode::kF32);
    EXPECT_EQ(n->kv_dtype, DType::kBF16);
    EXPECT_FALSE(n->dequantize_to_f32);
  }
}

TEST(Numerics, Float32IsTheReferenceMode) {
  const auto n = ChooseNumerics("float32", "auto", DType::kBF16);
  EXPECT_TRUE(n->dequantize_to_f32);
  EXPECT_EQ(n->linear_mode, LinearMode::kF32);
  EXPECT_EQ(n->kv_dtype, DType::kF32);
}

TEST(Numerics, KvDtypeOverrides) {
  EXPECT_EQ(ChooseNumerics("float32", "bfloat16", DType::kF32)->kv_dtype, DType::kBF16);
  EXPECT_EQ(ChooseNumerics("bfloat16", "float32", DType::kF32)->kv_dtype, DType::kF32);
}

TEST(Numerics, RefusalsNameTheFlag) {
  const auto dtype = ChooseNumerics("int3", "auto", DType::kF32);
  EXPECT_EQ(dtype.status().param(), "dtype");
  EXPECT_NE(dtype.status().message().find("int3"), std::string::npos);
  EXPECT_EQ(ChooseNumerics("auto", "fp8", DType::kF32).status().param(), "kv-cache-dtype");
}

}  // namespace
}  // namespace tactus
