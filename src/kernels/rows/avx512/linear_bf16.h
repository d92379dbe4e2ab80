// The bf16 x bf16 linear operator of CPUs with AVX512-BF16.
#pragma once

#include "kernels/kernel_set.h"

namespace tactus::kernels {

// As Ops::linear with LinearMode::kBF16 and bf16 weights; precondition: CpuHasAvx512Bf16().
void LinearAvx512Bf16(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias,
                      float* y, Workspace scratch);

}  // namespace tactus::kernels
