// Attention of the set "avxvnni".
#pragma once

#include "compute/kernels/kernel_set.h"

namespace tactus::compute {

// As Ops::attention; precondition: the CPU has AVX-VNNI.
void AttentionAvxVnni(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                      int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                      Workspace scratch);

}  // namespace tactus::compute
