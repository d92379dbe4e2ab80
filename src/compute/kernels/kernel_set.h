// Declarations shared by the kernel-set files and select.cc; portable declarations only.
//
// Files compiled for one instruction set may include no header that defines an inline function or template with
// external linkage: the linker could use that copy for the whole program, and it would be an illegal instruction on
// other machines. So the headers of simd/, rows/, packed/ and attention/ define their code in an unnamed namespace;
// tests/compute/kernels checks the objects.
#pragma once

#include <cstdint>

#include "compute/kernels/ops.h"

namespace tactus::compute {

const Ops& RefOps();
const Ops& PortableOps();  // "scalar"
#if defined(__x86_64__)
const Ops& Avx2Ops();
const Ops& AvxVnniOps();  // Avx2Ops with AVX-VNNI's integer products
const Ops& Avx512Ops();
const Ops& AmxOps();  // Avx512Ops with matrix tiles
bool CpuHasAvx2();    // with FMA and F16C
bool CpuHasAvxVnni();
bool CpuHasAvx512();  // F, BW, VL, DQ
bool CpuHasAvx512Bf16();
bool CpuHasAvx512Vnni();
bool CpuHasAmx();  // with AVX-512 VNNI and BF16; once requests the tiles' state from Linux
#elif defined(__aarch64__)
// The portable set, with the CPU extensions' products of packed weights.
const Ops& NeonDotprodOps();
const Ops& NeonI8mmOps();
bool CpuHasArmDotprod();
bool CpuHasArmI8mm();  // and dotprod
bool CpuHasArmBf16();
#endif

// Scratch layout of every set but ref, in bytes. Linear: the rounded input, then per thread a weight panel and partial
// sums.
inline constexpr int64_t kLinearChunk = 1024;     // columns per pass over K (a multiple of every block format)
inline constexpr int64_t kLinearTokenBlock = 96;  // tokens per task
inline constexpr int64_t kLinearRowBlock = 16;    // weight rows whose partial sums are kept at a time
inline constexpr int64_t kMaxWidth = 16;          // lanes of the widest set
// Attention: positions per partition, positions per transposed tile of K, rows (queries x heads) per tile: of most
// kernels, and the most of any.
inline constexpr int32_t kPartition = 256;
inline constexpr int32_t kKeyTile = 64;
inline constexpr int32_t kAttentionTileRows = 64, kMostTileRows = 256;
inline constexpr int32_t kMaxHeadDim = 512;
inline constexpr int32_t kSplitPerThread = 4;  // when tiles are split: their partitions in flight per thread

int64_t LinearThreadBytes();
// The caller's workspace from its first cache line on: vectors must not straddle lines. If fewer than `need_bytes`
// follow, the program stops and reports both sizes; an overrun would corrupt memory silently.
std::byte* AlignedWorkspace(const Workspace& scratch, int64_t need_bytes);
void CheckHeadDim(int32_t head_dim, int32_t rotary_dim);

// compute/tensor/dequantize.h's, declared here without its includes.
void DequantizeSpan(DType dtype, const void* src, int64_t elements, float* out);
// Cosine and sine of position * inv_freq in f32, times the table's scale; libm's, the same for every set.
void RopeAngles(const RopeTable& rope, int32_t position, float* cosines, float* sines);

}  // namespace tactus::compute
