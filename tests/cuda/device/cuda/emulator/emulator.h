// In place of tests/cuda/emulator/emulator.h where the tests run on a real device: the device that is there, which
// finds nothing by itself (compute-sanitizer does).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "compute/cuda/runtime.h"

namespace tactus::compute::cuda::emulator {

enum class LaneOrder { kForward, kReverse, kShuffled };  // a device has its own
inline void SetLaneOrder(LaneOrder) {}
inline void SetWorkers(int) {}
struct Counts {
  int64_t launches = 0, blocks = 0, memory_bytes = 0;
};
inline Counts CurrentCounts() {  // a device counts nothing
  return {};
}
inline std::vector<std::string> TakeFindings() {
  return {};
}

struct DeviceShape {
  int32_t capability = 80;
  int64_t memory_bytes = 0;
};
inline void SetDeviceShape(const DeviceShape&) {}  // likewise

// Opens the device at the first call. Without one the program ends.
inline void ResetDevice() {
  static const bool opened = [] {
    const auto device = OpenDevice(0);
    if (!device.ok()) {
      std::cerr << "no test can run: " << device.status().message() << "\n";
      std::_Exit(1);
    }
    return true;
  }();
  static_cast<void>(opened);
}

}  // namespace tactus::compute::cuda::emulator
