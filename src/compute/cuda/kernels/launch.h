// How the functions beside the kernels launch them. `stream` is a Stream of runtime.h. Dynamic shared memory beyond
// 48 KiB is allowed here once per kernel. Errors are kept for DeviceStatus(). Kernels' sources alone include this.
#pragma once

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/runtime.h"

#if defined(__CUDACC__)

namespace tactus::compute::cuda {

cudaStream_t NativeStream(Stream& stream);                 // runtime_cuda.cc
void CheckLaunch(cudaError_t status, const char* kernel);  // runtime_cuda.cc: keeps the first error

// Launch("RmsNorm", stream, RmsNorm<bf16, 256>, grid, 256, dynamic_shared_bytes, arguments...): arguments are converted
// to the kernel's parameter types.
template <class... P, class... A>
void Launch(const char* name, Stream& stream, void (*kernel)(P...), dim3 grid, int threads, int shared_bytes,
            A&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || !DeviceStatus().ok()) return;
  if (shared_bytes > 48 * 1024) {
    CheckLaunch(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     shared_bytes),
                name);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = NativeStream(stream);
  CheckLaunch(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), name);
}

// Whether kernels for values of T are compiled. No option of the program selects f16, and its kernels cost a third of
// the time; tests on a card have them (TACTUS_CUDA_F16).
template <class T>
inline constexpr bool kHasKernels = !std::is_same_v<T, f16> || TACTUS_CUDA_F16 != 0;
inline void LaunchMissing(const char* name) {
  CheckLaunch(cudaErrorNotSupported, name);
}

}  // namespace tactus::compute::cuda

#else
#include "emulated_launch.h"

namespace tactus::compute::cuda {
template <class T>
inline constexpr bool kHasKernels = true;
inline void LaunchMissing(const char* /*name*/) {}
}  // namespace tactus::compute::cuda
#endif
