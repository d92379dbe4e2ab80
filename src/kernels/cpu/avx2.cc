// The kernel set of machines with AVX2, FMA and F16C (compiled for them).
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/fused_kernel.h"
#include "kernels/cpu/linear_entry.h"
#include "kernels/cpu/linear_kernel.h"
#include "kernels/cpu/packed_sets.h"
#include "kernels/cpu/rope_kv.h"
#include "kernels/cpu/row_kernel.h"

namespace tactus::kernels {

const Ops& Avx2Ops() {
  static constexpr Ops kOps = {"avx2",   Linear,           RmsNorm,         Embed,           Rope,
                               StoreKv,  Attention,        SiluMul,         AddTo,           DequantizeRow,
                               PackAvx2, LinearPackedAvx2, GatedPackedAvx2, EmbedPackedAvx2, RopeStore};
  return kOps;
}

}  // namespace tactus::kernels
