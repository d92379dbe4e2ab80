// The specification of attention (compute/kernels/ops.h): set "ref".
#pragma once

#include "compute/kernels/ops.h"

namespace tactus::compute {

void AttentionRef(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                  int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                  Workspace scratch);

}  // namespace tactus::compute
