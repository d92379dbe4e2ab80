// The machine's best rates with a kernel set and a number of threads: the denominators of every share of a ceiling that
// `tactus doctor` and the benchmarks print. Each rate is the best of many short tries, the machine's capability without
// other load.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/huge_pages.h"
#include "compute/ceilings/loops.h"
#include "compute/kernels/ops.h"

namespace tactus::compute {

struct Ceilings {
  double f32_flops = 0;   // per second: multiply-adds on f32 in the widest registers of the set, all threads
  double bf16_flops = 0;  // vdpbf16ps or tdpbf16ps; 0 where the CPU has none
  double int8_ops = 0;    // vpdpbusd or tdpbsud, a multiply-add counted as two; 0 where the CPU has none
  double read_bytes = 0;  // per second read from memory, all threads; 0: not measured
};

// The loops of a kernel set, by Ops::name; sets without loops of their own have the portable ones.
CeilingLoops LoopsOf(std::string_view set);

// Measures ceilings over a buffer in huge pages where available, like weights and KV: in small pages one core read
// 33 GB/s, not 42. Thread rule: one thread.
class CeilingMeter {
 public:
  // Every try of a read has its own sixteenth of the buffer. It must be far larger than the caches; 0: no reads.
  static constexpr int64_t kReadBytes = int64_t{1} << 30;
  // Throws std::bad_alloc when the system refuses the buffer. `clock` outlives this.
  explicit CeilingMeter(Clock& clock, int64_t read_bytes = kReadBytes);

  // About 0.1 s. `pool`: the threads that share the work.
  Ceilings Measure(ThreadPool& pool, const CeilingLoops& loops);

 private:
  template <class Fn>
  double BestRate(double amount, Fn fn);
  double Rate(ThreadPool& pool, float (*loop)(int64_t), int64_t ops_per_round);

  Clock& clock_;
  const int64_t pieces_;  // per try
  std::optional<HugePageArray<float>> buffer_;
};

}  // namespace tactus::compute
