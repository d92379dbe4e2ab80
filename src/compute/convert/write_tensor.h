// Writes one tensor of a converted file, some rows at a time.
#pragma once

#include <functional>

#include "compute/convert/output.h"
#include "compute/convert/tensor_plan.h"

namespace tactus::compute {

// Values are decoded to f32 and encoded, unless the formats are equal: then bytes are copied. `threads` share the rows
// of a matrix. `progress` gets the bytes of each piece. Errors as ConvertModel's.
Status WriteTensor(const PlannedTensor& tensor, WeightSource& source, int threads, int64_t offset, NewFile* file,
                   const std::function<Status(int64_t)>& progress);

}  // namespace tactus::compute
