// The data of one step that go to the device: one piece of pinned memory, and one copy to the device. A step places its
// arrays, fills them, and sends all at once.
//
// On the device all steps use the same memory: a step's copy follows the work of the step before it in the stream.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "compute/cuda/runtime.h"

namespace tactus::compute::cuda {

class StepBuffer {
 public:
  // Arrays of the next step follow. Precondition: no copy of an earlier step is under way.
  void Clear() { used_ = 0; }

  // Places an array of `n` values and returns its offset. Arrays are filled after Reserve.
  template <class T>
  int64_t Place(int64_t n) {
    const int64_t at = used_;
    used_ += (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return at;
  }
  // Memory for all that was placed, here and on the device. Grows if a step is larger than any before, which waits for
  // the device.
  Status Reserve(DeviceMemory* device) {
    const int64_t bytes = std::max(used_ + used_ / 2, int64_t{1} << 16);
    if (used_ > host_.bytes()) {
      TACTUS_ASSIGN_OR_RETURN(host_, PinnedMemory::Allocate(bytes));
    }
    if (used_ > device->bytes()) {
      TACTUS_ASSIGN_OR_RETURN(*device, DeviceMemory::Allocate(bytes, "data of a step"));
    }
    device_ = device->as<>();
    return Status();
  }
  template <class T>
  T* Host(int64_t at) const {
    return reinterpret_cast<T*>(host_.as<>() + at);
  }
  template <class T>
  T* Device(int64_t at) const {
    return reinterpret_cast<T*>(device_ + at);
  }
  // Fills an array that has been placed.
  template <class T>
  void Fill(int64_t at, std::span<const T> values) const {
    if (!values.empty()) std::memcpy(Host<T>(at), values.data(), values.size_bytes());
  }
  void Send(Stream& s) const {
    if (used_ > 0) s.CopyToDevice(device_, host_.as<>(), used_);
  }
  int64_t bytes() const { return used_; }

 private:
  PinnedMemory host_;
  std::byte* device_ = nullptr;
  int64_t used_ = 0;
};

}  // namespace tactus::compute::cuda
