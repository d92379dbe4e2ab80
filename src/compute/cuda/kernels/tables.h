// Block tables on the device.
#pragma once

#include "compute/cuda/runtime.h"

namespace tactus::compute::cuda {

// tables[at[i]] = blocks[i]; the entries are distinct.
void UpdateTables(Stream& s, const int64_t* at, const int32_t* blocks, int64_t n, int32_t* tables);

}  // namespace tactus::compute::cuda
