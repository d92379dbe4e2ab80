// What a kernel may use: memory through checked accessors, CUDA's own intrinsics, and the few PTX instructions that
// CUDA C++ has no function for. Kernels include this header and no other of CUDA.
//
// It is compiled twice. Under nvcc the accessors are pointers and the functions are CUDA's. Under g++ the header
// tests/cuda/emulator/emulated_device.h implements the same names on the CPU and checks every access; see there for
// what it finds.
//
// Rules for kernels, which make both compilations mean the same:
//   - C++17. Memory only through Global, Shared and DynamicShared; vectors through Load and Store, which need
//   alignment.
//   - `const T x = s[i];` reads. `auto x = s[i];` does not compile under g++. `s[i] = s[j]` copies. `s[i] += x` is
//     written as `s[i] = s[i] + x`.
//   - Global<const T> memory is read through the read-only cache: nothing may write it in the same launch.
//   - Barriers are reached by all threads of the block, at one place. Warp functions name the lanes that call them.
//   - Values of 16 and 8 bits are computed with as floats: ToFloat and FromFloat<T>.
//   - A block does not wait for another block.
//   - The number of threads is a template argument, and __launch_bounds__ states it.
#pragma once

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#define TACTUS_DEVICE __device__ __forceinline__

namespace tactus::compute::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;
struct e4m3 {
  uint8_t bits;
};

TACTUS_DEVICE float ToFloat(float v) {
  return v;
}
TACTUS_DEVICE float ToFloat(bf16 v) {
  return __bfloat162float(v);
}
TACTUS_DEVICE float ToFloat(f16 v) {
  return __half2float(v);
}
TACTUS_DEVICE float ToFloat(int8_t v) {
  return static_cast<float>(v);
}
TACTUS_DEVICE float ToFloat(e4m3 v) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(v.bits, __NV_E4M3)));
}
// Rounds to nearest, ties to even. e4m3: values beyond 448 become 448. int8_t: beyond the range its ends.
template <class T>
TACTUS_DEVICE T FromFloat(float v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __float2bfloat16_rn(v);
  } else if constexpr (std::is_same_v<T, f16>) {
    return __float2half_rn(v);
  } else if constexpr (std::is_same_v<T, e4m3>) {
    return e4m3{__nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3)};
  } else if constexpr (std::is_same_v<T, int8_t>) {
    return static_cast<int8_t>(max(-128, min(127, __float2int_rn(v))));
  } else {
    static_assert(std::is_same_v<T, float>);
    return v;
  }
}

// Whether the read-only cache has a load of V: built-in types and vectors.
template <class V, class = void>
struct HasReadOnlyLoad : std::false_type {};
template <class V>
struct HasReadOnlyLoad<V, std::void_t<decltype(__ldg(static_cast<const V*>(nullptr)))>> : std::true_type {};

// Device memory. `elements`, if it is stated, is checked by the emulator alone.
template <class T>
struct Global {
  T* p;
  __host__ __device__ __forceinline__ Global(T* at = nullptr, int64_t /*elements*/ = -1) : p(at) {}
  TACTUS_DEVICE decltype(auto) operator[](int64_t i) const {
    if constexpr (std::is_const_v<T>) {
      return Load<std::remove_const_t<T>>(i);
    } else {
      return (p[i]);
    }
  }
  // V at element i, whose address is a multiple of V's size.
  template <class V>
  TACTUS_DEVICE V Load(int64_t i) const {
    if constexpr (std::is_const_v<T> && (std::is_same_v<V, e4m3>)) {
      return V{__ldg(reinterpret_cast<const uint8_t*>(p + i))};
    } else if constexpr (std::is_const_v<T> && HasReadOnlyLoad<V>::value) {
      return __ldg(reinterpret_cast<const V*>(p + i));
    } else {
      return *reinterpret_cast<const V*>(p + i);
    }
  }
  template <class V>
  TACTUS_DEVICE void Store(int64_t i, V v) const {
    *reinterpret_cast<V*>(p + i) = v;
  }
  TACTUS_DEVICE T AtomicAdd(int64_t i, T v) const { return atomicAdd(p + i, v); }
  TACTUS_DEVICE T AtomicMax(int64_t i, T v) const { return atomicMax(p + i, v); }
  TACTUS_DEVICE bool exists() const { return p != nullptr; }
};

// Memory of the block: N elements (static), or a stated number (dynamic).
template <class T>
struct Shared {
  T* p;
  TACTUS_DEVICE explicit Shared(T* at, int /*elements*/) : p(at) {}
  TACTUS_DEVICE T& operator[](int i) const { return p[i]; }
  template <class V>
  TACTUS_DEVICE V Load(int i) const {
    return *reinterpret_cast<const V*>(p + i);
  }
  template <class V>
  TACTUS_DEVICE void Store(int i, V v) const {
    *reinterpret_cast<V*>(p + i) = v;
  }
  TACTUS_DEVICE T* At(int i) const { return p + i; }  // for LdMatrix and CpAsync alone
  TACTUS_DEVICE T AtomicAdd(int i, T v) const { return atomicAdd(p + i, v); }
  TACTUS_DEVICE T AtomicMax(int i, T v) const { return atomicMax(p + i, v); }
};
// Declares `const Shared<T> name` of N elements.
#define TACTUS_SHARED(T, name, N)                                        \
  __shared__ __align__(16) unsigned char name##_memory[sizeof(T) * (N)]; \
  const Shared<T> name(reinterpret_cast<T*>(name##_memory), N)

extern __shared__ __align__(16) unsigned char dynamic_shared[];
// A part of the launch's dynamic shared memory; byte_offset is a multiple of 16.
template <class T>
TACTUS_DEVICE Shared<T> DynamicShared(int byte_offset, int elements) {
  return Shared<T>(reinterpret_cast<T*>(dynamic_shared + byte_offset), elements);
}

TACTUS_DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ldmatrix: lane l's `row` is the address of row l % 8 of matrix l / 8, 8 values of 16 bits, a multiple of 16 bytes.
// X2 uses the addresses of lanes 0 to 15.
template <class T>
TACTUS_DEVICE void LdMatrixX4(uint32_t (&r)[4], const T* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
template <class T>
TACTUS_DEVICE void LdMatrixX4Trans(uint32_t (&r)[4], const T* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
template <class T>
TACTUS_DEVICE void LdMatrixX2(uint32_t (&r)[2], const T* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(row))
               : "memory");
}

// mma.sync m16n8k16, T is bf16 or f16, sums in f32: c += a b.
template <class T>
TACTUS_DEVICE void Mma16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
// mma.sync m16n8k32 of signed bytes, sums in s32: c += a b.
TACTUS_DEVICE void Mma16832(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies 16 bytes from element i of `from` to shared memory behind the thread's back; !copies: writes 16 zero bytes and
// reads nothing. A thread's copies since its last commit are a group; CpAsyncWait<N> waits until at most N groups are
// under way.
template <class T>
TACTUS_DEVICE void CpAsync16(T* to, const Global<const T>& from, int64_t i, bool copies) {
  const int bytes = copies ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from.p + i), "r"(bytes)
               : "memory");
}
TACTUS_DEVICE void CpAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
TACTUS_DEVICE void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Two values of 16 bits in a register, the first in the low half.
template <class T>
TACTUS_DEVICE uint32_t PackPair(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(v);
  } else {
    const __half2 v = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(v);
  }
}

// The values of a pair.
template <class T>
TACTUS_DEVICE float2 UnpackPair(uint32_t pair) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  } else {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  }
}

// The products of two pairs' halves, each rounded once; subnormal numbers are kept, as in FmaPair: a * b + c.
template <class T>
TACTUS_DEVICE uint32_t MulPair(uint32_t a, uint32_t b) {
  using Pair = std::conditional_t<std::is_same_v<T, bf16>, __nv_bfloat162, __half2>;
  const Pair v = __hmul2(reinterpret_cast<const Pair&>(a), reinterpret_cast<const Pair&>(b));
  return reinterpret_cast<const uint32_t&>(v);
}
template <class T>
TACTUS_DEVICE uint32_t FmaPair(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  if constexpr (std::is_same_v<T, bf16>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

// 2^x, within 2 units of the last place; results below 2^-126 are 0. Whole numbers are exact.
TACTUS_DEVICE float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x, within 1 unit of the last place; subnormal inputs count as 0, subnormal results become 0.
TACTUS_DEVICE float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// a * b, a + b and a * b + c with one rounding each, never contracted: sums whose bits must be those of the CPU.
TACTUS_DEVICE float Mul(float a, float b) {
  return __fmul_rn(a, b);
}
TACTUS_DEVICE float Add(float a, float b) {
  return __fadd_rn(a, b);
}
TACTUS_DEVICE float Fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
TACTUS_DEVICE float Div(float a, float b) {
  return __fdiv_rn(a, b);
}

}  // namespace tactus::compute::cuda

#else
#include "emulated_device.h"
#endif
