// One thread's loops behind the ceilings (ceilings.h): arithmetic in registers alone, and a read of a buffer. Portable
// declarations only: the files are compiled for one instruction set each (compute/kernels/kernel_set.h).
#pragma once

#include <cstdint>

namespace tactus::compute {

// Each loop returns a value that depends on all of the work. An arithmetic loop does `rounds` times its operations per
// round.
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

}  // namespace tactus::compute
