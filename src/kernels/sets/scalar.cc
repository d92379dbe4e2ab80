// The kernel set of any machine: portable C++, 4 lanes wide.
#include "kernels/attention/kernel.h"
#include "kernels/packed/operators.h"
#include "kernels/rows/fused_kernel.h"
#include "kernels/rows/linear_entry.h"
#include "kernels/rows/linear_kernel.h"
#include "kernels/rows/rope_kv.h"
#include "kernels/rows/row_kernel.h"
#include "kernels/simd/portable.h"

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
