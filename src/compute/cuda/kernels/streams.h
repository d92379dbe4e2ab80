// Operators of models with parallel streams of the residual (Gemma 3n; compute/model/streams_forward.cc has the
// definitions). All values f32 on the device.
#pragma once

#include "compute/cuda/runtime.h"

namespace tactus::compute::cuda {

void TanhRows(Stream& s, float* x, float scale, int64_t n);  // x = tanh(scale * x)

// out[t, :] (+)= x[t, :] times the factor that gives the row the magnitude of like[t, :]: the root of the mean of
// squares, x's at least sqrt(1e-5). Rows dim values long, strides in values; x's follow one another.
struct MatchCall {
  const float* like = nullptr;
  int64_t like_stride = 0;
  const float* x = nullptr;
  int64_t tokens = 0, dim = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  bool adds = false;
};
void MatchMagnitude(Stream& s, const MatchCall& call);

// streams[t, k, :] += x[t, :] for k in [1, n).
void AddToOtherStreams(Stream& s, const float* x, int64_t tokens, int64_t n, int64_t dim, float* streams);

}  // namespace tactus::compute::cuda
