// Simd: the vectors of the instruction set that a file is compiled for. The shared code of rows/, packed/ and
// attention/ includes this, so those headers can be included in any order, and each including file has its own copy (in
// an unnamed namespace: see kernel_set.h).
//
// CMakeLists.txt defines the vectors beside the compiler's flags. The flags alone do not choose: a build for one
// machine (-march=native) sets them everywhere, and the set "scalar" must not change. Files of one instruction set also
// include its header here, and do not compile where CMakeLists.txt defines another.
#pragma once

#if defined(TACTUS_SIMD_AVX512)
#include "compute/kernels/simd/avx512.h"
#elif defined(TACTUS_SIMD_AVX2)
#include "compute/kernels/simd/avx2.h"
#else
#include "compute/kernels/simd/portable.h"
#endif
