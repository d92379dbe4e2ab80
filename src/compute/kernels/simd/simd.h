// Simd: the vectors of the instruction set that a file is compiled for. What rows/, packed/ and attention/ write once
// for every instruction set includes this; so those headers include what they need, in any order, and each file that
// includes them gets its own copy (in an unnamed namespace: kernel_set.h says why).
//
// CMakeLists.txt defines which one beside the compiler's flags. The flags alone do not choose: a build for one machine
// (-march=native) has them everywhere, and the set "scalar" must stay what it is. Files of one instruction set name its
// header here as well, and do not compile where CMakeLists.txt says another.
#pragma once

#if defined(TACTUS_SIMD_AVX512)
#include "compute/kernels/simd/avx512.h"
#elif defined(TACTUS_SIMD_AVX2)
#include "compute/kernels/simd/avx2.h"
#else
#include "compute/kernels/simd/portable.h"
#endif
