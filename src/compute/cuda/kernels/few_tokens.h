// Dense products of one to four tokens: their time is that of reading the matrix once, which a kernel for many tokens
// wastes on empty tiles. A token's sums have another order than gemm.h's, so batch invariance leaves this kernel out.
#pragma once

#include "compute/cuda/gemm.h"

namespace tactus::compute::cuda {

inline constexpr int64_t kFewDenseTokens = 4;

// Whether MultiplyFew computes the call: at most kFewDenseTokens tokens, values of 16 bits, rows aligned to 16 bytes.
bool IsFewTokens(const GemmCall& call);

// y = x w^T + bias, or y += ..., as Gemm::Multiply. Sums in f32, rounded once. Precondition: IsFewTokens(call).
void MultiplyFew(Stream& s, const GemmCall& call);

}  // namespace tactus::compute::cuda
