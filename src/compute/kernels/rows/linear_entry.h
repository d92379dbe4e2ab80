// The linear operator of a kernel set: selects how weights are read.
#pragma once

#include "compute/kernels/kernel_set.h"
#include "compute/kernels/rows/fused_kernel.h"

namespace tactus::compute {
namespace {

// Up to one tile of tokens is read in place; more tokens are packed.
template <class L>
void LinearOver(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, bool panel, const float* bias,
                float* y, Workspace scratch) {
  const bool pack = tokens > Simd::kLinearTokens;
  const int64_t packed_bytes =
      pack ? RoundUp(tokens * PackedColumns<L>(w.cols) * static_cast<int64_t>(sizeof(float)), 64) : 0;
  std::byte* aligned = AlignedWorkspace(scratch, packed_bytes + pool.threads() * LinearThreadBytes());
  std::byte* thread_scratch = aligned + packed_bytes;
  if (!pack) return RunLinear<L, false>(pool, x, tokens, w, panel, bias, y, thread_scratch);
  auto* packed = reinterpret_cast<float*>(aligned);
  PackTokens<L>(pool, x, tokens, w.cols, packed);
  RunLinear<L, true>(pool, packed, tokens, w, panel, bias, y, thread_scratch);
}

void Linear(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias, float* y,
            Workspace scratch) {
  if (tokens <= 0 || w.rows <= 0) return;
  switch (w.dtype) {
    case DType::kF32:
      return LinearOver<WeightsF32>(pool, x, tokens, w, false, bias, y, scratch);
    case DType::kF16:
      return LinearOver<WeightsF16>(pool, x, tokens, w, false, bias, y, scratch);
    case DType::kBF16:
      return LinearOver<WeightsBF16>(pool, x, tokens, w, false, bias, y, scratch);
    case DType::kQ8_0:
      if (TryFused<BlocksQ80>(pool, x, tokens, w, bias, y)) return;
      break;
    case DType::kQ4_0:
      if (TryFused<BlocksQ40>(pool, x, tokens, w, bias, y)) return;
      break;
    case DType::kQ4_1:
      if (TryFused<BlocksQ41>(pool, x, tokens, w, bias, y)) return;
      break;
    default:
      break;
  }
  LinearOver<WeightsF32>(pool, x, tokens, w, true, bias, y, scratch);
}

}  // namespace
}  // namespace tactus::compute
