// The data of one step that go to the device: one piece of pinned memory, its copy on the device, one copy between
// them. A step places its arrays, fills them, and sends all at once.
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
  // Memory for all that was placed. Grows if a step is larger than any before.
  Status Reserve() {
    if (used_ <= host_.bytes()) return Status();
    const int64_t bytes = std::max(used_ + used_ / 2, int64_t{1} << 16);
    TACTUS_ASSIGN_OR_RETURN(host_, PinnedMemory::Allocate(bytes));
    TACTUS_ASSIGN_OR_RETURN(device_, DeviceMemory::Allocate(bytes, "data of a step"));
    return Status();
  }
  template <class T>
  T* Host(int64_t at) const {
    return reinterpret_cast<T*>(host_.as<>() + at);
  }
  template <class T>
  T* Device(int64_t at) const {
    return reinterpret_cast<T*>(device_.as<>() + at);
  }
  // Fills an array that has been placed.
  template <class T>
  void Fill(int64_t at, std::span<const T> values) const {
    if (!values.empty()) std::memcpy(Host<T>(at), values.data(), values.size_bytes());
  }
  void Send(Stream& s) const {
    if (used_ > 0) s.CopyToDevice(device_.as<>(), host_.as<>(), used_);
  }
  int64_t bytes() const { return used_; }

 private:
  PinnedMemory host_;
  DeviceMemory device_;
  int64_t used_ = 0;
};

}  // namespace tactus::compute::cuda
