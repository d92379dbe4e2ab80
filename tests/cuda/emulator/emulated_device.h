// The names of compute/cuda/kernels/device.h under g++. tests/cuda/README.md lists what is checked.
#pragma once

#include <cstdint>
#include <type_traits>

#include "accessors.h"
#include "intrinsics.h"
#include "matrix_unit.h"
#include "values.h"
#include "warp_functions.h"
