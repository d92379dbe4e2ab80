#include "compute/cuda/kernels/tables.h"

#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    WriteEntries(Global<const int64_t> at, Global<const int32_t> blocks, int64_t n, Global<int32_t> tables) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t entry = at[i];
  const int32_t block = blocks[i];
  tables[entry] = block;
}

}  // namespace

void UpdateTables(Stream& s, const int64_t* at, const int32_t* blocks, int64_t n, int32_t* tables) {
  Launch("WriteEntries", s, WriteEntries, dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)), kThreads, 0, at,
         blocks, n, tables);
}

}  // namespace tactus::compute::cuda
