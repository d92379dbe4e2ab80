// The machine's best rates, measured in the same run as the kernels: the denominators of every printed share.
#pragma once

#include <cstdint>

#include "compute/kernels/ops.h"

namespace tactus::bench {

struct Ceilings {
  double f32_flops = 0;   // multiply-adds on f32 in the widest registers of the set, all threads
  double bf16_flops = 0;  // vdpbf16ps or tdpbf16ps; 0 where the CPU has none
  double int8_ops = 0;    // vpdpbusd or tdpbsud, a multiply-add counted as two; 0 where the CPU has none
  double read_bytes = 0;  // bytes per second read from memory, all threads, buffer far beyond the caches
};

// Measured once (about a second) for the kernel set `ops`.
const Ceilings& MeasuredCeilings(compute::ThreadPool& pool, const compute::Ops& ops);
// Measured at each call, best of five short tries each (about 0.1 s): for runs in which the machine's speed varies.
Ceilings MeasureCeilings(compute::ThreadPool& pool, const compute::Ops& ops);

// One thread's register-only loops and its read of a buffer; each returns a value that depends on all of the work.
// `rounds` x kFlopsPerRound operations.
struct CeilingLoops {
  float (*f32)(int64_t rounds);
  int64_t f32_flops_per_round;
  float (*bf16)(int64_t rounds);  // null: none
  int64_t bf16_flops_per_round;
  float (*read)(const float* data, int64_t floats);
  float (*int8)(int64_t rounds) = nullptr;  // null: none
  int64_t int8_ops_per_round = 0;
  float (*int4)(int64_t rounds) = nullptr;  // 4-bit codes by 8, if the set has a faster way; null: int8
  int64_t int4_ops_per_round = 0;
  bool int8_takes_16 = false;  // products of 8 by 16 bits cost the same
};
CeilingLoops PortableLoops();
#if defined(__x86_64__)
CeilingLoops Avx2Loops();
CeilingLoops AvxVnniLoops();
CeilingLoops Avx512Loops();
CeilingLoops AmxLoops();
#endif

}  // namespace tactus::bench
