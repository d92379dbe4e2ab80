// Attention over bf16 K and V on CPUs with AVX512-BF16.
#pragma once

#include "compute/kernels/kernel_set.h"

namespace tactus::compute {

// As Ops::attention; precondition: CpuHasAvx512Bf16() and kv.dtype is kBF16.
void AttentionAvx512Bf16(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                         int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                         Workspace scratch);

}  // namespace tactus::compute
