// ldmatrix, mma.sync and cp.async of compute/cuda/kernels/device.h.
#pragma once

#include <type_traits>

#include "accessors.h"
#include "warp_functions.h"

namespace tactus::compute::cuda {
namespace emulator {

struct Row16 {
  unsigned char bytes[16];
};
struct Registers {
  uint32_t r[4];
};
// Each lane brings a Row16 and is given Registers. Lane `lane` of matrix `m` takes two values of row lane / 4;
// transposed, two rows' values of column lane / 4.
void LoadMatrices(Warp& w, int matrices, bool transposed);
// 16 bytes at `row` in the block's shared memory.
Row16 ReadRow(const void* row, const Where& where);

struct Fragments {
  uint32_t a[4], b[2], c[4];
};
struct Accumulator {
  uint32_t c[4];
};
// Each lane brings its Fragments and is given an Accumulator. The sums are those of an H200 (conformance/sum_model.h).
void MultiplyBf16(Warp& w);
void MultiplyF16(Warp& w);
void MultiplyInt8(Warp& w);

template <int N>
[[gnu::always_inline]] inline void LdMatrix(const char* kind, uint32_t (&r)[N], const void* row, bool transposed,
                                            const Where& where) {
  const Row16 mine = LaneNow() < 8 * N ? ReadRow(row, where) : Row16{};
  const auto out = Meet<Registers>(kind, ~0u, mine, where, [&](Warp& w, uint32_t) { LoadMatrices(w, N, transposed); });
  std::memcpy(r, out.r, sizeof r);
}

[[gnu::always_inline]] inline Accumulator Mma(const char* kind, const void* c, const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1, void (*multiply)(Warp&), const Where& where) {
  Fragments in{{a[0], a[1], a[2], a[3]}, {b0, b1}, {}};
  std::memcpy(in.c, c, sizeof in.c);
  return Meet<Accumulator>(kind, ~0u, in, where, [&](Warp& w, uint32_t) { multiply(w); });
}

void IssueCopy(void* to, const char* from, const Where& where);
void WaitForCopies(int groups_left);

}  // namespace emulator

template <class T>
[[gnu::always_inline]] inline void LdMatrixX4(uint32_t (&r)[4], const T* row, TACTUS_WHERE) {
  emulator::LdMatrix("ldmatrix.x4", r, row, false, where);
}
template <class T>
[[gnu::always_inline]] inline void LdMatrixX4Trans(uint32_t (&r)[4], const T* row, TACTUS_WHERE) {
  emulator::LdMatrix("ldmatrix.x4.trans", r, row, true, where);
}
template <class T>
[[gnu::always_inline]] inline void LdMatrixX2(uint32_t (&r)[2], const T* row, TACTUS_WHERE) {
  emulator::LdMatrix("ldmatrix.x2", r, row, false, where);
}

template <class T>
[[gnu::always_inline]] inline void Mma16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                            TACTUS_WHERE) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  constexpr bool kBf16 = std::is_same_v<T, bf16>;
  const emulator::Accumulator sums = emulator::Mma(kBf16 ? "mma.m16n8k16.bf16" : "mma.m16n8k16.f16", c, a, b0, b1,
                                                   kBf16 ? &emulator::MultiplyBf16 : &emulator::MultiplyF16, where);
  std::memcpy(c, sums.c, sizeof c);
}
[[gnu::always_inline]] inline void Mma16832(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                            TACTUS_WHERE) {
  const emulator::Accumulator sums = emulator::Mma("mma.m16n8k32.s8", c, a, b0, b1, &emulator::MultiplyInt8, where);
  std::memcpy(c, sums.c, sizeof c);
}

template <class T>
void CpAsync16(T* to, const Global<const T>& from, int64_t i, bool copies, TACTUS_WHERE) {
  const char* source = copies ? from.Source16(i, where) : nullptr;
  if (copies && source == nullptr) return;
  emulator::IssueCopy(to, source, where);
}
inline void CpAsyncCommit() {
  ++emulator::current->group;
}
template <int N>
void CpAsyncWait() {
  emulator::WaitForCopies(N);
}

}  // namespace tactus::compute::cuda
