// What code over CUDA's libraries needs of the runtime besides runtime.h. No header of CUDA is included here.
#pragma once

#include "compute/cuda/runtime.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace tactus::compute::cuda {

// Makes the opened device the thread's current one too.
CUstream_st* NativeStream(Stream& stream);

// Keeps an error of another library for DeviceStatus(), if it is the first.
void FailDevice(Status error);

}  // namespace tactus::compute::cuda
