// Attention by tensor cores in f16.
#include "compute/cuda/kernels/attention_tensor.h"

namespace tactus::compute::cuda {

void AttendF16(Stream& s, const AttentionParameters& p) {
  AttendTensor<f16>(s, p);
}

}  // namespace tactus::compute::cuda
