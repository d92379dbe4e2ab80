// The kernel sets that this machine can run, and the portable code shared by all of them.
#include <cmath>
#include <cstdlib>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/check.h"
#include "compute/kernels/attention/schedule.h"
#include "compute/kernels/kernel_set.h"
#include "compute/tensor/dequantize.h"

namespace tactus::compute {

#if defined(__x86_64__)
bool CpuHasAvx2() {
  static const bool has =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return has;
}
// CPUID leaf 7, subleaf 1, EAX bit 4; compilers name it differently.
bool CpuHasAvxVnni() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return CpuHasAvx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
  }();
  return has;
}
bool CpuHasAvx512() {
  static const bool has = CpuHasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has;
}
bool CpuHasAvx512Bf16() {
  static const bool has = CpuHasAvx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}
bool CpuHasAvx512Vnni() {
  static const bool has = CpuHasAvx512() && __builtin_cpu_supports("avx512vnni");
  return has;
}
#endif

#if defined(__x86_64__)
// CPUID leaf 7, EDX: bit 22 bf16, 24 tiles, 25 int8; the system saves tiles (XCR0 bits 17 and 18) and permits their
// use, which Linux grants on request only.
bool CpuHasAmx() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kFeatures = 1u << 22 | 1u << 24 | 1u << 25;
    if (!CpuHasAvx512Vnni() || !CpuHasAvx512Bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    if ((d & kFeatures) != kFeatures) return false;
    unsigned xcr0 = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    constexpr unsigned kTileState = 3u << 17;
    if ((xcr0 & kTileState) != kTileState) return false;
#if defined(__linux__)
    constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
  }();
  return has;
}
#endif

#if defined(__aarch64__)
// Linux's auxiliary vector; the bit numbers are from asm/hwcap.h, whose installed version may be older than the CPU.
bool CpuHasArmDotprod() {
  return (getauxval(AT_HWCAP) >> 20 & 1) != 0;
}
bool CpuHasArmI8mm() {
  return CpuHasArmDotprod() && (getauxval(AT_HWCAP2) >> 13 & 1) != 0;
}
bool CpuHasArmBf16() {
  static const bool has = (getauxval(AT_HWCAP2) >> 14 & 1) != 0;
  return has;
}
#endif

std::vector<const Ops*> RunnableOps() {
  std::vector<const Ops*> sets = {&RefOps()};
#if defined(TACTUS_HAS_KERNELS_SCALAR)
  sets.push_back(&PortableOps());
#endif
#if defined(TACTUS_HAS_KERNELS_AVX2)
  if (CpuHasAvx2()) sets.push_back(&Avx2Ops());
#endif
#if defined(TACTUS_HAS_KERNELS_AVXVNNI)
  if (CpuHasAvxVnni()) sets.push_back(&AvxVnniOps());
#endif
#if defined(TACTUS_HAS_KERNELS_AVX512) && defined(TACTUS_HAS_KERNELS_AVX2)
  // Products for which the CPU lacks an instruction run on the AVX2 set.
  if (CpuHasAvx512()) sets.push_back(&Avx512Ops());
#elif defined(TACTUS_HAS_KERNELS_AVX512)
  if (CpuHasAvx512Bf16() && CpuHasAvx512Vnni()) sets.push_back(&Avx512Ops());
#endif
#if defined(TACTUS_HAS_KERNELS_AMX)
  if (CpuHasAmx()) sets.push_back(&AmxOps());
#endif
#if defined(TACTUS_HAS_KERNELS_NEON_DOTPROD)
  if (CpuHasArmDotprod()) sets.push_back(&NeonDotprodOps());
#endif
#if defined(TACTUS_HAS_KERNELS_NEON_I8MM)
  if (CpuHasArmI8mm()) sets.push_back(&NeonI8mmOps());
#endif
  return sets;
}

const Ops* SelectOps(std::string_view name) {
  const std::vector<const Ops*> sets = RunnableOps();
  if (name.empty()) {
    if (const char* forced = std::getenv("TACTUS_KERNELS"); forced != nullptr) name = forced;
  }
  if (name.empty()) return sets.back();
  for (const Ops* ops : sets) {
    if (name == ops->name) return ops;
  }
  return nullptr;
}

int64_t LinearThreadBytes() {
  constexpr int64_t kWidestTile = 4;  // rows
  return (kWidestTile * kLinearChunk + kLinearTokenBlock * kLinearRowBlock * kMaxWidth) * int64_t{sizeof(float)};
}

namespace {
constexpr int64_t kCacheLine = 64;
}  // namespace

int64_t WorkspaceBytes(int64_t tokens, int64_t max_cols, int32_t heads, int32_t head_dim, int32_t threads) {
  const int64_t padded_cols = (max_cols + 2 * kMaxWidth - 1) / (2 * kMaxWidth) * (2 * kMaxWidth);
  // Products of integer codes need a byte per column of rows padded to kTokenBlock, and terms of the blocks.
  constexpr int64_t kPadding = kTokenBlock + kCacheLine;
  const int64_t linear =
      tokens * (padded_cols * int64_t{sizeof(float)} + kPadding) + 64 + threads * LinearThreadBytes();
  const int64_t attention = AttentionWorkspaceBytes(tokens, heads, head_dim, threads);
  return (linear > attention ? linear : attention) + kCacheLine;
}

std::byte* AlignedWorkspace(const Workspace& scratch, int64_t need_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(scratch.data);
  const auto skip = static_cast<int64_t>((kCacheLine - address % kCacheLine) % kCacheLine);
  TACTUS_CHECK_MSG(scratch.size >= skip + need_bytes, "the kernel workspace has " + std::to_string(scratch.size) +
                                                          " bytes and needs " + std::to_string(skip + need_bytes) +
                                                          "; size it with WorkspaceBytes");
  return scratch.data + skip;
}

void CheckHeadDim(int32_t head_dim, int32_t rotary_dim) {
  TACTUS_CHECK_MSG(head_dim > 0 && head_dim <= kMaxHeadDim && rotary_dim >= 0 && rotary_dim <= head_dim,
                   "head_dim " + std::to_string(head_dim) + " with rotary_dim " + std::to_string(rotary_dim) +
                       ": the limit is " + std::to_string(kMaxHeadDim));
}

void DequantizeSpan(DType dtype, const void* src, int64_t elements, float* out) {
  Dequantize(dtype, static_cast<const std::byte*>(src), elements, out);
}

void RopeAngles(const RopeTable& rope, int32_t position, float* cosines, float* sines) {
  for (int32_t i = 0; i < rope.rotary_dim / 2; ++i) {
    const float angle = static_cast<float>(position) * rope.inv_freq[i];
    cosines[i] = std::cos(angle) * rope.attention_scale;
    sines[i] = std::sin(angle) * rope.attention_scale;
  }
}

float QueryScale::At(int32_t position) const {
  if (beta == 0.0f) return 1.0f;
  const int64_t whole_lengths = (position + offset) / length;
  return 1.0f + beta * std::log(1.0f + static_cast<float>(whole_lengths));
}

}  // namespace tactus::compute
