// The kernel set of any machine: portable C++, 4 lanes wide.
#include "kernels/cpu/simd_portable.h"

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/fused_kernel.h"
#include "kernels/cpu/linear_entry.h"
#include "kernels/cpu/linear_kernel.h"
#include "kernels/cpu/packed_sets.h"
#include "kernels/cpu/rope_kv.h"
#include "kernels/cpu/row_kernel.h"

namespace tactus::kernels {

const Ops& PortableOps() {
  static constexpr Ops kOps = {"scalar",
                               Linear,
                               RmsNorm,
                               Embed,
                               Rope,
                               StoreKv,
                               Attention,
                               SiluMul,
                               AddTo,
                               DequantizeRow,
                               PackPortable,
                               LinearPackedPortable,
                               GatedPackedPortable,
                               EmbedPackedPortable,
                               RopeStore};
  return kOps;
}

}  // namespace tactus::kernels
