// Control of the emulated device, for tests. tests/cuda/README.md describes what the emulator checks and its limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tactus/status.h"

namespace tactus::compute::cuda::emulator {

// In which order ready lanes, warps and blocks run. A kernel that is right gives the same results in all of them.
enum class LaneOrder { kForward, kReverse, kShuffled };
void SetLaneOrder(LaneOrder order);
LaneOrder CurrentLaneOrder();

// What was found wrong since the last call: kind, place in the source, kernel, block, thread and detail in a line. One
// place in one kernel is reported once. First runs all work that streams still hold.
std::vector<std::string> TakeFindings();

// The next `launches` launches work, the one after them fails with `error`, as does everything after it. `kernel`: only
// launches of this name are counted; empty: all.
void FailLaunchAfter(int64_t launches, Status error, const std::string& kernel = "");
// Clears the error of the device, drops the work of all streams and what is planned.
void ResetDevice();

// The next `waits` calls of Stream::Wait and Event::Synchronize work, the one after them does nothing: a test of an
// order that is missing. -1: none, as after ResetDevice.
void DropWaitAfter(int64_t waits);

// What OpenDevice() states. Memory beyond `memory_bytes` is refused.
struct DeviceShape {
  int32_t capability = 80;
  int32_t multiprocessors = 8;
  int64_t memory_bytes = int64_t{4} << 30;
  int64_t shared_bytes_per_block = 99 * 1024;  // the least of all supported cards
};
void SetDeviceShape(const DeviceShape& shape);

// Totals since the program started.
struct Counts {
  int64_t launches = 0, blocks = 0, copies = 0, products = 0, graph_runs = 0;
  int64_t waits = 0;         // Stream::Wait and Event::Synchronize
  int64_t memory_bytes = 0;  // allocated now
};
Counts CurrentCounts();

// 1: blocks run one after another. Otherwise at most this many threads of the processor run blocks.
void SetWorkers(int workers);

}  // namespace tactus::compute::cuda::emulator
