// The part of cuBLASLt's C interface that gemm_cublaslt.cc uses (NVIDIA, "cuBLAS", chapter "Using the cuBLASLt API"),
// declared here: a build needs no header of cuBLAS, which is in a package of half a gigabyte. Versions 12 and 13.
// tests/cuda/library compares the declarations with NVIDIA's header where that is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tactus/status.h"

struct CUstream_st;

namespace tactus::compute::cuda {

struct Lt {
  using Handle = struct OpaqueHandle*;
  using Operation = struct OpaqueOperation*;
  using Layout = struct OpaqueLayout*;
  using Preference = struct OpaquePreference*;
  using NativeStream = ::CUstream_st*;
  struct Algorithm {
    uint64_t data[8];
  };
  struct Found {  // cublasLtMatmulHeuristicResult_t
    Algorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
  };

  static constexpr int kSuccess = 0;           // CUBLAS_STATUS_SUCCESS
  static constexpr int kTranspose = 1;         // CUBLAS_OP_T
  static constexpr int kCompute32F = 68;       // CUBLAS_COMPUTE_32F: no tf32
  static constexpr int kF32 = 0;               // CUDA_R_32F
  static constexpr int kF16 = 2;               // CUDA_R_16F
  static constexpr int kBF16 = 14;             // CUDA_R_16BF
  static constexpr int kE4M3 = 28;             // CUDA_R_8F_E4M3
  static constexpr int kOperationTransA = 3;   // CUBLASLT_MATMUL_DESC_TRANSA
  static constexpr int kLayoutColumns = 3;     // CUBLASLT_MATRIX_LAYOUT_COLS
  static constexpr int kLayoutStride = 4;      // CUBLASLT_MATRIX_LAYOUT_LD
  static constexpr int kMaxWorkspace = 1;      // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
  static constexpr int kReductions = 3;        // CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
  static constexpr int kMinAlignmentA = 5;     // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; then B, C, D
  static constexpr uint32_t kNoReduction = 0;  // CUBLASLT_REDUCTION_SCHEME_NONE

  size_t (*GetVersion)();
  const char* (*GetStatusName)(int);
  int (*Create)(Handle*);
  int (*Destroy)(Handle);
  int (*MatmulDescCreate)(Operation*, int compute, int scale_type);
  int (*MatmulDescDestroy)(Operation);
  int (*MatmulDescSetAttribute)(Operation, int attribute, const void* value, size_t bytes);
  int (*MatrixLayoutCreate)(Layout*, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*MatrixLayoutDestroy)(Layout);
  int (*MatrixLayoutSetAttribute)(Layout, int attribute, const void* value, size_t bytes);
  int (*MatmulPreferenceCreate)(Preference*);
  int (*MatmulPreferenceDestroy)(Preference);
  int (*MatmulPreferenceSetAttribute)(Preference, int attribute, const void* value, size_t bytes);
  int (*MatmulAlgoGetHeuristic)(Handle, Operation, Layout a, Layout b, Layout c, Layout d, Preference, int most,
                                Found* found, int* count);
  int (*MatmulAlgoCheck)(Handle, Operation, Layout a, Layout b, Layout c, Layout d, const Algorithm*, Found*);
  int (*Matmul)(Handle, Operation, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, size_t workspace_bytes,
                NativeStream);

  std::string path;  // of the file that was loaded

  // Loads the library, once for the process. The path in TACTUS_CUBLASLT, if it is set, is the only one that is tried;
  // else the names of versions 13 and 12 in the loader's places, then CUDA's usual folders. kUnavailable: none is
  // there or it is too old, with what was tried.
  static Result<const Lt*> Load();
};

}  // namespace tactus::compute::cuda
