// Memory of the emulated device. Its addresses are reserved and cannot be accessed: code of the host that follows one
// ends with a signal, as on a real device. The contents are elsewhere; accessors and copies find them here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shadow.h"

namespace tactus::compute::cuda::emulator {

// Never destroyed, so that accessors of freed memory find out. `bytes` is 0 then.
struct Allocation {
  std::string name;
  char* address = nullptr;
  char* data = nullptr;
  int64_t bytes = 0;
  std::unique_ptr<Shadow> shadow;
};

// Null: too large for the device's memory.
Allocation* Allocate(int64_t bytes, const std::string& name);
void Free(void* address);
int64_t AllocatedBytes();

// The memory that has this address, also one past its end if no other begins there. Null: none.
Allocation* FindAllocation(const void* address);

// A part of the device's memory. Outside kernels.
struct Range {
  Allocation* memory = nullptr;
  int64_t offset = 0, bytes = 0;
  char* data() const { return memory->data + offset; }
  Shadow& shadow() const { return *memory->shadow; }
};
// Null, with a finding that names `call`: [address, address + bytes) is not all in one allocation.
std::optional<Range> FindRange(const void* address, int64_t bytes, const char* call);

// Accesses of copies and products. One that nothing orders with an access of another stream is a finding.
void CheckOrder(const Range& range, bool writes, const char* call);
void ReadRange(const Range& range, Stamp stamp, const char* call);
void WriteRange(const Range& range, Stamp stamp, const char* call);

void* AllocatePinned(int64_t bytes);
void FreePinned(void* address);
bool IsPinned(const void* address, int64_t bytes);
// The number of the pinned memory with these bytes, different for each that was ever allocated; 0: not in one.
uint64_t PinnedSerial(const void* address, int64_t bytes);

// Numbers of runs (stamp.h): the first of `n` new ones.
uint64_t NewSerials(int64_t n);
uint64_t NextSerial();  // that NewSerials will return

}  // namespace tactus::compute::cuda::emulator
