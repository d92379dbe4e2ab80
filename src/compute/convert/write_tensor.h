// Writes one tensor of a converted file, some rows at a time.
#pragma once

#include <functional>

#include "compute/convert/output.h"
#include "compute/convert/tensor_plan.h"

namespace tactus::compute {

// Where the data of a tensor begin.
struct TensorPlace {
  NewFile* file = nullptr;
  int64_t offset = 0;
};

// Values are decoded to f32 and encoded, unless the formats are equal: then bytes are copied. `threads` share the rows
// of a matrix. `scales`: of a matrix of integers. `progress` gets the bytes of each piece. Errors as ConvertModel's.
Status WriteTensor(const PlannedTensor& tensor, WeightSource& source, int threads, TensorPlace place,
                   TensorPlace scales, const std::function<Status(int64_t)>& progress);

}  // namespace tactus::compute
