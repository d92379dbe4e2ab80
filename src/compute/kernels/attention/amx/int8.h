// Attention over int8 K and V on CPUs with AMX-INT8.
#pragma once

#include "compute/kernels/kernel_set.h"

namespace tactus::compute {

// Whether AttentionAmxInt8 computes over this cache: int8, in whole tiles of 64 dimensions.
bool AmxReadsInt8(const KvLayer& kv);

// As Ops::attention; preconditions: CpuHasAmx() and AmxReadsInt8(kv). The same bits as AttentionAvx512Int8.
void AttentionAmxInt8(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                      int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                      Workspace scratch);

}  // namespace tactus::compute
