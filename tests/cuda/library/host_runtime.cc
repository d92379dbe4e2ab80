// The functions of runtime.h that products use, over memory of the host, and the kernels around products as loops.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "compute/cuda/kernels/dense.h"
#include "compute/cuda/runtime_cuda.h"

namespace tactus::compute::cuda {
namespace {

Status g_error;

float Get(const void* data, Real type, int64_t i) {
  if (type == Real::kF32) return static_cast<const float*>(data)[i];
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(data)[i]} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
void Put(void* data, Real type, int64_t i, float value) {
  if (type == Real::kF32) {
    static_cast<float*>(data)[i] = value;
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(bits >> 16);
}

}  // namespace

Status DeviceStatus() {
  return std::exchange(g_error, Status());  // tests begin without an error
}
void FailDevice(Status error) {
  g_error = std::move(error);
}
CUstream_st* NativeStream(Stream& /*stream*/) {
  return nullptr;
}
Result<DeviceMemory> DeviceMemory::Allocate(int64_t bytes, const char* /*name*/) {
  DeviceMemory memory;
  memory.data_.reset(std::malloc(static_cast<size_t>(bytes)));
  memory.bytes_ = bytes;
  return memory;
}
void DeviceMemory::Free::operator()(void* p) const {
  std::free(p);
}

void SpreadBias(Stream& /*s*/, const float* bias, int64_t tokens, int64_t rows, void* y, Real y_type, int64_t y_stride,
                bool adds) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = t * y_stride + r;
      Put(y, y_type, at, bias[r] + (adds ? Get(y, y_type, at) : 0.0f));
    }
  }
}

void ScaleSums(Stream& /*s*/, const ScaleCall& call) {
  for (int64_t t = 0; t < call.tokens; ++t) {
    for (int64_t r = 0; r < call.rows; ++r) {
      const int64_t at = t * call.y_stride + r;
      float value = call.x_scales[t] * call.w_scales[call.one_w_scale ? 0 : r] * call.sums[t * call.rows + r];
      if (call.bias != nullptr) value += call.bias[r];
      if (call.adds) value += Get(call.y, call.y_type, at);
      Put(call.y, call.y_type, at, value);
    }
  }
}

}  // namespace tactus::compute::cuda
