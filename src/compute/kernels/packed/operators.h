// The operators over packed weights (compute/kernels/ops.h) of every kernel set: each set's are in the folder of its
// instruction set, most of them from kernel.h.
#pragma once

#include <span>

#include "compute/kernels/ops.h"
#include "compute/kernels/packed/panel.h"

namespace tactus::compute {

#define TACTUS_PACKED_OPS(Set)                                                                                     \
  void Pack##Set(ThreadPool& pool, const float* x, const float* norm_weight, float eps, const PackedTokens& out);  \
  void LinearPacked##Set(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs,           \
                         Workspace scratch);                                                                       \
  void GatedPacked##Set(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias, \
                        const PackedMatrix& up, const float* up_bias, float* inner, const PackedTokens& out,       \
                        Workspace scratch);                                                                        \
  void EmbedPacked##Set(ThreadPool& pool, const int32_t* ids, int64_t tokens, const PackedMatrix& table, float* x)

TACTUS_PACKED_OPS(Ref);
TACTUS_PACKED_OPS(Portable);
#if defined(__x86_64__)
TACTUS_PACKED_OPS(Avx2);
TACTUS_PACKED_OPS(AvxVnni);
// Products without their instruction on this CPU run on the AVX2 set.
TACTUS_PACKED_OPS(Avx512);
// Products use matrix tiles where these are faster (bf16: always), else the AVX-512 set's code, as do packing and
// embedding.
void LinearPackedAmx(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs, Workspace scratch);
void GatedPackedAmx(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,
                    const PackedMatrix& up, const float* up_bias, float* inner, const PackedTokens& out,
                    Workspace scratch);
#elif defined(__aarch64__)
TACTUS_PACKED_OPS(Neon);
TACTUS_PACKED_OPS(NeonI8mm);
// bf16 weights by bfdot: a sum's chain adds both products of a pair in one instruction. Precondition: CpuHasArmBf16().
void SumPanelNeonBf16(const PanelSums& run);
#endif

// Defines the operators from kernel.h, once per kernel set; Pick is a PickSumFn.
#define TACTUS_DEFINE_PACKED_OPS(Set, Pick)                                                                           \
  void Pack##Set(ThreadPool& pool, const float* x, const float* norm_weight, float eps, const PackedTokens& out) {    \
    PackTokensOp(pool, x, norm_weight, eps, out);                                                                     \
  }                                                                                                                   \
  void LinearPacked##Set(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs, Workspace) { \
    LinearPackedBy(Pick, pool, x, outputs);                                                                           \
  }                                                                                                                   \
  void GatedPacked##Set(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,    \
                        const PackedMatrix& up, const float* up_bias, float*, const PackedTokens& out, Workspace) {   \
    GatedPackedBy(Pick, pool, x, gate, gate_bias, up, up_bias, out);                                                  \
  }                                                                                                                   \
  void EmbedPacked##Set(ThreadPool& pool, const int32_t* ids, int64_t tokens, const PackedMatrix& table, float* x) {  \
    EmbedPackedOp(pool, ids, tokens, table, x);                                                                       \
  }

}  // namespace tactus::compute
