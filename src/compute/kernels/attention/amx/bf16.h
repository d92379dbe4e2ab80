// Attention over bf16 K and V on CPUs with AMX-BF16.
#pragma once

#include "compute/kernels/kernel_set.h"

namespace tactus::compute {

// Whether AttentionAmxBf16 computes over this cache: bf16, in whole tiles of 32 dimensions.
bool AmxReadsBf16(const KvLayer& kv);

// As Ops::attention; preconditions: CpuHasAmx() and AmxReadsBf16(kv).
void AttentionAmxBf16(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                      int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                      Workspace scratch);

}  // namespace tactus::compute
