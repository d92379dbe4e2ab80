// The declarations of cublaslt.h are those of NVIDIA's header, where it is installed.
#include <gtest/gtest.h>

#include <cstdlib>

#include "compute/cuda/cublaslt.h"
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace tactus::compute::cuda {

static_assert(Lt::kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(Lt::kTranspose == CUBLAS_OP_T && sizeof(cublasOperation_t) == sizeof(int));
static_assert(Lt::kCompute32F == CUBLAS_COMPUTE_32F);
static_assert(Lt::kF32 == CUDA_R_32F && Lt::kF16 == CUDA_R_16F && Lt::kBF16 == CUDA_R_16BF);
static_assert(Lt::kE4M3 == CUDA_R_8F_E4M3);
static_assert(Lt::kOperationTransA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(Lt::kLayoutColumns == CUBLASLT_MATRIX_LAYOUT_COLS);
static_assert(Lt::kLayoutStride == CUBLASLT_MATRIX_LAYOUT_LD);
static_assert(Lt::kMaxWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(Lt::kReductions == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(Lt::kMinAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(Lt::kMinAlignmentA + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(Lt::kNoReduction == CUBLASLT_REDUCTION_SCHEME_NONE);
static_assert(sizeof(Lt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Lt::Found) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Lt::Found, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Lt::Found, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));

}  // namespace tactus::compute::cuda
#endif

namespace tactus::compute::cuda {
namespace {

TEST(Cublaslt, MissingLibraryNamesWhatWasTried) {
  setenv("TACTUS_CUBLASLT", "/nowhere/libcublasLt.so.13", 1);
  const auto found = Lt::Load();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(found.status().message().find("/nowhere/libcublasLt.so.13: "), std::string::npos);
}

TEST(Cublaslt, LibraryWithoutItsFunctionsIsRefused) {
  setenv("TACTUS_CUBLASLT", "libm.so.6", 1);
  const auto found = Lt::Load();
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.status().message().find("it lacks a function"), std::string::npos) << found.status().message();
}

}  // namespace
}  // namespace tactus::compute::cuda
