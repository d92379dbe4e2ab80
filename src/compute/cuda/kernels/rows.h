// Operators on rows: the embedding, norms, activations, sums. Device addresses throughout; `x` and `stream` rows are
// f32 unless stated otherwise, [tokens, dim], one after another. In place is allowed where input and output have one
// type.
#pragma once

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"
#include "compute/tensor/activation.h"

namespace tactus::compute::cuda {

// x[t, :] = scale * table[ids[t], :]; `table` holds `type` (kF32, kBF16 or kF16). Ids are below `rows`; an id that is
// not reads row 0.
void EmbedRows(Stream& s, const int32_t* ids, int64_t tokens, const void* table, Real type, int64_t rows, int64_t dim,
               float scale, float* x);

struct NormCall {
  const float* x = nullptr;  // [tokens, dim]; rows x_stride values apart
  int64_t x_stride = 0;      // 0: dim
  int64_t tokens = 0, dim = 0;
  bool layer = false;             // LayerNorm; else RMSNorm
  const float* weight = nullptr;  // [dim]; null: 1
  const float* bias = nullptr;    // [dim], LayerNorm's; null: 0
  float eps = 1e-5f;
  void* out = nullptr;  // [tokens, dim] of out_type, rows one after another
  Real out_type = Real::kF32;
};
// RMSNorm: x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, 2019); LayerNorm: Ba et al., 2016. The sums' order
// depends on dim alone.
void NormRows(Stream& s, const NormCall& call);
// As RMSNorm over rows of `type`, in place: QkNorm::kWidth of q or k.
void NormTyped(Stream& s, void* x, Real type, int64_t tokens, int64_t dim, const float* weight, float eps);

// out[t, :] = f(gate[t, :]) * up[t, :], or f(gate[t, :]) where `up` is null.
struct ActivateCall {
  Activation f = Activation::kSilu;
  const void* gate = nullptr;  // [tokens, dim] of `type`, rows `stride` values apart
  const void* up = nullptr;    // as gate; f32 where up_f32
  int64_t stride = 0;          // 0: dim
  bool up_f32 = false;
  Real type = Real::kBF16;
  int64_t tokens = 0, dim = 0;
  void* out = nullptr;  // [tokens, dim] of `type`, rows one after another; gate's or up's memory where stride is dim
};
void Activate(Stream& s, const ActivateCall& call);
// gate -= mean + cutoff * deviation of its row, then max with 0 (Gemma 3n): [tokens, dim] of `type`.
void CutGate(Stream& s, void* gate, Real type, int64_t tokens, int64_t dim, float cutoff);

void AddRows(Stream& s, float* x, const float* y, float factor, int64_t n);    // x += factor * y
void ScaleRows(Stream& s, float* x, float factor, float softcap, int64_t n);   // as Ops::scale (kernels/ops.h)
void ConvertRows(Stream& s, const float* x, int64_t n, Real type, void* out);  // rounds to `type`
// to[t, :] = from[rows[t], :] (rows null: from[t, :]) of dim values of `value_bytes`; strides in values.
void CopyRows(Stream& s, const void* from, int64_t from_stride, const int32_t* rows, int64_t tokens, int64_t dim,
              int32_t value_bytes, void* to, int64_t to_stride);

// Gemma 3n's streams (StreamsBlock, config/blocks.h). `streams` [tokens, n, dim]; coefficients f32.
struct StreamsCall {
  float* streams = nullptr;
  float* active = nullptr;              // [tokens, dim]: hidden
  const float* coefficients = nullptr;  // predict: [tokens, n * n]; correct: [tokens, n]
  const float* scale = nullptr;         // correct: [dim], of what becomes `active`
  int64_t tokens = 0, n = 0, dim = 0;
};
void PredictStreams(Stream& s, const StreamsCall& call);
void CorrectStreams(Stream& s, const StreamsCall& call);

}  // namespace tactus::compute::cuda
