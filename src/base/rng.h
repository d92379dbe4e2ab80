// Random numbers that are the same on every machine: counter-based, no std distributions (their output is
// implementation-defined). Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11), Philox4x32-10.
#pragma once

#include <array>
#include <cstdint>

namespace tactus {

// 128 random bits as a pure function of (key, counter).
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter);

// Uniform in [0, 1), 53 bits, from (seed, stream, index): sampling uses (seed, choice, position).
double UniformAt(uint64_t seed, uint64_t stream, uint64_t index);

// A sequential generator over the same function, for workloads and tests. Not thread-safe.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}
  uint64_t Next64();
  double Uniform();                               // [0, 1)
  int64_t UniformInt(int64_t low, int64_t high);  // both inclusive; low <= high
  double Normal();                                // mean 0, deviation 1
  double Exponential(double mean);

 private:
  uint64_t seed_, stream_, index_ = 0;
};

}  // namespace tactus
