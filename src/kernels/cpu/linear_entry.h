// The linear operator of a kernel set: picks how weights are read. After linear_kernel.h and row_kernel.h.
#pragma once

#include "kernels/kernel_set.h"

namespace tactus::kernels {
namespace {

// x rounded to bf16, still f32, into scratch.
const float* RoundInput(ThreadPool& pool, const float* x, int64_t n, float* rounded) {
  ForElements(pool, n, [&](int64_t i, int count) {
    StoreFirst(rounded + i, Simd::RoundBF16(LoadFirst(x + i, count)), count);
  });
  return rounded;
}

void Linear(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias, LinearMode mode,
            float* y, Workspace scratch) {
  if (tokens <= 0 || w.rows <= 0) return;
  const bool round = mode == LinearMode::kBF16 && w.dtype == DType::kBF16;
  const int64_t rounded_bytes = round ? RoundUp(tokens * w.cols * static_cast<int64_t>(sizeof(float)), 64) : 0;
  CheckWorkspace(scratch.size, rounded_bytes + pool.threads() * LinearThreadBytes());
  std::byte* thread_scratch = scratch.data + rounded_bytes;
  switch (w.dtype) {
    case DType::kF32: return RunLinear<WeightsF32>(pool, x, tokens, w, false, bias, y, thread_scratch);
    case DType::kF16: return RunLinear<WeightsF16>(pool, x, tokens, w, false, bias, y, thread_scratch);
    case DType::kBF16:
      if (round) x = RoundInput(pool, x, tokens * w.cols, reinterpret_cast<float*>(scratch.data));
      return RunLinear<WeightsBF16>(pool, x, tokens, w, false, bias, y, thread_scratch);
    default: return RunLinear<WeightsF32>(pool, x, tokens, w, true, bias, y, thread_scratch);
  }
}

}  // namespace
}  // namespace tactus::kernels
