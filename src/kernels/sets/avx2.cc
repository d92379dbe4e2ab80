// The kernel set of machines with AVX2, FMA and F16C (compiled for them).
#include "kernels/simd/avx2.h"
#include "kernels/attention/kernel.h"
#include "kernels/packed/operators.h"
#include "kernels/rows/fused_kernel.h"
#include "kernels/rows/linear_entry.h"
#include "kernels/rows/linear_kernel.h"
#include "kernels/rows/rope_kv.h"
#include "kernels/rows/row_kernel.h"

namespace tactus::kernels {

const Ops& Avx2Ops() {
  static constexpr Ops kOps = {"avx2",   Linear,           RmsNorm,         Embed,           Rope,
                               StoreKv,  Attention,        SiluMul,         AddTo,           DequantizeRow,
                               PackAvx2, LinearPackedAvx2, GatedPackedAvx2, EmbedPackedAvx2, RopeStore};
  return kOps;
}

}  // namespace tactus::kernels
