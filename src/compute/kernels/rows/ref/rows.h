// The specification of the operators over rows (compute/kernels/ops.h): set "ref". rows.cc states the rounding.
#pragma once

#include "compute/kernels/ops.h"

namespace tactus::compute {

void LinearRef(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias, float* y,
               Workspace scratch);
void RmsNormRef(ThreadPool& pool, const float* x, int64_t tokens, int64_t dim, const float* weight, float eps,
                float* out);
void LayerNormRef(ThreadPool& pool, const float* x, int64_t tokens, int64_t dim, const float* weight, const float* bias,
                  float eps, float* out);
void EmbedRef(ThreadPool& pool, const int32_t* ids, int64_t tokens, const MatrixView& table, float* x);
void RopeRef(ThreadPool& pool, float* q, float* k, const int32_t* positions, int64_t tokens, int32_t heads,
             int32_t kv_heads, int32_t head_dim, const RopeTable& rope);
void StoreKvRef(ThreadPool& pool, const float* k, const float* v, const int64_t* slots, int64_t tokens,
                const KvLayer& kv);
void ActivateRef(ThreadPool& pool, Activation f, const float* gate, const float* up, int64_t n, float* out);
void AddToRef(ThreadPool& pool, float* x, const float* y, float factor, int64_t n);
void ScaleRef(ThreadPool& pool, float* x, float factor, float softcap, int64_t n);
void DequantizeRowRef(const MatrixView& w, int64_t row, float* out);
void RopeStoreRef(ThreadPool& pool, const RopeStoreCall& call, const KvLayer& kv);

}  // namespace tactus::compute
