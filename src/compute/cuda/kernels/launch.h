// How the functions beside the kernels launch them. `stream` is a Stream of runtime.h. Dynamic shared memory beyond
// 48 KiB is allowed here. Errors are kept for DeviceStatus(). Kernels' sources alone include this.
#pragma once

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/runtime.h"

#if defined(__CUDACC__)

namespace tactus::compute::cuda {

cudaStream_t NativeStream(Stream& stream);                 // runtime_cuda.cc
void CheckLaunch(cudaError_t status, const char* kernel);  // runtime_cuda.cc: keeps the first error

inline void AllowShared(const char* name, const void* kernel, int shared_bytes) {
  if (shared_bytes <= 48 * 1024) return;
  CheckLaunch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
}

// Launch("RmsNorm", stream, RmsNorm<bf16, 256>, grid, 256, dynamic_shared_bytes, arguments...): arguments are converted
// to the kernel's parameter types.
template <class... P, class... A>
void Launch(const char* name, Stream& stream, void (*kernel)(P...), dim3 grid, int threads, int shared_bytes,
            A&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || !DeviceStatus().ok()) return;
  AllowShared(name, reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = NativeStream(stream);
  CheckLaunch(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), name);
}

// The blocks of the kernel that one multiprocessor holds at the same time, at least 1.
template <class... P>
int BlocksPerMultiprocessor(const char* name, void (*kernel)(P...), int threads, int shared_bytes) {
  if (!DeviceStatus().ok()) return 1;
  int blocks = 0;
  AllowShared(name, reinterpret_cast<const void*>(kernel), shared_bytes);
  CheckLaunch(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(kernel), threads,
                                                            static_cast<size_t>(shared_bytes)),
              name);
  return blocks > 1 ? blocks : 1;
}

}  // namespace tactus::compute::cuda

#else
#include "emulated_launch.h"
#endif
