// Attention by tensor cores in bf16.
#include "compute/cuda/kernels/attention_tensor.h"

namespace tactus::compute::cuda {

void AttendBf16(Stream& s, const AttentionParameters& p) {
  AttendTensor<bf16>(s, p);
}

}  // namespace tactus::compute::cuda
