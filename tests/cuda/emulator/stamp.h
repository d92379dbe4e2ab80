// When and by which thread a word of memory was accessed, in 64 bits.
//
// From the highest bit: serial (29 bits) of the block's run, or of the copy; tick (22) of the thread at that time; the
// thread's number in the block (10); kind (3). So the stamps of earlier launches are less than the first stamp of a
// launch, and the stamps before a barrier of the block are less than the first one after it.
//
// A block's ticks count its barriers and warp barriers. A thread has the tick of the last one that it took part in.
#pragma once

#include <cstdint>

namespace tactus::compute::cuda::emulator {

using Stamp = uint64_t;  // 0: never written, or never read

inline constexpr int kKindBits = 3, kThreadBits = 10, kTickBits = 22, kSerialBits = 29;
inline constexpr int kTickShift = kKindBits + kThreadBits, kSerialShift = kTickShift + kTickBits;
inline constexpr uint64_t kMostTicks = (uint64_t{1} << kTickBits) - 1;
inline constexpr uint64_t kMostSerials = (uint64_t{1} << kSerialBits) - 2;

// Kinds. Reads, and writes by atomic operations: which threads the stamp stands for. The stamp has the last of them, or
// in kOneWarp the middle of a group of lanes that has them all. Such a group is aligned and has 2, 4, 8, 16 or 32
// lanes.
inline constexpr Stamp kOneThread = 0, kOneWarp = 1, kOneBlock = 2, kManyBlocks = 3, kSpread = 3;
// A read through the read-only cache; a write by atomic operations alone.
inline constexpr Stamp kReadOnly = 4, kAtomic = 4;

inline constexpr Stamp kSplit = ~Stamp{0};                     // the word's bytes have their own stamps
inline constexpr uint64_t kInFlightSerial = kMostSerials + 1;  // of writes by cp.async that have not landed
inline constexpr Stamp kInFlight = kInFlightSerial << kSerialShift;
inline constexpr Stamp kByHost = Stamp{1} << kSerialShift;

constexpr uint64_t SerialOf(Stamp s) {
  return s >> kSerialShift;
}
constexpr uint64_t TickOf(Stamp s) {
  return (s >> kTickShift) & kMostTicks;
}
constexpr uint32_t ThreadOf(Stamp s) {
  return static_cast<uint32_t>(s >> kKindBits) & ((1u << kThreadBits) - 1);
}
constexpr Stamp KindOf(Stamp s) {
  return s & ((1u << kKindBits) - 1);
}
struct LaneGroup {
  uint32_t first, size;
};
constexpr LaneGroup GroupOf(Stamp s) {  // kOneThread or kOneWarp
  const uint32_t lane = ThreadOf(s) % 32, half = lane & (~lane + 1);
  return (s & kSpread) == kOneThread ? LaneGroup{lane, 1} : LaneGroup{lane - half, 2 * half};
}
// Both are of one thread alone, and no special kind of access. Such accesses are in order.
constexpr bool IsBySame(Stamp a, Stamp b) {
  return ((a ^ b) & ~(kMostTicks << kTickShift)) == 0;
}
constexpr Stamp MakeStamp(uint64_t serial, uint64_t tick, uint32_t thread) {
  return (serial << kSerialShift) | (tick << kTickShift) | (Stamp{thread} << kKindBits);
}

}  // namespace tactus::compute::cuda::emulator
