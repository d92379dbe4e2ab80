// Small kernels that the emulator's tests run. The bugs are planted: each is a fault that the emulator must find.
#pragma once

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

enum class Bug {
  kNone,
  kNoBarrier,        // a barrier is missing
  kOneTooMany,       // one element too many
  kEarlyReturn,      // some threads leave before a barrier
  kDivergent,        // a shuffle of all lanes in a branch of some
  kShortWait,        // a group of cp.async is not waited for
  kNoSecondBarrier,  // the stage is filled again too early
};

// out[t, :] = x[t, :] / sqrt(mean(x^2) + eps) * weight, rows of bf16.
void SampleNorm(Stream& s, const void* x, const float* weight, int64_t tokens, int64_t dim, float eps, void* out,
                Bug bug = Bug::kNone);
// One query head per block against `length` positions of `dim` values, K and V f32 rows in pages of 16 positions.
void SampleAttention(Stream& s, const float* q, const float* k, const float* v, const int32_t* table, int64_t heads,
                     int32_t length, int32_t dim, float* out, Bug bug = Bug::kNone);
// y = x w^T in tiles of 64 x 64 x 32 by ldmatrix, mma and cp.async; cols is a multiple of 8. T by `type`.
void SampleGemm(Stream& s, const void* x, const void* w, Real type, int64_t tokens, int64_t rows, int64_t cols,
                float* y, Bug bug = Bug::kNone);

}  // namespace tactus::compute::cuda
